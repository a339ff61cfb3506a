"""Figures that are all alike, all zero, all different powers of two, or nearly so."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array

Draw = np.random.Generator

HIGHEST = 30
"""Exponent of the largest power of two, from which they begin anew."""


def figures(draw: Draw, n: int, least: int = 0) -> Array:
    """Return n whole numbers, at least `least`."""
    alike = np.full(n, int(draw.integers(least, 10)))
    one = alike.copy()
    one[draw.integers(0, n, min(n, 1))] = 1000
    ways = (
        np.full(n, least),
        alike,
        one,
        2 ** (draw.permutation(n) % HIGHEST),
        np.arange(n) + least,
        np.arange(n)[::-1] // 2 + least,
        draw.integers(least, 3 + least, n),
        draw.integers(least, 100, n),
    )
    return np.asarray(ways[int(draw.integers(len(ways)))], dtype=np.int64)


def some(draw: Draw, chance: float = 0.5) -> bool:
    """Return true, with a chance."""
    return bool(draw.random() < chance)
