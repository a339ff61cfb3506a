"""Knapsacks: data, solutions, and whether these are right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from stagepack.instances.answer import Answered
from stagepack.instances.documents import strict
from stagepack.instances.violation import Violation
from stagepack.result import InputError, Result
from stagepack.shown import ShownSolution

KIND = "toy-knapsack"


@dataclass(frozen=True, repr=False)
class KnapsackSolution(ShownSolution):
    """The things that go into the bag."""

    taken: tuple[int, ...]

    @classmethod
    def from_dict(cls, data: Any, instance: Knapsack | None = None) -> KnapsackSolution:
        return strict.convert(data, cls)

    def to_dict(self) -> dict[str, Any]:
        return {"taken": list(self.taken)}

    def malformed(self) -> str:
        return "" if isinstance(self.taken, tuple) else "taken"


@dataclass(frozen=True, kw_only=True, repr=False)
class Knapsack(Answered[KnapsackSolution]):
    """Things with sizes and values; minimise the value that is left behind."""

    sizes: tuple[int, ...]
    values: tuple[int, ...]
    capacity: int
    name: str = "bag"
    source: str = ""
    objective: str = "left-behind"

    kind = KIND
    tolerance = 0.0

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.values):
            raise InputError("give one a thing", field="values", remedy="as many as sizes")
        if self.objective != "left-behind":
            raise InputError(f"unknown objective {self.objective!r}", field="objective")

    @property
    def n(self) -> int:
        return len(self.sizes)

    @cached_property
    def digest(self) -> str:
        known = [getattr(self, f.name) for f in fields(self) if f.name not in ("name", "source")]
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> Knapsack:
        return replace(self, **changes)

    def evaluate(self, solution: KnapsackSolution | Result[KnapsackSolution]) -> int:
        taken = set(self.solution_in(solution).taken)
        return sum(value for i, value in enumerate(self.values) if i not in taken)

    def check(self, solution: KnapsackSolution | Result[KnapsackSolution]) -> tuple[Any, ...]:
        found = self.solution_in(solution, shaped=False)
        broken = shape(self, found)
        size = 0 if broken else sum(self.sizes[i] for i in found.taken)
        if size > self.capacity:
            broken = (Violation("capacity", f"{size} in a bag of {self.capacity}"),)
        return broken

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} things"

    def _answer(self) -> tuple[type[KnapsackSolution], Callable[..., Iterable[Any]]]:
        return KnapsackSolution, shape


def shape(instance: Knapsack, solution: KnapsackSolution) -> tuple[Violation, ...]:
    odd = [i for i in solution.taken if not 0 <= i < instance.n]
    return tuple(Violation("thing", f"there is no thing {i}") for i in odd[:1])
