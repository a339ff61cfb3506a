"""MILP: the program of :mod:`.placement`, loads in steps that engines count exactly.

Sets, parameters, variables, objective, constraints, size and source are those of
:mod:`.placement`.
"""

from __future__ import annotations

from stagepack.formulations.base import LARGEST_STEPS, InSteps
from stagepack.formulations.graph.model import GraphModel
from stagepack.formulations.graph.placement import Placement
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.instance import GraphPartition


class Milp(InSteps[GraphPartition, GraphSolution], GraphModel):
    """The program as a `Linear`; T is continuous."""

    largest = LARGEST_STEPS

    def build(self) -> None:
        """Build the model, or find out that there is no place for a block."""
        self.placement = Placement(self.frame, whole=False)
        self.infeasible = self.placement.program.contradiction
        if not self.infeasible:
            self.model = self.placement.program.arrays()
