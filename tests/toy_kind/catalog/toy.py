"""Named knapsacks."""

from __future__ import annotations

from typing import Any

from stagepack.catalog.generator import Generator
from tests.toy_kind.instances.toy import Knapsack


def stairs(things: int, capacity: int) -> Knapsack:
    """Things of sizes 1, 2, 3, ... and values 1, 4, 9, ..."""
    sizes = tuple(range(1, things + 1))
    values = tuple(size * size for size in sizes)
    return Knapsack.from_arrays(sizes, values, capacity=capacity, name=f"stairs-{things}")


GENERATORS = {
    "stairs": Generator(stairs, {"things": 5, "capacity": 9}, "things of growing size and value")
}
SUITE: tuple[tuple[str, dict[str, Any]], ...] = (("stairs", {}),)
TOUR: tuple[str, dict[str, Any], tuple[str, ...]] = ("stairs", {}, ("greedy", "auto"))
