"""The cost of work on packings, for the clock of :mod:`stagepack.heuristics.effort`."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.effort import carried, counting, left, lending, spend, spent
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.progress import Stopped

__all__ = [
    "Pause",
    "carried",
    "counting",
    "left",
    "lending",
    "pausing",
    "scattered",
    "spend",
    "spent",
]

Pause = Callable[[], None]
"""Called now and then by what may take long; raises when it should end."""


def scattered(n: int, *, tuning: PackingTuning = TUNING) -> float:
    """Return how many times as long it takes to look up something of any of `n` buffers."""
    return tuning.prices.uncached if n > tuning.prices.cached_buffers else 1.0


def pausing(keep_going: Callable[[], bool] | None) -> Pause:
    """Return what raises :class:`~stagepack.progress.Stopped` once `keep_going` says no."""

    def pause() -> None:
        if keep_going is not None and not keep_going():
            raise Stopped

    return pause
