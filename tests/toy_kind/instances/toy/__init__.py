"""Knapsacks: data, solutions, and whether these are right."""

from tests.toy_kind.instances.toy.data import KIND, KnapsackSolution
from tests.toy_kind.instances.toy.instance import Knapsack

__all__ = ["KIND", "Knapsack", "KnapsackSolution"]
