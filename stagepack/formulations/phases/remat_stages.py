"""Recomputation in any graph, any number of times: what is computed again before which backward.

Stage l is what runs just before the backward pass of layer l: layers computed again, in order,
each at most once; stages follow one another from n - 1 to 0.  The tensor that layer i writes is
retained over intervals: from the forward pass, or from a stage that computes it again, to the last
use before the next.

Sets
    l, j     stages, and layers j <= l
    R_i      layers that read x_{i+1}, which layer i writes
Parameters
    those of :mod:`.remat`
Variables
    r_lj     layer j is computed again in stage l
    p_li     x_{i+1} is on chip when stage l begins, for a use in it or later (i < l)
    q_lj     the tape of layer j is on chip when stage l begins (j <= l)
    u_lik    in stage l, x_{i+1} is still there after the first k of its readers have run again
    s_i      the products of layer i are paged out in the forward pass, and in again
    g_li     x_{i+1} is paged in in stage l; v_lik: it was, for one of the first k readers
Objective
    minimise cycles computed again (the whole time where layers page)
Constraints
    often     sum over l of r_lj <= recomputations, 0 where s_j
    use       p_li + r_li + g_li >= 1 where l reads x_{i+1}; >= r_lj where j does
    retain    p_{l-1,i} <= p_li + r_li + g_li
    once      p_li >= q_li - q_{n-1,i} + sum over k > l of g_ki
              (with one recomputation q_li - q_{n-1,i} is the sum over k > l of r_ki, and what is
              made again or paged in lasts to its last use)
    tape      q_jj >= 1 - s_j - r_jj, q_lj >= q_{l-1,j} - r_lj; equal with one recomputation
    gaps      u_lik >= p_{l-1,i}, u_lik >= r_lj for the readers j from the k-th on
    pages     sum over l of g_li = s_i, p_li >= sum over k > l of g_ki
    run       in a chain, with one recomputation: p_{n-1,i} <= q_{n-1,i}, r_li <= r_{l,i+1} where l
              > i + 1; nothing is made again in its own stage that the next layer reads
    memory    at each forward layer, each layer computed again, each backward layer
    cutoff    objective <= upper
Size
    n^2 / 2 columns r, p and q each (g, too, where layers page), one u for each reader and stage
    beyond the first; about 2 n^2 rows in a chain
Source
    stages: Checkmate (Jain et al., MLSys 2020); retention: MOCCASIN (Bartan et al., ICML 2023);
    paging: POET (Patil et al., ICML 2022); gaps, and the rows for one recomputation, are ours

Only r, s and g are decisions: the rest is integral at the least values that these allow.  In a
chain, with one recomputation, sequences follow from the policies: a maximal run of dropped layers
is made again just before the backward pass of the layer after it.
"""

from __future__ import annotations

import numpy as np

from stagepack.formulations.phases.remat import Step, as_bits
from stagepack.formulations.phases.remat_cost import Cost
from stagepack.formulations.whole import Terms, WholeProgram, add
from stagepack.instances.phases.data import PhaseSolution, Policy
from stagepack.instances.profile import Array


