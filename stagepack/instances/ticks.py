"""From cycles to whole *ticks*, so that every method compares integers.

Integer cycles and rational speeds have exact ticks, and so have fractions with a few digits.  What
has no common unit is put on a binary grid, so fine that the largest figure has 52 bits: a power of
two changes no double, however large or small, and rounding then moves a value by a few ticks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.profile import Array

LARGEST_TICKS = 2**60
GRID_BITS = 52  # bits of the largest figure on a binary grid
ROUNDING = 16  # ticks by which rounding may move a value there: two a term, and their sums
MOST_DIGITS = 9
BLOCK = 2**20  # figures looked at between two looks at the clock


def decimal_grid(values: Array, pause: Callable[[], object]) -> int:
    """Return the least power of ten, up to 10**9, that makes all values whole; 0: none does."""
    if values.dtype.kind == "i":
        return 1
    flat, scale = values.reshape(-1), 1
    for begin in range(0, len(flat), BLOCK):
        pause()
        block = flat[begin : begin + BLOCK]
        while not _whole(block * scale):
            scale *= 10
            if scale > 10**MOST_DIGITS:
                return 0
    return scale if flat.max(initial=0.0) * scale < 2**53 else 0


def _whole(scaled: Array) -> bool:
    """Whether all are whole up to the last bits of a double, each value by its own size."""
    return bool((np.abs(scaled - np.rint(scaled)) <= 4 * np.spacing(scaled)).all())


def exactly(speed: Number) -> Fraction:
    """Return a speed as it is written: 0.1 as 1/10."""
    return Fraction(speed if isinstance(speed, int) else str(speed))


def ticks(values: Array, factor: Fraction | int) -> Array:
    """Return values times `factor` as integers: exactly when that is whole, else rounded."""
    if values.dtype.kind == "i" and factor.denominator == 1 and factor < LARGEST_TICKS:
        return np.asarray(values * factor.numerator)
    return np.rint(values * float(factor)).astype(np.int64)


def binary_grid(largest: float) -> int:
    """Return the exponent e of the grid: `largest` times 2**e has `GRID_BITS` bits."""
    return GRID_BITS - math.frexp(largest)[1]


def on_binary_grid(values: Array, exponent: int) -> Array:
    """Return values times 2**exponent, rounded to integers."""
    return np.rint(np.ldexp(values, exponent)).astype(np.int64)


def running_on_binary_grid(
    values: Array, exponent: int, slowest: float, pause: Callable[[], object]
) -> Array:
    """Return, shape (n + 1,), running sums of `values` / slowest times 2**exponent.

    Whole parts are summed as integers, and only what is left of them in floating point: no error
    accumulates, however many values there are.  The `exponent` is that of :func:`binary_grid`, and
    `slowest` the speed of the slowest device; `pause` is called before every block of `BLOCK`
    values.
    """
    running, whole_before, rest_before = np.zeros(len(values) + 1), 0, 0.0
    for begin in range(0, len(values), BLOCK):
        pause()
        scaled = np.ldexp(values[begin : begin + BLOCK], exponent) / slowest
        whole = np.floor(scaled)
        rest = np.cumsum(scaled - whole) + rest_before
        sums = np.cumsum(whole.astype(np.int64)) + whole_before
        running[begin + 1 : begin + 1 + BLOCK] = sums + rest
        whole_before, rest_before = int(sums[-1]), float(rest[-1])
    return running
