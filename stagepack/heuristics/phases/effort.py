"""A clock of work: about the seconds that what was done so far takes on a usual machine.

Runs that are to repeat end by this clock instead of that on the wall.  It goes on by what is
counted (groups, rows, layers, labels) times what one of them usually costs.  One clock a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOOK = 1e-5
"""Seconds of a step of Python that calls a kernel or two."""

LAYER, SHORT, MOMENTS = 3e-6, 2e-5, 512
"""Seconds of a layer of a plan, to assemble, check and evaluate it: of the first so many layers,
which are gone through moment by moment, more."""

GROUP = 3e-7
"""Seconds of a group's sums and traffic."""

READ = 3e-8
"""Seconds of a tensor that is read, in passes over arrays or in kernels."""

ROW = 6e-7
"""Seconds of an option in one mode: times, idle cycles, and the sorting of what is beaten."""

LABEL = 4e-7
"""Seconds of a label: to grow, sort and keep it."""

COMPARISON = 1.5e-9
"""Seconds of a comparison of two rows or labels."""


class _Clock(threading.local):
    seconds = 0.0


_clock = _Clock()


def spend(seconds: float) -> None:
    """Count work that takes about so many seconds."""
    _clock.seconds += seconds


def plan(layers: int, training: bool) -> None:
    """Count that a plan is assembled, checked and evaluated."""
    spend((5 if training else 1) * (LAYER * layers + SHORT * min(layers, MOMENTS)))


def spent() -> float:
    """Return the seconds of work since :func:`counting` began."""
    return _clock.seconds


@contextmanager
def counting() -> Iterator[None]:
    """Let the clock begin at 0, and be what it was afterwards."""
    before, _clock.seconds = _clock.seconds, 0.0
    try:
        yield
    finally:
        _clock.seconds = before
