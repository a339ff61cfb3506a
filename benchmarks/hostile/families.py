"""Families of instances, and what several of them are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Family = Callable[[float], Any]
FAMILIES: dict[str, dict[str, Family]] = {}
"""Families by kind and name."""


def family(make: Family) -> Family:
    """Enter a function into :data:`FAMILIES`, by the kind that its instances have."""
    kind = make(0.001).kind
    FAMILIES.setdefault(kind, {})[make.__name__.strip("_").replace("_", "-")] = make
    return make


def count(share: float, most: int, least: int = 4) -> int:
    """Return a share of the most, and at least so many."""
    return max(least, int(share * most))


def random_of(n: int) -> np.random.Generator:
    """Return random numbers that are the same for every instance of this size."""
    return np.random.default_rng(n)
