"""A clock of work: how long what was done so far takes on a usual machine, in seconds.

Runs that are to repeat cannot end by the clock on the wall.  They end by this one, which goes on
by what is counted (steps of kernels, items sorted) times what one of it usually costs, so that
equal work takes equal time on every machine.  It also plans: how long a search may take in a run
that the wall clock ends.  One clock a thread; what work costs, every problem says for itself.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class _Clock:
    seconds = 0.0
    limit = math.inf


class _Thread(threading.local):
    def __init__(self) -> None:
        self.clock = _Clock()


_here = _Thread()


def spend(seconds: float) -> None:
    """Count work that takes about so many seconds."""
    _here.clock.seconds += seconds


def spent() -> float:
    """Return the seconds of work since :func:`counting` began."""
    return _here.clock.seconds


def carried(function: Callable[[], T]) -> Callable[[], T]:
    """Return `function` so that it counts on the clock of this thread in any other one, too."""
    clock = _here.clock

    def run() -> T:
        own, _here.clock = _here.clock, clock
        try:
            return function()
        finally:
            _here.clock = own

    return run


def left() -> float:
    """Return the seconds of work after which the limit of the run is about to come.

    For plans: they are then the same on machines of any speed, whatever ends the run.
    """
    return max(0.0, _here.clock.limit - _here.clock.seconds)


@contextmanager
def lending(part: float, most: float) -> Iterator[None]:
    """Let the limit be a part, of 1, of what is left from here, but at most so many seconds."""
    clock = _here.clock
    before = clock.limit
    clock.limit = clock.seconds + min(part * left(), most)
    try:
        yield
    finally:
        clock.limit = before


@contextmanager
def counting(limit: float | None = None) -> Iterator[None]:
    """Let the clock begin at 0, with so many seconds to go, and be what it was afterwards."""
    clock = _here.clock
    before = clock.seconds, clock.limit
    clock.seconds, clock.limit = 0.0, math.inf if limit is None else limit
    try:
        yield
    finally:
        clock.seconds, clock.limit = before
