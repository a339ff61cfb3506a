"""Cycles of many transfers and phases at once, with exactly the results of the instance's rules.

Each function here is a vectorised version of one in the instance, which checks the solutions.

Cost: O(entries).  Source: the rules of the instance (:mod:`stagepack.instances.phases.modes`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

import numpy as np

from stagepack.instances.phases.modes import Mode
from stagepack.instances.profile import Array, Chip

UNLIMITED = 2**62
"""More bytes or cycles than an instance may have."""

Cycles = TypeVar("Cycles", int, Array)


def exact(value: object) -> Fraction | None:
    """Return a rate as the fraction its decimal text stands for; None (free) stays None."""
    return None if value is None else Fraction(str(value))


class Links:
    """The rates of a chip, in bytes a cycle; None: free.  At `gather` shards are gathered."""

    def __init__(self, chip: Chip) -> None:
        self._remote, self._host = exact(chip.remote_bandwidth), exact(chip.host_bandwidth)
        self._tile, self.gather = exact(chip.tile_bandwidth), exact(chip.gather_bandwidth)

    def remote(self, io_tiles: int) -> Fraction | None:
        """Return the rate of remote memory through some I/O tiles (0: all tiles)."""
        return self._through(self._remote, io_tiles)

    def host(self, io_tiles: int) -> Fraction | None:
        """Return the rate of the host through some I/O tiles (0: all tiles)."""
        return self._through(self._host, io_tiles)

    def _through(self, link: Fraction | None, io_tiles: int) -> Fraction | None:
        """Return the rate of a link through some I/O tiles (0: all tiles)."""
        if io_tiles == 0 or self._tile is None:
            return link
        through = self._tile * io_tiles
        return through if link is None else min(link, through)


def rooms(chip: Chip, io_tiles: int) -> tuple[int, int]:
    """Return the bytes of the compute tiles and of the I/O tiles, 2**62 without a limit."""
    if chip.memory is None:
        return UNLIMITED, UNLIMITED
    return (chip.tiles - io_tiles) * chip.memory // chip.tiles, io_tiles * chip.memory // chip.tiles


def transfer(nbytes: int, rate: Fraction | None) -> int:
    """Return ceil(bytes / rate), exactly; 0 where the rate is None."""
    return 0 if rate is None else -(-nbytes * rate.denominator // rate.numerator)


def transfers(nbytes: Array, rate: Fraction | None) -> Array:
    """Return ceil(bytes / rate) of every entry, exactly; zeros where the rate is None.

    Where products could overflow, quotients are rounded in floating point and those within its
    error of an integer computed again with whole numbers; O(entries).
    """
    if rate is None or not nbytes.size:
        return np.zeros_like(nbytes)
    most = int(nbytes.max())
    if most * rate.denominator < UNLIMITED and rate.numerator < UNLIMITED:
        return np.asarray(-(-nbytes * rate.denominator // rate.numerator))
    quotient = nbytes / float(rate)
    nearest = np.rint(quotient)
    found = np.ceil(quotient).astype(np.int64)
    doubtful = np.flatnonzero(np.abs(quotient - nearest) <= 1e-9 + quotient * 2.0**-49)
    values, where = np.unique(nbytes[doubtful], return_inverse=True)
    exact = np.array([transfer(int(v), rate) for v in values], dtype=np.int64)
    found[doubtful] = exact[where]
    return found


def on_tiles(cycles: Cycles, tiles: int, io_tiles: int) -> Cycles:
    """Return what `cycles` on all `tiles` become when `io_tiles` only move data, rounded up."""
    return cycles if io_tiles == 0 else -(-cycles * tiles // (tiles - io_tiles))


def phase_times(
    mode: Mode, variables: Array, load: Array, compute: Array, store: Array, steps: int
) -> Array:
    """Return the cycles of phases without start-up and epilogue; the twin of `phase_time`.

    All arrays are int64, of one shape: `variables` are cycles V, once a phase, in mode ``naive``
    once a step; `load`, `compute` and `store` the cycles L, C and S of one step.  `steps`, G, is at
    least 1.
    """
    if mode is Mode.NAIVE:
        return np.asarray(steps * (variables + load + compute + store))
    if mode is Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * np.maximum(load + store, compute)
        ends = np.maximum(load, compute) + np.maximum(store, compute)
        return np.asarray(variables + load + ends + steady + store)
    return np.asarray(variables + steps * (load + compute + store))


def idle_times(mode: Mode, load: Array, compute: Array, store: Array, steps: int) -> Array:
    """Return the cycles in which I/O tiles idle beside compute; the twin of `io_slack`.

    `load`, `compute`, `store` and `steps` are as for :func:`phase_times`.
    """
    if not mode.uses_io_tiles:
        return np.zeros_like(compute)
    if mode is Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * np.maximum(0, compute - load - store)
        return np.asarray(np.maximum(0, compute - load) + steady + np.maximum(0, compute - store))
    return np.asarray(steps * compute)
