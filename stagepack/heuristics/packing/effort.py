"""The cost of work on packings, for the clock of :mod:`stagepack.heuristics.effort`."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.effort import carried, counting, left, lending, spend, spent
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

LOOK = 3e-5
"""Seconds of a call of a kernel, with what Python does before and after."""

ITEM = 3e-7
"""Seconds an item costs in a handful of passes over arrays: a sort, sums, a search."""

PAIR = 2e-8
"""Seconds a pair of blocks alive together costs to list."""

COVERED, EDGE = 2e-2, 3e-6
"""Seconds between two looks at the clock while cliques are sought, and at most for a conflict."""

ROW = 2e-6
"""Seconds of a row that Python itself goes through."""

EXAMINED = 6e-9
"""Seconds of a conflict in the check of an answer."""

CACHED_BUFFERS, LOOKED_UP = 300_000, 4.0
"""Buffers from which on what is looked up of them lies outside of the cache, and how many times as
long that takes."""


def scattered(n: int) -> float:
    """Return how many times as long it takes to look up something of any of `n` buffers."""
    return LOOKED_UP if n > CACHED_BUFFERS else 1.0


def pausing(keep_going: Callable[[], bool] | None) -> Pause:
    """Return what raises :class:`~stagepack.progress.Stopped` once `keep_going` says no."""

    def pause() -> None:
        if keep_going is not None and not keep_going():
            raise Stopped

    return pause
