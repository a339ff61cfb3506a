"""CP-SAT model of phase scheduling: phases as optional intervals on two engines.

The decisions are those of :mod:`.groups`; order and memory are stated on a clock.

Sets
    l        layers from which a group may begin; c cuts at which it may end; d directions: forward
             (the only phase of the last group is a forward one) and backward
Parameters
    as in :mod:`.groups`
Variables
    y, a, e  as in :mod:`.groups`
    g_lc     the layers [l, c) are a group
    work_ld  interval on the compute engine: phase d of the group from l, without the cycles e
    load_cd  interval on the I/O engine: variables of the phase after cut c that were not loaded
             ahead, e_cd cycles
    ahead_cd interval over the phase before cut c where it loads ahead
    kept_l   interval between the two phases of the group from l
    need_ld, w_cd, k_l   bytes of work_ld, ahead_cd and kept_l
Objective
    minimise sum of the costs of :mod:`.groups`
Constraints
    order    where g_lc: what comes after cut c begins with load_cd, where the phase before ends
    engines  no two intervals of one engine overlap
    memory   at every time work, ahead and kept together take at most the capacity
    end      the last phase ends when the costs say
Size
    the columns of :mod:`.groups`; a begin, length, end and demand for each of up to 2 n phases, 2 n
    stretches kept and 4 (n - 1) loads; two rows for each pair of layers that a group may span
Source
    ours

On the clock a phase takes one cycle more, so that the memory of an empty one counts, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR, UNPRESOLVED
from stagepack.formulations.phases.groups import BACKWARD, FORWARD, GroupModel, Part
from stagepack.formulations.whole import LARGEST_SUM, WholeProgram
from stagepack.instances.phases.data import PhaseSolution
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntervalVar, IntVar, LinearExpr


class CpSat(GroupModel):
    """The model as a `cp_model.CpModel`."""

    def build(self, program: WholeProgram) -> None:
        """State order and memory on a clock."""
        if program.contradiction:
            return
        self.model = program.cp_sat()
        clocks = [_Clock(self.model, part) for part in self.groups.parts]
        wide = max(clock.largest for clock in clocks) >= LARGEST_FACTOR
        self.parameters = UNPRESOLVED if wide else program.settings

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every variable for a plan; NaN for those of the clock."""
        values = np.full(len(self.model.proto.variables), np.nan)
        known = super().hint(solution)
        values[: len(known)] = known
        return values


