"""Stages that stay on their device or are loaded into it, and a bound over all partitions.

A stage whose bytes fit stays on its device.  Any other stage loads variables at least once for
every bundle of microbatches (:mod:`stagepack.instances.phases.stage`).  Either all of them are
loaded, and not during its work; or, if some may stay and others are loaded during computation, at
least those for which there is no room.  Its device is then busy for

    work(a, b),                                             if bytes(a, b) <= room,
    work(a, b) + loads(a, b)                                otherwise, or
    max(work(a, b), cycles a byte * (bytes(a, b) - room))   if variables may stay.

All of these rise with the range.  For a given limit, each stage in turn takes as many layers as it
can, and bisection finds the least limit: O(k log n) a probe.
Source: own work.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from stagepack.instances.profile import Array

PROBES = 60
SLACK = 1e-9
"""Relative, for sums of floats."""


class Loaded:
    """A chain at `cuts`, those that are allowed, int (allowed,), 0 and n included.

    Of its layers, each (n,): `work`, cycles of a step, `loads`, cycles, and `held`, bytes.  Devices
    have `room` for so many bytes, and there may be so many `stages`.  `each`: cycles of a step for
    each byte that is loaded, where variables may stay.
    """

    def __init__(
        self,
        cuts: Array,
        work: Array,
        loads: Array,
        held: Array,
        room: float,
        stages: int,
        each: float | None = None,
    ) -> None:
        self.cuts: list[int] = cuts.tolist()
        self.work, self.loads, self.held = (_before(one, cuts) for one in (work, loads, held))
        self.room, self.stages, self.each = room, stages, each

    def bound(self) -> int:
        """Return a lower bound on the longest time that any device is busy."""
        return math.floor(self._least()[0] * (1 - SLACK))

    def boundaries(self) -> tuple[int, ...]:
        """Return stages of which the longest is as short as can be, at least one layer each."""
        return self._least()[1]

    def _least(self) -> tuple[float, tuple[int, ...]]:
        """Return a limit within which no stages are, and stages next to it."""
        loads = self.loads if self.each is None else [self.each * held for held in self.held]
        both = loads
        if self.each is None:
            both = [work + load for work, load in zip(self.work, loads, strict=True)]
        low, high = 0.0, max(self.work[-1], both[-1])
        best = self._within(high * (1 + SLACK) + 1, both)
        for _ in range(PROBES):
            middle = (low + high) / 2
            found = self._within(middle, both)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        assert best is not None
        return low, best

    def _within(self, limit: float, both: list[float]) -> tuple[int, ...] | None:
        """Return stages none of which takes longer than the limit, each as long as can be."""
        at, found, last = 0, [0], len(self.cuts) - 1
        for _ in range(self.stages):
            busy = bisect_right(self.work, self.work[at] + limit)
            if self.each is None:
                kept = min(busy, bisect_right(self.held, self.held[at] + self.room))
                at = max(at, kept - 1, bisect_right(both, both[at] + limit) - 1)
            else:
                spare = limit if self.each == 0 else limit + self.each * self.room
                at = max(at, min(busy, bisect_right(both, both[at] + spare)) - 1)
            found.append(self.cuts[at])
            if at == last:
                return tuple(dict.fromkeys(found))
        return None


def _before(column: Array, cuts: Array) -> list[float]:
    """Return what all layers before each cut take together."""
    total = np.concatenate(([0.0], np.cumsum(column, dtype=np.float64)))
    found: list[float] = total[cuts].tolist()
    return found
