"""Engines: CP-SAT, HiGHS and whatever Pyomo reaches, behind one small interface.

They know no problem, and nothing heavy is imported before an engine is loaded.
"""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.solvers.engine import Engine, Limits, Outcome, run_cancellable

__all__ = ["Engine", "Limits", "Outcome", "engine", "engines", "run_cancellable"]


def engines() -> list[str]:
    """Return the names of the engines that come with Stagepack.

    ``pyomo:NAME`` is also an engine for every solver NAME that Pyomo knows.
    """
    return ["cp-sat", "highs", "pyomo:highs"]


def engine(name: str) -> Engine:
    """Return the engine called `name`, available or not.

    The `name` is "cp-sat", "highs", "pyomo:highs" (or "pyomo" for short), or "pyomo:NAME" with
    Pyomo's name of a solver.
    """
    if name == "cp-sat":
        from stagepack.solvers.cp_sat import CpSatEngine

        return CpSatEngine()
    if name in ("highs", "pyomo:highs", "pyomo"):  # which has no better way to it than ours
        from stagepack.solvers.highs import HighsEngine

        return HighsEngine("pyomo:highs" if name == "pyomo" else name)
    family, _, solver = name.partition(":")
    if family == "pyomo" and solver:
        from stagepack.solvers.pyomo import PyomoSolverEngine

        return PyomoSolverEngine(solver)
    raise InputError(
        f"no engine is called {name!r}",
        field="engine",
        remedy=f"choose one of {', '.join(engines())}, or pyomo:NAME for another Pyomo solver",
    )
