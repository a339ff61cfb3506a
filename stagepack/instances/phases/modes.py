"""How long a phase takes: the four ways to run its loop, and what they ask of the tiles.

A phase loads variables (V cycles), then repeats G steps of load (L), compute (C) and store (S).

- ``naive`` loads the variables again in every step: G (V + L + C + S);
- ``compute`` loads them once: V + G (L + C + S), on the compute tiles;
- ``io`` does the same through tiles set aside for input and output;
- ``io_overlapped`` lets these load step i + 1 and store step i - 1 while step i computes:
  V + L + max(L, C) + (G - 2) max(L + S, C) + max(S, C) + S, for G >= 2, else as ``io``.

The first step's load and the last step's store hide behind nothing; in the first slot only the
load of step 1 runs beside step 0, in the last only the store of step G - 2 beside step G - 1.
Source: Graphcore, *Phased execution* tutorial of popxl.addons (``io_mode``); the closed forms
are those of its loops.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Any

from stagepack.instances.profile import Chip


class Mode(StrEnum):
    """How the loop of a phase is built."""

    NAIVE = "naive"
    """Variables are loaded in every step; needs no I/O tiles."""
    COMPUTE = "compute"
    """Compute tiles load and store; needs no I/O tiles."""
    IO = "io"
    """I/O tiles load and store, by turns with compute."""
    IO_OVERLAPPED = "io_overlapped"
    """I/O tiles load and store beside compute."""

    @property
    def uses_io_tiles(self) -> bool:
        """Whether tiles must be set aside."""
        return self in (Mode.IO, Mode.IO_OVERLAPPED)


def rate(value: Any) -> Fraction | None:
    """Return a rate as an exact fraction of its decimal text; None (free) stays None."""
    return None if value is None else Fraction(str(value))


def link_rate(chip: Chip, bandwidth: Any, io_tiles: int) -> Fraction | None:
    """Return the bytes a cycle that a link of a `bandwidth` moves; None: any number, in no time.

    It goes through some `io_tiles`; 0: the compute tiles, which are no bottleneck.
    """
    link = rate(bandwidth)
    if io_tiles == 0 or chip.tile_bandwidth is None:
        return link
    through = Fraction(str(chip.tile_bandwidth)) * io_tiles
    return through if link is None else min(link, through)


def transfer_cycles(nbytes: int, at: Fraction | None) -> int:
    """Return ceil(nbytes / rate), exactly; 0 where the rate is None."""
    return 0 if at is None else -(-nbytes * at.denominator // at.numerator)


def compute_cycles(cycles: int, tiles: int, io_tiles: int) -> int:
    """Return the cycles, rounded up, of what takes `cycles` on all `tiles`, without `io_tiles`."""
    return -(-cycles * tiles // (tiles - io_tiles))


def phase_time(mode: Mode | str, v: int, load: int, compute: int, store: int, steps: int) -> int:
    """Return the cycles of a phase without start-up and epilogue.

    Its variables take V = `v` cycles, and each of its `steps`, at least one, L = `load`, C =
    `compute` and S = `store`.
    """
    if mode == Mode.NAIVE:
        return steps * (v + load + compute + store)
    if mode == Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * max(load + store, compute)
        return v + load + max(load, compute) + steady + max(store, compute) + store
    return v + steps * (load + compute + store)


def io_slack(mode: Mode | str, load: int, compute: int, store: int, steps: int) -> int:
    """Return the cycles in which the I/O tiles of a phase's loop idle while it computes.

    In them the variables of the next phase can be loaded; 0 in the modes without I/O tiles.
    `load`, `compute` and `store` are cycles of one of the `steps`.
    """
    if mode == Mode.IO_OVERLAPPED and steps >= 2:
        steady = (steps - 2) * max(0, compute - load - store)
        return max(0, compute - load) + steady + max(0, compute - store)
    return steps * compute if Mode(mode).uses_io_tiles else 0
