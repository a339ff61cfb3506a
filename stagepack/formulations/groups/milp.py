"""MILP of groups of consecutive operators: which intervals cover each operator once.

Sets
    K        operators, 0 .. n - 1
    A        groups [a, b) that fit in some cut; A_k those that hold operator k
Parameters
    cycles_ab    of the best cut of [a, b) whose buffers are not known to have no place
Variables
    x_ab     1 if [a, b) is a group
Objective
    minimise  sum of cycles_ab x_ab
Constraints
    cover    sum of x over A_k = 1               for every operator k
    cutoff   objective <= upper, for CP-SAT; HiGHS cuts by the start
Size
    a binary a group, n times the longest; n rows, of two entries a column
Source
    ours: the dynamic program as a program

In every column the ones of `cover` are consecutive, so that the matrix is totally unimodular and
the relaxation worth as much as the shortest path.  Rows are stated as differences of neighbours,
which says the same: groups that begin at an operator are as many as those that end before it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stagepack.formulations.base import Formulation, require_objective
from stagepack.formulations.whole import BY_HIGHS, WholeProgram
from stagepack.heuristics.groups.dp import Partition
from stagepack.heuristics.groups.oracle import NONE
from stagepack.instances.groups.problem import Objective
from stagepack.instances.profile import Array


class Milp(Formulation[Partition, tuple[int, ...]]):
    """The interval model of a partition, which knows what groups cost; solutions are boundaries.

    What takes longer than `upper`, the cycles of a known plan, is cut off.  The model is for CP-SAT
    if `cp_sat`, else a `Linear`; `groups` are those of its columns.
    """

    def __init__(
        self, partition: Partition, *, upper: int | None = None, cp_sat: bool = False
    ) -> None:
        require_objective(partition.instance.objective, Objective.CYCLES)
        self.upper, self.n = upper, partition.instance.n
        self.program = WholeProgram()
        self.groups: list[tuple[int, int]] = []
        for b in range(1, self.n + 1):
            low, cycles, _ = partition.ends(b)
            for at in np.flatnonzero(cycles < (NONE if upper is None else min(NONE, upper + 1))):
                self.program.column(int(cycles[at]))
                self.groups.append((low + int(at), b))
        self._cover()
        if upper is not None and cp_sat:
            costs = enumerate(self.program.cost)
            self.program.row({x: cost for x, cost in costs if cost}, high=upper)
        self.infeasible = self.program.contradiction
        if not cp_sat:
            self.loading = partition.tuning.models.clique_price * len(self.groups) ** 2
        if not self.infeasible:
            self.model = self.program.cp_sat() if cp_sat else self.program.arrays()
            self.parameters = self.program.settings if cp_sat else BY_HIGHS
            self.coarse = not cp_sat and self.program.coarse

    def _cover(self) -> None:
        """One group begins at operator 0; where groups end, as many begin."""
        rows: list[dict[int, int]] = [{} for _ in range(self.n)]
        for x, (a, b) in enumerate(self.groups):
            rows[a][x] = 1
            if b < self.n:
                rows[b][x] = -1
        for k, terms in enumerate(rows):
            self.program.row(terms, low=int(k == 0), high=int(k == 0))

    def decode(self, values: Array) -> tuple[int, ...]:
        """Return the boundaries that values of all columns stand for."""
        chosen = {self.groups[x] for x in np.flatnonzero(np.asarray(values) > 0.5)}
        end_of, found = dict(chosen), [0]
        while found[-1] < self.n:
            found.append(end_of[found[-1]])
        return tuple(found)

    def hint(self, solution: tuple[int, ...]) -> Array:
        """Return the value of every column for boundaries."""
        wanted = set(pairwise(solution))
        return np.array([group in wanted for group in self.groups], dtype=np.float64)

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what the engine's tolerance makes of the program's costs."""
        return self.program.slack(raw, tolerance)

    def worth(self, steps: int) -> int:
        """Return the cycles of an objective of so many times the common divisor of all costs."""
        return max(0, steps) * self.program.gain
