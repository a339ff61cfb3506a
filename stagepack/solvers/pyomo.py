"""Pyomo as an engine: HiGHS through our own driver, and every other solver Pyomo knows.

``pyomo:highs`` lowers a Pyomo model to arrays and runs it with callbacks, hints, bounds and
cancellation.  ``pyomo:NAME`` hands the model to Pyomo's `SolverFactory`; what such a solver
returns is checked against the lowered model before it counts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stagepack.result import StagepackError, Status
from stagepack.solvers import lowering
from stagepack.solvers.engine import (
    Array,
    Limits,
    OnBound,
    OnSolution,
    Outcome,
    Relay,
    ShouldStop,
    checked_hint,
    require,
    run_cancellable,
)
from stagepack.solvers.highs import HighsEngine
from stagepack.solvers.lowering import lift, lower, variables

__all__ = ["PyomoHighsEngine", "PyomoSolverEngine", "lift", "lower", "variables"]

NO_PYOMO = "Pyomo is not installed; run: pip install 'pyomo>=6.10'"


class PyomoHighsEngine(HighsEngine):
    """HiGHS for Pyomo models (and for a HighsLp, as it is)."""

    def __init__(self, name: str = "pyomo:highs") -> None:
        super().__init__(name)

    def unavailable(self) -> str:
        """Return '' when Pyomo and highspy are installed, else what to install."""
        return super().unavailable() if importlib.util.find_spec("pyomo") else NO_PYOMO

    def load(self) -> None:
        """Import highspy and Pyomo (about 1.5 s the first time)."""
        super().load()
        _import()


@dataclass(frozen=True)
class _Solver:
    """What is known about one of Pyomo's solvers.

    `limit_bound` says that the bound it reports when a limit ended it is a proved one, and
    `whole_seconds` that its time limit takes no fractions.
    """

    command: str = ""
    remedy: str = ""
    features: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)
    limit_bound: bool = False
    whole_seconds: bool = False


_BRANCHING = frozenset({"cancel", "bounds"})
_SOLVERS = {
    "glpk": _Solver(
        "glpsol",
        "install GLPK (Debian and Ubuntu: apt-get install glpk-utils; macOS: brew install glpk)",
        _BRANCHING | {"seed"},
        {"seed": "seed"},
        whole_seconds=True,
    ),
    "cbc": _Solver(
        "cbc",
        "install CBC (Debian and Ubuntu: apt-get install coinor-cbc; macOS: brew install cbc)",
        _BRANCHING | {"warm-start", "threads", "seed"},
        {"threads": "threads", "seed": "randomCbcSeed", "gap": "allowableGap"},
        limit_bound=True,
    ),
    "scip": _Solver(
        "scip",
        "install SCIP (https://scipopt.org, or: conda install -c conda-forge scip)",
        _BRANCHING | {"seed"},
        {"seed": "randomization/randomseedshift", "gap": "limits/absgap"},
        limit_bound=True,
    ),
    "gurobi": _Solver(
        "",
        "install Gurobi with a licence (pip install gurobipy)",
        _BRANCHING | {"warm-start", "threads", "seed"},
        {"threads": "Threads", "seed": "Seed", "gap": "MIPGapAbs", "relative_gap": "MIPGap"},
    ),
    "cplex": _Solver(
        "cplex",
        "install CPLEX with a licence and put `cplex` on the PATH",
        _BRANCHING | {"warm-start", "threads", "seed"},
        {
            "threads": "threads",
            "seed": "randomseed",
            "gap": "mip_tolerances_absmipgap",
            "relative_gap": "mip_tolerances_mipgap",
        },
    ),
}


class PyomoSolverEngine:
    """One of the solvers that Pyomo knows by name.

    It reports no incumbents on the way.  Its answer is OPTIMAL when it says so and no finite
    bound of its own contradicts it.  A solver that is a program of its own can be cancelled; one
    that runs inside this process ("appsi_...", "gurobi_direct") cannot, and is left behind.

    Parameters
    ----------
    solver : str
        Pyomo's name for it, such as "glpk", "cbc", "scip", "gurobi" or "appsi_cplex".
    """

    tolerance = 1e-6

    def __init__(self, solver: str) -> None:
        self.solver = solver
        self.name = f"pyomo:{solver}"
        self._known = _SOLVERS.get(solver, _Solver())
        self._lock = threading.Lock()

    @property
    def features(self) -> frozenset[str]:
        """What the solver can do through Pyomo; little is claimed for one we do not know."""
        return self._known.features

    def unavailable(self) -> str:
        """Return '' when Pyomo finds the solver, else what is missing and how to get it."""
        if importlib.util.find_spec("pyomo") is None:
            return NO_PYOMO
        known = self._known
        if known.command and shutil.which(known.command) is None:
            return f"no executable `{known.command}` on the PATH; {known.remedy}"
        if self._factory() is None:
            remedy = known.remedy or "install it, or name a solver that `pyomo help -s` lists"
            return f"Pyomo finds no working solver named {self.solver!r}; {remedy}"
        return ""

    def load(self) -> None:
        """Import Pyomo (about 1.3 s the first time) and look for the solver."""
        require(self)

    def _factory(self) -> Any:
        """Return a fresh Pyomo solver object, or None when it cannot run."""
        pyo = _import()
        with _quiet():
            try:
                solver = pyo.SolverFactory(self.solver)
                return solver if solver.available(exception_flag=False) else None
            except Exception:  # plugins raise what they like when not installed
                return None

    def solve(
        self,
        model: Any,
        *,
        hint: Array | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        on_solution: OnSolution | None = None,
        on_bound: OnBound | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Outcome:
        """Minimise a HighsLp or a Pyomo model; see :meth:`stagepack.solvers.engine.Engine.solve`.

        `on_solution` and `on_bound` are called once, at the end.  `hint_accepted` is never
        true: Pyomo does not tell.
        """
        self.load()
        import highspy

        is_lp = isinstance(model, highspy.HighsLp)
        if not is_lp:
            lowering.require_pyomo_model(model)
        began = time.perf_counter()
        relay = Relay(on_solution, on_bound)
        call = _Call(self.solver, self._known, self._factory(), limits)

        def solve() -> Outcome:
            try:
                return call.run(model, is_lp, hint, relay)
            except lowering.InfeasibleRowError as error:
                return Outcome(status=Status.INFEASIBLE, message=str(error))

        run = run_cancellable(
            solve, call.cancel, should_stop, relay=relay, time_limit=limits.time_limit
        )
        outcome = run.value or Outcome(
            status=Status.UNKNOWN, message="left behind: did not return when cancelled"
        )
        if hint is not None:
            outcome.hint_accepted = False
        outcome.interrupted = run.interrupted
        outcome.runtime = time.perf_counter() - began
        return outcome


@dataclass
class _Call:
    """One call of a Pyomo solver: what it is told, how it is ended, what it answers."""

    name: str
    known: _Solver
    solver: Any
    limits: Limits
    thread: int | None = None
    cancelled_at: float | None = None

    def cancel(self) -> None:
        """End the solver's process, gently first (CBC and SCIP then return what they have)."""
        now = time.perf_counter()
        if self.cancelled_at is None:
            self.cancelled_at = now
            self._signal(signal.SIGINT)
        elif now > self.cancelled_at + 0.4:
            self._signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)

    def _signal(self, number: int) -> None:
        """Send a signal to the processes that the solving thread has started (Linux only).

        Elsewhere the solver runs on to its own time limit, unheard.
        """
        with contextlib.suppress(OSError, ValueError):
            listing = Path(f"/proc/self/task/{self.thread}/children").read_text()
            for child in listing.split():
                os.kill(int(child), number)

    def run(self, model: Any, is_lp: bool, hint: Array | None, relay: Relay) -> Outcome:
        """Hand the model over and read the answer."""
        began = time.perf_counter()
        self.thread = threading.get_native_id()
        if is_lp:
            lp, given = model, lift(model)
            columns = [given.x[column] for column in range(lp.num_col_)]
            count = len(columns)
        else:
            lp, columns = lower(model)
            given, count = model, len(variables(model))
        start = checked_hint(hint, count)
        before = [(v, v.value, v.stale) for v in columns]
        try:
            if start is not None:
                for variable, value in zip(columns, start.tolist(), strict=False):
                    variable.set_value(None if math.isnan(value) else value, skip_validation=True)
            if self.cancelled_at is not None:
                return Outcome(status=Status.UNKNOWN, message="cancelled")
            results = self._solve(given, start is not None, time.perf_counter() - began)
            if results is None:
                return Outcome(status=Status.UNKNOWN, message="cancelled")
            values = _loaded_values(given, results, columns, lp)
        finally:
            for variable, value, stale in before:
                variable.set_value(value, skip_validation=True)
                variable.stale = stale
        outcome = self._read(results, values, lp)
        if outcome.bound is not None:
            relay.lower(outcome.bound)
        if outcome.values is not None:
            outcome.values = outcome.values[:count]
            relay.incumbent(outcome.values, outcome.objective)
        return outcome

    def _solve(self, model: Any, warm: bool, spent: float) -> Any:
        """Return Pyomo's results, or None when the solver fell to our own cancellation."""
        options: dict[str, Any] = {"tee": False, "load_solutions": False}
        if self.limits.time_limit is not None:
            left = max(0.1, self.limits.time_limit - spent)
            whole = max(1, math.floor(left + 0.05))
            options["timelimit"] = whole if self.known.whole_seconds else left
        if hasattr(self.solver, "config") and hasattr(self.solver.config, "mip_gap"):
            self.solver.config.mip_gap = 0.0
        if warm:
            capable = getattr(self.solver, "warm_start_capable", None)
            if capable is not None and capable():
                options["warmstart"] = True
        settings = {
            "threads": self.limits.threads,
            "seed": self.limits.seed,
            "gap": self.limits.absolute_gap,
            "relative_gap": 0.0,
        }
        for setting, option in self.known.options.items():
            self.solver.options[option] = settings[setting]
        with _quiet():
            try:
                return self.solver.solve(model, **options)
            except Exception as error:
                if self.cancelled_at is not None:
                    return None
                raise StagepackError(f"Pyomo's solver {self.name} failed: {error}") from error

    def _read(self, results: Any, values: Array | None, lp: Any) -> Outcome:
        from pyomo.opt import TerminationCondition

        condition = results.solver.termination_condition
        outcome = Outcome(status=Status.UNKNOWN, message=str(condition))
        if condition == TerminationCondition.infeasible and self.cancelled_at is None:
            outcome.status = Status.INFEASIBLE
            return outcome
        if values is not None:
            outcome.status, outcome.values = Status.FEASIBLE, values
            outcome.objective = float(np.dot(lp.col_cost_, values) + lp.offset_)
        optimal = condition == TerminationCondition.optimal and values is not None
        if optimal or self.known.limit_bound:
            outcome.bound = _lower_bound(results, outcome.objective)
        if optimal:
            assert outcome.objective is not None
            slack = self.limits.absolute_gap + 1e-6 * max(1.0, abs(outcome.objective))
            if outcome.bound is None or outcome.bound >= outcome.objective - slack:
                outcome.status = Status.OPTIMAL
        return outcome