class _Clock:
    """The phases of one table on the clock."""

    def __init__(self, model: CpModel, part: Part) -> None:
        from ortools.sat.python import cp_model

        self.cp, self.model, self.part = cp_model, model, part
        self.longest = sum(
            max((sum(part.options[o].times) for o in part.starting[first]), default=0) + 2
            for first in range(part.n)
        )
        if self.longest >= LARGEST_SUM:
            raise InputError(
                f"the CP-SAT model would count to {self.longest:,} cycles",
                field="size",
                remedy="give cycles in a coarser unit",
            )
        held = (max(*o.needs, *o.variables, o.kept) for o in part.options)
        self.largest = max((self.longest, *held))
        self.compute: list[IntervalVar] = []
        self.io: list[IntervalVar] = []
        self.held: list[tuple[IntervalVar, IntVar]] = []
        # By first layer: (begin, end) of the forward phase, the backward one, the last of both.
        self.forward: dict[int, tuple[IntVar, IntVar]] = {}
        self.backward: dict[int, tuple[IntVar, IntVar]] = {}
        self.last: dict[int, tuple[IntVar, IntVar]] = {}
        for first in range(part.n):
            if part.starting[first]:
                self._phases(first)
        self._order()
        self._engines()
        self._memory()
        self._end()

    # ------------------------------------------------------------------ expressions

    def _sum(self, terms: list[tuple[int, int]]) -> LinearExpr:
        x = [self.model.get_int_var_from_proto_index(column) for column, _ in terms]
        return self.cp.LinearExpr.weighted_sum(x, [value for _, value in terms])

    def _chosen(self, terms: list[tuple[int, int]]) -> IntVar:
        """Return a variable that equals a sum over columns of which one at most is 1."""
        variable = self.model.new_int_var(0, max((v for _, v in terms), default=0), "")
        self.model.add(variable == self._sum(terms))
        return variable

    def _any(self, options: list[int]) -> IntVar:
        """Return a literal: one of some options, of which one at most can be, is chosen."""
        literal = self.model.new_bool_var("")
        self.model.add(literal == self._sum([(self.part.y[o], 1) for o in options]))
        return literal

    def _instant(self) -> IntVar:
        return self.model.new_int_var(0, self.longest, "")

    def _exposed(self, cut: int, direction: int) -> IntVar | int:
        """Return e, 0 where nothing can be hidden."""
        column = self.part.exposed.get((cut, direction))
        return 0 if column is None else self.model.get_int_var_from_proto_index(column)

    def _length(self, o: int, direction: int) -> int:
        """Return the cycles of an option's phase on the clock, without those that e counts."""
        part, option = self.part, self.part.options[o]
        time = option.times[direction] + 1
        cut = option.first if direction == FORWARD else option.end
        return time - (option.hideable[direction] if part.prefetch and 0 < cut < part.n else 0)

    # ------------------------------------------------------------------ constraints

    def _phases(self, first: int) -> None:
        """The intervals work and kept of the group from one layer."""
        part, model = self.part, self.model
        every = part.starting[first]
        double = [o for o in every if part.instance.training and part.options[o].end < part.n]
        self.forward[first] = self._work(every, FORWARD)
        if not part.instance.training:
            return
        if not double:
            self.last[first] = self.forward[first]
            return
        begin, end = self.backward[first] = self._work(double, BACKWARD)
        two = self._any(double)
        kept = [(part.y[o], part.options[o].kept) for o in double if part.options[o].kept]
        if kept:
            between = model.new_optional_interval_var(
                self.forward[first][1], self._instant(), begin, two, ""
            )
            self.held.append((between, self._chosen(kept)))
        if len(double) == len(every):
            self.last[first] = begin, end
            return
        one = self._any([o for o in every if part.options[o].end == part.n])
        self.last[first] = self._instant(), self._instant()
        for literal, phase in ((one, self.forward[first]), (two, (begin, end))):
            for variable, other in zip(self.last[first], phase, strict=True):
                model.add(variable == other).only_enforce_if(literal)

    def _work(self, options: list[int], direction: int) -> tuple[IntVar, IntVar]:
        part = self.part
        begin, end = self._instant(), self._instant()
        length = self._chosen([(part.y[o], self._length(o, direction)) for o in options])
        on = self._any(options)
        work = self.model.new_optional_interval_var(begin, length, end, on, "")
        self.compute.append(work)
        need = [(part.y[o], part.options[o].needs[direction]) for o in options]
        self.held.append((work, self._chosen(need)))
        return begin, end

    def _order(self) -> None:
        """Each phase follows the one before it, but for loading what was not loaded ahead."""
        part, model = self.part, self.model
        pairs: dict[tuple[int, int], list[int]] = {}
        for o, option in enumerate(part.options):
            pairs.setdefault((option.first, option.end), []).append(o)
        self.pairs = {pair: self._any(options) for pair, options in pairs.items()}
        if 0 in self.forward:
            model.add(self.forward[0][0] == 0)
        for (first, cut), together in self.pairs.items():
            if cut == part.n or cut not in self.forward:
                continue
            gap = self._exposed(cut, FORWARD)
            model.add(self.forward[cut][0] == self.forward[first][1] + gap).only_enforce_if(
                together
            )
            if part.instance.training:
                gap = self._exposed(cut, BACKWARD)
                begin = self.backward[first][0]
                model.add(begin == self.last[cut][1] + gap).only_enforce_if(together)

    def _engines(self) -> None:
        part, model = self.part, self.model
        for (cut, direction), e in part.exposed.items():
            x = model.get_int_var_from_proto_index(e)
            before = part.meets(cut, direction)[0]
            start, end = self._instant(), self._instant()
            on = self._any(before)
            self.io.append(model.new_optional_interval_var(start, x, end, on, ""))
            if direction == BACKWARD:
                model.add(start == self.last[cut][1]).only_enforce_if(on)
            else:
                model.add(end == self.forward[cut][0]).only_enforce_if(on)
        model.add_no_overlap(self.compute)
        if self.io:
            model.add_no_overlap(self.io)

    def _memory(self) -> None:
        """State that what is alive at a moment fits."""
        part, model = self.part, self.model
        for (cut, direction), column in part.ahead.items():
            a = model.get_int_var_from_proto_index(column)
            before, after = part.meets(cut, direction)
            start, end = self._instant(), self._instant()
            over = model.new_optional_interval_var(start, self._instant(), end, a, "")
            w = [(part.y[o], part.options[o].variables[direction]) for o in after]
            self.held.append((over, self._chosen(w)))
            phases = (
                [(self.last[cut], self._any(before))]
                if direction == BACKWARD
                else [
                    (self.forward[first], together)
                    for (first, other), together in self.pairs.items()
                    if other == cut
                ]
            )
            for phase, literal in phases:
                for variable, instant in zip((start, end), phase, strict=True):
                    model.add(variable == instant).only_enforce_if(literal, a)
        if part.table.capacity < LARGEST_SUM and self.held:
            intervals, bytes_ = zip(*self.held, strict=True)
            model.add_cumulative(list(intervals), list(bytes_), part.table.capacity)

    def _end(self) -> None:
        """The last phase ends when the costs say: one cycle more for each phase."""
        part, model = self.part, self.model
        ends = part.n
        costs = []
        for o, option in enumerate(part.options):
            costs.append((part.y[o], part.program.cost[part.y[o]] + len(option.times)))
        costs += [(e, 1) for e in part.exposed.values()]
        if part.instance.training:
            if 0 in self.last:
                on = self._any(part.starting[0])
                model.add(self.last[0][1] == self._sum(costs)).only_enforce_if(on)
            return
        for (first, cut), together in self.pairs.items():
            if cut == ends:
                model.add(self.forward[first][1] == self._sum(costs)).only_enforce_if(together)
