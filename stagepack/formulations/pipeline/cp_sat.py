"""CP-SAT: one integer variable for each cut, looked up in the tables of the chain.

Sets
    I = 0..k-1       slots in pipeline order: the devices, or in a free order (and with like
                     devices of which some may stay unused) the stages, unused slots first
    J = 0..k         cuts; slot i runs the stage [c_i, c_(i+1))
    D_i              classes of device that may run slot i
Parameters
    work_d[c]        ticks of the layers before cut c on class d
    recv_d[c], send_d[c]   ticks to receive at cut c, to send at cut c
    reach_dr[c]      furthest end of a stage that begins at c and fits class d, with r
                     microbatches stashed (and computes no more than `upper` allows)
    m                microbatches stashed at most
    P, Q             lower bounds on the largest compute and transfer
Variables
    c_j              cut j, out of the allowed cuts that both ends of the chain can reach
    used_i           slot i is not empty (where it may be)
    z_id             class d runs slot i (where there is a choice)
    r_i              min(m, non-empty slots from i on) (where that is not known)
    w_jd, in_jd, out_jd    work, receive and send of class d, looked up at cut j
    e_idr            reach of slot i, looked up at cut i
    C, T             largest compute and transfer (T for `transfer-bounded` only); C is the largest
                     compute + receive + send for `sum`, the largest of the three for `overlap`,
                     the sum of t_i for `latency`
    t_i              compute + receive + send of slot i (`latency` only)
Objective
    minimise  C + T
Constraints
    cuts             c_0 = 0, c_k = n, c_i < c_(i+1) where used_i, else c_i = c_(i+1)
    devices          sum of z_id over d = used_i; sum of z_id over i <= devices of class d
    stashes          r_i = min(m, sum of used_q over q >= i)
    lookup           w_jd = work_d[c_j], in_jd = recv_d[c_j], out_jd = send_d[c_j]
    memory           c_(i+1) <= e_idr where class d runs slot i and stashes r
    compute          C >= w_(i+1)d - w_id (and what the objective adds) where class d runs slot i
    transfer         T >= in_id + out_(i+1)d where class d runs slot i
    latency          t_i >= the three of class d where it runs slot i, C >= sum of t_i
    spread           the first j slots hold at most j C of work, the others at most (k - j) C
With tables, one `stages` constraint a slot replaces memory and work: the allowed tuples
(class, r_i, c_i, c_(i+1), compute).
Size
    k + 1 cuts and, a slot and class that may run it, up to four looked up values with a table of up
    to n + 1 entries each: variables and constraints grow with k and the classes, not with n; with
    tables of ranges, up to n^2 / 2 tuples a slot and class
Source
    ours; the objective `transfer-bounded` is that of the seed (Auto Pipeline)

A fixed cut needs no constraint: `reach` never leads past one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, assert_never

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR
from stagepack.formulations.pipeline.frame import (
    Slot,
    StageValues,
    constant_ticks,
    fitting_stages,
    furthest_ends,
    reachable,
    stashed_microbatches,
    transfers_count,
)
from stagepack.formulations.pipeline.model import PipelineModel
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order import assign_devices
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import Constraint, CpModel, IntVar, LinearExpr

FEW_COSTS = 2_000
"""Stages with so many different costs have the largest of them chosen from a list."""

LARGEST_TABLE = 3_000_000
"""Tuples beyond which a model with tables is refused."""

LOADING = 3e-5
"""Seconds that CP-SAT takes to load an entry of a lookup; it neither asks nor counts meanwhile."""

LOADING_TUPLES = 4e-5
"""Seconds that it takes to load an allowed tuple."""

MOST_ENDS = 8
"""Furthest ends of so many pairs of class and stashes are kept for the next slots."""


class CpSat(PipelineModel):
    """The cut model as a `cp_model.CpModel`; expresses every instance.

    One step is the greatest common divisor of all costs, or more when the engine could not compute
    exactly with costs that large (`exact` is False then: a solution is optimal to within two
    steps, and its bound says so).

    Parameters and other attributes are those of :class:`PipelineModel`.
    """

    model: CpModel

    def build(self) -> None:
        """Build the model, or find out that the ends of the chain do not meet."""
        costs = self.costs
        self._most_stashed = stashed_microbatches(costs)
        self._counts = np.bincount(costs.device_class, minlength=costs.classes).tolist()
        self.slots = self._make_slots()
        self.least, self.limits, self.cuts = reachable(costs, self.slots, self.upper)
        self.infeasible = self.cuts is None
        if not self.infeasible:
            self._set_units()
            self._build_model()

    @staticmethod
    def unsupported(instance: PipelinePartition) -> str:
        """Return why this model cannot express the instance, '' if it can."""
        bounded = Objective.TRANSFER_BOUNDED
        if instance.reduces and instance.objective is bounded:
            return "T knows no reductions of tied weights; use dp or milp-interval"
        if instance.objective is Objective.MOVES and instance.limited is bounded:
            return f"it knows no moves within a limit on {bounded}; use dp"
        return ""

    # ------------------------------------------------------------------ what is known beforehand

    def _make_slots(self) -> list[Slot]:
        """Return who may run each slot; the stashes of an option are -1 where r_i is a variable."""
        instance, k = self.costs.instance, self.costs.k
        alike = self.costs.classes == 1
        self._choice = instance.free_order and not alike
        # Unused slots come first when slots are stages, not devices: then the number of
        # non-empty slots from i on is k - i.
        self._leading = instance.fewer_stages and (alike or self._choice)
        idle = "" if not instance.fewer_stages else "start" if self._leading else "any"
        self._counted = idle == "any" and self._most_stashed > 1
        slots = []
        for i in range(k):
            classes = range(self.costs.classes) if self._choice else [self.costs.device_class[i]]
            most = min(self._most_stashed, k - i)
            some = range(1, most + 1) if self._counted else [most]
            last = i == k - 1 and idle == "start"
            slots.append(
                Slot(tuple((int(c), r) for c in classes for r in some), "" if last else idle)
            )
        return slots

    def _set_units(self) -> None:
        """Choose the unit: the gcd of all costs that count, or a coarser one."""
        costs, allowed = self.costs, np.flatnonzero(self.costs.allowed)
        stages = costs.k if self.additive else 1
        if costs.tabular:
            tables = [costs.compute_matrix(c)[np.triu_indices(costs.n + 1, 1)] for c in self._used]
            divisors = [int(np.gcd.reduce(table)) for table in tables]
            most = max(int(table.max()) for table in tables) * stages
        else:
            divisors = [int(np.gcd.reduce(np.diff(costs.prefix[c, allowed]))) for c in self._used]
            # Of moves, no device is the dearest for all layers.
            most = int(np.diff(costs.prefix, axis=1).max(axis=0).sum())
        if transfers_count(costs):
            for rows in (costs.recv, costs.send):
                divisors += [int(np.gcd.reduce(rows[c, allowed])) for c in self._used]
                most += int(rows.max()) * stages
        self.set_unit(math.gcd(*divisors), most, LARGEST_FACTOR)
        self._most = -(-most // self.unit)

    @property
    def _used(self) -> range:
        return range(self.costs.classes)

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        from ortools.sat.python import cp_model

        self._cp = cp_model
        self.model = cp_model.CpModel()
        self._lookups: dict[tuple[str, int, int], tuple[IntVar, int, Array]] = {}
        self._tables: dict[tuple[str, int], Array] = {}
        self._literals: dict[tuple[int, int], IntVar] = {}
        self.t: list[IntVar] = []
        self._cuts()
        self._devices()
        self._stashes()
        self._objective()
        if self.costs.tabular:
            self._stages()
        else:
            self._memory()
        if self.additive:
            self._latency()
        else:
            self._compute()
        if self.bounded:
            self._transfer()
        if not self.costs.tabular:
            self._spread()
        self.loading += LOADING * sum(len(window) for _, _, window in self._lookups.values())

    def _cuts(self) -> None:
        """c_0 = 0, c_k = n, c_i < c_(i+1) where used_i, else c_i = c_(i+1)."""
        assert self.cuts is not None
        model, domain = self.model, self._cp.Domain
        self.c = [
            model.new_int_var_from_domain(domain.from_values(places.tolist()), f"c{j}")
            for j, places in enumerate(self.cuts)
        ]
        self.used: list[IntVar | None] = []
        for i, slot in enumerate(self.slots):
            begin, end = self.c[i], self.c[i + 1]
            if not slot.idle:
                self.used.append(None)
                model.add(end >= begin + 1)
                continue
            used = model.new_bool_var(f"used{i}")
            self.used.append(used)
            model.add(end >= begin + 1).only_enforce_if(used)
            model.add(end == (0 if self._leading else begin)).only_enforce_if(~used)
            if self._leading and i and (before := self.used[i - 1]) is not None:
                model.add_implication(before, used)

    def _devices(self) -> None:
        """Sum of z_id over d = used_i; sum of z_id over i <= devices of class d."""
        model = self.model
        self.z: list[Mapping[int, IntVar | None]] = []
        chosen: list[dict[int, IntVar]] = []
        for i, slot in enumerate(self.slots):
            classes = sorted({c for c, _ in slot.options})
            if not self._choice:
                self.z.append({classes[0]: self.used[i]})
                continue
            chosen.append({c: model.new_bool_var(f"z{i},{c}") for c in classes})
            model.add(sum(chosen[i].values()) == (1 if self.used[i] is None else self.used[i]))
        if self._choice:
            for c, count in enumerate(self._counts):
                model.add(sum(z[c] for z in chosen) <= count)
            self.z += chosen

    def _stashes(self) -> None:
        """r_i = min(m, sum of used_q over q >= i)."""
        self.r: list[IntVar] = []
        if not self._counted:
            return
        for i in range(self.costs.k):
            most = min(self._most_stashed, self.costs.k - i)
            r = self.model.new_int_var(0, most, f"r{i}")
            self.model.add_min_equality(
                r, [self._most_stashed, sum(1 if u is None else u for u in self.used[i:])]
            )
            self.r.append(r)

    def _objective(self) -> None:
        """Minimise C + T."""
        model, low = self.model, [-(-ticks // self.unit) for ticks in self.least]
        spare = 2 * self._most
        if self.upper is not None:
            most = self.upper - constant_ticks(self.costs) + self.loss
            spare = min(spare, most // self.unit)
        tops = [max(low[0], spare - low[1]), max(low[1], spare - low[0])]
        self.C = self._largest("C", low[0], tops[0])
        self.T = None
        if self.bounded:
            self.T = self._largest("T", low[1], tops[1])
            if self.upper is not None:
                model.add(spare - self.C - self.T >= 0)
        model.minimize(self.C if self.T is None else self.C + self.T)

    def _largest(self, name: str, low: int, high: int) -> IntVar:
        """Return C or T: where stages have few costs, one of these.

        One thread was seen to raise a bound of 2**40 by ones, for minutes, where nothing said so.
        """
        high = min(high, self._most)
        costs = None
        if self.values is not None:
            costs = self.values.compute if name == "C" else self.values.transfer
        if costs is None or len(costs) > FEW_COSTS:
            return self.model.new_int_var(low, high, name)
        steps = distinct(-(-costs // self.unit))
        some = steps[(steps >= low) & (steps <= high)].tolist()
        domain = self._cp.Domain.from_values(some or [high])
        return self.model.new_int_var_from_domain(domain, name)

    def _lookup(self, name: str, j: int, c: int, table: Array) -> IntVar | int:
        """Return a variable for table[c_j], shape of the table (n + 1,), in the model's units."""
        assert self.cuts is not None
        key = (name, j, c)
        if key in self._lookups:
            return self._lookups[key][0]
        places = self.cuts[j]
        first, last = int(places[0]), int(places[-1])
        values = table[places]
        if values.min() == values.max():
            return int(values[0])
        domain = self._cp.Domain.from_values(distinct(values).tolist())
        variable = self.model.new_int_var_from_domain(domain, f"{name}{j},{c}")
        # Cuts that are out of the question must not widen the lookup.
        window = np.clip(table[first : last + 1], values.min(), values.max())
        self.model.add_element(self.c[j] - first, window.tolist(), variable)
        self._lookups[key] = variable, first, window
        return variable

    def _in_units(self, name: str, c: int) -> Array:
        """Return work, receive or send of class c at each cut, in the model's units."""
        if (name, c) not in self._tables:
            costs = self.costs
            row = {"w": costs.prefix, "in": costs.recv, "out": costs.send}[name][c]
            self._tables[name, c] = row if self.unit == 1 else row // self.unit
        return self._tables[name, c]

    def _stages(self) -> None:
        """Allowed tuples (class, r_i, c_i, c_(i+1), compute) of every slot."""
        costs, model = self.costs, self.model
        self.stage_class: list[IntVar] = []
        self.stage_ticks: list[IntVar] = []
        total = 0
        for i, slot in enumerate(self.slots):
            rows = self._stage_tuples(i, slot)
            total += len(rows)
            if total > LARGEST_TABLE:
                raise InputError(
                    f"the CP-SAT model needs more than {LARGEST_TABLE:,} tuples",
                    field="model",
                    remedy="give a good solution first (it removes tuples), or use `dp`",
                )
            number = model.new_int_var(0, costs.classes, f"class{i}")
            ticks = model.new_int_var(0, self._most, f"compute{i}")
            runs = {c: 1 if z is None else z for c, z in self.z[i].items()}
            model.add(number == sum((c + 1) * z for c, z in runs.items()))
            columns = [number, self.c[i], self.c[i + 1], ticks]
            if self._counted:
                columns.insert(1, self.r[i])
            model.add_allowed_assignments(columns, rows.tolist())
            self.stage_class.append(number)
            self.stage_ticks.append(ticks)
        self.loading = LOADING_TUPLES * total

    def _stage_tuples(self, i: int, slot: Slot) -> Array:
        """Return the allowed (class + 1, r_i if a variable, c_i, c_(i+1), compute) as rows."""
        assert self.cuts is not None
        begins, ends, tuples = self.cuts[i], self.cuts[i + 1], []
        for c, r in slot.options:
            stage = fitting_stages(self.costs, c, r, self.limits.compute)
            a, b = np.nonzero(stage[np.ix_(begins, ends)])
            a, b = begins[a], ends[b]
            ticks = self.costs.compute_matrix(c)[a, b] // self.unit
            tuples.append(np.stack([np.full(len(a), c + 1), np.full(len(a), r), a, b, ticks]))
        if slot.idle:
            place = np.intersect1d(begins, ends)
            none = np.zeros_like(place)
            most = min(self._most_stashed, self.costs.k - i)
            tuples += [np.stack([none, none + r, place, place, none]) for r in range(most + 1)]
        rows = np.concatenate(tuples, axis=1).T
        kept = [0, 1, 2, 3, 4] if self._counted else [0, 2, 3, 4]
        return np.unique(rows[:, kept], axis=0)

    def _memory(self) -> None:
        """c_(i+1) <= e_idr where class d runs slot i and stashes r."""
        assert self.cuts is not None
        ends_of = lru_cache(MOST_ENDS)(
            lambda c, r: furthest_ends(self.costs, c, r, self.limits.compute)
        )
        for i, slot in enumerate(self.slots):
            far = int(self.cuts[i + 1][-1])
            for c in sorted(self.z[i]):
                stashes = [r for d, r in slot.options if d == c]
                for r in stashes:
                    ends = ends_of(c, r)
                    if ends[self.cuts[i]].min() >= far:
                        continue
                    reach = self._lookup(f"e{r}_", i, c, np.minimum(ends, far))
                    when = [] if self.z[i][c] is None else [self.z[i][c]]
                    if self._counted:
                        when.append(self._equals(i, r))
                    bound = self.model.add(self.c[i + 1] <= reach)
                    if when:
                        bound.only_enforce_if(when)

    def _equals(self, i: int, r: int) -> IntVar:
        """Return the literal r_i = r, made on demand."""
        if (i, r) not in self._literals:
            literal = self.model.new_bool_var(f"r{i}={r}")
            self.model.add(self.r[i] == r).only_enforce_if(literal)
            self.model.add(self.r[i] != r).only_enforce_if(~literal)
            self._literals[i, r] = literal
        return self._literals[i, r]

    def _work(self, i: int, c: int) -> LinearExpr | int:
        """Return the compute of slot i on class c: looked up in the stages, or w_(i+1) - w_i."""
        if self.costs.tabular:
            return self.stage_ticks[i]
        table = self._in_units("w", c)
        return self._lookup("w", i + 1, c, table) - self._lookup("w", i, c, table)

    def _recv(self, i: int, c: int) -> LinearExpr | int:
        return self._lookup("in", i, c, self._in_units("in", c))

    def _send(self, i: int, c: int) -> LinearExpr | int:
        return self._lookup("out", i + 1, c, self._in_units("out", c))

    def _stage_terms(self, i: int, c: int) -> list[LinearExpr | int]:
        """Return what C must not undercut when class c runs slot i."""
        work = self._work(i, c)
        match self.costs.instance.objective:
            case Objective.SUM | Objective.LATENCY | Objective.MOVES:
                return [work + self._recv(i, c) + self._send(i, c)]
            case Objective.OVERLAP:
                return [work, self._recv(i, c), self._send(i, c)]
            case Objective.BOTTLENECK | Objective.TRANSFER_BOUNDED | Objective.HEADROOM:
                return [work]
            case unknown:
                assert_never(unknown)

    def _compute(self) -> None:
        """C >= w_(i+1)d - w_id (and what the objective adds) where class d runs slot i."""
        plain = self.bounded or not transfers_count(self.costs)
        for i, choices in enumerate(self.z):
            for c, literal in choices.items():
                # An empty slot computes nothing, but would seem to receive and send.
                always = literal is None or (plain and not self._choice)
                for term in self._stage_terms(i, c):
                    bound = self._at_least(self.C, term)
                    if bound is not None and not always:
                        bound.only_enforce_if(literal)

    def _latency(self) -> None:
        """t_i >= compute + receive + send of class d where it runs slot i, C >= sum of t_i."""
        for i, choices in enumerate(self.z):
            self.t.append(self.model.new_int_var(0, self._most, f"t{i}"))
            for c, literal in choices.items():
                bound = self._at_least(self.t[i], *self._stage_terms(i, c))
                if bound is not None and literal is not None:
                    bound.only_enforce_if(literal)
        self.model.add(sum(self.t) <= self.C)

    def _transfer(self) -> None:
        """T >= in_id + out_(i+1)d where class d runs slot i."""
        assert self.T is not None
        for i, choices in enumerate(self.z):
            for c, literal in choices.items():
                bound = self._at_least(self.T, self._recv(i, c) + self._send(i, c))
                if bound is not None and literal is not None:
                    bound.only_enforce_if(literal)

    def _at_least(self, largest: IntVar, term: LinearExpr | int) -> Constraint | None:
        """Add largest >= term, unless it goes without saying."""
        if isinstance(term, int) and term <= 0:
            return None
        return self.model.add(largest >= term)

    def _spread(self) -> None:
        """The first j slots hold at most j C of work, the others at most (k - j) C."""
        costs, k = self.costs, self.costs.k
        # The work of a span on its fastest class, so that it holds whoever runs it.
        places = np.flatnonzero(costs.allowed)
        least = np.zeros(costs.n + 1, dtype=np.int64)
        least[places[1:]] = np.cumsum(np.diff(costs.prefix[:, places], axis=1).min(axis=0))
        least //= self.unit
        name, total = "w" if costs.classes == 1 else "f", int(least[-1])
        for j in range(1, k):
            work = self._lookup(name, j, 0, least)
            self.model.add(work <= j * self.C)
            self.model.add(total - work <= (k - j) * self.C)

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PipelineSolution:
        """Return the solution of values by variable index."""
        value = [round(float(values[c.index])) for c in self.c]
        boundaries, classes = [0], []
        for i in range(self.costs.k):
            if value[i] < value[i + 1]:
                boundaries.append(value[i + 1])
                classes.append(self._class_of(i, values))
        return assign_devices(self.costs.instance, boundaries, classes)

    def _class_of(self, i: int, values: Array) -> int:
        choices = self.z[i]
        if len(choices) == 1:
            return min(choices)
        places = {c: literal.index for c, literal in choices.items() if literal is not None}
        return int(max(places, key=lambda c: float(values[places[c]])))

    def hint(self, solution: PipelineSolution) -> Array:
        """Return the value of every variable, shape (variables,), for a solution.

        :class:`ValueError`: it cannot be in the model, cut where none may be, or worth more than
        `upper`.
        """
        assert self.cuts is not None
        k, slot_of = self.costs.k, self._slots_of(solution)
        cuts, running = [0], dict(zip(slot_of, solution.stages, strict=True))
        for i in range(k):
            cuts.append(running[i][1] if i in running else cuts[-1])
        if not all(cut in places for places, cut in zip(self.cuts, cuts, strict=True)):
            raise ValueError(f"{solution} is not in the model")
        values = np.zeros(len(self.model.proto.variables), dtype=np.int64)
        for j, cut in enumerate(self.c):
            values[cut.index] = cuts[j]
        for i in range(k):
            device_class = int(self.costs.device_class[running[i][2]]) if i in running else -1
            if (used := self.used[i]) is not None:
                values[used.index] = i in running
            if self._choice:
                for c, z in self.z[i].items():
                    if z is not None:
                        values[z.index] = c == device_class
            if self.costs.tabular:
                values[self.stage_class[i].index] = device_class + 1
                if i in running:
                    ticks = self.costs.compute(*running[i][:2], device_class) // self.unit
                    values[self.stage_ticks[i].index] = ticks
        for i, stashes in enumerate(self.r):
            values[stashes.index] = min(self._most_stashed, sum(slot >= i for slot in slot_of))
        for (i, r), literal in self._literals.items():
            values[literal.index] = values[self.r[i].index] == r
        for (_, j, _), (variable, first, window) in self._lookups.items():
            values[variable.index] = window[cuts[j] - first]
        most = self.largest(solution)
        for i, t in enumerate(self.t):
            values[t.index] = self._slot_steps(*running[i]) if i in running else 0
        steps = sum(int(values[t.index]) for t in self.t)
        values[self.C.index] = max(-(-most[0] // self.unit), steps)
        if self.T is not None:
            values[self.T.index] = -(-most[1] // self.unit)
        return values

    def _slot_steps(self, a: int, b: int, device: int) -> int:
        """Return what a stage costs altogether, in the model's units."""
        c = int(self.costs.device_class[device])
        if self.costs.tabular:
            work = self.costs.compute(a, b, c) // self.unit
        else:
            row = self._in_units("w", c)
            work = int(row[b] - row[a])
        return work + int(self._in_units("in", c)[a] + self._in_units("out", c)[b])

    def _slots_of(self, solution: PipelineSolution) -> Sequence[int]:
        """Return the slots of the stages, in order."""
        k, count = self.costs.k, len(solution.devices)
        if self._leading or self._choice:
            return range(k - count, k)
        return solution.devices if count < k else range(k)

    @cached_property
    def values(self) -> StageValues | None:
        """What C + T can be."""
        return StageValues.of(self.costs, self.limits.compute)

    def ticks(self, steps: int) -> int:
        """Return the ticks of C + T, which count from 0, less what a coarser unit has added."""
        return steps * self.unit - self.loss
