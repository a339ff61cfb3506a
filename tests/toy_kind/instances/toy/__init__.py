"""Knapsacks: data, solutions, and whether these are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from tests.toy_kind.instances.toy.data import KnapsackSolution as KnapsackSolution
    from tests.toy_kind.instances.toy.instance import Knapsack as Knapsack
    from tests.toy_kind.instances.toy.problem import KIND as KIND
else:
    __getattr__ = later(__name__, problem="KIND", data="KnapsackSolution", instance="Knapsack")
