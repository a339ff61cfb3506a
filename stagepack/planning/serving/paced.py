"""Stages through which so many batches follow one another, exactly: the pace of each.

A batch passes all stages in Z, the sum of their times, and m batches take turns, so that each is
back after max(Z, m B), B being the largest stage.  Of all partitions whose stages take at most a
limit t, a shortest path through the cuts finds the least Z(t), which falls as t rises.  The best is
where m t meets Z(t): at the least time t of a stage with Z(t) <= m t, or just below it.

Cost: O(k n**2) a limit, O(log n) limits; k matrices of n**2 numbers.
Source: own work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array

NEVER = 2**61
"""More ticks than any partition takes; twice as many can still be counted."""


@dataclass(frozen=True)
class Paced:
    """The best stages, and when each of the batches is back.

    `busy`: the largest stage never waits, and no stages have a smaller one, so that more batches
    would only wait for each other.
    """

    solution: PipelineSolution
    cycles: Number
    busy: bool


class Pacing:
    """Stages of a chain whose objective is ``sum``, one on each device in their order."""

    def __init__(self, instance: PipelinePartition, pause: Callable[[], object]) -> None:
        """Find what all stages take; `pause` is called now and then, and may raise."""
        self._costs, self._pause = RangeCosts.of(instance, pause), pause
        costs = self._costs
        # Ticks of [first, end) on a device of each class; NEVER where it does not fit.
        self._loads: list[Array] = []
        for kind in range(costs.classes):
            load = costs.compute_matrix(kind, pause) + costs.recv[kind][:, None] + costs.send[kind]
            fits = costs.fits_matrix(kind, 0, pause)
            self._loads.append(np.where(fits, load + costs.host, NEVER))
        self._times = np.unique(np.concatenate([one[one < NEVER] for one in self._loads]))
        self._known: dict[int, tuple[int, tuple[int, ...]]] = {}

    def best(self, batches: int) -> Paced | None:
        """Return the best stages for so many batches, one at least; None where none fit."""
        last = len(self._times) - 1
        if last < 0 or self._least(last)[0] >= NEVER:
            return None
        high = min(last, self._first(lambda at: self._least(at)[0] <= batches * self._times[at]))
        ticks = min(
            max(whole, batches * self._largest(cuts))
            for whole, cuts in map(self._least, {max(high - 1, 0), high})
            if whole < NEVER
        )
        even = self._first(lambda at: self._least(at)[0] <= ticks)
        cuts = self._least(even)[1]
        never = even == 0 or self._least(even - 1)[0] >= NEVER
        busy = never and ticks == batches * self._largest(cuts)
        return Paced(PipelineSolution.in_order(cuts), self._costs.value(ticks), busy)

    def _first(self, holds: Callable[[int], bool]) -> int:
        """Return the first limit for which something holds that holds for all larger ones."""
        return bisect_left(range(len(self._times)), True, key=holds)

    def _largest(self, cuts: tuple[int, ...]) -> int:
        """Return the ticks of the largest stage."""
        kinds = self._costs.device_class
        stages = zip(kinds, cuts, cuts[1:], strict=False)
        return max(int(self._loads[kind][first, end]) for kind, first, end in stages)

    def _least(self, at: int) -> tuple[int, tuple[int, ...]]:
        """Return the least ticks of all stages together, none of more than a time, and the cuts."""
        if at in self._known:
            return self._known[at]
        n, limit = self._costs.n, self._times[at]
        kept = [np.where(load <= limit, load, NEVER) for load in self._loads]
        reached = np.full(n + 1, NEVER)  # ticks of the stages so far, by where they end
        reached[0] = 0
        before: list[Array] = []
        for kind in self._costs.device_class:
            self._pause()
            ways = reached[:, None] + kept[kind]
            before.append(ways.argmin(axis=0))
            reached = np.minimum(ways.min(axis=0), NEVER)
        cuts = [n]
        for back in reversed(before):
            cuts.append(int(back[cuts[-1]]))
        self._known[at] = int(reached[n]), tuple(reversed(cuts))
        return self._known[at]
