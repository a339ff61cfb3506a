"""Partitions into groups of consecutive operators: the optimum, and the rules used in the field.

**dp**: the least cycles over all boundaries and all cuts.  It is a shortest path over the best cut
of each group (:mod:`.oracle`).  Its costs assume that buffers can be placed if the sum of those
alive together fits.  The groups of the shortest path are placed; groups that cannot be placed are
banned, and the path is computed again until all of its groups have a placement.  Each of these
paths is a lower bound.

**greedy-tail**: TPU-MLIR's level 1, as the seed describes it: from the tail to the head, each time
the longest group that fits, cut along N first and then along H, as little as possible.

**dp-first-fit**: TPU-MLIR's level 2: also a shortest path, but with the first cut of each group
that fits; with many operators it works on clusters of them.

Cost: O(n * longest group) prices of :mod:`.oracle`, and few placements.  Source: common; the rules
are those of TPU-MLIR, as said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stagepack.evidence import SEARCHED, Evidence, witness
from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.oracle import ALONE, NONE, Ends, Oracle
from stagepack.heuristics.groups.placement import Place, Placements, place
from stagepack.heuristics.groups.tuning import TUNING, GroupsTuning
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.profile import Array
from stagepack.progress import Stopped

KeepGoing = Callable[[], bool]
FAR = 2**62


@dataclass
class Partition:
    """Groups of consecutive operators, and what is known of them.

    A search that the clock has stopped may be called again with the same ones: it goes on from what
    is known by then.
    """

    instance: LayerGrouping
    keep_going: KeepGoing  # asked after every operator; `Stopped` is raised once it says no
    eager: bool = False  # whether the first cut that fits will do
    longest: int | None = None  # operators of a group at most, where the instance allows more
    placing: Place = place
    tuning: GroupsTuning = TUNING

    def __post_init__(self) -> None:
        self._oracle = Oracle(
            self.instance, longest=self.longest, pause=self.look, tuning=self.tuning
        )
        self._ends: dict[int, Ends] = {}
        self._stops: Sequence[int] | None = None
        self._known = 0
        self._clusters: Partition | None = None
        self._reach = np.full(self.instance.n + 1, FAR, np.int64)
        self._reach[0] = 0
        self._before = np.zeros(self.instance.n + 1, np.int64)
        self._placements = Placements(self._oracle, self.keep_going, self.placing)

    @property
    def decided(self) -> bool:
        """Whether every placement asked for was found, or proved impossible."""
        return self._placements.decided

    def clusters(self, longest: int) -> Partition:
        """Return the groups of so many operators at most; the same ones when asked again."""
        if self._clusters is None:
            self._clusters = Partition(
                self.instance, self.keep_going, eager=True, longest=longest, tuning=self.tuning
            )
        return self._clusters

    def look(self) -> None:
        """Raise :class:`.Stopped` once the clock says no."""
        if not self.keep_going():
            raise Stopped

    def ends(self, b: int) -> Ends:
        """Return what the groups that end at b cost."""
        if b not in self._ends:
            self.look()
            self._ends[b] = self._oracle.ends(b, eager=self.eager)
        return self._ends[b]

    def shortest(self, stops: Sequence[int] | None = None) -> tuple[int, tuple[int, ...]]:
        """Return the least cycles and the boundaries; `FAR` and () where no groups fit.

        `stops` are the only boundaries allowed, from 0 to n; None: all.
        """
        if stops != self._stops:
            self._stops, self._known = stops, 0
        n, reach = self.instance.n, self._reach
        allowed = np.zeros(n + 1, np.bool_)
        allowed[list(range(n + 1) if stops is None else stops)] = True
        for b in range(self._known + 1, n + 1):
            if allowed[b]:
                self._extend(b, allowed)
            else:
                reach[b] = FAR
            self._known = b
        if reach[n] >= FAR:
            return FAR, ()
        cuts = [n]
        while cuts[-1]:
            cuts.append(int(self._before[cuts[-1]]))
        return int(reach[n]), tuple(reversed(cuts))

    def _extend(self, b: int, allowed: Array) -> None:
        """Find the shortest path to b, those to what is before it being known."""
        reach, self._reach[b] = self._reach, FAR
        low, cycles, _ = self.ends(b)
        often = self.tuning.paths.boundaries_at_once
        if b % often == 0:
            spend(often * self.tuning.paths.boundary_price)
            self.look()
        open_ = allowed[low:b] & (cycles < NONE) & (reach[low:b] < FAR)
        if open_.any():
            total = np.where(open_, reach[low:b] + np.where(open_, cycles, 0), FAR)
            self._before[b] = low + int(total.argmin())
            reach[b] = int(total.min())

    def bound(self) -> int:
        """Return cycles below which no plan is, however far the shortest path is known.

        Every plan has a boundary among the last that are known, one of each group's length; what
        comes behind it takes at least what all plans take.
        """
        low, end = max(0, self._known + 1 - self._oracle.longest), self._known + 1
        reach, behind = self._reach[low:end], self._oracle.behind[low:end]
        return int(np.where(reach < FAR, reach + behind, FAR).min())

    def evidence(self) -> Evidence:
        """Return what shows the shortest path: how far every boundary is.

        Where a cut was banned a search of ours says that its buffers cannot be placed.
        """
        whole = self._known == self.instance.n and self._stops is None
        if not whole or self.eager or self._oracle.bans:
            return SEARCHED
        reach = [None if cycles >= FAR else cycles for cycles in self._reach.tolist()]
        return witness("potentials", potentials=reach)

    def stands(self, a: int, b: int) -> bool:
        """Whether the buffers of [a, b) can be placed; if not, that cut is banned."""
        stands = self._placements.stands(range(a, b), self._cut(a, b))
        if not stands:
            low, cycles, chosen = self._ends[b]
            found = self._oracle.again(range(a, b), eager=self.eager)
            cycles[a - low], chosen[a - low] = found
            self._known = min(self._known, b - 1)
        return stands

    def _cut(self, a: int, b: int) -> int:
        """Return the best cut of [a, b)."""
        low, _, chosen = self.ends(b)
        return int(chosen[a - low])

    def cycles(self, boundaries: tuple[int, ...]) -> int:
        """Return what groups take, each in its best cut; `FAR` where one does not fit."""
        found = 0
        for a, b in pairwise(boundaries):
            low, cycles, _ = self.ends(b)
            if a < low or cycles[a - low] >= NONE:
                return FAR
            found += int(cycles[a - low])
        return found

    def solution(self, boundaries: tuple[int, ...]) -> GroupingSolution:
        """Return the plan of groups that all stand; others run from global memory, one by one."""
        n, groups = self.instance.n, [(range(*p), self._cut(*p)) for p in pairwise(boundaries)]
        before, behind = (
            [(range(at, at + 1), ALONE) for at in rest]
            for rest in (range(boundaries[0]), range(boundaries[-1], n))
        )
        return self._placements.plan([*before, *groups, *behind])


def solve(
    partition: Partition,
    on_bound: Callable[[int], None] = lambda _: None,
    stops: Sequence[int] | None = None,
) -> GroupingSolution | None:
    """Return the best plan whose groups stand; None where there is none.

    `on_bound` is told the cycles below which no plan can be, as long as all is decided; `stops` are
    the only boundaries allowed.  Raises :class:`.Stopped` once the clock says no.
    """
    while True:
        try:
            cycles, boundaries = partition.shortest(stops)
        except Stopped:
            if partition.decided:
                on_bound(partition.bound())
            raise
        if not boundaries:
            return None
        if partition.decided:
            on_bound(cycles)
        standing = [partition.stands(a, b) for a, b in pairwise(boundaries)]
        if all(standing):
            return partition.solution(boundaries)


def layerwise(partition: Partition) -> GroupingSolution | None:
    """Return the plan in which every operator is a group, cut as suits it best.

    Once the clock says no, the others run from global memory, where they may.
    """
    n, done = partition.instance.n, 0
    try:
        while done < n:
            low, cycles, _ = partition.ends(done + 1)
            if cycles[done - low] >= NONE:
                return None
            done += partition.stands(done, done + 1)
    except Stopped:
        if not done or not all(map(partition.instance.stands, range(done, n))):
            raise
    return partition.solution(tuple(range(done + 1)))


def greedy_tail(partition: Partition) -> GroupingSolution | None:
    """Return groups from the tail to the head, each as long as fits; None where one does not.

    Once the clock says no, the others run from global memory, where they may.
    """
    found = [partition.instance.n]
    try:
        while found[-1]:
            low, cycles, _ = partition.ends(found[-1])
            fitting = np.flatnonzero(cycles < NONE)
            if not len(fitting):
                return None
            first = low + int(fitting[0])
            if partition.stands(first, found[-1]):
                found.append(first)
    except Stopped:
        if len(found) == 1 or not all(map(partition.instance.stands, range(found[-1]))):
            raise
    return partition.solution(tuple(reversed(found)))


def clustered(partition: Partition) -> GroupingSolution | None:
    """Return the shortest path over the first cuts that fit, over clusters where n is large."""
    n = partition.instance.n
    size = n // partition.tuning.paths.operators_a_cluster
    if size <= 1:
        return solve(partition)
    inner = solve(partition.clusters(size))
    return None if inner is None else solve(partition, stops=inner.boundaries)
