"""Models of packings solved to the end, and solutions looked for in them."""

from __future__ import annotations

import numpy as np

from stagepack.formulations.packing import CpSat, Milp
from stagepack.instances.packing import LmemPacking, PackingSolution
from tests.formulations.engines import solve

Formulation = CpSat | Milp


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
