"""The best plan over convex sets of operators: a shortest path over ideals (:mod:`.ideals`).

The cost of a group depends only on its operators, because within a group they run in the order of
the instance.  The best plan whose groups are convex sets with an acyclic quotient is therefore a
shortest path over ideals, from the empty set to all operators, with an arc for every pair of ideals
of which one contains the other.  The arcs into one ideal are priced together (:mod:`.oracle`):
those whose groups share their last operators are one group that grows.  Arcs that cannot be part of
a better plan than the best known one are skipped: an arc costs at least the compute, and at least
the transfers, of its operators, and the same bound holds for the rest of the path.  Placement is as
in :mod:`.dp`: the groups of the shortest path are placed, and those that cannot be are banned.

Restricted to the ideals of one topological order, the shortest path is a plan but not a bound.

Cost: O(pairs of ideals) prices; levels of ideals by their size, a bound after each.  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.dp import FAR
from stagepack.heuristics.groups.ideals import Lattice, Network
from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.heuristics.groups.placement import Placements
from stagepack.heuristics.groups.tuning import TUNING, PathsTuning
from stagepack.instances.groups import GroupingSolution
from stagepack.instances.profile import Array
from stagepack.progress import Stopped

OnBound = Callable[[int], None]


class Arcs(NamedTuple):
    """Groups that complete an ideal: the ideals that they follow, by number, cycles and cuts."""

    start: Array
    cycles: Array
    chosen: Array


class TooManyArcsError(Exception):
    """More arcs than are kept."""


class IdealSearch:
    """Shortest paths over ideals.

    The `oracle` is a branching one, which asks the clock, too.  `keep_going` is asked several times
    a second; :class:`.Stopped` is raised once it says no.
    """

    def __init__(
        self,
        network: Network,
        oracle: Oracle,
        placements: Placements,
        keep_going: Callable[[], bool],
    ) -> None:
        self._network, self._oracle, self._placements = network, oracle, placements
        self._keep_going = keep_going

    def better(
        self, known: Lattice, upper: int, on_bound: OnBound = lambda _: None
    ) -> GroupingSolution | None:
        """Return the best plan through some ideals, if it takes less than `upper` cycles.

        `upper` is what a plan takes that is `known`, `FAR` where none is.  `on_bound` is told the
        cycles below which no plan through these ideals can be.  Raises :class:`.Stopped` once the
        clock says no.
        """
        paths = Paths(known, upper, self._network.tuning)
        for size in range(1, self._network.n + 1):
            for at in paths.levels[size]:
                self._require_time()
                self._arrive(paths, at)
            self._tell(on_bound, min(paths.least(size, self._oracle.instance.max_group), upper))
        while (cycles := paths.cycles) < upper:
            self._tell(on_bound, cycles)
            groups = paths.path()
            standing = [self._stands(paths, *pair) for pair in groups]
            if all(standing):
                return self._placements.plan(
                    [(members(paths.group(*pair)), paths.cut(*pair)) for pair in groups]
                )
            self._relabel(paths)
        self._tell(on_bound, upper)
        return None

    def _require_time(self) -> None:
        """Raise :class:`.Stopped` once the clock says no."""
        if not self._keep_going():
            raise Stopped

    def _tell(self, on_bound: OnBound, cycles: int) -> None:
        """Tell a bound, as long as all placements are decided."""
        if self._placements.decided and cycles < FAR:
            on_bound(cycles)

    def _arrive(self, paths: Paths, end: int) -> None:
        """Price the groups that complete an ideal."""
        starts = paths.starts(end, self._oracle.instance.max_group, self._network.lone)
        tuning = self._network.tuning
        spend(tuning.arrival_price + tuning.group_price * len(starts))
        if not starts:
            return
        starts.sort(key=lambda start: paths.group(start, end))
        groups, given = [paths.group(start, end) for start in starts], np.array(starts, np.int64)
        paths.join(end, Arcs(given, *self._price(groups, paths.useless(given, end))))

    def _price(self, groups: Sequence[int], useless: Array) -> tuple[Array, Array]:
        """Return cycles and cuts of groups, in rising order as integers.

        `useless`: cycles from which on each is of no use.
        """
        way = steps(groups)
        asked = np.flatnonzero(way[:, 3])
        below = np.full(len(way), NONE)
        below[asked] = useless
        banned = [frozenset[int]()] * len(way)
        if self._oracle.bans:
            for at, group in zip(asked, groups, strict=True):
                banned[at] = self._oracle.banned(members(group))
        cycles, chosen = self._oracle.price(way, banned, below=below)
        return cycles[asked], chosen[asked]

    def _stands(self, paths: Paths, start: int, end: int) -> bool:
        """Whether the buffers of a group can be placed; if not, it is priced anew."""
        group = paths.group(start, end)
        if self._placements.stands(members(group), paths.cut(start, end)):
            return True
        paths.change(start, end, *self._oracle.again(members(group)))
        return False

    def _relabel(self, paths: Paths) -> None:
        """Find the shortest paths to all ideals anew."""
        for level in paths.levels[1:]:
            for at in level:
                paths.label(at)
            self._require_time()


class Paths:
    """Ideals and the arcs between them that may be part of a plan of less than `upper` cycles.

    `known` are the ideals, and `levels` their numbers, by their size.
    """

    def __init__(self, known: Lattice, upper: int, tuning: PathsTuning = TUNING.paths) -> None:
        self.upper, self._tuning = upper, tuning
        self._masks = list(known)
        sizes = np.array([mask.bit_count() for mask in self._masks])
        spans = np.searchsorted(sizes, np.arange(sizes[-1] + 2)).tolist()
        self.levels = [range(*span) for span in pairwise(spans)]
        self._left = np.array(list(known.values()), dtype=np.int64)
        self._rest = self._left.max(axis=1)
        self._reach = np.full(len(known), FAR, np.int64)
        self._reach[0] = 0
        self._before = np.zeros(len(known), np.int64)
        self._alive: list[list[int]] = [[] for _ in self.levels]
        self._alive[0] = [0]
        self._arcs: dict[int, Arcs] = {}
        self._count = 0

    @property
    def cycles(self) -> int:
        """Cycles of the shortest path; `FAR` where there is none that is better."""
        return int(self._reach[-1])

    def group(self, start: int, end: int) -> int:
        """Return the operators between two ideals, as bits."""
        return self._masks[end] ^ self._masks[start]

    def starts(self, end: int, most: int, lone: int) -> list[int]:
        """Return the ideals that a group may follow to complete ideal `end`, if it may be any good.

        A group has `most` operators at most; those of `lone`, bits, must be by themselves.
        """
        mask = self._masks[end]
        size, masks = mask.bit_count(), self._masks
        levels = self._alive[max(0, size - most) : size]
        spend(self._tuning.look_price * sum(map(len, levels)))
        found = [at for level in levels for at in level if masks[at] & mask == masks[at]]
        if not found:
            return found
        if mask & lone:
            found = [
                at
                for at in found
                if not (mask ^ masks[at]) & lone or masks[at].bit_count() == size - 1
            ]
        given = np.array(found, np.int64)
        floor = (self._left[given] - self._left[end]).max(axis=1, initial=0)
        good = self._reach[given] + floor + self._rest[end] < self.upper
        return list(given[good].tolist())

    def useless(self, starts: Array, end: int) -> Array:
        """Return the cycles of arcs into an ideal from which on no path is better."""
        return np.asarray(self.upper - self._rest[end] - self._reach[starts])

    def join(self, end: int, arcs: Arcs) -> None:
        """Keep the arcs into an ideal that may be part of a better plan, and label it."""
        some = np.flatnonzero(arcs.cycles < NONE)
        total = self._reach[arcs.start[some]] + arcs.cycles[some] + self._rest[end]
        some = some[total < self.upper]
        if not len(some):
            return
        self._count += len(some)
        if self._count > self._tuning.most_arcs:
            raise TooManyArcsError
        self._arcs[end] = Arcs(
            arcs.start[some].astype(np.int32),
            arcs.cycles[some],
            arcs.chosen[some],
        )
        self.label(end)
        self._alive[self._masks[end].bit_count()].append(end)

    def label(self, end: int) -> None:
        """Find the shortest path to an ideal."""
        arcs = self._arcs.get(end)
        if arcs is None:
            return
        reach = self._reach[arcs.start]
        open_ = (reach < FAR) & (arcs.cycles < NONE)
        total = np.where(open_, reach + np.where(open_, arcs.cycles, 0), FAR)
        at = int(total.argmin())
        self._reach[end], self._before[end] = total[at], at

    def least(self, size: int, most: int) -> int:
        """Return what plans take at least, when ideals up to a size are labelled.

        Their last group that ends among these does so less than `most` operators before the rest.
        """
        last = [at for level in self._alive[max(0, size + 1 - most) : size + 1] for at in level]
        return int((self._reach[last] + self._rest[last]).min(initial=FAR))

    def path(self) -> list[tuple[int, int]]:
        """Return the arcs of the shortest path."""
        found, end = [], len(self._masks) - 1
        while end:
            start = int(self._arcs[end].start[self._before[end]])
            found.append((start, end))
            end = start
        return found[::-1]

    def cut(self, start: int, end: int) -> int:
        """Return the cut of an arc."""
        return int(self._arcs[end].chosen[self._at(start, end)])

    def change(self, start: int, end: int, cycles: int, chosen: int) -> None:
        """Give the arc from `start` to `end` other `cycles` and another cut, number `chosen`."""
        at = self._at(start, end)
        self._arcs[end].cycles[at], self._arcs[end].chosen[at] = cycles, chosen

    def _at(self, start: int, end: int) -> int:
        """Return which arc into an ideal begins at another."""
        return int(np.flatnonzero(self._arcs[end].start == start)[0])


def members(group: int) -> tuple[int, ...]:
    """Return the operators of a set of bits, rising."""
    return tuple(at for at in range(group.bit_length()) if group >> at & 1)


def steps(groups: Sequence[int]) -> Array:
    """Return the steps in which groups grow, for :meth:`.oracle.Oracle.price`.

    Rising integers: those that share their last operators follow one another, the shortest first.
    """
    found: list[tuple[int, int, bool, bool]] = []
    previous = 0
    for group in groups:
        top = (previous ^ group).bit_length()
        age, rest = (group >> top).bit_count(), group & ((1 << top) - 1)
        while rest:
            k = rest.bit_length() - 1
            rest ^= 1 << k
            found.append((k, age, False, not rest))
            age += 1
        previous = group
    way = np.array(found, dtype=np.int64).reshape(len(found), 4)
    if len(found) > 1:
        # Nothing is gone back to once a group begins anew: what follows counts as far away.
        far = way[:, 1] + len(found) * np.cumsum(way[:, 1] == 0)
        way[:-1, 2] = np.minimum.accumulate(far[:0:-1])[::-1] <= far[:-1]
    return way
