"""What the models of a graph partition share: from an instance to a program, and back.

Cost and source: see :mod:`.placement`.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from stagepack.formulations.base import Formulation
from stagepack.formulations.graph.frame import Frame
from stagepack.formulations.graph.placement import Placement
from stagepack.heuristics.graph.tuning import TUNING, ModelsTuning
from stagepack.instances.graph.compact import Compact
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.linear import Array


class GraphModel(Formulation[GraphPartition, GraphSolution]):
    """A model of a graph partition, in ticks.

    What is worth more than `upper`, the ticks of a known solution, may be cut off, nothing else
    is.  Figures of the model, and their sums, are below `largest`.
    """

    largest: int
    placement: Placement

    def __init__(
        self,
        compact: Compact,
        *,
        upper: int | None = None,
        tuning: ModelsTuning = TUNING.models,
    ) -> None:
        self.upper = upper
        self.frame = Frame(compact, upper, self.largest, tuning)
        self.coarse = self.frame.coarse
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Build the model, or find out that there is no place for a block."""

    def worth(self, steps: int) -> int:
        """Return the least ticks of a solution whose loads are so many steps."""
        return max(0, steps - self.frame.excess) * self.frame.unit

    def decode(self, values: Array) -> GraphSolution:
        """Return the solution of values by column."""
        placed, slots = self.placement, range(self.frame.slots)
        slot_of = [max(row, key=lambda s: float(values[row[s]])) for row in placed.x]
        kinds = [
            max(row, key=lambda c: float(values[row[c]])) if row else self.frame.classes[s][0]
            for s, row in enumerate(placed.z)
        ]
        position = list(slots)
        if placed.a:
            earlier = [
                sum(float(values[placed.a[t, s].index]) > 0.5 for t in slots if t != s)
                for s in slots
            ]
            position = earlier
        replicas = [max(row, key=lambda j: float(values[row[j]])) if row else 1 for row in placed.m]
        shared = replicas if any(placed.m) else []
        return self.frame.solution(slot_of, kinds, position, shared)

    def hint(self, solution: GraphSolution) -> Array:
        """Return where blocks are in a solution, shape (columns,); NaN for all that follows.

        Raises `ValueError` when a block is where the model has no place for it.
        """
        placed = self.placement
        values = np.full(len(placed.program.cost), np.nan)
        slot_of, running, shared = self.frame.slots_of(solution)
        for row, slot in zip(placed.x, slot_of, strict=True):
            if slot not in row:
                raise ValueError(f"{solution} is not in the model")
            for s, column in row.items():
                values[column] = s == slot
        for s, classes in enumerate(placed.z):
            for c, column in classes.items():
                if running[s] >= 0:
                    values[column] = self.frame.compact.device_class[running[s]] == c
        for s, numbers in enumerate(placed.m):
            for j, column in numbers.items():
                values[column] = shared[s] == j
        return values
