"""Relatives of MiniMalloc's instances: slightly changed, at their own load bound.

A relative differs from one of the six instances by a few changes: a size by a granule, an end by
one step of time, or the sizes of two buffers that are swapped.  Its capacity is its load, so that
hardly any room is left anywhere, and no set of parameters can have been fitted to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.packing_peers import Runner, processor_seconds
from stagepack.catalog.packing.relatives import relative

CHANGES = (1, 2, 4, 8)
"""How many changes relatives have, in turn."""

WITHIN = (1.0, 2.0, 10.0)
"""Seconds of processor time within which it is told how many are decided."""


def relatives(
    instances: Sequence[tuple[str, Any]], number: int, seed: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield names and relatives, of all instances and with more and more changes in turn.

    Parameters
    ----------
    instances : sequence of (str, LmemPacking)
    number : int
    seed : int
    """
    for at in range(number):
        name, instance = instances[at % len(instances)]
        changes = CHANGES[at // len(instances) % len(CHANGES)]
        random = np.random.default_rng([seed, at])
        yield f"{name}{changes}-{at}", relative(instance, changes, random)


def decided(given: Iterable[tuple[str, Any]], runner: Runner, limit: float) -> dict[str, float]:
    """Return the seconds of processor time in which relatives were decided; not decided: infinity.

    Parameters
    ----------
    given : iterable of (str, LmemPacking)
    runner : Runner
    limit : float
        Seconds, as the runner takes them.
    """
    seconds = {}
    for name, instance in given:
        run = runner.prepare(instance, limit)
        began = processor_seconds()
        answer = run()
        took = processor_seconds() - began
        seconds[name] = took if answer.proved else math.inf
    return seconds


def shares(seconds: Iterable[float], within: Iterable[float] = WITHIN) -> list[float]:
    """Return which part of some times is within each limit."""
    times = np.array(list(seconds))
    return [float((times <= limit).mean()) for limit in within]
