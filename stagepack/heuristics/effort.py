"""Counted work, as a substitute for time: the seconds that the work done so far usually takes.

Reproducible runs cannot be limited by the wall clock.  They are limited by this clock, which
advances by the number of counted steps (steps of kernels, sorted items) times the usual duration of
one.  Equal work therefore takes equal time on every machine.  The clock is also used to plan the
lengths of searches in runs that the wall clock limits.  Each thread has its own clock; the
durations of steps are defined by each problem.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

SHORT = 8_000
"""Steps with which a search begins: small ones end before their kernel is compiled for them."""


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
def counting(limit: float | None = None) -> Iterator[Callable[[], float]]:
    """Count on a clock of the block's own, which begins at 0 with so many seconds to go.

    Yields what returns the seconds of work in the block, after its end, too.
    """
    before, clock = _here.clock, _Clock()
    if limit is not None:
        clock.limit = limit
    _here.clock = clock
    try:
        yield lambda: clock.seconds
    finally:
        _here.clock = before
