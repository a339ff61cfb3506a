"""Bags for whoever packs them: a line a thing."""

from __future__ import annotations

from tests.toy_kind.instances.toy import Knapsack, KnapsackSolution


def labels(instance: Knapsack, solution: KnapsackSolution, mark: str = "-") -> str:
    """Return a line for each thing in the bag."""
    return "".join(f"{mark} {instance.name} {i}\n" for i in solution.taken)
