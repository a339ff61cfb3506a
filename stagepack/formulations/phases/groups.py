"""Plans as paths of groups: the program that `Milp` and `CpSat` share.

Sets
    T        tables: one for each number of I/O tiles and microbatch that a plan may use
    O        options of all tables: a group [first, end) with its modes and policies
    l, c     layers and cuts; O_l the options whose group holds l
    H        phase graphs
Parameters
    time_o, need_op, kept_o   cycles; bytes of phase p; bytes kept between an option's phases
    hide_op, free_op, w_op    cycles of phase p that the phase before it can hide; cycles that its
                              loop leaves the I/O tiles; bytes of variables loaded ahead for it
    capacity                  bytes on the compute tiles
Variables
    y_o      the plan runs option o
    a_cd     the phase before cut c (in direction d: forward, backward) loads ahead
    e_cd     cycles of loading the variables of the phase after cut c that are not hidden
    z_h      the plan uses graph h
    rows_b   rows of the remote buffer of entries of b bytes
Objective
    minimise sum of (time_o - what could be hidden of it) y_o + sum of e_cd
Constraints
    flow     the options form one path from 0 to n, all of one table
    memory   sum of max need_o y_o over O_l + sum of kept_o y_o over groups before l <= capacity
    hidden   e_cd >= hide - free                     of the options that meet at c
             e_cd >= hide - (largest hide) a_cd
    ahead    need + kept before + w <= capacity + (largest w) (1 - a_cd)
    graphs   z_h >= sum of y_o over the options from one layer with graph h; sum of z_h <= graphs
    rows     rows_b >= entries of b bytes alive in the forward and backward phases of layer l;
             steps * sum of b rows_b <= remote memory
    cutoff   objective <= upper
Size
    |O| columns (n times the longest group, modes and policies) and up to 4 (n - 1) for prefetching
    in each table, |H| and one for each size of entries; n rows `flow` and n `memory` in each table,
    up to 6 (n - 1) for prefetching, n |H| for graphs
Source
    ours: the dynamic program over groups as a network, with what ties groups together as rows

Without kept bytes, prefetching and budgets nothing but the flow is left: the relaxation is exact.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stagepack.formulations.base import Formulation, require_objective
from stagepack.formulations.phases.remat import too_many
from stagepack.formulations.whole import Terms, WholeProgram, add
from stagepack.instances.phases.data import Figures, PhaseSolution
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.problem import Objective
from stagepack.instances.profile import Array

if TYPE_CHECKING:  # else its kernels would be loaded by whoever asks what the models take
    from stagepack.heuristics.phases.options import Option, OptionTable

FORWARD, BACKWARD = 0, -1


def sharded_bytes(instance: PhaseSchedule) -> int:
    """Return what variables and state take in remote memory: one shard of each."""
    replicas = instance.sharding
    return int((-(-instance.variables // replicas)).sum() + (-(-instance.state // replicas)).sum())


def stashed_sizes(
    instance: PhaseSchedule, figures: Figures, first: int, policy: Sequence[str]
) -> list[int]:
    """Return the bytes of each tensor that a group's layers stash, for its backward part.

    The tape of a layer, and its output if a layer of the group reads it.  The figures are those of
    a microbatch; `policy` is that of the layers from `first` on.
    """
    end = first + len(policy)
    found: list[int] = []
    for layer, word in enumerate(policy, start=first):
        if word == "stash":
            found.append(int(figures.tape[layer]))
            # Readers rise, and come after the layer.
            if instance.readers[layer + 1] and instance.readers[layer + 1][0] < end:
                found.append(int(figures.activations[layer + 1]))
    return [nbytes for nbytes in found if nbytes]


class Part:
    """One table in the program, which gets its columns and rows.

    `options` are those of the table, in its order, and `y` their columns; `ahead` and `exposed`, by
    cut and direction, are the columns a and e.
    """

    def __init__(self, table: OptionTable, program: WholeProgram) -> None:
        self.table, self.program = table, program
        self.instance = table.instance
        self.n = self.instance.n
        self.options: list[Option] = list(table)
        self.prefetch = self.instance.prefetch and table.io_tiles > 0
        self.y = [program.column(self._cost(option)) for option in self.options]
        self.starting: list[list[int]] = [[] for _ in range(self.n + 1)]
        self.ending: list[list[int]] = [[] for _ in range(self.n + 1)]
        for o, option in enumerate(self.options):
            self.starting[option.first].append(o)
            self.ending[option.end].append(o)
        self.ahead: dict[tuple[int, int], int] = {}
        self.exposed: dict[tuple[int, int], int] = {}
        if self.prefetch:
            self._hidden()

    def _cost(self, option: Option) -> int:
        """Return an option's cycles without those that e counts."""
        time = sum(option.times)
        if self.prefetch:
            if option.first > 0:
                time -= option.hideable[FORWARD]
            if self.instance.training and option.end < self.n:
                time -= option.hideable[BACKWARD]
        return time

    def meets(self, cut: int, direction: int) -> tuple[list[int], list[int]]:
        """Return the options before and after a cut, in the order of time."""
        if direction == FORWARD:
            return self.ending[cut], self.starting[cut]
        return self.starting[cut], self.ending[cut]

    @property
    def directions(self) -> tuple[int, ...]:
        """In which directions phases follow one another."""
        return (FORWARD, BACKWARD) if self.instance.training else (FORWARD,)

    def _hidden(self) -> None:
        for cut in range(1, self.n):
            for direction in self.directions:
                before, after = self.meets(cut, direction)
                largest = max((self.options[o].hideable[direction] for o in after), default=0)
                if not before or not after or not largest:
                    continue
                e = self.program.column(1, upper=largest, integral=False)
                a = self.program.column()
                self.exposed[cut, direction], self.ahead[cut, direction] = e, a
                hide = {self.y[o]: -self.options[o].hideable[direction] for o in after}
                free = {self.y[o]: self.options[o].free[direction] for o in before}
                self.program.row({e: 1} | hide | free, low=0)
                self.program.row({e: 1, a: largest} | hide, low=0)

    def flow(self) -> None:
        """What enters a cut leaves it."""
        for cut in range(1, self.n):
            terms = {self.y[o]: 1 for o in self.starting[cut]}
            terms |= {self.y[o]: -1 for o in self.ending[cut]}
            self.program.row(terms, low=0, high=0)

    def memory(self) -> None:
        """The rows `memory` and `ahead`."""
        kept: Terms = {}
        largest: list[Terms] = [{} for _ in range(self.n)]
        for o, option in enumerate(self.options):
            for layer in range(option.first, option.end):
                largest[layer][self.y[o]] = max(option.needs)
        for layer in range(self.n):
            for o in self.ending[layer]:
                if self.options[o].kept:
                    kept[self.y[o]] = self.options[o].kept
            if kept:
                self.program.row(largest[layer] | kept, high=self.table.capacity)
        self._memory_ahead()

    def _memory_ahead(self) -> None:
        """State the memory of phases that hold variables of the next one."""
        for (cut, direction), a in self.ahead.items():
            before, after = self.meets(cut, direction)
            most = max(self.options[o].variables[direction] for o in after)
            terms = {self.y[o]: self.options[o].needs[direction] for o in before}
            terms |= {self.y[o]: self.options[o].variables[direction] for o in after}
            for o, option in enumerate(self.options):
                # Kept by groups before the one that loads ahead.
                if option.kept and (
                    option.end < cut or (option.end == cut and direction == BACKWARD)
                ):
                    add(terms, self.y[o], option.kept)
            self.program.row(terms | {a: most}, high=self.table.capacity + most)

    def graphs(self, columns: dict[Hashable, int]) -> None:
        """z_h >= the options from one layer that use graph h."""
        for first in range(self.n):
            using: dict[Hashable, set[int]] = {}
            for o in self.starting[first]:
                for graph in self.options[o].graphs:
                    using.setdefault(graph, set()).add(o)
            for graph, options in using.items():
                if graph not in columns:
                    columns[graph] = self.program.column(integral=False)
                terms = {self.y[o]: -1 for o in sorted(options)}
                self.program.row(terms | {columns[graph]: 1}, low=0)

    # ------------------------------------------------------------------ remote memory

    def remote(self) -> None:
        """The rows `rows`; a chain: what crosses a cut is one tensor and its gradient."""
        instance, budget = self.instance, self.instance.remote_memory
        if budget is None:
            return
        figures = instance.at(self.table.microbatch)
        size = figures.activations.tolist()
        alive: dict[int, dict[tuple[int, int], Terms]] = {}

        def count(nbytes: int, layer: int, direction: int, o: int, entries: int = 1) -> None:
            if nbytes:
                phases = alive.setdefault(nbytes, {})
                add(phases.setdefault((direction, layer), {}), self.y[o], entries)

        for o, option in enumerate(self.options):
            first, end, inner = option.first, option.end, option.end < self.n
            stashed = stashed_sizes(instance, figures, option.first, option.policy)
            two = instance.training and inner
            for layer in range(first, end):
                for nbytes in stashed:
                    count(nbytes, layer, FORWARD, o)
                    if two:
                        count(nbytes, layer, BACKWARD, o)
                if inner:
                    count(size[end], layer, FORWARD, o)
                if first and not instance.training:
                    count(size[first], layer, FORWARD, o)
                if first and instance.training:  # the gradient it stores
                    count(size[first], layer, BACKWARD if two else FORWARD, o)
                if two:  # the gradient it loads
                    count(size[end], layer, BACKWARD, o)
            # Later forward phases, and their backward phases, find all of it still there.
            for layer in range(end, self.n) if two else ():
                for direction in (FORWARD, BACKWARD):
                    for nbytes in (*stashed, size[end]):
                        count(nbytes, layer, direction, o)
        held = sharded_bytes(instance)
        total: Terms = {}
        for nbytes, phases in sorted(alive.items()):
            rows = self.program.column(upper=4 * self.n, integral=False)
            total[rows] = nbytes * figures.steps
            for terms in phases.values():
                self.program.row({k: -v for k, v in terms.items()} | {rows: 1}, low=0)
        self.program.row(total, high=budget - held)
        if budget < held:
            self.program.contradiction = True

    # ------------------------------------------------------------------ back and forth

    def chosen(self, values: Array) -> list[int]:
        """Return the options of a plan, by rising layers."""
        found = [o for o, column in enumerate(self.y) if values[column] > 0.5]
        return sorted(found, key=lambda o: self.options[o].first)

    def decode(self, values: Array, chosen: list[int]) -> PhaseSolution:
        """Return the plan of chosen options, phases loading ahead where it is worth it."""
        from stagepack.heuristics.phases.options import assemble  # its kernels are loaded by now

        options = [self.options[o] for o in chosen]
        ahead = [self._loads(values, option.end, FORWARD) for option in options[:-1]]
        ahead.append(False)
        if self.instance.training:
            ahead = ahead[:-1] + [
                self._loads(values, option.first, BACKWARD) for option in reversed(options)
            ]
        return assemble(self.table, chosen, ahead if any(ahead) else ())

    def _loads(self, values: Array, cut: int, direction: int) -> bool:
        column = self.ahead.get((cut, direction))
        return column is not None and bool(values[column] > 0.5)

    def find(self, solution: PhaseSolution) -> list[int] | None:
        """Return the options of a plan: same groups, modes and policies; None: one is missing."""
        phases = solution.phases(self.instance)
        count = len(solution.boundaries) - 1
        found = []
        for group in range(count):
            first, end = solution.boundaries[group : group + 2]
            modes = tuple(p.mode for p in phases if p.group == group)
            fitting = [
                o
                for o in self.starting[first]
                if self.options[o].end == end and tuple(map(str, self.options[o].modes)) == modes
            ]
            policy = tuple(solution.policy[first:end])
            same = [o for o in fitting if tuple(map(str, self.options[o].policy)) == policy]
            if not same:
                return None
            found.append(same[0])
        return found

    def hint(self, solution: PhaseSolution, chosen: list[int], values: Array) -> None:
        """Write the columns of a plan to `values`; `chosen` are its options, from :meth:`find`."""
        values[[self.y[o] for o in chosen]] = 1
        flags = list(solution.prefetch) or [False] * (2 * len(chosen))
        last = len(chosen) - 1
        for place, (o, follower) in enumerate(pairwise(chosen)):
            cut = self.options[o].end
            for direction in self.directions:
                if (cut, direction) not in self.exposed:
                    continue
                # The phase of group `place` forward, of the one after it backward.
                index = place if direction == FORWARD else 2 * last - place - 1
                one, other = (o, follower) if direction == FORWARD else (follower, o)
                hide = self.options[other].hideable[direction]
                free = self.options[one].free[direction] if flags[index] else 0
                values[self.ahead[cut, direction]] = flags[index]
                values[self.exposed[cut, direction]] = max(0, hide - free)


