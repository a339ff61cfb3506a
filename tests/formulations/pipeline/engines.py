"""Native solver calls, so that the models are tested without the engines' wing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagepack.formulations.pipeline import CpSat, MilpAssignment, MilpInterval
from stagepack.instances.profile import Array

Formulation = CpSat | MilpAssignment | MilpInterval


@dataclass
class Answer:
    """What a solver says: values and bound, or None when it proved that there are none."""

    values: Array | None
    bound: float = math.inf
    objective: float = math.inf


def solve(formulation: Formulation, *, fixed: Array | None = None) -> Answer:
    """Solve a model to optimality, or only check the point `fixed` in it."""
    if isinstance(formulation, CpSat):
        return _solve_cp_sat(formulation, fixed)
    return solve_lp(lowered(formulation), fixed=fixed)


def lowered(formulation: MilpAssignment | MilpInterval) -> Any:
    """Return the model as a `HighsLp`."""
    if isinstance(formulation, MilpInterval):
        return formulation.model
    from stagepack.solvers.lowering import lower

    lp, columns = lower(formulation.model)
    assert [id(column) for column in columns] == [id(v) for v in formulation.variables]
    return lp


def solve_lp(lp: Any, *, fixed: Array | None = None, relaxed: bool = False) -> Answer:
    """Solve a `HighsLp` without any gap; `relaxed` drops integrality."""
    import highspy

    highs = highspy.Highs()
    highs.silent()
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("threads", 1)):
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    if relaxed:
        highs.setOptionValue("solve_relaxation", True)
    if fixed is not None:
        columns = np.arange(len(fixed), dtype=np.int32)
        highs.changeColsBounds(len(fixed), columns, fixed, fixed)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return Answer(None)
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    info = highs.getInfo()
    integral = not relaxed and highspy.HighsVarType.kInteger in list(lp.integrality_)
    bound = info.mip_dual_bound if integral else info.objective_function_value
    return Answer(np.array(highs.getSolution().col_value), bound, info.objective_function_value)


def _solve_cp_sat(formulation: CpSat, fixed: Array | None) -> Answer:
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
