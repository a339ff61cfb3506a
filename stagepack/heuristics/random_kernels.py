"""Compiled random numbers.

The generator xorshift64*, O(1) a number.  Source: Vigna 2016.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step


@step
def draw(random: Array, below: int) -> int:
    """Return a random number in [0, below): xorshift64*, Vigna 2016.

    `random`, uint64 of shape (1,), is the state of the generator.
    """
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    high = (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    return np.int64(high) % below  # type: ignore[return-value]
