"""Native solver calls, so that the models are tested without the engines' wing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagepack.linear import Array, Linear
from stagepack.solvers.highs import native


@dataclass
class Answer:
    """What a solver says: values and bound, or None when it proved that there are none."""

    values: Array | None
    bound: float = math.inf
    objective: float = math.inf


def solve(formulation: Any, *, fixed: Array | None = None, relaxed: bool = False) -> Answer:
    """Solve a model to optimality; or only check the point `fixed` in it, NaN where it is free."""
    if type(formulation.model).__name__ == "CpModel":
        return _solve_cp_sat(formulation.model, fixed)
    return solve_lp(lowered(formulation), fixed=fixed, relaxed=relaxed)


def lowered(formulation: Any) -> Linear:
    """Return the arrays of a linear model."""
    assert isinstance(formulation.model, Linear)
    return formulation.model


def solve_lp(program: Linear, *, fixed: Array | None = None, relaxed: bool = False) -> Answer:
    """Solve a program without any gap; `relaxed` drops integrality."""
    import highspy

    highspy.Highs.resetGlobalScheduler(True)  # others may have run with more threads
    highs = highspy.Highs()
    highs.silent()
    # As our engine does: presolve may lose optima of general integers.
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("presolve", "off")):
        highs.setOptionValue(option, value)
    highs.setOptionValue("threads", 1)
    highs.passModel(native(program))
    if relaxed:
        highs.setOptionValue("solve_relaxation", True)
    if fixed is not None:
        given = np.flatnonzero(~np.isnan(fixed)).astype(np.int32)
        highs.changeColsBounds(len(given), given, fixed[given], fixed[given])
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Answer(None)
    info = highs.getInfo()
    if status == highspy.HighsModelStatus.kModelEmpty:
        # Without rows or columns to decide every column is at its lower bound.
        cost = program.objective(program.lower)
        return Answer(program.lower, cost, cost)
    assert status == highspy.HighsModelStatus.kOptimal
    integral = not relaxed and program.integral.any()
    bound = info.mip_dual_bound if integral else info.objective_function_value
    return Answer(np.array(highs.getSolution().col_value), bound, info.objective_function_value)


def _solve_cp_sat(given: Any, fixed: Array | None) -> Answer:
    from ortools.sat.python import cp_model

    model = given.clone()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would keep SIGINT for good
    if fixed is not None:
        assert len(fixed) == len(model.proto.variables)
        for index in np.flatnonzero(~np.isnan(fixed)).tolist():
            model.add_hint(model.get_int_var_from_proto_index(index), int(fixed[index]))
        solver.parameters.fix_variables_to_their_hinted_value = True
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Answer(None)
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    values = np.array(solver.response_proto.solution)
    return Answer(values, solver.best_objective_bound, solver.objective_value)
