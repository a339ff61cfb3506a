"""A clock of work: how long what was done so far takes on a usual machine, in seconds.

Runs that are to repeat cannot end by the clock on the wall.  They end by this one, which goes on
by what is counted (steps of kernels, items sorted) times what one of it usually costs, so that
equal work takes equal time on every machine.  It also plans: how long a search may take in a run
that the wall clock ends.  One clock a thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOOK = 3e-5
"""Seconds of a call of a kernel, with what Python does before and after."""

ITEM = 3e-7
"""Seconds an item costs in a handful of passes over arrays: a sort, sums, a search."""

PAIR = 2e-8
"""Seconds a pair of blocks alive together costs to list."""

ROW = 2e-6
"""Seconds of a row that Python itself goes through."""


class _Clock(threading.local):
    seconds = 0.0
    limit = math.inf


_clock = _Clock()


def spend(seconds: float) -> None:
    """Count work that takes about so many seconds."""
    _clock.seconds += seconds


def spent() -> float:
    """Return the seconds of work since :func:`counting` began."""
    return _clock.seconds


def left() -> float:
    """Return the seconds of work after which the limit of the run is about to come.

    For plans: they are then the same on machines of any speed, whatever ends the run.
    """
    return max(0.0, _clock.limit - _clock.seconds)


@contextmanager
def counting(limit: float | None = None) -> Iterator[None]:
    """Let the clock begin at 0, with so many seconds to go, and be what it was afterwards."""
    before = _clock.seconds, _clock.limit
    _clock.seconds, _clock.limit = 0.0, math.inf if limit is None else limit
    try:
        yield
    finally:
        _clock.seconds, _clock.limit = before
