"""Partitions into groups of consecutive operators: the best, and by the rules of the field.

**dp**: the least cycles over all boundaries and all cuts, a shortest path over the best cut of
every group (:mod:`.oracle`).  These costs suppose that buffers alive together can be placed where
their sum fits; the groups of the shortest path are placed, what cannot be placed is banned, and the
path sought anew, until all of it stands.  Every path on the way is a lower bound.

**greedy-tail**: TPU-MLIR's level 1, as the seed tells it: from the tail towards the head, each time
the longest group that fits, cut along N first and then along H, as little as will do.

**dp-first-fit**: TPU-MLIR's level 2: a shortest path, too, but over the first cut that fits; where
there are many operators, over clusters of them.

Cost: O(n * longest group) prices of :mod:`.oracle`, and few placements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stagepack.heuristics.groups.oracle import NONE, Ends, Oracle
from stagepack.heuristics.groups.placement import Placements
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.progress import Stopped

KeepGoing = Callable[[], bool]
FAR = 2**62
CLUSTERED = 50
"""Operators for each of which one more joins a cluster of `dp-first-fit`."""


@dataclass
class Partition:
    """Groups of consecutive operators, and what is known of them.

    Parameters
    ----------
    instance : LayerGrouping
    keep_going : callable
        Asked after every operator; :class:`.Stopped` is raised once it says no.
    eager : bool
        Whether the first cut that fits will do.
    before_search : callable
        Called where buffers have to be placed by search, see :func:`.placement.place`.
    """

    instance: LayerGrouping
    keep_going: KeepGoing
    eager: bool = False
    before_search: Callable[[bool], None] = lambda _: None

    def __post_init__(self) -> None:
        self._oracle = Oracle(self.instance)
        self._ends: dict[int, Ends] = {}
        self._placements = Placements(self._oracle, self.keep_going, self.before_search)

    @property
    def decided(self) -> bool:
        """Whether every placement asked for was found, or proved impossible."""
        return self._placements.decided

    def ends(self, b: int) -> Ends:
        """Return what the groups that end at b cost."""
        if b not in self._ends:
            if not self.keep_going():
                raise Stopped
            self._ends[b] = self._oracle.ends(b, eager=self.eager)
        return self._ends[b]

    def shortest(self, stops: Sequence[int] | None = None) -> tuple[int, tuple[int, ...]]:
        """Return the least cycles and the boundaries; `FAR` and () where no groups fit.

        Parameters
        ----------
        stops : sequence of int, optional
            The only boundaries allowed, from 0 to n; None: all.
        """
        n = self.instance.n
        allowed = np.zeros(n + 1, np.bool_)
        allowed[list(range(n + 1) if stops is None else stops)] = True
        reach = np.full(n + 1, FAR, np.int64)
        reach[0] = 0
        before = np.zeros(n + 1, np.int64)
        for b in np.flatnonzero(allowed[1:]) + 1:
            low, cycles, _ = self.ends(int(b))
            open_ = allowed[low:b] & (cycles < NONE) & (reach[low:b] < FAR)
            if open_.any():
                total = np.where(open_, reach[low:b] + np.where(open_, cycles, 0), FAR)
                before[b] = low + int(total.argmin())
                reach[b] = int(total.min())
        if reach[n] >= FAR:
            return FAR, ()
        cuts = [n]
        while cuts[-1]:
            cuts.append(int(before[cuts[-1]]))
        return int(reach[n]), tuple(reversed(cuts))

    def stands(self, a: int, b: int) -> bool:
        """Whether the buffers of [a, b) can be placed; if not, that cut is banned."""
        stands = self._placements.stands(range(a, b), self._cut(a, b))
        if not stands:
            low, cycles, chosen = self._ends[b]
            found = self._oracle.again(range(a, b), eager=self.eager)
            cycles[a - low], chosen[a - low] = found
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
        """Return the plan of groups that all stand."""
        return self._placements.plan([(range(*p), self._cut(*p)) for p in pairwise(boundaries)])


def solve(
    partition: Partition,
    on_bound: Callable[[int], None] = lambda _: None,
    stops: Sequence[int] | None = None,
) -> GroupingSolution | None:
    """Return the best plan whose groups stand; None where there is none.

    Parameters
    ----------
    partition : Partition
    on_bound : callable
        Told the cycles below which no plan can be, as long as all is decided.
    stops : sequence of int, optional
        The only boundaries allowed.

    Raises
    ------
    Stopped
        Once the clock says no.
    """
    while True:
        cycles, boundaries = partition.shortest(stops)
        if not boundaries:
            return None
        if partition.decided:
            on_bound(cycles)
        standing = [partition.stands(a, b) for a, b in pairwise(boundaries)]
        if all(standing):
            return partition.solution(boundaries)


def layerwise(partition: Partition) -> GroupingSolution | None:
    """Return the plan in which every operator is a group, cut as suits it best."""
    n = partition.instance.n
    for b in range(1, n + 1):
        while True:
            low, cycles, _ = partition.ends(b)
            if cycles[b - 1 - low] >= NONE:
                return None
            if partition.stands(b - 1, b):
                break
    return partition.solution(tuple(range(n + 1)))


def greedy_tail(partition: Partition) -> GroupingSolution | None:
    """Return groups from the tail to the head, each as long as fits; None where one does not."""
    end = partition.instance.n
    found = [end]
    while end:
        low, cycles, _ = partition.ends(end)
        fitting = np.flatnonzero(cycles < NONE)
        if not len(fitting):
            return None
        first = low + int(fitting[0])
        if partition.stands(first, end):
            found.append(first)
            end = first
    return partition.solution(tuple(reversed(found)))


def clustered(partition: Partition) -> GroupingSolution | None:
    """Return the shortest path over the first cuts that fit, over clusters where n is large."""
    n = partition.instance.n
    size = n // CLUSTERED
    if size <= 1:
        return solve(partition)
    limit = partition.instance.max_group
    clusters = Partition(
        partition.instance.replace(max_group=min(size, limit)),
        partition.keep_going,
        eager=True,
        before_search=partition.before_search,
    )
    inner = solve(clusters)
    return None if inner is None else solve(partition, stops=inner.boundaries)
