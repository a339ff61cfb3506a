"""Structured packings: lives and conflict graphs of regular shapes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from stagepack.instances.packing import LmemPacking
from stagepack.instances.profile import Array
from tests.structured.figures import Draw, figures, some

SMALL = 5
SIZES = (16, 20, 64, 128, 600, 1_000, 1_024, 2_000, 4_000, 20_000, 60_000)
MOST_PAIRS = 200_000
"""Conflicts of a graph at most: there are fewer buffers then."""


def _options(draw: Draw, size: Array) -> dict[str, Any]:
    """Return alignments and a capacity: ample, just that of all, hardly enough, or too little."""
    found: dict[str, Any] = {}
    if some(draw, 0.3):
        found["alignment"] = 2 ** draw.integers(0, 4, len(size))
    if some(draw, 0.3):
        total, most = int(size.sum()), int(size.max())
        found["capacity"] = int(draw.choice([total, 2 * total, most, most + 1, total // 2 + most]))
        found["objective"] = str(draw.choice(["fit", "peak"]))
    return found


def _lives(lives: Callable[[Draw, int], Any], **more: Any) -> Callable[[Draw, int], LmemPacking]:
    def make(draw: Draw, n: int) -> LmemPacking:
        size = figures(draw, n, 1)
        start, end, *period = lives(draw, n)
        given = {"period": period[0]} if period else {}
        if some(draw, 0.15) and not period and n > 1:
            given["colocated"] = [(0, n - 1)] if size[0] == size[-1] else []
        return LmemPacking.from_arrays(size, start, end, **given, **more, **_options(draw, size))

    return make


def _graph(pairs: Callable[[Draw, int], Any]) -> Callable[[Draw, int], LmemPacking]:
    def make(draw: Draw, n: int) -> LmemPacking:
        if pairs is not _stars and pairs is not _path:
            n = min(n, int((2 * MOST_PAIRS) ** 0.5))
        size = figures(draw, n, 1)
        place = draw.permutation(n) if some(draw) else np.arange(n)
        found = np.array([*pairs(draw, n)], dtype=np.int64).reshape(-1, 2)
        return LmemPacking.from_arrays(size, conflicts=place[found], **_options(draw, size))

    return make


def _multipartite(draw: Draw, n: int) -> Any:
    """All of unlike parts conflict; some vertices conflict with all."""
    part = (
        np.arange(n) % int(draw.integers(1, 6)) if some(draw) else np.sort(draw.integers(0, 4, n))
    )
    hubs = draw.random(n) < draw.choice([0.0, 0.1, 0.5])
    one, other = np.triu_indices(n, 1)
    met = (part[one] != part[other]) | hubs[one] | hubs[other]
    return np.column_stack((one[met], other[met]))


def _stars(draw: Draw, n: int) -> Any:
    """Some centres, of which each conflicts with leaves of its own; centres with one another."""
    centres = int(draw.integers(1, min(n, 8) + 1))
    return [*combinations(range(centres), 2), *((at % centres, at) for at in range(centres, n))]


def _cliques(draw: Draw, n: int) -> Any:
    """Cliques of which each shares vertices with the next one."""
    width = int(draw.integers(1, min(n, 12) + 1))
    shared = int(draw.integers(0, width))
    begins = range(0, n, max(1, width - shared))
    return {pair for at in begins for pair in combinations(range(at, min(n, at + width)), 2)}


def _path(draw: Draw, n: int) -> Any:
    """A path, closed now and then."""
    return [*pairwise(range(n)), *([(0, n - 1)] if n > 2 and some(draw) else [])]


def _almost(draw: Draw, n: int) -> Any:
    """All conflict, but for a matching."""
    return [pair for pair in combinations(range(n), 2) if pair != (pair[0] // 2 * 2, pair[0] + 1)]


def _covered(draw: Draw, n: int) -> Any:
    """A circle that most go around wholly, or but for a moment."""
    period = int(draw.integers(1, 2 * n + 2))
    start = draw.integers(0, period, n)
    return start, start + np.maximum(1, period - draw.integers(0, 3, n)), period


def _around(draw: Draw, n: int) -> Any:
    """A circle of lives end to end: each wraps into the next one's."""
    start, reach = np.arange(n), int(draw.integers(1, n + 1))
    return start, start + reach, n


SHAPES: dict[str, Callable[[Draw, int], LmemPacking]] = {
    "all-alive": _lives(lambda _, n: (np.zeros(n, int), np.ones(n, int))),
    "none-alive": _lives(lambda _, n: (np.arange(n), np.arange(n) + 1)),
    "nested": _lives(lambda _, n: (np.arange(n), 2 * n - np.arange(n))),
    "stairs": _lives(lambda draw, n: (np.arange(n), np.arange(n) + int(draw.integers(2, n + 3)))),
    "comb": _lives(lambda _, n: (np.where(np.arange(n) % 2, 0, np.arange(n)), np.arange(n) + 1)),
    "star": _lives(
        lambda _, n: (np.arange(n) - (np.arange(n) == n - 1) * (n - 1), np.arange(n) + 1)
    ),
    "two-halves": _lives(lambda _, n: (np.arange(n) % 2, np.arange(n) % 2 + 1)),
    "covered": _lives(_covered),
    "around": _lives(_around),
    "multipartite": _graph(_multipartite),
    "stars": _graph(_stars),
    "cliques": _graph(_cliques),
    "path": _graph(_path),
    "almost-complete": _graph(_almost),
    "no-conflict": _graph(lambda _, n: []),
}
