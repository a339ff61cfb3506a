"""What can be traded in a knapsack: room against the value left behind."""

from __future__ import annotations

from collections.abc import Iterator

from stagepack.instances.tradeoffs import MORE, Axis, WhatIf, more
from tests.toy_kind.instances.toy import Knapsack, KnapsackSolution


def _within(instance: Knapsack, limit: int) -> Knapsack:
    return instance.replace(capacity=min(instance.capacity, limit))


def _used(instance: Knapsack, solution: KnapsackSolution) -> int:
    return sum(instance.sizes[i] for i in solution.taken)


AXES = {"room": Axis(unit="litres", description="room in the bag", within=_within, used=_used)}


def what_ifs(instance: Knapsack) -> Iterator[WhatIf]:
    """Yield a larger bag."""
    yield WhatIf(f"{MORE} % more room", instance.replace(capacity=more(instance.capacity)))


def critical(instance: Knapsack, solution: KnapsackSolution) -> Iterator[tuple[str, str]]:
    """Yield the most that is left behind."""
    left = [value for i, value in enumerate(instance.values) if i not in solution.taken]
    yield "dearest left behind", f"{max(left, default=0)}"