class Groups:
    """The whole program: a part for each table, one of them selected.

    All tables are of one instance.  What takes longer than `upper`, the cycles of a known plan, may
    be cut off, nothing else is.
    """

    def __init__(self, tables: OptionTable | Sequence[OptionTable], upper: int | None) -> None:
        self.program = program = WholeProgram()
        several = list(tables) if isinstance(tables, Sequence) else [tables]
        self.parts = [Part(table, program) for table in several]
        self.instance = several[0].instance
        starts: Terms = {}
        for part in self.parts:
            starts |= {part.y[o]: 1 for o in part.starting[0]}
        program.row(starts, low=1, high=1)
        if not starts:
            program.contradiction = True
        for part in self.parts:
            part.flow()
            part.remote()
        self.z: dict[Hashable, int] = {}
        if self.instance.graphs is not None:
            for part in self.parts:
                part.graphs(self.z)
            program.row(dict.fromkeys(self.z.values(), 1), high=self.instance.graphs)
        if upper is not None:
            program.row({c: cost for c, cost in enumerate(program.cost) if cost}, high=upper)

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values, one a column."""
        for part in self.parts:
            chosen = part.chosen(values)
            if chosen:
                return part.decode(values, chosen)
        raise ValueError("the values stand for no plan")

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every column for a plan; NaN where an engine is to choose.

        A plan whose options no table holds is a hint for nothing: all values are NaN.
        """
        values = np.full(len(self.program.cost), np.nan)
        for part in self.parts:
            pair = part.table.io_tiles, part.table.microbatch
            if pair != (solution.io_tiles, solution.microbatch):
                continue
            chosen = part.find(solution)
            if chosen is None:
                return values
            for other in self.parts:
                values[other.y] = 0
                for columns in (other.ahead, other.exposed):
                    values[list(columns.values())] = 0
            part.hint(solution, chosen, values)
            used = {graph for o in chosen for graph in part.options[o].graphs}
            for graph, column in self.z.items():
                values[column] = graph in used
            break
        return values