def _loaded_values(model: Any, results: Any, columns: list[Any], lp: Any) -> Array | None:
    """Return the solution in `results` by column if there is one and it keeps to the model."""
    if len(results.solution) == 0:
        return None
    for variable in columns:
        if not variable.fixed:
            variable.set_value(None)
    with _quiet():
        try:
            model.solutions.load_from(results)
        except ValueError:  # the solver ended in an error
            return None
    low, high = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    # A variable that no constraint uses was never sent: any value in its bounds will do.
    unused = np.clip(0.0, np.ceil(low), np.maximum(np.ceil(low), np.floor(high)))
    values = np.array(
        [
            unused[column] if variable.value is None else variable.value
            for column, variable in enumerate(columns)
        ],
        dtype=np.float64,
    )
    # Whole numbers come with their last digits off, which large coefficients multiply.
    whole = [str(kind).endswith("kInteger") for kind in lp.integrality_]
    if any(whole):
        near = np.rint(values)
        values = np.where(np.array(whole) & (np.abs(values - near) <= 1e-4), near, values)
    largest = float(np.abs(np.asarray(lp.a_matrix_.value_)).max(initial=1.0))
    # Some solvers write down their last, infeasible point.
    return values if lowering.violation(lp, values) <= 1e-5 * largest else None


def _lower_bound(results: Any, objective: float | None) -> float | None:
    """Return the bound that Pyomo parsed, unless it is missing or impossible."""
    try:
        bound = float(results.problem.lower_bound)
    except (AttributeError, TypeError, ValueError):
        return None
    if not math.isfinite(bound):
        return None
    if objective is not None and bound > objective + 1e-5 * max(1.0, abs(objective)):
        return None
    return bound


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Pyomo's warnings, which the outcome repeats, from the user's screen."""
    logger = logging.getLogger("pyomo")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _import() -> Any:
    import pyomo.environ

    return pyomo.environ
