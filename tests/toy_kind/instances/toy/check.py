"""What a filled bag is worth, and whether it is right."""

from __future__ import annotations

from stagepack.instances.violation import Violation
from tests.toy_kind.instances.toy.data import KnapsackData, KnapsackSolution


def shape(instance: KnapsackData, solution: KnapsackSolution) -> tuple[Violation, ...]:
    odd = [i for i in solution.taken if not 0 <= i < instance.n]
    return tuple(Violation("thing", f"there is no thing {i}") for i in odd[:1])


def check(instance: KnapsackData, solution: KnapsackSolution) -> tuple[Violation, ...]:
    broken = shape(instance, solution)
    size = 0 if broken else sum(instance.sizes[i] for i in solution.taken)
    if size > instance.capacity:
        broken = (Violation("capacity", f"{size} in a bag of {instance.capacity}"),)
    return broken


def evaluate(instance: KnapsackData, solution: KnapsackSolution) -> int:
    return sum(value for i, value in enumerate(instance.values) if i not in solution.taken)
