"""Figures that strain what engines compute exactly: large ones, decimals, tiny beside huge."""

from __future__ import annotations

from typing import Any

import numpy as np

STYLES = ("large", "round", "decimals", "mixed", "both")


def style_of(draw: np.random.Generator) -> str:
    """Return how the figures of an instance are drawn: one of `STYLES`."""
    return STYLES[int(draw.integers(len(STYLES)))]


def figures(draw: np.random.Generator, size: Any, style: str) -> Any:
    """Return figures, none negative: an array of float64, or of int64 where all are whole.

    Parameters
    ----------
    draw : Generator
    size : shape
    style : str
        ``large`` and ``round``: whole, 1e8 to 1e11, the latter in steps of 1e8; ``decimals``: to 30
        with up to nine decimals; ``mixed``: small and large whole ones; ``both``: all of it.
    """
    kinds = {
        "large": draw.integers(10**8, 10**11, size),
        "round": draw.integers(1, 60, size) * 10**8,
        "small": draw.integers(0, 30, size),
        "decimals": np.round(draw.random(size) * 30, 9),
        "few": np.round(draw.random(size) * 30, 6),
    }
    parts = {
        "large": ("large",),
        "round": ("round",),
        "decimals": ("decimals", "few", "small"),
        "mixed": ("small", "round", "large"),
        "both": ("small", "decimals", "large", "round"),
    }[style]
    which = draw.integers(len(parts), size=size)
    values = np.choose(which, [kinds[part] for part in parts])
    return np.where(draw.random(size) < 0.1, 0, values).astype(values.dtype)


def nbytes(draw: np.random.Generator, size: Any, high: int, factor: int) -> Any:
    """Return bytes up to about `high` times `factor`, with and without a common unit.

    Parameters
    ----------
    draw : Generator
    size : shape
    high : int
    factor : int
        1 for small ones.
    """
    values = draw.integers(0, high, size) * factor
    if factor == 1:
        return values
    return values + draw.integers(0, 7, size) * (draw.random(size) < 0.3)
