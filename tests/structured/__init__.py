"""Structured instances of every kind: what random ones hardly ever are.

A kind's module has its `SHAPES`, functions of random numbers and a size, the `SIZES` at which its
code changes its ways, and up to which size, `SMALL`, everything can be tried.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from tests.structured import graph, groups, packing, phases, pipeline, schedule

KINDS: dict[str, ModuleType] = {
    "pipeline": pipeline,
    "graph": graph,
    "schedule": schedule,
    "phases": phases,
    "groups": groups,
    "packing": packing,
}

EVERY = 4
"""Of so many small instances that a soak draws, one is structured."""


def small(kind: str, number: int) -> Any:
    """Return the instance of a number, small enough to try everything; it never changes."""
    draw = np.random.default_rng([31, number])
    return _made(kind, number, int(draw.integers(1, KINDS[kind].SMALL + 1)), draw)


def large(kind: str, number: int, most: int) -> Any:
    """Return one at or beside a threshold of the kind's code, or of `most` things at most."""
    draw = np.random.default_rng([37, number])
    sizes = [size for size in KINDS[kind].SIZES if size < most] + [most]
    size = sizes[int(draw.integers(len(sizes)))] + int(draw.integers(-1, 2))
    return _made(kind, number, max(1, min(size, most)), draw)


def _made(kind: str, number: int, size: int, draw: np.random.Generator) -> Any:
    shapes = KINDS[kind].SHAPES
    shape = [*shapes][number % len(shapes)]
    return shapes[shape](draw, size).replace(name=f"{shape}-{size}")
