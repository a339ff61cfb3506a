"""HiGHS as an engine: models are `Linear`.

Values and hints go by column and are float64; integer columns hold whole numbers up to HiGHS's
tolerance.  The same seed gives the same answer unless the clock ended the run.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.errors import StagepackError
from stagepack.linear import Array, Linear
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
    require_program,
)

TOLERANCE, LOOSE = 1e-9, 1e-6
"""Feasibility and integrality tolerance asked of HiGHS where a model has no ``tolerance`` of its
own, and the one of HiGHS."""

NODES_PER_WORK = 20
"""Branch-and-bound nodes that one unit of `Limits.work_limit` pays for."""

ITERATIONS_PER_WORK = 10_000
"""Simplex iterations that one unit of `Limits.work_limit` pays for in a model without integers."""

PROBING = 1e-4
"""Seconds for each entry of a matrix that probing takes at most, one of the steps of presolve: it
looks at the clock only afterwards, and is left out where that may be too late."""

RELEASES = ("1.16",)
"""Trusted releases of highspy: 1.12 loses optima of small models in presolve, 1.13 and 1.14
answer wrongly, 1.15 cannot share a process with OR-Tools 9.15."""

REMEDY = "run: pip install 'highspy>=1.16,<1.17'"

NO_WORSE = "the start is feasible in its model, and its solution no worse"
"""`Outcome.hint_note` where its first solution was another: presolve found it, most of the time."""

# What highspy makes: it tells no types.
Highs = Any
HighsLp = Any
Event = Any


class HighsEngine(Engine):
    """HiGHS: MILP and LP with incumbents, bounds, hints, cancellation.

    A hint for a model without integers is never accepted: HiGHS has no use for it.
    """

    tolerance = TOLERANCE

    def __init__(self, name: str = "highs") -> None:
        self.name = name

    def unavailable(self) -> str:
        """Return '' when a usable highspy is installed, else what to install."""
        try:
            version = importlib.metadata.version("highspy")
        except importlib.metadata.PackageNotFoundError:
            return f"highspy is not installed; {REMEDY}"
        if ".".join(version.split(".")[:2]) not in RELEASES:
            return f"highspy {version} is not one that can be trusted here; {REMEDY}"
        return ""

    def load(self) -> None:
        """Import highspy (about 0.4 s the first time)."""
        super().load()
        _import()

    def job(self, task: Task) -> Job:
        """Return the run of a program."""
        return _Drive(task, task.relay, task.limits)


def _import() -> Any:
    import highspy

    return highspy


@functools.cache
def _silent() -> Any:
    """Return the class of solvers, silent before they exist: in 1.16 the first one greets."""

    class Silent(_import().Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:  # noqa: N802 -- as highspy calls it, once it is made
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return Silent


def native(program: Linear) -> HighsLp:
    """Return a program as one of HiGHS's own."""
    highspy = _import()
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = program.rows, program.columns
    lp.col_cost_, lp.offset_ = program.cost, program.offset
    lp.col_lower_, lp.col_upper_ = program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.low, program.high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = program.rows, program.columns
    lp.a_matrix_.start_ = program.start.astype(np.int32)
    lp.a_matrix_.index_ = program.column.astype(np.int32)
    lp.a_matrix_.value_ = program.value
    if program.integral.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[whole] for whole in program.integral.tolist()]
    return lp


class _SolveError(StagepackError):
    """HiGHS gave up by itself: numerical trouble, most of the time."""