class RematStages:
    """The stage program; `infeasible`: there is no plan.

    What takes longer than `upper`, the cycles of a known plan, may be cut off, nothing else is.
    """

    def __init__(self, step: Step, upper: int | None) -> None:
        self.step, self.program = step, WholeProgram()
        self.infeasible = step.infeasible
        if not self.infeasible:
            self.cost = Cost(step, self.program)
            self._build()
            self.cost.close(upper)
            self.infeasible = self.program.contradiction

    def _build(self) -> None:
        """Add the choices and what ties them."""
        self.once = self.step.instance.recomputations == 1
        self.in_runs = self.once and self.step.instance.chain
        self._decisions()
        self._often()
        if self.in_runs:
            self._run()
        self._use()
        self._retain()
        self._tape()
        self._gaps()
        self._forward_memory()
        for stage in range(self.step.n):
            self._stage_memory(stage)

    # ------------------------------------------------------------------ variables

    def _decisions(self) -> None:
        """Make the variables of what is computed, and of what is there, in each stage."""
        step, n = self.step, self.step.n
        # What nobody reads, or has no bytes, is never missed.
        self.read = [i for i in range(n) if step.readers[i + 1]]
        self.r: dict[tuple[int, int], int] = {}
        self.s: dict[int, int] = {}
        self.g: dict[tuple[int, int], int] = {}
        self.p: dict[tuple[int, int], int] = {}
        self.q: dict[tuple[int, int], int] = {}
        for j in range(n):
            if not step.products[j]:
                continue
            if step.allowed[Policy.RECOMPUTE]:
                for stage in self._stages(j):
                    self.r[stage, j] = self.cost.column(step.forward[j], 0)
            if step.allowed[Policy.STASH]:
                self.s[j] = self.cost.column(0, step.products[j])
                if step.readers[j + 1]:
                    for stage in range(j + 1, n):
                        self.g[stage, j] = self.program.column()
        for i in self.read:
            for stage in range(i + 1, n):
                self.p[stage, i] = self.program.column(integral=False)
        # Where a layer is computed again once at most, q tells for its output, too.
        for j in range(n):
            if step.tape[j] or (self.once and step.products[j]):
                for stage in range(j, n):
                    self.q[stage, j] = self.program.column(integral=False)

    def _stages(self, j: int) -> range:
        """Return the stages in which layer j may be computed again."""
        step = self.step
        if self.in_runs:
            return range(j + 1, step.n) if step.readers[j + 1] else range(j, j + 1)
        # In its own stage for its tape alone, or because it must not be kept.
        alone = step.tape[j] or not step.allowed[Policy.KEEP]
        return range(j if alone else j + 1, step.n)

    def _present(self, stage: int, i: int) -> Terms:
        """Return p + r + g: whether x_{i+1} is there, or made there, in a stage."""
        keys = (self.p.get((stage, i)), self.r.get((stage, i)), self.g.get((stage, i)))
        return {column: 1 for column in keys if column is not None}

    def _readers(self, stage: int, i: int) -> list[int]:
        """Return the readers of x_{i+1} that can run again in a stage, and its own layer."""
        return [
            v
            for v in self.step.readers[i + 1]
            if v == stage or (v < stage and (stage, v) in self.r)
        ]

    # ------------------------------------------------------------------ constraints

    def _often(self) -> None:
        step = self.step
        most = step.instance.recomputations
        for j in range(step.n):
            if not step.products[j]:
                continue
            terms = {self.r[at, j]: 1 for at in range(j, step.n) if (at, j) in self.r}
            if not step.allowed[Policy.KEEP]:
                self.program.row(terms | ({self.s[j]: 1} if j in self.s else {}), low=1)
            if j in self.s:
                terms = terms | {self.s[j]: most}
            self.program.row(terms, high=most)

    def _run(self) -> None:
        """Let runs of a chain be made again as a whole, just before the layer after them."""
        last = self.step.n - 1
        for i in self.read:
            if i < last:
                self.program.row({self.p[last, i]: 1, self.q[last, i]: -1}, high=0)
            for stage in range(i + 2, last + 1):
                if (stage, i) in self.r:
                    terms = {self.r[stage, i]: 1}
                    if (stage, i + 1) in self.r:
                        terms[self.r[stage, i + 1]] = -1
                    self.program.row(terms, high=0)

    def _use(self) -> None:
        step, row = self.step, self.program.row
        for i in self.read:
            for stage in range(i + 1, step.n):
                here = self._present(stage, i)
                if stage in step.readers[i + 1]:
                    row(here, low=1, high=1 if self.once else None)
                for v in step.readers[i + 1]:
                    if (stage, v) in self.r:
                        row(here | {self.r[stage, v]: -1}, low=0)

    def _retain(self) -> None:
        step, row = self.step, self.program.row
        for i in self.read:
            pages: Terms = {}
            for stage in range(step.n - 1, i, -1):
                p = self.p[stage, i]
                if stage - 1 > i:
                    row(self._present(stage, i) | {self.p[stage - 1, i]: -1}, low=0)
                if self.once and stage < step.n - 1:
                    # Paged in or made again before, it lasts.
                    made = {self.q[stage, i]: 1, self.q[step.n - 1, i]: -1}
                    row(made | pages | {p: -1}, high=0)
                elif pages:
                    row(pages | {p: -1}, high=0)
                if (stage, i) in self.g:
                    pages[self.g[stage, i]] = 1
            if pages:
                row(pages | {self.s[i]: -1}, low=0, high=0)
                first = self.p[step.n - 1, i]
                row({first: 1, self.s[i]: 1}, high=1)

    def _tape(self) -> None:
        for (stage, j), q in self.q.items():
            terms = {q: 1}
            if (stage, j) in self.r:
                terms[self.r[stage, j]] = 1
            high = None
            if stage > j:
                terms[self.q[stage - 1, j]] = -1
            elif j in self.s:
                terms[self.s[j]] = 1
            if self.once:
                high = int(stage == j)
            self.program.row(terms, low=int(stage == j), high=high)

    def _gaps(self) -> None:
        """Columns u and v: tensors that the stage's own layer does not read, or that are paged."""
        step, row = self.step, self.program.row
        self.u: dict[tuple[int, int, int], int] = {}
        self.v: dict[tuple[int, int, int], int] = {}
        for i in self.read:
            for stage in range(i + 1, step.n):
                readers = self._readers(stage, i)
                g = self.g.get((stage, i))
                for k, reader in enumerate(readers if g is not None else ()):
                    if reader == stage and (stage, stage) not in self.r:
                        continue
                    v = self.v[stage, i, k + 1] = self.program.column(integral=False)
                    assert g is not None
                    row({v: 1, g: -1, self.r[stage, reader]: -1}, low=-1)
                    if k:
                        row({v: 1, self.v[stage, i, k]: -1}, low=0)
                if stage in readers:
                    continue
                for k in range(len(readers) - 1, 0, -1):
                    u = self.u[stage, i, k] = self.program.column(integral=False)
                    # Before its first use a tensor paged in here is not there: v counts it.
                    paged = {} if g is None else {g: 1}
                    row({u: 1, self.r[stage, readers[k]]: -1} | paged, low=0)
                    if k + 1 < len(readers):
                        row({u: 1, self.u[stage, i, k + 1]: -1}, low=0)
                    if stage - 1 > i:
                        row({u: 1, self.p[stage - 1, i]: -1} | paged, low=0)

    def _forward_memory(self) -> None:
        """State the memory of the forward part."""
        step = self.step
        last = step.n - 1
        for j in range(step.n):
            fixed = step.x[j + 1] + step.tape[j] + step.temporary[j]
            terms: Terms = {}
            for i in range(j):
                if (last, i) in self.p and step.readers[i + 1][-1] < j:
                    add(terms, self.p[last, i], step.x[i + 1])
                elif step.readers[i + 1]:
                    fixed += step.x[i + 1]
                if (last, i) in self.q:
                    add(terms, self.q[last, i], step.tape[i])
            self.program.row(terms, high=step.room - fixed)

    def _stage_memory(self, stage: int) -> None:
        """What is live while layers are computed again in a stage, and at its backward pass."""
        step = self.step
        for j in range(stage + 1):
            if (stage, j) not in self.r:
                continue
            terms: Terms = {}
            add(terms, self.r[stage, j], step.temporary[j])
            if not step.readers[j + 1] or j == stage:
                add(terms, self.r[stage, j], step.x[j + 1])
            for i in range(stage + 1):
                if i < stage and step.readers[i + 1]:
                    for column in self._live(stage, i, j):
                        add(terms, column, step.x[i + 1])
                if step.tape[i]:
                    # Made again in this stage, it is there for good only if never made again.
                    add(terms, self.q[stage - 1 if i < j else stage, i], step.tape[i])
                    if i == j:
                        add(terms, self.r[stage, i], step.tape[i])
            self.program.row(terms, high=step.room - step.gradients_before[stage])
        fixed = step.gradients[stage] + step.temporary[stage] + step.tape[stage]
        terms = {}
        for i in range(stage):
            if stage in step.readers[i + 1]:
                fixed += step.x[i + 1]
            elif step.readers[i + 1]:
                add(terms, self.p[stage - 1, i], step.x[i + 1])
            if step.tape[i]:
                add(terms, self.q[stage - 1, i], step.tape[i])
        self.program.row(terms, high=step.room - fixed)

    def _live(self, stage: int, i: int, j: int) -> list[int]:
        """Return columns whose sum says whether x_{i+1} is live while layer j runs again."""
        p, r = self.p[stage, i], self.r.get((stage, i))
        if i >= j:
            return [p] if r is None or i > j else [p, r]
        readers = self._readers(stage, i)
        done = sum(v < j for v in readers)
        begun = sum(v <= j for v in readers)
        paged = [self.v[stage, i, begun]] if (stage, i, begun) in self.v else []
        if done == 0 or stage in readers:
            return [p, *([] if r is None else [r]), *paged]
        if done < len(readers):
            return [self.u[stage, i, done], *paged]
        if stage - 1 <= i:
            return paged
        # Nothing reads it again in this stage: it is there if the next one finds it.
        return [self.p[stage - 1, i]]

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values."""
        step = self.step
        bits = as_bits(values)
        recompute: list[tuple[int, ...]] = [
            tuple(j for j in range(at + 1) if (at, j) in self.r and bits[self.r[at, j]])
            for at in range(step.n)
        ]
        again = {j for run in recompute for j in run}
        policy = []
        for j in range(step.n):
            if j in again:
                policy.append(Policy.RECOMPUTE)
            elif j in self.s and bits[self.s[j]]:
                policy.append(Policy.STASH)
            else:
                policy.append(step.idle_policy(j))
        return step.plan(policy, None if self.in_runs else recompute)

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the values of a plan, each retained no longer than needed.

        Raises `ValueError` when it is not in the program.
        """
        step, n = self.step, self.step.n
        values = np.zeros(len(self.program.cost))
        runs = [set(run) for run in solution.recomputed(step.instance)]
        for stage, run in enumerate(runs):
            for j in run:
                if (stage, j) in self.r:
                    values[self.r[stage, j]] = 1
                elif step.products[j] and (stage > j or step.tape[j]):
                    raise ValueError(f"layer {j} again before layer {stage} is not in the program")
        for j in range(n):
            if solution.policy[j] == Policy.STASH and step.products[j]:
                values[self.s[j]] = 1
        for i in self.read:
            paged = i in self.s and values[self.s[i]] > 0.5
            uses = [
                stage in step.readers[i + 1]
                or any((stage, v) in self.r and v in runs[stage] for v in step.readers[i + 1])
                for stage in range(n)
            ]
            if paged:
                come = max(stage for stage in range(i + 1, n) if uses[stage])
                values[self.g[come, i]] = 1
                for stage in range(i + 1, come):
                    values[self.p[stage, i]] = 1
                continue
            wanted = False
            for stage in range(i + 1, n):
                wanted = (wanted or uses[stage]) and i not in runs[stage]
                values[self.p[stage, i]] = wanted
        for (stage, j), q in self.q.items():
            made = any(j in runs[at] for at in range(j, stage + 1))
            values[q] = not made and not (j in self.s and values[self.s[j]])
        for (stage, i, k), u in self.u.items():
            g = self.g.get((stage, i))
            still = stage - 1 > i and values[self.p[stage - 1, i]] and not (g and values[g])
            later = any(values[self.r[stage, v]] for v in self._readers(stage, i)[k:])
            values[u] = still or later
        for (stage, i, k), v in self.v.items():
            begun = any(values[self.r[stage, w]] for w in self._readers(stage, i)[:k])
            values[v] = begun and values[self.g[stage, i]]
        return self.cost.hint(values)
