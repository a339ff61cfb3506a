"""OR-Tools CP-SAT as an engine: models are `ortools.sat.python.cp_model.CpModel`.

Values and hints go by variable index (the order of ``model.proto.variables``); values are
int64.  With one thread, or with a work limit, the same seed gives the same answer.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from stagepack.errors import InputError, StagepackError
from stagepack.linear import Array
from stagepack.result import Status
from stagepack.solvers.engine import (
    FIRST_AGREES,
    NOT_CONFIRMED,
    Limits,
    OnBound,
    OnSolution,
    Outcome,
    Relay,
    ShouldStop,
    agrees,
    checked_hint,
    require,
    run_cancellable,
)

# Printed before presolve, and only when every variable is hinted.
HINT_IS_FEASIBLE = "The solution hint is complete and is feasible"


class CpSatEngine:
    """CP-SAT: exact integer arithmetic, incumbents, bounds, hints, cancellation."""

    name = "cp-sat"
    features = frozenset(
        {"incumbents", "bounds", "warm-start", "cancel", "threads", "seed", "work-limit"}
    )
    tolerance = 0.0

    def unavailable(self) -> str:
        """Return '' when OR-Tools is installed, else what to install."""
        if importlib.util.find_spec("ortools") is None:
            return "OR-Tools is not installed; run: pip install 'ortools>=9.15,<10'"
        return ""

    def load(self) -> None:
        """Import OR-Tools (about 2 s the first time)."""
        require(self)
        _import()

    def solve(
        self,
        model: Any,
        *,
        hint: Array | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        on_solution: OnSolution | None = None,
        on_bound: OnBound | None = None,
        should_stop: ShouldStop | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Minimise a CpModel.

        Parameters
        ----------
        model, hint, limits, on_solution, on_bound, should_stop
            As :meth:`stagepack.solvers.engine.Engine.solve` takes them.
        parameters : mapping, optional
            Settings of CP-SAT that suit the model, by name; limits stay with `limits`.
        """
        self.load()
        cp_model = _import()
        began = time.perf_counter()
        _require_minimisation(cp_model, model)
        start = checked_hint(hint, len(model.proto.variables))
        log: list[str] = []
        relay = Relay(on_solution, on_bound)
        solver = _configured(cp_model, limits)
        for name, value in (parameters or {}).items():
            setattr(solver.parameters, name, value)
        solver.best_bound_callback = relay.lower
        if start is not None:
            model = _hinted(model, start)
            solver.parameters.log_search_progress = True
            solver.parameters.log_to_stdout = False
            solver.log_callback = log.append
        has_objective = model.proto.has_objective() or model.proto.has_floating_point_objective()
        incumbents = _incumbents(cp_model, relay, has_objective)

        def solve() -> Any:
            try:
                solver.solve(model, incumbents)
            except IndexError:
                # OR-Tools 9.15: presolve now and then looks up what it has removed.
                solver.parameters.cp_model_presolve = False
                solver.solve(model, incumbents)
            return solver.response_proto

        run = run_cancellable(
            solve, solver.stop_search, should_stop, relay=relay, time_limit=limits.time_limit
        )
        outcome = Outcome(status=Status.UNKNOWN, interrupted=run.interrupted)
        if run.value is None:
            outcome.message = "left behind: did not return when cancelled"
        else:
            _read(cp_model, model, run.value, outcome)
        if outcome.status is Status.UNKNOWN and relay.best is not None:
            outcome.status = Status.FEASIBLE
            outcome.values, outcome.objective = relay.best
        if outcome.status is not Status.INFEASIBLE and has_objective:
            outcome.bound = relay.best_bound(outcome.bound)
        if not has_objective:
            outcome.objective = None
        if hint is not None:
            said = any(HINT_IS_FEASIBLE in line for line in log)
            agreed = start is not None and agrees(relay.first, start)
            outcome.hint_accepted = said or agreed
            outcome.hint_note = (
                HINT_IS_FEASIBLE if said else FIRST_AGREES if agreed else NOT_CONFIRMED
            )
        outcome.runtime = time.perf_counter() - began
        return outcome


def _import() -> Any:
    from ortools.sat.python import cp_model

    return cp_model


def _require_minimisation(cp_model: Any, model: Any) -> None:
    if not isinstance(model, cp_model.CpModel):
        raise StagepackError(f"engine cp-sat takes a CpModel, not a {type(model).__name__}")
    proto = model.proto
    maximises = (proto.has_objective() and proto.objective.scaling_factor < 0) or (
        proto.has_floating_point_objective() and proto.floating_point_objective.maximize
    )
    if maximises:
        raise StagepackError("the model maximises; minimise the negated objective")


def _configured(cp_model: Any, limits: Limits) -> Any:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.threads
    parameters.random_seed = limits.seed
    parameters.catch_sigint_signal = False  # Ctrl-C belongs to the calling thread
    parameters.relative_gap_limit = 0.0
    parameters.absolute_gap_limit = limits.absolute_gap
    if limits.time_limit is not None:
        parameters.max_time_in_seconds = limits.time_limit
    if limits.work_limit is not None:
        parameters.max_deterministic_time = limits.work_limit
        # Several workers are reproducible only when they take turns in a fixed order.
        parameters.interleave_search = limits.threads > 1
    return solver


def _hinted(model: Any, hint: Array) -> Any:
    """Return a copy of `model` with `hint`: the model itself is never changed."""
    indices = np.flatnonzero(~np.isnan(hint))
    values = np.rint(hint[indices])
    if (np.abs(values) > 2.0**62).any():
        raise InputError("holds a value beyond 2**62", field="hint")
    clone = model.clone()
    clone.clear_hints()
    clone.proto.solution_hint.vars.extend(indices.tolist())
    clone.proto.solution_hint.values.extend(values.astype(np.int64).tolist())
    return clone


def _incumbents(cp_model: Any, relay: Relay, has_objective: bool) -> Any:
    class Incumbents(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            objective = None
            if has_objective:
                objective = float(self.objective_value)
                relay.lower(float(self.best_objective_bound))
            relay.incumbent(np.array(self.response_proto.solution, dtype=np.int64), objective)
            if relay.failure is not None:
                self.stop_search()

    return Incumbents()


def _read(cp_model: Any, model: Any, response: Any, outcome: Outcome) -> None:
    """Write what the response says into `outcome`."""
    status = response.status
    if status == cp_model.MODEL_INVALID:
        raise StagepackError(f"CP-SAT rejects the model: {model.validate() or 'invalid'}")
    outcome.message = cp_model.CpSolver().status_name(status)
    outcome.nodes = int(response.num_branches)
    outcome.work = float(response.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        outcome.status = Status.OPTIMAL if status == cp_model.OPTIMAL else Status.FEASIBLE
        outcome.values = np.array(response.solution, dtype=np.int64)
        outcome.objective = float(response.objective_value)
        outcome.bound = float(response.best_objective_bound)
    elif status == cp_model.INFEASIBLE:
        outcome.status = Status.INFEASIBLE
    # An UNKNOWN response says bound 0.0 when nothing was proved: only the relay's counts.