@dataclass
class _Drive:
    """One run of HiGHS: its objects, its cancellation and the way to its outcome."""

    task: Task
    relay: Relay
    limits: Limits
    cancelled: bool = False
    hint: Array | None = None
    running: Highs | None = None
    last_report: float = -math.inf
    loose: bool = False
    presolves: bool = True
    is_mip: bool = False
    program: Linear = field(init=False)
    lp: HighsLp = field(init=False)
    started: bool = False
    start: Array | None = None
    reached: float = math.inf

    def cancel(self) -> bool:
        """Make HiGHS return soon; called from another thread than the solve.

        Return whether it may have something to return: not while the model is still loaded.
        """
        self.cancelled = True
        solver = self.running
        if solver is not None:
            # Presolve, the root LP and hint completion look at the time limit only, never at
            # the interrupt callback: taking the time away ends them 10 s earlier and more.
            solver.setOptionValue("time_limit", 0.0)
        return self.started

    def start_taken(self) -> str:
        """Return that its first solution is the start, or that it found nothing worse."""
        if self.hint is not None and agrees(self.relay.first, self.hint):
            return FIRST_AGREES
        if self.start is None or self.program.violation(self.start) > self._tolerance:
            return ""
        worth = self.program.objective(self.start)
        return NO_WORSE if self.reached <= worth + LOOSE * max(1.0, abs(worth)) else ""

    def run(self) -> Outcome:
        """Run it; when that fails, again without presolve, at last with wide tolerances."""
        program = self.program = require_program(self.task.model)
        self.lp = native(program)
        self.hint = checked_hint(self.task.hint, program.columns)
        self.is_mip = bool(program.integral.any())
        # Presolve has lost optima of general integers with coefficients above 1 (HiGHS 1.12).
        wide = program.upper - program.lower > 1
        presolves = not (program.integral & wide).any()
        for tried in (True, False) if presolves else (False,):
            self.presolves = tried
            try:
                return self._solve()
            except _SolveError as error:
                trouble = error
        if self._tolerance >= LOOSE:
            return Outcome(status=Status.UNKNOWN, message=str(trouble))
        # Bounds of this run are good to 1e-6 only, not to what we state: unheard.
        self.presolves, self.loose = presolves, True
        try:
            outcome = self._solve()
        except _SolveError as error:
            return Outcome(status=Status.UNKNOWN, message=str(error))
        if outcome.status is Status.OPTIMAL:
            outcome.status = Status.FEASIBLE
        outcome.bound = None
        outcome.message = f"{trouble}; within its own tolerances, too wide for a bound, it ends"
        return outcome

    def _solve(self) -> Outcome:
        """Run with the start, and once more without it where it hid the solution."""
        if self.is_mip and self.hint is not None and self.start is None:
            self.start = self._completed(self.hint)
        outcome = self._once(self.start)
        if outcome.status is Status.OPTIMAL and not self._is_worth(outcome):
            # Presolve of HiGHS 1.16 may take a start for the better solution that it becomes in
            # what is left of the model, prove that optimal, and return the start.
            bound, work = outcome.bound, outcome.work
            outcome = self._once(None)
            outcome.work += work
            outcome.bound = max((b for b in (bound, outcome.bound) if b is not None), default=None)
        if outcome.values is not None and self.is_mip:
            outcome.objective = self.reached = self.program.objective(outcome.values)
        return outcome

    def _is_worth(self, outcome: Outcome) -> bool:
        """Whether a solution has the objective that HiGHS says it has."""
        if outcome.values is None or outcome.objective is None:
            return True
        worth = self.program.objective(outcome.values)
        return worth <= outcome.objective + LOOSE * max(1.0, abs(outcome.objective))

    def _once(self, start: Array | None) -> Outcome:
        highspy = _import()
        solver = self._loaded()
        try:
            self._limit_work(solver)
            if start is not None:
                solution = highspy.HighsSolution()
                solution.col_value = start.tolist()
                solution.value_valid = True
                _expect(solver.setSolution(solution), "the hint")
            if self.is_mip:
                solver.cbMipImprovingSolution += self._improved
                solver.cbMipInterrupt += self._tick
            else:
                solver.cbSimplexInterrupt += self._tick
                solver.cbIpmInterrupt += self._tick
            self._run(solver)
            if solver.getModelStatus() == highspy.HighsModelStatus.kUnboundedOrInfeasible:
                return self._infeasible_or_unbounded()
            return self._read(solver)
        finally:
            _release(solver)

    @property
    def _tolerance(self) -> float:
        return float(self.task.parameters.get("tolerance", TOLERANCE))  # type: ignore[arg-type]

    def _loaded(self) -> Highs:
        """Return a solver that holds the program and the options of every run."""
        solver = _silent()()
        tolerance = LOOSE if self.loose else self._tolerance
        for option, value in {
            "output_flag": False,
            "threads": self.limits.threads,
            "random_seed": self.limits.seed,
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
            "mip_feasibility_tolerance": tolerance,
            "presolve": "choose" if self.presolves else "off",
            "presolve_rule_off": 0 if self._probes() else 1 << 15,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
        }.items():
            _expect(solver.setOptionValue(option, value), f"option {option} = {value}")
        _expect(solver.passModel(self.lp), "the model")
        return solver

    def _probes(self) -> bool:
        """Whether there is the time for probing: with a work limit the same on every machine."""
        left = math.inf
        if self.limits.work_limit is not None:
            left = self.limits.work_limit
        elif self.limits.time_limit is not None:
            left = self.limits.time_limit - (time.perf_counter() - self.task.began)
        return PROBING * len(self.program.value) <= left

    def _limit_work(self, solver: Highs) -> None:
        if self.limits.work_limit is None:
            return
        option = "mip_max_nodes" if self.is_mip else "simplex_iteration_limit"
        amount = self.limits.work_limit * (NODES_PER_WORK if self.is_mip else ITERATIONS_PER_WORK)
        value = int(min(max(amount, 1), 2**31 - 1))
        _expect(solver.setOptionValue(option, value), f"option {option} = {value}")

    def _run(self, solver: Highs, share: float = 1.0) -> None:
        """Run `solver` for at most `share` of the time that is left."""
        if self.limits.time_limit is not None:
            left = max(0.0, self.limits.time_limit - (time.perf_counter() - self.task.began))
            _expect(solver.setOptionValue("time_limit", share * left), "option time_limit")
        self.running, self.started = solver, True
        if self.cancelled:  # before there was anything to cancel
            self.cancel()
        try:
            status = solver.run()
            if status == _import().HighsStatus.kError:
                raise _SolveError("HiGHS failed for numerical reasons")
        finally:
            self.running = None

    def _improved(self, event: Event) -> None:
        data = event.data_out
        if not self.loose:
            self.relay.lower(data.mip_dual_bound)
        values = np.array(data.mip_solution, dtype=np.float64)
        self.relay.incumbent(values, self.program.objective(values))  # what it says may be another
        self._stop_if_asked(event)

    def _tick(self, event: Event) -> None:
        now = time.perf_counter()
        if event.callback_type == _import().cb.HighsCallbackType.kCallbackMipInterrupt and (
            now - self.last_report >= 0.05  # HiGHS offers several hundred a second
        ):
            self.last_report = now
            if not self.loose:
                self.relay.lower(event.data_out.mip_dual_bound)
        self._stop_if_asked(event)

    def _stop_if_asked(self, event: Event) -> None:
        if self.cancelled or self.relay.failure is not None:
            event.interrupt()

    def _completed(self, hint: Array) -> Array | None:
        """Return a value for every column that agrees with `hint`, or None if none was found.

        HiGHS can complete a hint by itself, but reports the bounds of the restricted model on
        the way as if they held for the whole one.  So a solver of its own, unheard, does it.
        """
        given = np.flatnonzero(~np.isnan(hint)).astype(np.int32)
        if len(given) == len(hint):
            return hint
        fixed = hint[given]
        lower, upper = self.program.lower[given], self.program.upper[given]
        if (fixed < lower - 1e-6).any() or (fixed > upper + 1e-6).any():
            return None
        solver = self._loaded()
        try:
            _expect(
                solver.changeColsBounds(len(given), given, fixed, fixed), "the bounds of the hint"
            )
            _expect(solver.setOptionValue("mip_max_nodes", 500), "mip_max_nodes")
            solver.cbMipInterrupt += self._stop_if_asked
            self._run(solver, share=0.2)
            return _point(solver)
        finally:
            _release(solver)

    def _infeasible_or_unbounded(self) -> Outcome:
        """Tell the two apart by solving the program without its costs."""
        highspy = _import()
        solver = self._loaded()
        try:
            count = self.program.columns
            columns, zeros = np.arange(count, dtype=np.int32), np.zeros(count)
            _expect(solver.changeColsCost(count, columns, zeros), "costs of zero")
            self._run(solver)
            if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
                return Outcome(status=Status.INFEASIBLE, message="Infeasible")
            return Outcome(status=Status.UNKNOWN, message="Primal infeasible or unbounded")
        finally:
            _release(solver)

    def _read(self, solver: Highs) -> Outcome:
        highspy = _import()
        statuses = highspy.HighsModelStatus
        status = solver.getModelStatus()
        info = solver.getInfo()
        message = solver.modelStatusToString(status)
        outcome = Outcome(status=Status.UNKNOWN, message=message)
        outcome.work = (
            max(0, int(info.mip_node_count)) / NODES_PER_WORK
            if self.is_mip
            else max(0, int(info.simplex_iteration_count)) / ITERATIONS_PER_WORK
        )
        if status == statuses.kInfeasible:
            outcome.status = Status.INFEASIBLE
            return outcome
        if status in {
            statuses.kNotset,
            statuses.kLoadError,
            statuses.kModelError,
            statuses.kPresolveError,
            statuses.kSolveError,
            statuses.kPostsolveError,
            statuses.kMemoryLimit,
        }:
            raise _SolveError(f"HiGHS failed: {message}")
        if status == statuses.kModelEmpty:
            outcome.status, outcome.values = Status.OPTIMAL, np.zeros(self.program.columns)
            outcome.objective = outcome.bound = self.program.offset
            return outcome
        # Everything else is an answer or a limit (time, interrupt, nodes, iterations, target):
        # what counts is the point in hand.
        outcome.values = _point(solver)
        if outcome.values is not None:
            outcome.status = Status.FEASIBLE
            outcome.objective = float(info.objective_function_value)
        optimal = status == statuses.kOptimal and outcome.values is not None
        if optimal:
            outcome.status = Status.OPTIMAL
        if self.is_mip and math.isfinite(info.mip_dual_bound) and status != statuses.kUnbounded:
            outcome.bound = float(info.mip_dual_bound)
        elif optimal and not self.is_mip:
            outcome.bound = outcome.objective
            outcome.duals = np.array(solver.getSolution().row_dual, dtype=np.float64)
        return outcome


def _point(solver: Highs) -> Array | None:
    """Return the feasible point that `solver` holds, of shape (columns,), or None."""
    if solver.getInfo().primal_solution_status != 2:  # a feasible point
        return None
    solution = solver.getSolution()
    return np.array(solution.col_value, dtype=np.float64) if solution.value_valid else None


def _release(solver: Highs) -> None:
    """Cut the cycle of solver and callbacks, which the garbage collector cannot see."""
    solver.clearCallbacks()
    solver.disableCallbacks()
    solver.clear()


def _expect(status: object, what: str) -> None:
    """Raise a StagepackError when a HiGHS call answers kError; kWarning is an answer."""
    if status == _import().HighsStatus.kError:
        raise StagepackError(f"HiGHS rejects {what}")
