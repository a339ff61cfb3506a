"""The placement of blocks as linear rows: one program for CP-SAT and for MILP engines.

Sets
    V, N             blocks and nets; p(n) is the producer of net n
    S                slots (:mod:`.frame`); F_v..L_v those where block v can be
    C_s              classes of device that may run slot s
    E                pairs (u, v): the stage of u is not after that of v
Parameters
    time_vc, cost_n  steps of a block on a class, and of a net
    size_v, stash_v  bytes; bytes for each of the microbatches in flight
    K, m             number of slots; microbatches
Variables
    x_vs             block v is on slot s
    y_vs             ... or on an earlier one (where slots are in line)
    z_sc             a device of class c runs slot s (where there is a choice)
    into_ns, out_ns  net n is received by slot s, sent by it; one variable cut_ns where both count
                     alike
    used_s           slot s holds blocks (where it may be empty and that matters)
    g_sr             at least r slots from s on hold blocks (where that matters)
    m_sj             slot s runs on j devices (``replicated``)
    w_nst            net n is sent from s to t (where links are unlike)
    a_st             slot s comes before slot t (where slots are devices in any order)
    T_q              the largest load in pass q
Objective
    minimise         sum of T_q
Constraints
    place            sum over s of x_vs = 1; y_vs = y_v(s-1) + x_vs
    order            y_us >= y_vs for (u, v) in E; without a line, a_st >= x_us + x_vt - 1 and a is
                     an order
    class            sum over c of z_sc = 1, sum over s of z_sc = devices of class c;
                     x_vs + z_sc <= 1 where block v may not be on class c
    nets             into_ns >= x_vs - x_p(n)s and out_ns >= x_p(n)s - x_vs for the readers v
    load             T_q >= sum of time_vc x_vs + sum of cost_n cut_ns where class c runs slot s
                     (`overlap`: T_q >= each of the three sums)
    memory           sum of (size_v + r stash_v) x_vs <= memory of class c, where it runs slot s
                     with r microbatches in flight
    full             sum over v of x_vs >= 1 where no device may be empty
    alike            of slots that can be exchanged, the largest block is on the first one, the next
                     largest on one of the first two, and so on
Size
    |V| K places, up to 2 |N| K traffic variables and two rows for every reader and slot
Source
    Tarnawski et al., *Efficient Algorithms for Device Placement of DNN Graph Operators*, NeurIPS
    2020, for the load; the cumulative form, classes, stashes and replicas are ours
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import assert_never

import numpy as np

from stagepack.formulations.graph.frame import Frame
from stagepack.formulations.program import Program, Sum, total
from stagepack.instances.graph.problem import Objective

Expression = Sum[int] | int
WHOLE = (Objective.SUM, Objective.FORWARD_BACKWARD)
"""Objectives that add what is received to what is sent."""


class Placement:
    """The program of a frame, whose figures are in steps.

    `whole`: engines must see to it that T is whole; it is at some optimum.  The `program` also says
    whether there is a contradiction.  `x` has of each block, by slot, the column; `z` and `m` of
    each slot the column by class, and by number of replicas, empty where nothing is chosen; `load`
    the columns of T.
    """

    def __init__(self, frame: Frame, *, whole: bool = True) -> None:
        self.frame, self._whole = frame, whole
        self.program: Program[int] = Program()
        self.load: list[int] = []
        self.a: dict[tuple[int, int], Sum[int]] = {}
        self.m: list[dict[int, int]] = [{} for _ in range(frame.slots)]
        self._places()
        self._order()
        self._classes()
        self._fill()
        self._traffic()
        self._loads()
        self._memory()

    def _flag(self) -> Sum[int]:
        """Return a variable that is 0 or 1."""
        return self.program.variable()

    def _at(self, v: int, s: int) -> Expression:
        """Return x_vs, 0 where block v cannot be."""
        return Sum({self.x[v][s]: 1}) if s in self.x[v] else 0

    # ------------------------------------------------------------------ who is where

    def _places(self) -> None:
        """Put each block on one slot: x_vs, where it may be."""
        frame, program = self.frame, self.program
        first, last = (ends.tolist() for ends in frame.places)
        self.x = []
        for v in range(frame.compact.blocks):
            near = [
                s for s in range(first[v], last[v] + 1)
                if frame.turn[s] <= frame.rank[v]
                and any(frame.allowed[c, v] for c in frame.classes[s])
            ]  # fmt: skip
            self.x.append({s: program.column() for s in near})
            if not near:
                program.contradiction = True
                return
            program.row(dict.fromkeys(self.x[v].values(), 1), low=1, high=1)

    def _order(self) -> None:
        """Keep the order of stages, where there is one."""
        if self.program.contradiction:
            return
        if self.frame.in_line:
            self._in_line()
        elif self.frame.roaming:
            self._any_order()

    def _in_line(self) -> None:
        """y_us >= y_vs along every pair."""
        frame, program = self.frame, self.program
        bound = {v for pair in frame.precedence for v in pair}
        so_far: dict[int, list[Expression]] = {}
        for v in bound:
            row: list[Expression] = []
            for s in range(frame.slots):
                before = row[-1] if row else 0
                if s not in self.x[v]:
                    row.append(before)
                elif s == max(self.x[v]):
                    row.append(1)
                elif s == min(self.x[v]):
                    row.append(self._at(v, s))
                else:
                    y = self._flag()
                    summed = total((before, self._at(v, s)))
                    program.at_most(total((y, -1 * summed)), 0)
                    program.at_most(total((summed, -1 * y)), 0)
                    row.append(y)
            so_far[v] = row
        for u, v in frame.precedence:
            for s in range(frame.slots - 1):
                self._at_most(so_far[v][s], so_far[u][s])

    def _any_order(self) -> None:
        """An order of the slots; contiguous: in which no block is before what it reads."""
        slots = range(self.frame.slots)
        self.a = {pair: self._flag() for pair in permutations(slots, 2)}
        for s, t in self.a:
            if s < t:
                self.program.row({self.a[s, t].index: 1, self.a[t, s].index: 1}, low=1, high=1)
        for s, t, r in permutations(slots, 3):
            self._at_most(self.a[s, t] + self.a[t, r], 1 + self.a[s, r])
        for u, v in self.frame.precedence if self.frame.compact.contiguous else ():
            for s, t in self.a:
                self._at_most(total((self._at(u, s), self._at(v, t))), 1 + self.a[s, t])

    def _at_most(self, low: Expression, high: Expression) -> None:
        """Add low <= high unless it goes without saying."""
        if isinstance(low, Sum) or isinstance(high, Sum):
            self.program.at_most(low, high)
        elif low > high:
            self.program.contradiction = True

    def _classes(self) -> None:
        """Choose the class of each slot, where it is free: z_sc."""
        frame, program = self.frame, self.program
        self.z: list[dict[int, int]] = [{} for _ in range(frame.slots)]
        if program.contradiction or len(frame.classes[0]) == 1:
            return
        counts = frame.compact.class_count.tolist()
        self.z = [{c: program.column() for c in kinds} for kinds in frame.classes]
        for row in self.z:
            program.row(dict.fromkeys(row.values(), 1), low=1, high=1)
        for c, count in enumerate(counts):
            program.row({row[c]: 1 for row in self.z}, low=count, high=count)
        for v, c in zip(*np.nonzero(~frame.allowed.T), strict=True):
            for s, column in self.x[v].items():
                program.row({column: 1, self.z[s][int(c)]: 1}, high=1)

    def _fill(self) -> None:
        """Say which slots hold blocks, and which of like slots do so first."""
        frame, program = self.frame, self.program
        self.used: list[Sum[int] | None] = [None] * frame.slots
        if program.contradiction:
            return
        on = [[row[s] for row in self.x if s in row] for s in range(frame.slots)]
        if frame.compact.exact_stages and not frame.shared:
            for columns in on:
                program.row(dict.fromkeys(columns, 1), low=1)
            return
        counted = any(len(frame.stashes(s)) > 1 for s in range(frame.slots))
        if frame.leading or frame.shared or counted:
            for s, columns in enumerate(on):
                self.used[s] = used = self._flag()
                for column in columns:
                    program.at_most(Sum({column: 1}), used)
                program.at_most(used, Sum(dict.fromkeys(columns, 1)))
        if frame.leading:
            for s in range(frame.slots - 1):
                here, there = self.used[s], self.used[s + 1]
                assert here is not None
                assert there is not None
                program.at_most(here, there)
        self._replicas()

    def _replicas(self) -> None:
        """Choose on how many devices each slot runs, where slots may run on several."""
        frame, program = self.frame, self.program
        if not frame.shared:
            return
        for s, used in enumerate(self.used):
            assert used is not None
            self.m[s] = {j: program.column() for j in range(1, frame.slots + 1)}
            row: dict[int, int] = dict.fromkeys(self.m[s].values(), 1)
            program.row({**row, used.index: -1}, low=0, high=0)
        devices = {column: j for row in self.m for j, column in row.items()}
        low = frame.slots if frame.compact.exact_stages else None
        program.row(dict(devices), low=low, high=frame.slots)

    # ------------------------------------------------------------------ what it costs

    def _traffic(self) -> None:
        """Make into_ns and out_ns, and what they add to the loads: by pass and slot."""
        frame, compact = self.frame, self.frame.compact
        shape = range(compact.passes), range(frame.slots)
        self.received: list[list[list[Expression]]] = [[[] for _ in shape[1]] for _ in shape[0]]
        self.sent: list[list[list[Expression]]] = [[[] for _ in shape[1]] for _ in shape[0]]
        if self.program.contradiction:
            return
        pays = [any(compact.class_pays[c] for c in kinds) for kinds in frame.classes]
        for n, (producer, *readers) in enumerate(frame.members):
            which = int(compact.net_pass[n])
            if frame.devices:
                self._sent_on_links(n, producer, readers, pays)
                continue
            cost = int(frame.cost[n])
            for s in range(frame.slots):
                if not cost or not pays[s]:
                    continue
                into = self._cut(s, [(v, producer) for v in readers])
                alike = compact.objective in WHOLE
                out = self._cut(s, [(producer, v) for v in readers], into if alike else None)
                if into is not None:
                    self.received[which][s].append(cost * into)
                if out is not None and out is not into:
                    self.sent[which][s].append(cost * out)

    def _cut(
        self, s: int, pairs: list[tuple[int, int]], known: Sum[int] | None = None
    ) -> Sum[int] | None:
        """Return a variable of slot s that is 1 where u is on it and v is not, for some pair."""
        cut = known
        for u, v in pairs:
            if s not in self.x[u]:
                continue
            if cut is None:
                cut = self._flag()
            self._at_most(self._at(u, s), total((cut, self._at(v, s))))
        return cut

    def _sent_on_links(self, n: int, producer: int, readers: list[int], pays: list[bool]) -> None:
        """Let net n be received on the link that it comes by, and sent on the slowest."""
        frame, level = self.frame, self.frame.compact.level
        assert level is not None
        assert frame.level_cost is not None
        which = int(frame.compact.net_pass[n])
        for s in self.x[producer]:
            sent: dict[int, Sum[int]] = {}
            for t in range(frame.slots):
                on = [v for v in readers if t in self.x[v]]
                cost = int(frame.level_cost[level[s, t], n])
                if s == t or not on or not cost:
                    continue
                w = self._flag()
                for v in on:
                    self._at_most(total((self._at(producer, s), self._at(v, t))), 1 + w)
                if pays[t]:
                    self.received[which][t].append(cost * w)
                if pays[s]:
                    flag = sent.setdefault(cost, self._flag())
                    self.program.at_most(w, flag)
            # What is sent at some pace counts what it is slower than the next faster one.
            below = 0
            for cost in sorted(sent):
                self.sent[which][s].append((cost - below) * sent[cost])
                slower = [flag for pace, flag in sent.items() if pace > cost]
                for flag in slower:
                    self.program.at_most(flag, sent[cost])
                below = cost

    def _loads(self) -> None:
        """T_q >= what a slot does in pass q, where a class runs it."""
        frame, compact, program = self.frame, self.frame.compact, self.program
        if program.contradiction:
            return
        limit = frame.limit
        for which in range(compact.passes):
            highest = int(frame.time[which].max(axis=0).sum() + 2 * frame.cost.sum())
            highest += 0 if frame.level_cost is None else 2 * int(frame.level_cost.sum())
            if frame.shared:
                highest += -(-int(frame.exchanged.sum()) // frame.unit)
            highest += int(frame.stashed.sum()) * compact.microbatches
            high = highest if limit is None else limit
            load = program.column(1, upper=high, integral=self._whole)
            self.load.append(load)
            for s, kinds in enumerate(frame.classes):
                for c in kinds:
                    self._load(which, s, c, load)
        if limit is not None and compact.passes > 1:
            program.row(dict.fromkeys(self.load, 1), high=limit)

    def _load(self, which: int, s: int, c: int, load: int) -> None:
        """Bound the load of slot s in pass `which`, where class c runs it."""
        frame, compact = self.frame, self.frame.compact
        work = self._work(frame.time[which, c], s)
        parts: list[Expression]
        received, sent = total(self.received[which][s]), total(self.sent[which][s])
        match compact.objective:
            case Objective.MEMORY:
                for r in frame.stashes(s):
                    held = total((work, r * self._work(frame.stashed, s)))
                    unless = [*self._unless_class(s, c), *self._unless_flying(s, r)]
                    self._under(held, load, unless)
                return
            case Objective.SUM | Objective.FORWARD_BACKWARD:
                parts = [total((work, received, sent))]
            case Objective.OVERLAP | Objective.REPLICATED:
                parts = [work, received, sent]
            case Objective.LATENCY:
                raise ValueError("latency has a model of its own")
            case unknown:
                assert_never(unknown)
        if not compact.class_pays[c]:
            parts = [work]
        if not frame.shared:
            for part in parts:
                self._under(part, load, self._unless_class(s, c))
            return
        exchanged = self._work(frame.exchanged // frame.unit, s)
        for j, column in self.m[s].items():
            off = [1 - Sum[int]({column: 1})]
            self._under(total((j * work, (j - 1) * exchanged)), load, off, j * j)
            for part in parts[1:]:
                self._under(part, load, off, j)

    def _work(self, steps: Iterable[int], s: int) -> Sum[int]:
        """Return the sum of the steps of the blocks on slot s."""
        values = {
            row[s]: int(step) for row, step in zip(self.x, steps, strict=True) if s in row and step
        }
        return Sum(values)

    def _unless_class(self, s: int, c: int) -> list[Sum[int]]:
        """Return a variable that is 1 unless slot s is of class c; none where it must be."""
        return [1 - Sum[int]({self.z[s][c]: 1})] if self.z[s] else []

    def _unless_flying(self, s: int, r: int) -> list[Sum[int]]:
        """Return a variable that is 1 unless r slots from s on must be taken to hold blocks."""
        if len(self.frame.stashes(s)) == 1 or r == 1:
            return []
        fewer = self._flag()
        later = self._later(s)
        # It may be 1 only where fewer than r do.
        self.program.at_most(total(later), r - 1 + len(later) * (1 - fewer))
        return [fewer]

    def _later(self, s: int) -> list[Expression]:
        """Return what adds up to the number of slots from s on that hold blocks."""
        if not self.frame.roaming:
            return [used for used in self.used[s:] if used is not None]
        found: list[Expression] = [1]
        for t, used in enumerate(self.used):
            if t != s and used is not None:
                found.append(self._flag())
                self._at_most(total((self.a[s, t], used)), 1 + found[-1])
            elif t != s:
                found.append(self.a[s, t])
        return found

    def _under(self, part: Expression, load: int, unless: list[Sum[int]], times: int = 1) -> None:
        """Add part <= times T, unless one of some variables is 1."""
        if not isinstance(part, Sum) or not part.terms:
            return
        slack = sum(part.terms.values())
        self.program.at_most(part, total([Sum({load: times}), *(slack * off for off in unless)]))

    def _memory(self) -> None:
        """Bytes of a slot, with what its microbatches in flight keep, fit its device."""
        frame, compact, program = self.frame, self.frame.compact, self.program
        if program.contradiction:
            return
        for s, kinds in enumerate(frame.classes):
            for c in kinds:
                room = frame.memory(c)
                if room is None:
                    continue
                for r in frame.stashes(s):
                    nbytes = compact.size + r * compact.stash
                    unit = self.frame.byte_unit(nbytes)
                    held = {
                        row[s]: int(one) // unit
                        for row, one in zip(self.x, nbytes, strict=True)
                        if s in row and one
                    }
                    over = sum(held.values()) - room // unit
                    if over <= 0:
                        continue
                    unless = [*self._unless_class(s, c), *self._unless_flying(s, r)]
                    program.at_most(
                        Sum[int](dict(held)),
                        total([room // unit, *(over * off for off in unless)]),
                    )
