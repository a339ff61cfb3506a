"""Which stages lie on paths that lead to which others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData

KEPT_AS = "_ancestors"
"""Where an instance keeps them."""

TOGETHER = 64
"""Producers of a stage that are taken together: most others are above them, and left out."""

STAGE = 1_000
"""Steps of an effort that so many take, and one more for every 8 bytes."""

MANY = 1_000_000
"""Steps after which the clock is asked."""


class Ancestors:
    """For every stage a bit for each stage above it; use :meth:`of`.

    Producers of a stage that lie above others of them bring nothing new.  O(edges * p / 8) bytes
    are looked at where none does, O(p**2 / 8) where all but the last do.  `look` is called several
    times a second with the steps since; it may raise.
    """

    def __init__(self, instance: ScheduleData, look: Callable[[int], object]) -> None:
        p, producers = instance.p, instance.producers
        first = producers.first.tolist()
        place = np.argsort(instance.order)
        steps = 0
        self._bits = np.zeros((p, p + 7 >> 3), dtype=np.uint8)
        for stage in instance.order:
            rest = producers.stage[first[stage] : first[stage + 1]]
            if len(rest) > 1:
                rest = rest[np.argsort(-place[rest])]  # the last ones first
            while len(rest):
                some, rest = rest[:TOGETHER], rest[TOGETHER:]
                row = self._bits[stage]
                row |= np.bitwise_or.reduce(self._bits[some], axis=0)
                np.bitwise_or.at(row, some >> 3, (1 << (some & 7)).astype(np.uint8))
                rest = rest[~self.above(stage, rest)]
                steps += STAGE + len(row) * len(some) // 8
            if steps > MANY:
                look(steps)
                steps = 0
        look(steps)

    @classmethod
    def of(cls, instance: ScheduleData, look: Callable[[int], object]) -> Ancestors:
        """Return those of an instance, found once and kept with it."""
        kept: dict[str, Ancestors] = vars(instance)
        if KEPT_AS not in kept:
            kept[KEPT_AS] = cls(instance, look)
        return kept[KEPT_AS]

    def above(self, stage: int, among: Array) -> Array:
        """Return which of the stages `among` are on paths that lead to `stage`, as booleans."""
        return np.asarray(self._bits[stage, among >> 3] >> (among & 7) & 1, dtype=bool)
