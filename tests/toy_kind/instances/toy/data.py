"""The data of a knapsack, and what fills it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from stagepack.contracts import cached
from stagepack.instances.documents import strict
from stagepack.shown import Shown, ShownSolution
from tests.toy_kind.instances.toy.problem import KIND


@dataclass(frozen=True, repr=False)
class KnapsackSolution(ShownSolution):
    """The things that go into the bag."""

    taken: tuple[int, ...]

    @classmethod
    def from_dict(cls, data: Any, instance: Any = None) -> KnapsackSolution:
        return strict.convert(data, cls)

    def to_dict(self) -> dict[str, Any]:
        return {"taken": list(self.taken)}

    def malformed(self) -> str:
        return "" if isinstance(self.taken, tuple) else "taken"


@dataclass(frozen=True, kw_only=True, repr=False)
class KnapsackData(Shown):
    """Things with sizes and values; minimise the value that is left behind."""

    sizes: tuple[int, ...]
    values: tuple[int, ...]
    capacity: int
    name: str = "bag"
    source: str = ""
    objective: str = "left-behind"

    kind = KIND
    tolerance = 0.0

    @property
    def n(self) -> int:
        return len(self.sizes)

    @cached
    def digest(self) -> str:
        known = [getattr(self, f.name) for f in fields(self) if f.name not in ("name", "source")]
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} things"


def packed(instance: KnapsackData, solution: KnapsackSolution) -> dict[str, Any]:
    """Return what goes into the bag, for other tools."""
    return {"packed": list(solution.taken)}
