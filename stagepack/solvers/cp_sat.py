"""OR-Tools CP-SAT as an engine: models are `ortools.sat.python.cp_model.CpModel`.

Values and hints go by variable index (the order of ``model.proto.variables``); values are
int64.  With one thread, or with a work limit, the same seed gives the same answer.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError, StagepackError
from stagepack.linear import Array
from stagepack.result import Status
from stagepack.solvers.engine import (
    FIRST_AGREES,
    Engine,
    Job,
    Limits,
    Outcome,
    Relay,
    Task,
    agrees,
    checked_hint,
)

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, CpSolverSolutionCallback

# Printed before presolve, and only when every variable is hinted.
HINT_IS_FEASIBLE = "The solution hint is complete and is feasible"

# Its reasons where numbers, or what can become of them, are no int64.
TOO_LARGE = re.compile("overflow|int64")


class CpSatEngine(Engine):
    """CP-SAT: exact integer arithmetic, incumbents, bounds, hints, cancellation."""

    name = "cp-sat"
    tolerance = 0.0

    def unavailable(self) -> str:
        """Return '' when OR-Tools is installed, else what to install."""
        if importlib.util.find_spec("ortools") is None:
            return "OR-Tools is not installed; run: pip install 'ortools>=9.15,<10'"
        return ""

    def load(self) -> None:
        """Import OR-Tools (about 2 s the first time)."""
        super().load()
        importlib.import_module("ortools.sat.python.cp_model")

    def job(self, task: Task) -> Job:
        """Return the run of a CpModel."""
        return _Run(task)


class _Run:
    """One run of CP-SAT."""

    def __init__(self, task: Task) -> None:
        self.model = model = _checked(task.model)
        self.relay, self.log = task.relay, list[str]()
        self.start = checked_hint(task.hint, len(model.proto.variables))
        self.solver = solver = _configured(task.limits)
        for name, value in task.parameters.items():
            setattr(solver.parameters, name, value)
        if self.start is not None:
            _hint(model, self.start)
            solver.parameters.log_search_progress = True
            solver.parameters.log_to_stdout = False
            solver.log_callback = self.log.append
        self.valued = model.proto.has_objective()
        if self.valued:
            solver.best_bound_callback = self.relay.lower
        self.incumbents = _incumbents(self.relay, self.valued)

    def run(self) -> Outcome:
        """Solve the model."""
        try:
            self.solver.solve(self.model, self.incumbents)
        except IndexError:
            # OR-Tools 9.15: presolve now and then looks up what it has removed.
            self.solver.parameters.cp_model_presolve = False
            self.solver.solve(self.model, self.incumbents)
        outcome = _read(self.model, self.solver)
        if not self.valued:
            outcome.objective = outcome.bound = None
        return outcome

    def cancel(self) -> None:
        """Ask CP-SAT to end."""
        self.solver.stop_search()

    def start_taken(self) -> str:
        """Return what CP-SAT said of the start, or that its first solution is the start."""
        if any(HINT_IS_FEASIBLE in line for line in self.log):
            return HINT_IS_FEASIBLE
        agreed = self.start is not None and agrees(self.relay.first, self.start)
        return FIRST_AGREES if agreed else ""


def _checked(model: object) -> CpModel:
    """Return a model that CP-SAT takes; refuse all others."""
    from ortools.sat.python import cp_model

    if not isinstance(model, cp_model.CpModel):
        raise StagepackError(f"engine cp-sat takes a CpModel, not a {type(model).__name__}")
    return model


def _configured(limits: Limits) -> CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.threads
    parameters.random_seed = limits.seed
    parameters.catch_sigint_signal = False  # Ctrl-C belongs to the calling thread
    parameters.relative_gap_limit = 0.0
    parameters.absolute_gap_limit = 0.0
    if limits.time_limit is not None:
        parameters.max_time_in_seconds = limits.time_limit
    if limits.work_limit is not None:
        parameters.max_deterministic_time = limits.work_limit
        # Several workers are reproducible only when they take turns in a fixed order.
        parameters.interleave_search = limits.threads > 1
    return solver


def _hint(model: CpModel, hint: Array) -> None:
    indices = np.flatnonzero(~np.isnan(hint))
    values = np.rint(hint[indices])
    if (np.abs(values) > 2.0**62).any():
        raise InputError("holds a value beyond 2**62", field="hint")
    model.proto.clear_solution_hint()
    model.proto.solution_hint.vars.extend(indices.tolist())
    model.proto.solution_hint.values.extend(values.astype(np.int64).tolist())


def _incumbents(relay: Relay, has_objective: bool) -> CpSolverSolutionCallback:
    from ortools.sat.python import cp_model

    class Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            objective = None
            if has_objective:
                objective = float(self.objective_value)
                relay.lower(float(self.best_objective_bound))
            relay.incumbent(np.array(self.response_proto.solution, dtype=np.int64), objective)
            if relay.failure is not None:
                self.stop_search()

    return Incumbents()


def _rejected(why: str) -> StagepackError:
    """Return the error for a model that CP-SAT does not take, by its own reason."""
    if TOO_LARGE.search(why) is None:
        return StagepackError(f"CP-SAT rejects the model: {why}")
    return InputError(
        "the figures of the CP-SAT model together go beyond 2**63",
        field="size",
        remedy="give the data in a coarser unit, or use another method",
    )


def _read(model: CpModel, solver: CpSolver) -> Outcome:
    """Return what the response says."""
    from ortools.sat.python import cp_model

    response = solver.response_proto
    status, outcome = response.status, Outcome(status=Status.UNKNOWN)
    if status == cp_model.MODEL_INVALID:
        raise _rejected(model.validate() or "invalid")
    outcome.message = solver.status_name(status)
    outcome.work = float(response.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        outcome.status = Status.OPTIMAL if status == cp_model.OPTIMAL else Status.FEASIBLE
        outcome.values = np.array(response.solution, dtype=np.int64)
        outcome.objective = float(response.objective_value)
        outcome.bound = float(response.best_objective_bound)
    elif status == cp_model.INFEASIBLE:
        outcome.status = Status.INFEASIBLE
    # An UNKNOWN response says bound 0.0 when nothing was proved: only the relay's counts.
    return outcome
