"""The best plan when groups are expensive to evaluate: a lazy shortest path over ideals.

For every group and cut a lower bound on its cycles is known (:mod:`.free`).  The shortest path over
these bounds is a bound on all plans.  The groups on it are then evaluated more closely, which
raises their bounds or finds a solution that reaches them; then the path is computed again.  When
every group on the path reaches its bound, the path is an optimal plan.  Groups that no better plan
can contain are removed.

Cost: O(groups in cuts) a path.  Source: lazy evaluation of edges as in LazySP (Dellin and
Srinivasa, 2016), with bounds on both sides instead of edges that are known or unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.dag import Arcs, Paths, TooManyArcsError, members, steps
from stagepack.heuristics.groups.dp import FAR
from stagepack.heuristics.groups.free import FreeOracle
from stagepack.heuristics.groups.ideals import Lattice, Network
from stagepack.heuristics.groups.oracle import ALONE, NONE
from stagepack.heuristics.groups.tuning import TUNING, PathsTuning
from stagepack.instances.groups.timesteps import alone_cycles
from stagepack.instances.profile import Array

UNKNOWN = FAR // 4
"""Cycles of what no way is known for; three of them still are an integer."""


class Choice(NamedTuple):
    """Operators as a group in a cut, between two ideals."""

    start: int
    end: int
    cut: int


class Choices:
    """Groups in cuts that may be part of a plan of less than `upper` cycles.

    `known` are the ideals that plans pass through; `upper` is `FAR` where no plan is known.
    `columns`, int64 (3, choices), are their starts, ends and cuts.  Of shape (choices,), int64:
    `low` and `high` are what they take at least, and as far as is known; `useful` the cycles from
    which on no better plan passes through them.
    """

    def __init__(self, known: Lattice, upper: int, tuning: PathsTuning = TUNING.paths) -> None:
        self.paths, self._tuning = Paths(known, upper, tuning), tuning
        self._ideals = len(known)
        self.columns = np.zeros((3, 0), np.int64)
        self.low = self.high = self.useful = np.zeros(0, np.int64)

    def find(
        self,
        network: Network,
        oracle: FreeOracle,
        pause: Callable[[], None],
        on_bound: Callable[[int], None],
    ) -> None:
        """Find all that may be part of a better plan, by what they take at least.

        The `oracle` is a branching one.  `pause` is called several times a second and raises where
        the run is over; `on_bound` is told the cycles below which no plan through the ideals can
        be.  Raises `TooManyArcsError` where they are more than are kept.
        """
        found, count = [], 0
        for size, level in enumerate(self.paths.levels[1:], 1):
            for end in level:
                pause()
                found.append(self._into(end, network, oracle))
                count += len(found[-1][1])
                if count > self._tuning.most_choices:
                    raise TooManyArcsError
            least = min(self.paths.least(size, oracle.instance.max_group), self.paths.upper)
            if least < FAR:
                on_bound(least)
        self.columns = np.concatenate([columns for columns, _ in found], axis=1)
        self.low = np.concatenate([low for _, low in found])
        self.high = np.where(self.columns[2] == ALONE, self.low, UNKNOWN)

    def _into(self, end: int, network: Network, oracle: FreeOracle) -> tuple[Array, Array]:
        """Return what completes an ideal, and the least cycles of that."""
        instance, paths = oracle.instance, self.paths
        starts = paths.starts(end, instance.max_group, network.lone)
        starts.sort(key=lambda start: paths.group(start, end))
        if not starts:
            return np.zeros((3, 0), np.int64), np.zeros(0, np.int64)
        groups = [paths.group(start, end) for start in starts]
        way, given = steps(groups), np.array(starts, np.int64)
        asked = np.flatnonzero(way[:, 3])
        below = np.zeros(len(way), np.int64)
        below[asked] = paths.useless(given, end)
        floors = oracle.floors(way, below)[asked]
        row, cut = np.nonzero(floors < NONE)
        start, low = given[row], floors[row, cut]
        for one, group in zip(starts, groups, strict=True):
            at = group.bit_length() - 1
            if group == 1 << at and instance.stands(at):
                start, cut = np.append(start, one), np.append(cut, ALONE)
                low = np.append(low, alone_cycles(instance, at))
        paths.join(end, Arcs(start, low, cut))
        return np.stack([start, np.full(len(start), end), cut]), low

    def members(self, choice: Choice) -> tuple[int, ...]:
        """Return the operators of a group."""
        return members(self.paths.group(choice.start, choice.end))

    def choice(self, at: int) -> Choice:
        """Return one of them."""
        start, end, cut = self.columns[:, at]
        return Choice(int(start), int(end), int(cut))

    def shortest(self, cycles: Array) -> tuple[int, list[int]]:
        """Return the least sum of cycles, and the choices on that path.

        From `UNKNOWN` on no way is known; `FAR` and [] where there is no path at all.
        """
        start, end, _ = self.columns
        spend(self._tuning.label_price * self._ideals)
        reach, before = self._labels(start, end, cycles, forward=True)
        if reach[-1] >= FAR:
            return FAR, []
        found, at = [], self._ideals - 1
        while at:
            found.append(int(before[at]))
            at = int(start[found[-1]])
        return int(reach[-1]), found[::-1]

    def narrow(self, upper: int) -> Array:
        """Leave out what no plan below `upper` passes through; return what stays, as numbers."""
        start, end, _ = self.columns
        spend(2 * self._tuning.label_price * self._ideals)
        reach, _ = self._labels(start, end, self.low, forward=True)
        rest, _ = self._labels(start, end, self.low, forward=False)
        self.useful = upper - reach[start] - rest[end]
        stay = np.flatnonzero(self.low < self.useful)
        self.columns, self.useful = self.columns[:, stay], self.useful[stay]
        self.low, self.high = self.low[stay], self.high[stay]
        return stay

    def _labels(
        self, start: Array, end: Array, cycles: Array, *, forward: bool
    ) -> tuple[Array, Array]:
        """Return the least cycles from no operators to each ideal, or from each to all."""
        count = self._ideals
        label, via = np.full(count, FAR), np.zeros(count, np.int64)
        label[0 if forward else -1] = 0
        here, there = (end, start) if forward else (start, end)
        order = np.argsort(here, kind="stable")
        at, first = np.unique(here[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        pieces = [(node, order[a:b]) for node, a, b in zip(at, first, ends, strict=False)]
        for node, which in pieces if forward else pieces[::-1]:
            total = np.minimum(label[there[which]] + cycles[which], FAR)
            best = int(total.argmin())
            label[node], via[node] = total[best], which[best]
        return label, via
