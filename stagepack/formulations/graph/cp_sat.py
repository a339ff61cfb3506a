"""CP-SAT: the program of :mod:`.placement` in integers.

Sets, parameters, variables, objective, constraints, size and source are those of
:mod:`.placement`.
"""

from __future__ import annotations

from stagepack.formulations.base import LARGEST_FACTOR
from stagepack.formulations.graph.model import GraphModel
from stagepack.formulations.graph.placement import Placement


class CpSat(GraphModel):
    """The program as a `cp_model.CpModel`."""

    largest = LARGEST_FACTOR

    def build(self) -> None:
        """Build the model, or find out that there is no place for a block."""
        from ortools.sat.python import cp_model

        self.placement = Placement(self.frame)
        program = self.placement.program
        self.infeasible = program.contradiction
        if self.infeasible:
            return
        self.model = model = cp_model.CpModel()
        bounds = zip(program.lower, program.upper, strict=True)
        columns = [model.new_int_var(int(low), int(high), "") for low, high in bounds]
        for terms, low, high in program.each_row():
            expression = cp_model.LinearExpr.weighted_sum(
                [columns[column] for column in terms], [int(value) for value in terms.values()]
            )
            model.add_linear_constraint(
                expression,
                cp_model.INT_MIN if low is None else int(low),
                cp_model.INT_MAX if high is None else int(high),
            )
        model.minimize(sum(columns[column] for column in self.placement.load))
