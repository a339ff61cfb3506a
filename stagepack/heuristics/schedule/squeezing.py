"""Squeezing of patterns of a V: operations move into the gaps that its ramps leave.

A pattern of F's and B's repeats every so many slots.  Its first and last microbatches leave slots
idle, into which operations move from behind, within the memory of the steady state.  W's run in
what slots are left.

Cost: O(operations), and for what moves the slots of a ramp.  Source: Qi et al. 2024, Pipeline
parallelism with controllable memory (arXiv 2405.15362); in the order of moves of its authors' code,
sail-sg/zero-bubble-pipeline-parallelism, `zbv_greedy` and `v1f1b`.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.schedule.effort import PART
from stagepack.heuristics.schedule.pattern_kernels import (
    IDLE,
    B,
    F,
    Slots,
    W,
    fill,
    owe,
    settle,
    squeeze,
)
from stagepack.heuristics.schedule.patterns import Look
from stagepack.instances.profile import Array


class Squeezed:
    """A pattern of the F's and B's of a V, one slot each, that repeats microbatch by microbatch.

    `begin`, int64 (2 d, 2), are the slots of the first microbatch, of m; the next one is `period`
    slots later.  `look` as everywhere.
    """

    def __init__(self, begin: Array, period: int, m: int, look: Look) -> None:
        self._d, self._look = len(begin) // 2, look
        moment = np.zeros((2 * self._d, 3, m), dtype=np.int64)
        moment[:, :W] = begin[:, :, None] + period * np.arange(m)
        self._moment = moment

    def in_pairs(self) -> Array:
        """Return moments, (2 d, 3, m), where every B has the slot behind it for its W."""
        self._moment[:, W] = self._moment[:, B] + 1
        every = self._visit(W)
        self._squeeze(every, np.zeros(len(every), dtype=np.int64), pairs=True)
        return self._moment

    def apart(self) -> Array:
        """Return moments, (2 d, 3, m), where W's run in what slots are left.

        Both ramps are squeezed with W's in their places first, then the second without them.
        """
        self._owe()
        every = self._visit(W)
        begin, end = self._steady(every)
        fixed = np.zeros(len(every), dtype=np.int64)
        fixed[begin : end + 1] = 1
        self._squeeze(every, fixed)
        self._settle()
        every = self._visit(B)
        fixed = np.ones(len(every), dtype=np.int64)
        fixed[self._steady(every)[1] + 1 :] = 0
        self._squeeze(every, fixed, implicit=True)
        self._owe()
        self._settle()
        self._owe()
        return self._moment

    def _visit(self, last: int) -> Array:
        """Return the places of all operations of kinds up to `last`, by their slots."""
        n, m = self._moment.size, self._moment.shape[2]
        stage, kind = np.arange(n) // (3 * m), np.arange(n) // m % 3
        device = np.minimum(stage, 2 * self._d - 1 - stage)
        by = np.lexsort((device, self._moment.ravel()))
        self._look(20 * n)
        return np.asarray(by[kind[by] <= last], dtype=np.int64)

    def _steady(self, visit: Array) -> tuple[int, int]:
        """Return where in `visit` the steady state begins and ends.

        From the first microbatch that comes back on until the last one enters.
        """
        m = self._moment.shape[2]
        place = np.zeros(self._moment.size, dtype=np.int64)
        place[visit] = np.arange(len(visit))
        place = place.reshape(self._moment.shape)
        begin, entering = int(place[0, B, 0]), place[: self._d, F, m - 1]
        later = entering[entering > begin]
        return begin, int(later.min()) if len(later) else len(visit)

    def _slots(self, last: int, *, pairs: bool = False, implicit: bool = False) -> Slots:
        """Return the slots with operations of kinds up to `last` in them."""
        m = self._moment.shape[2]
        width = int(self._moment[:, : last + 1].max()) + 2 + (2 * m if last < W else 0)
        kind = np.full((self._d, width), IDLE, dtype=np.int64)
        for stage in range(2 * self._d):
            for each in range(last + 1):
                device = min(stage, 2 * self._d - 1 - stage)
                kind[device, self._moment[stage, each]] = each
        self._look(2 * self._moment.size)
        held, owed = np.zeros((2, *kind.shape), dtype=np.int64)
        weights = np.zeros((self._d, 2), dtype=np.int64)
        return Slots(self._moment, kind, held, owed, weights, 0, int(implicit), int(pairs))

    def _squeeze(
        self, visit: Array, fixed: Array, *, pairs: bool = False, implicit: bool = False
    ) -> None:
        """Move what is in `visit` and not `fixed` forward, in the memory there is without."""
        slots = self._slots(B if implicit else W, pairs=pairs, implicit=implicit)
        slots = slots._replace(most=int(fill(slots)))
        self._look(slots.kind.size)
        state = np.zeros(2, dtype=np.int64)
        while not squeeze(slots, visit, fixed, state, PART):
            self._look(PART)

    def _owe(self) -> None:
        """Give W's the slots that are left."""
        slots = self._slots(B)
        owe(slots, np.zeros(2 * self._d, dtype=np.int64))
        self._look(slots.kind.size)

    def _settle(self) -> None:
        """Run all as early as it can in the order that there is."""
        settle(self._slots(W), self._visit(W), np.zeros(self._d, dtype=np.int64))
        self._look(10 * self._moment.size)
