"""The search of the frontier method: partitions from above, bounds from below, until they meet.

Partitions come from :mod:`.window_search`.  Between the bound and the best of them limits are
decided by sweeps that merge less and less: no label left raises the bound, a beam that gets through
is a better partition, and what took too much work is left for a limit nearer to the bound.  Rounds
of this and of window search take turns, each with twice the work of the one before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.graph import frontier_state as state
from stagepack.heuristics.graph import window_search
from stagepack.heuristics.graph.frontier import Guide, Sweeps
from stagepack.instances.profile import Array

DELTAS = (0.08, 0.04, 0.02, 0.01, 0.005, 0.0025, 0.00125, 0.0, 0.0)
"""Parts of the limit within which loads are merged, sweep after sweep."""
BEAM, WIDE = 1000, 200_000
"""Labels of a beam; of one where nothing was merged any more."""
LOOKED_FOR = 0.02
"""Merging up to which a beam looks for a partition after each sweep."""
SHARES = (0.5, 0.25, 0.125, 0.0625)
"""Where limits are tried between the bound and the best partition."""
ROUND = 4.0
"""Seconds of work of one limit in the first round, on a graph of a thousand blocks."""
LAST = 3
"""The last round with window search: there blocks may move by two stages, before by one."""


class Search:
    """What is known of a graph, and what makes it better.

    Parameters
    ----------
    sweeps : Sweeps
    bound : int
        Ticks below which nothing is possible.
    offer : callable
        Told of stages; returns their ticks, None if they break a rule.
    on_bound : callable
        Told of every better bound.

    Attributes
    ----------
    bound : int
    best, value : ndarray of int64 or None, int
        The stages of the best partition, and its ticks: a limit that all keep where there is none.
    impossible : bool
        Whether there is none at all.
    """

    def __init__(
        self,
        sweeps: Sweeps,
        bound: int,
        offer: Callable[[Array], int | None],
        on_bound: Callable[[int], object],
    ) -> None:
        self.sweeps, self.bound = sweeps, bound
        self._offer, self._on_bound = offer, on_bound
        self.best: Array | None = None
        model = sweeps.model
        self.value = int(model.work[0].max(axis=0).sum()) + sum(model.network.cost) + 1
        self.impossible = False
        self._crowded = False

    def take(self, stages: Array) -> int | None:
        """Offer stages; keep them if they are the best.  Return their ticks, if they are valid."""
        value = self._offer(stages)
        if value is not None and value < self.value:
            self.best, self.value = stages, value
        return value

    def run(self) -> None:
        """Search until the bound is met, or labels take too much room."""
        scale = ROUND * max(1.0, self.sweeps.model.blocks / 1000)
        if self.best is None:
            self._decide(self.value - 1, np.inf)
        turn = 0
        if self.best is not None:
            self._close(scale)  # most of the way is short
        while self.bound < self.value and not self.impossible:
            if self.best is not None and turn <= LAST:
                window_search.search(
                    self.sweeps,
                    self.best,
                    self.value,
                    self.take,
                    lambda: self.bound,
                    reach=1 + turn // LAST,
                    steps=2 * (turn + 1),
                )
            self._crowded = False
            before = self.bound, self.value
            self._close(scale * 2**turn)
            if self._crowded and before == (self.bound, self.value):
                return
            turn += 1

    def _close(self, work: float) -> None:
        """Try limits between the bound and the best partition."""
        for share in SHARES:
            while self.bound < self.value and not self.impossible:
                limit = self.bound + int(share * (self.value - self.bound))
                if not self._decide(min(limit, self.value - 1), work):
                    break

    def _decide(self, limit: int, work: float) -> bool:
        """Raise the bound beyond a limit, or find a partition within it; False: neither."""
        sweeps = self.sweeps
        guide = Guide(sweeps.windows(limit), None, {})
        for turn, part in enumerate(DELTAS):
            reverse = turn % 2 == 1
            swept = sweeps.run(reverse, limit, int(part * limit), guide, work=work)
            if swept.status == state.EMPTY:
                self._raise(limit + 1)
                return True
            if swept.guide is None:
                self._crowded |= swept.status == state.FULL
                return False
            guide = swept.guide
            if part <= LOOKED_FOR or self.best is None:
                beam = BEAM if part > 0 else WIDE
                found = sweeps.run(not reverse, limit, 0, guide, beam=beam)
                if found.stages is not None:
                    # Labels know less than the rules where stashes, or empty stages, count.
                    value = self.take(found.stages)
                    if value is not None and value <= limit:
                        return True
        self._crowded = True  # what is left breaks rules that labels do not know, or beams miss it
        return False

    def _raise(self, bound: int) -> None:
        self.bound = bound
        if self.best is None and bound >= self.value:
            self.impossible = True
        else:
            self._on_bound(bound)
