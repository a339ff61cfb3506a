"""Relatives of MiniMalloc's instances: slightly changed, at their own load bound.

A relative differs from one of the six instances by a few changes: a size by a granule, an end by
one step of time, or the sizes of two buffers that are swapped.  Its capacity is its load, so that
hardly any room is left anywhere, and no set of parameters can have been fitted to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stagepack as sp
from benchmarks.packing_peers import Runner

CHANGES = (1, 2, 4, 8)
"""How many changes relatives have, in turn."""

WITHIN = (1.0, 2.0, 10.0)
"""Seconds of processor time within which it is told how many are decided."""


def relative(instance: Any, changes: int, random: np.random.Generator) -> Any:
    """Return an instance with some changes, to be fitted into its load.

    Parameters
    ----------
    instance : LmemPacking
    changes : int
        How many; of which kind each is, is drawn.
    random : numpy.random.Generator
    """
    size, end = instance.size.copy(), instance.end.copy()
    granule = int(np.gcd.reduce(size))
    moments = np.unique(np.concatenate([instance.start, instance.end]))
    done = 0
    while done < changes:
        i, j = random.integers(instance.n, size=2)
        kind, sign = random.integers(3), random.choice([-1, 1])
        before = size[i], end[i]
        if kind == 0:
            size[i] = max(granule, size[i] + granule * sign)
        elif kind == 1:
            at = np.clip(np.searchsorted(moments, end[i]) + sign, 0, len(moments) - 1)
            end[i] = moments[at] if moments[at] > instance.start[i] else end[i]
        else:
            size[i], size[j] = size[j], size[i]
        done += before != (size[i], end[i])
    changed = instance.replace(size=size, end=end)
    return changed.replace(capacity=highest_load(changed), objective="fit")


def highest_load(instance: Any) -> int:
    """Return the largest sum of sizes alive at one time."""
    at = np.concatenate([instance.end, instance.start])  # what ends makes room first
    change = np.concatenate([-instance.size, instance.size])
    return int(np.cumsum(change[np.argsort(at, kind="stable")]).max())


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


@dataclass(frozen=True)
class Outcome:
    """How one relative went: seconds of the processor, and what was found."""

    name: str
    seconds: float
    status: str
    over: float


def decided(
    given: Sequence[tuple[str, Any]], runner: Runner, limit: float, *, tell: bool = False
) -> list[Outcome]:
    """Return how a method decides relatives, each within a limit in wall seconds.

    Parameters
    ----------
    given : sequence of (str, LmemPacking)
    runner : Runner
    limit : float
    tell : bool
        Print each as it ends.
    """
    outcomes = []
    for name, instance in given:
        run = runner.prepare(instance, limit)
        began = time.process_time()
        answer = run()
        seconds = time.process_time() - began
        if answer.offsets is not None:
            peak = int((answer.offsets + instance.size).max())
            assert not instance.check(sp.PackingSolution.of(instance, answer.offsets))
            status, over = "fits", peak / instance.capacity
        else:
            status, over = "does not fit" if answer.proved else "undecided", np.nan
        outcomes.append(Outcome(name, seconds, status, over))
        if tell:
            print(f"{name:<10}{seconds:>9.3f}  {status}", flush=True)
    return outcomes
