"""Small packings of extreme structure, on which arrays that are too short by one are too short."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from stagepack.instances.packing import LmemPacking

SIZES = np.array([3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 2, 4])
"""Bytes of buffers, in turn."""


def alive(start: list[int], end: list[int], **more: Any) -> LmemPacking:
    """Return buffers of these lifetimes and the sizes above."""
    return LmemPacking.from_arrays(np.resize(SIZES, len(start)), start, end, **more)


def equal(start: list[int], end: list[int], **more: Any) -> LmemPacking:
    """Return identical buffers of these lifetimes."""
    return LmemPacking.from_arrays([2] * len(start), start, end, **more)


def conflicting(parts: list[int], universal: int = 0) -> LmemPacking:
    """Return a complete multipartite graph of conflicts, and buffers that conflict with all."""
    part = [*range(-universal, 0), *np.repeat(np.arange(len(parts)), parts).tolist()]
    pairs = [(i, j) for i, j in combinations(range(len(part)), 2) if part[i] != part[j]]
    return LmemPacking.from_arrays(np.resize(SIZES, len(part)), conflicts=pairs)


def structured() -> dict[str, LmemPacking]:
    """Return the instances by name."""
    n = 9
    at, whole = list(range(n)), [n] * n
    return {
        "one": alive([0], [1]),
        "all alive": alive([0] * n, [1] * n),
        "all alike": equal([0] * n, [1] * n),
        "one after the other": alive(at, [i + 1 for i in at]),
        "chain": alive(at, [i + 2 for i in at]),
        "twins in chains": equal([i // 3 for i in at], [i // 3 + 2 for i in at]),
        "all nested": alive(at, [2 * n - i for i in at]),
        "one beside each": alive([0, *at], [n, *(i + 1 for i in at)]),
        "growing": alive([0] * n, [i + 1 for i in at]),
        "period covered": alive(at, [i + n for i in at], period=n),
        "around the period": alive(at, [i + 2 for i in at], period=n),
        "aligned": alive(at, [i + 4 for i in at], alignment=[1, 2, 3] * 3),
        "one fixed": alive([0] * n, whole, fixed=[7] + [-1] * (n - 1)),
        "holes": alive(at, [i + 3 for i in at], reserved=[(5 * i + 2, 5 * i + 3) for i in at]),
        "ranges": alive(at, whole, allowed=[(i, 3 * i, 3 * i + 9) for i in at]),
        "star": conflicting([1, 8]),
        "clique": conflicting([1] * 7),
        "tripartite": conflicting([3, 3, 3], 2),
        "bipartite": conflicting([5, 5], 3),
    }
