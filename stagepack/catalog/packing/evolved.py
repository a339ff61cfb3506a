"""Packings whose optimum exceeds the load, which is rare among random ones.

They were found by evolution: under a constant load, each step replaces one to three live buffers by
others with the same number of bytes (`random.constant_load`); it is kept if an exhausted search
shows that the load is not sufficient.  Their optima were confirmed by CP-SAT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.packing.instance import LmemPacking

Row = tuple[int, int, int]
"""Start, end, size."""


@dataclass(frozen=True)
class Core:
    """A small instance: its load, its optimum, its buffers."""

    load: int
    optimum: int
    rows: tuple[Row, ...]


CORES = (
    # The smallest known.
    Core(16, 17, ((0, 2, 4), (0, 1, 6), (0, 3, 5), (1, 2, 4), (1, 4, 2), (2, 5, 7), (3, 4, 7),
                  (4, 5, 8))),
    # The lowest load known.
    Core(8, 9, ((0, 1, 4), (1, 2, 1), (1, 3, 2), (0, 3, 2), (3, 4, 1), (0, 4, 2), (1, 4, 1),
                (2, 5, 1), (3, 5, 3), (4, 5, 4))),
    Core(10, 11, ((0, 1, 4), (1, 2, 2), (0, 2, 5), (0, 3, 1), (2, 3, 1), (2, 4, 1), (3, 5, 2),
                  (1, 5, 2), (2, 6, 5), (4, 6, 1), (5, 6, 4))),
    Core(12, 13, ((0, 1, 3), (0, 1, 3), (0, 2, 2), (0, 3, 4), (2, 3, 1), (1, 3, 5), (3, 4, 4),
                  (2, 4, 1), (1, 4, 1), (3, 5, 6), (4, 5, 6))),
    Core(24, 26, ((0, 1, 6), (0, 2, 12), (1, 2, 1), (2, 3, 1), (1, 3, 2), (2, 3, 6), (2, 4, 6),
                  (1, 4, 2), (0, 5, 6), (1, 5, 1), (3, 5, 9), (4, 5, 8))),
    Core(10, 11, ((0, 1, 4), (0, 1, 2), (1, 2, 5), (0, 3, 4), (2, 4, 1), (3, 4, 1), (2, 4, 3),
                  (1, 5, 1), (3, 5, 2), (2, 6, 1), (3, 6, 1), (4, 6, 5), (5, 6, 3))),
    Core(9, 10, ((0, 1, 4), (1, 2, 2), (0, 3, 3), (2, 4, 1), (1, 4, 1), (3, 4, 1), (3, 5, 2),
                 (2, 6, 1), (0, 6, 2), (1, 7, 1), (4, 7, 3), (5, 7, 1), (5, 7, 1), (6, 7, 3))),
    Core(10, 11, ((0, 1, 2), (1, 2, 1), (0, 3, 4), (3, 4, 2), (2, 4, 1), (3, 5, 1), (0, 5, 4),
                  (5, 6, 2), (4, 6, 3), (6, 7, 1), (3, 7, 1), (1, 8, 1), (5, 8, 3), (6, 8, 4),
                  (7, 8, 2))),
    Core(12, 13, ((0, 1, 4), (0, 2, 2), (0, 3, 2), (3, 4, 1), (1, 4, 3), (0, 5, 4), (3, 6, 1),
                  (1, 6, 1), (4, 7, 2), (2, 8, 1), (2, 8, 1), (4, 8, 2), (5, 8, 2), (5, 8, 2),
                  (6, 8, 2), (7, 8, 2))),
)  # fmt: skip
SMALLEST = min(len(core.rows) for core in CORES)
LOAD = math.lcm(*(core.load for core in CORES))


def smallest() -> LmemPacking:
    """Return the smallest instance known whose optimum (17) exceeds its load (16)."""
    start, end, size = np.array(CORES[0].rows).T
    return LmemPacking.from_arrays(size, start, end, name="above-load")


def evolved(buffers: int, seed: int) -> LmemPacking:
    """Set found instances one after the other, stretched, mirrored and scaled to one load."""
    return _evolved(buffers, seed)[0]


def optimum(buffers: int, seed: int) -> int:
    """Return the optimum of `evolved(buffers, seed)`.

    The highest of its parts, for they do not overlap in time; buffers that are alive all the
    time lie at the bottom in some optimal packing and only add their sizes.
    """
    return _evolved(buffers, seed)[1]


def _evolved(buffers: int, seed: int) -> tuple[LmemPacking, int]:
    if buffers < SMALLEST:
        raise InputError(
            f"{buffers} buffers cannot exceed their load",
            field="buffers",
            remedy=f"give at least {SMALLEST}",
        )
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    now = best = 0
    while buffers - len(rows) >= SMALLEST:
        fitting = [core for core in CORES if len(core.rows) <= buffers - len(rows)]
        core = fitting[int(rng.integers(len(fitting)))]
        last = max(end for _, end, _ in core.rows)
        moments = now + np.concatenate([[0], np.cumsum(rng.integers(1, 20, last))])
        mirrored = bool(rng.integers(2))
        for start, end, size in core.rows:
            if mirrored:
                start, end = last - end, last - start
            rows.append((int(moments[start]), int(moments[end]), size * LOAD // core.load))
        now = int(moments[-1])
        best = max(best, core.optimum * LOAD // core.load)
    ground = rng.integers(1, LOAD // 4, buffers - len(rows)).tolist()
    rows += [(0, now, size) for size in ground]
    start, end, size = np.array(rows)[rng.permutation(len(rows))].T
    instance = LmemPacking.from_arrays(size, start, end, name=f"evolved-{buffers}")
    return instance, best + sum(ground)
