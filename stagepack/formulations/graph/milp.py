"""MILP: the program of :mod:`.placement`, loads scaled to what engines compute well with.

Sets, parameters, variables, objective, constraints, size and source are those of
:mod:`.placement`.
"""

from __future__ import annotations

from stagepack.formulations.graph.model import GraphModel
from stagepack.formulations.graph.placement import Placement

LARGEST = 2**50
LARGEST_COEFFICIENT = 1e2
"""No sum of loads is more: with 1e4, HiGHS 1.12 was seen to fail for numerical reasons."""


class Milp(GraphModel):
    """The program as a `Linear`; T is continuous."""

    largest = largest_choice = LARGEST

    def build(self) -> None:
        """Build the model, or find out that there is no place for a block."""
        frame = self.frame
        largest = float(frame.time.max(axis=1).sum())
        if frame.shared:
            largest += float(frame.exchanged.sum()) / frame.unit
        largest = max(largest, float(frame.cost.max(initial=0)))
        grain = max(1.0, largest / LARGEST_COEFFICIENT)
        self.placement = Placement(frame, grain)
        self.scale = 1 / grain
        self.infeasible = self.placement.program.contradiction
        if not self.infeasible:
            self.model = self.placement.program.arrays()
