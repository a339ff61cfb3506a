"""Native solver calls, so that the models are tested without the engines' wing."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.formulations.packing import CpSat, Milp
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from tests.formulations.pipeline.engines import Answer, solve_lp

Formulation = CpSat | Milp


def solve(formulation: Formulation, *, fixed: Array | None = None) -> Answer:
    """Solve a model to optimality, or only check the point `fixed` in it."""
    if isinstance(formulation, Milp):
        return solve_lp(lowered(formulation), fixed=fixed)
    from ortools.sat.python import cp_model

    model = formulation.model.clone()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would keep SIGINT for good
    if fixed is not None:
        assert len(fixed) == len(model.proto.variables)
        for index, value in enumerate(fixed):
            model.add_hint(model.get_int_var_from_proto_index(index), int(value))
        solver.parameters.fix_variables_to_their_hinted_value = True
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Answer(None)
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    values = np.array(solver.response_proto.solution)
    return Answer(values, solver.best_objective_bound, solver.objective_value)


def lowered(formulation: Milp) -> Any:
    """Return the model as a `HighsLp`."""
    from stagepack.solvers.lowering import lower

    lp, columns = lower(formulation.model)
    assert [id(column) for column in columns] == [id(v) for v in formulation.variables]
    return lp


def optimum(formulation: Formulation) -> PackingSolution | None:
    """Return a best solution, checked, with its bound confirmed; None when there is none."""
    if formulation.infeasible:
        return None
    answer = solve(formulation)
    if answer.values is None:
        return None
    instance: LmemPacking = formulation.instance
    solution = formulation.decode(answer.values)
    assert instance.check(solution) == ()
    assert formulation.lower_bound(answer.bound) == instance.evaluate(solution)
    return solution


def confirm(formulation: Formulation, solution: PackingSolution) -> None:
    """Assert that a solution is in the model, at its value, with every variable hinted."""
    answer = solve(formulation, fixed=np.asarray(formulation.hint(solution), dtype=float))
    assert answer.values is not None
    value = formulation.instance.evaluate(solution)
    assert abs(answer.objective * formulation.frame.gain - value) < 1e-3
