"""Knapsacks: how they are made, what a filled one is worth."""

from __future__ import annotations

from collections.abc import Iterable

from stagepack.errors import InputError
from stagepack.instances.base import Answered, Rules
from tests.toy_kind.instances.toy.check import check, evaluate, shape
from tests.toy_kind.instances.toy.data import KnapsackData, KnapsackSolution


class Knapsack(KnapsackData, Answered[KnapsackSolution, int]):
    """Things with sizes and values; use :meth:`from_arrays`."""

    solution_type = KnapsackSolution
    rules = Rules(shape, check, evaluate)

    @classmethod
    def from_arrays(
        cls,
        sizes: Iterable[int],
        values: Iterable[int],
        *,
        capacity: int,
        objective: str = "left-behind",
        name: str = "bag",
        source: str = "",
    ) -> Knapsack:
        built = cls(
            sizes=tuple(sizes),
            values=tuple(values),
            capacity=capacity,
            objective=objective,
            name=name,
            source=source,
        )
        if len(built.values) != built.n:
            raise InputError("give one a thing", field="values", remedy="as many as sizes")
        if objective != "left-behind":
            raise InputError(f"unknown objective {objective!r}", field="objective")
        return built