class GroupModel(Formulation[PhaseSchedule, PhaseSolution]):
    """A model of plans as paths of groups.

    `tables` have the options of all groups, for each number of I/O tiles and microbatch to choose
    from; `upper` is as for :class:`Groups`.  `InputError` is raised when cycles or bytes exceed
    what the engine computes exactly.
    """

    def __init__(
        self,
        instance: PhaseSchedule,
        tables: OptionTable | Sequence[OptionTable],
        *,
        upper: int | None = None,
    ) -> None:
        require_objective(instance.objective, Objective.TIME)
        self.instance, self.upper = instance, upper
        self.groups = Groups(tables, upper)
        self.build(self.groups.program)
        self.infeasible = self.model is None

    @abstractmethod
    def build(self, program: WholeProgram) -> None:
        """Complete the program and set `model`, unless it contradicts itself."""

    @staticmethod
    def unsupported(instance: PhaseSchedule) -> str:
        """Return what the models do not take of an instance, '' if they take it."""
        if instance.remote_memory is not None and not instance.chain:
            return "a budget of remote memory can be stated for chains only, not with skips"
        return too_many(instance)

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values; the columns of the program come first."""
        return self.groups.decode(np.asarray(values))

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the value of every column for a plan; NaN where the engine is to choose."""
        return self.groups.hint(solution)

    def worth(self, steps: int) -> int:
        """Return the cycles of an objective of so many times `gain`; none is negative."""
        return max(0, steps) * self.groups.program.gain
