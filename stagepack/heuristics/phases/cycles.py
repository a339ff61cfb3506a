"""Cycles of many transfers and phases at once, exactly as the instance counts them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stagepack.instances.phases.modes import Mode, transfer_cycles
from stagepack.instances.profile import Array

EXACT = 2**62


def transfers(nbytes: Array, rate: Fraction | None) -> Array:
    """Return ceil(bytes / rate) of every entry, exactly; zeros where the rate is None.

    Where products could overflow, quotients are rounded in floating point and those within its
    error of an integer computed again with whole numbers; O(entries).
    """
    if rate is None or not nbytes.size:
        return np.zeros_like(nbytes)
    most = int(nbytes.max())
    if most * rate.denominator < EXACT and rate.numerator < EXACT:
        return np.asarray(-(-nbytes * rate.denominator // rate.numerator))
    quotient = nbytes / float(rate)
    nearest = np.rint(quotient)
    found = np.ceil(quotient).astype(np.int64)
    doubtful = np.flatnonzero(np.abs(quotient - nearest) <= 1e-9 + quotient * 2.0**-49)
    values, where = np.unique(nbytes[doubtful], return_inverse=True)
    exact = np.array([transfer_cycles(int(v), rate) for v in values], dtype=np.int64)
    found[doubtful] = exact[where]
    return found


def on_tiles(cycles: Array, tiles: int, io_tiles: int) -> Array:
    """Return what `cycles` on all tiles become when `io_tiles` of them only move data."""
    if io_tiles == 0:
        return cycles
    return np.asarray(-(-cycles * tiles // (tiles - io_tiles)))


def phase_times(
    mode: Mode, variables: Array, load: Array, compute: Array, store: Array, steps: int
) -> Array:
    """Return the cycles of phases without start-up and epilogue; the twin of `phase_time`."""
    if mode is Mode.NAIVE:
        return np.asarray(steps * (variables + load + compute + store))
    if mode is Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * np.maximum(load + store, compute)
        ends = np.maximum(load, compute) + np.maximum(store, compute)
        return np.asarray(variables + load + ends + steady + store)
    return np.asarray(variables + steps * (load + compute + store))


def idle_times(mode: Mode, load: Array, compute: Array, store: Array, steps: int) -> Array:
    """Return the cycles in which I/O tiles idle beside compute; the twin of `io_slack`."""
    if not mode.uses_io_tiles:
        return np.zeros_like(compute)
    if mode is Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * np.maximum(0, compute - load - store)
        return np.asarray(np.maximum(0, compute - load) + steady + np.maximum(0, compute - store))
    return np.asarray(steps * compute)
