"""Native solver calls, so that the models are tested without the engines' wing."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.profile import Array
from tests.formulations.pipeline.engines import Answer


def solve(formulation: Any, *, fixed: Array | None = None, relaxed: bool = False) -> Answer:
    """Solve a model to optimality, or only check the point `fixed` in it."""
    import highspy

    if isinstance(formulation.model, highspy.HighsLp):
        return _solve_lp(formulation.model, fixed, relaxed)
    from ortools.sat.python import cp_model

    model = formulation.model.clone()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would keep SIGINT for good
    if fixed is not None:
        assert len(fixed) == len(model.proto.variables)
        for index, value in enumerate(fixed):
            if np.isnan(value):
                continue
            model.add_hint(model.get_int_var_from_proto_index(index), int(value))
        solver.parameters.fix_variables_to_their_hinted_value = True
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Answer(None)
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    values = np.array(solver.response_proto.solution)
    return Answer(values, solver.best_objective_bound, solver.objective_value)


def _solve_lp(lp: Any, fixed: Array | None, relaxed: bool) -> Answer:
    import highspy

    highs = highspy.Highs()
    highs.silent()
    # As our engine does: presolve of HiGHS 1.12 can lose optima of general integers.
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("presolve", "off")):
        highs.setOptionValue(option, value)
    highs.passModel(lp)
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
        values = np.array(lp.col_lower_, dtype=float)
        cost = float(np.dot(lp.col_cost_, values))
        return Answer(values, cost, cost)
    assert status == highspy.HighsModelStatus.kOptimal
    bound = info.objective_function_value if relaxed else info.mip_dual_bound
    return Answer(np.array(highs.getSolution().col_value), bound, info.objective_function_value)
