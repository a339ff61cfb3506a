"""Pyomo as an engine: every solver that Pyomo knows.

``pyomo:NAME`` hands a program to Pyomo's `SolverFactory`; what such a solver returns is checked
against the program before it counts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, StagepackError
from stagepack.linear import Array, Linear
from stagepack.result import Status
from stagepack.solvers import lowering
from stagepack.solvers.engine import (
    Engine,
    Job,
    Limits,
    Outcome,
    Task,
    checked_hint,
    require_program,
)
from stagepack.solvers.lowering import Model

START_TAKEN = re.compile(r"MIPStart provided solution with cost (\S+)")
FIRST_INCUMBENT = re.compile(r"Integer solution of (\S+) found")

# What Pyomo's own solvers are and return: it tells no types.
Solver = Any
Command = Any
Results = Any

NO_PYOMO = "Pyomo is not installed; run: pip install 'pyomo>=6.10.1'"


@dataclass(frozen=True)
class _Solver:
    """What is known about one of Pyomo's solvers.

    `limit_bound` says that the bound it reports when a limit ended it is a proved one, and
    `whole_seconds` that its time limit takes no fractions.  `reads_files` says that Pyomo hands
    it a file in CPLEX LP format, which we then write ourselves: a Pyomo model of a million
    columns takes many times as long to build and write, and cannot be stopped.
    """

    command: str = ""
    remedy: str = ""
    takes_starts: bool = False
    options: dict[str, str] = field(default_factory=dict)
    limit_bound: bool = False
    whole_seconds: bool = False
    reads_files: bool = False


_SOLVERS = {
    "glpk": _Solver(
        "glpsol",
        "install GLPK (Debian and Ubuntu: apt-get install glpk-utils; macOS: brew install glpk)",
        options={"seed": "seed"},
        whole_seconds=True,
        reads_files=True,
    ),
    "cbc": _Solver(
        "cbc",
        "install CBC (Debian and Ubuntu: apt-get install coinor-cbc; macOS: brew install cbc)",
        takes_starts=True,
        options={"threads": "threads", "seed": "randomCbcSeed", "gap": "allowableGap"},
        limit_bound=True,
        reads_files=True,
    ),
    "scip": _Solver(
        "scip",
        "install SCIP (https://scipopt.org, or: conda install -c conda-forge scip)",
        options={"seed": "randomization/randomseedshift", "gap": "limits/absgap"},
        limit_bound=True,
    ),
    "gurobi": _Solver(
        "",
        "install Gurobi with a licence (pip install gurobipy)",
        takes_starts=True,
        options={
            "threads": "Threads",
            "seed": "Seed",
            "gap": "MIPGapAbs",
            "relative_gap": "MIPGap",
        },
    ),
    "cplex": _Solver(
        "cplex",
        "install CPLEX with a licence and put `cplex` on the PATH",
        takes_starts=True,
        options={
            "threads": "threads",
            "seed": "randomseed",
            "gap": "mip_tolerances_absmipgap",
            "relative_gap": "mip_tolerances_mipgap",
        },
    ),
}


class PyomoSolverEngine(Engine):
    """One of the solvers that Pyomo knows by name, such as "glpk".

    It reports no incumbents on the way.  Its answer is OPTIMAL when it says so and no finite
    bound of its own contradicts it.  A solver that is a program of its own can be cancelled; one
    that runs inside this process ("appsi_...", "gurobi_direct") cannot, and is left behind.

    Callbacks are called once, at the end; a hint counts as accepted only where the solver's log
    says so, which CBC's does.  Time spent on writing the model counts.
    """

    counts_work = False
    tolerance = 1e-6

    def __init__(self, solver: str) -> None:
        self.solver = solver
        self.name = f"pyomo:{solver}"
        self._known = _SOLVERS.get(solver, _Solver())
        self.takes_starts = self._known.takes_starts

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

    def _factory(self) -> Solver:
        """Return a fresh Pyomo solver object, or None when it cannot run."""
        pyo = _import()
        with _quiet():
            try:
                solver = pyo.SolverFactory(self.solver)
                return solver if solver.available(exception_flag=False) else None
            except Exception:  # plugins raise what they like when not installed
                return None

    def job(self, task: Task) -> Job:
        """Return the run of a program."""
        return _Call(self.solver, self._known, self._factory(), task, task.limits)


class _CancelledError(StagepackError):
    """The run was cancelled: nothing more is worth doing."""


@dataclass
class _Call:
    """One call of a Pyomo solver: what it is told, how it is ended, what it answers."""

    name: str
    known: _Solver
    solver: Solver
    task: Task
    limits: Limits
    process: subprocess.Popen[str] | None = None
    log: str = ""
    cancelled_at: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    start_worth: tuple[float, ...] = ()

    def cancel(self) -> bool:
        """End the solver's process, gently first (CBC and SCIP then return what they have).

        Return whether it may have something to return: not before it was started.
        """
        with self.lock:
            now = time.perf_counter()
            if self.cancelled_at is None:
                self.cancelled_at = now
                self._signal(signal.SIGINT)
            elif now > self.cancelled_at + 0.3:
                self._signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
            # One that Pyomo runs inside our own process cannot be seen.
            return self.process is not None or not hasattr(self.solver, "_execute_command")

    def check(self) -> None:
        """Raise _CancelledError after a cancellation."""
        if self.cancelled_at is not None:
            raise _CancelledError("cancelled")

    def _signal(self, number: int) -> None:
        """Send a signal to the solver and to whatever it has started."""
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(OSError, ValueError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, number)
            else:
                self.process.terminate()

    def _execute(self, command: Command) -> list[int | str]:
        """Run a command as Pyomo would, but in a process group that can be cancelled."""
        with self.lock:
            self.check()
            self.process = subprocess.Popen(
                command.cmd,
                env=command.env,
                cwd=command.get("cwd"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        self.log, _ = self.process.communicate(command.get("script"))
        return [self.process.returncode, self.log]

    def run(self) -> Outcome:
        """Hand the model over and read the answer."""
        try:
            return self._run()
        except lowering.InfeasibleRowError as error:
            return Outcome(status=Status.INFEASIBLE, message=str(error))
        except _CancelledError as error:
            return Outcome(status=Status.UNKNOWN, message=str(error))

    def _run(self) -> Outcome:
        program, relay = require_program(self.task.model), self.task.relay
        start = checked_hint(self.task.hint, program.columns)
        if not self.known.takes_starts:
            start = None
        run = self._run_file if self.known.reads_files else self._run_model
        results, values = run(program, start)
        if results is None:
            return Outcome(status=Status.UNKNOWN, message="cancelled, or no time left to solve")
        outcome = self._read(results, _accepted(values, program), program)
        if outcome.bound is not None:
            relay.lower(outcome.bound)
        if outcome.values is not None:
            relay.incumbent(outcome.values, outcome.objective)
        return outcome

    def _run_file(self, program: Linear, start: Array | None) -> tuple[Results, Array | None]:
        """Solve by way of a file; return Pyomo's results and the value of every column."""
        from pyomo.common.tempfiles import TempfileManager

        with tempfile.TemporaryDirectory(prefix="stagepack-") as folder:
            # Pyomo keeps files of a run that was killed; they go with the folder.
            TempfileManager.tempdir = folder
            path, wrote = Path(folder, "model.lp"), time.perf_counter()
            lowering.write_file(program, path, self.check)
            wrote = time.perf_counter() - wrote
            options: JsonObject = {}
            if start is not None and self._usable(start, program):
                options = {"warmstart": True, "warmstart_file": str(Path(folder, "start.txt"))}
                self._write_start(start, program, Path(folder, "start.txt"))
            # Reading the answer takes about half as long as writing the model.
            results = self._solve(str(path), options, reserve=wrote / 2)
        if results is None or len(results.solution) == 0:
            return results, None
        values = _unused(program)
        for name, entry in results.solution(0).variable.items():
            if name.startswith("x"):
                values[int(name[1:])] = entry["Value"]
        return results, values

    def _usable(self, start: Array, program: Linear) -> bool:
        """Whether a start is one: CBC, given an infeasible one, has answered wrongly."""
        given = ~np.isnan(start)
        if not given.all() or program.violation(start) > 1e-6:
            return False
        worth = program.objective(start)
        self.start_worth = (worth - program.offset, worth)
        return True

    def _write_start(self, start: Array, program: Linear, path: Path) -> None:
        """Write the integer columns of a start, as CBC wants them; it finds the others."""
        with path.open("w", encoding="ascii", newline="\n") as file:
            for number, column in enumerate(np.flatnonzero(program.integral).tolist()):
                if number % lowering.CHUNK == 0:
                    self.check()
                file.write(f"{number} x{column} {round(start[column])}\n")

    def _run_model(self, program: Linear, start: Array | None) -> tuple[Results, Array | None]:
        """Solve by way of a Pyomo model; return Pyomo's results and the value of every column."""
        model = lowering.lift(program, self.check)
        options: JsonObject = {}
        if start is not None:
            for column, value in enumerate(start.tolist()):
                given = None if math.isnan(value) else value
                model.x[column].set_value(given, skip_validation=True)
            capable = getattr(self.solver, "warm_start_capable", None)
            if capable is not None and capable():
                options["warmstart"] = True
        results = self._solve(model, options)
        return results, None if results is None else _loaded_values(model, results, program)

    def _solve(self, model: Model, options: JsonObject, reserve: float = 0.0) -> Results:
        """Return Pyomo's results for a model or file.

        None when the solver fell to our own cancellation, or could not start for lack of time.
        """
        self.check()
        options = {"tee": False, "load_solutions": False, **options}
        if self.limits.time_limit is not None:
            left = self.limits.time_limit - (time.perf_counter() - self.task.began) - reserve
            if left < 0.05:
                return None
            whole = max(1, math.floor(left + 0.05))
            options["timelimit"] = whole if self.known.whole_seconds else left
        if hasattr(self.solver, "config") and hasattr(self.solver.config, "mip_gap"):
            self.solver.config.mip_gap = 0.0
        # Pyomo has no public way to end the process that it starts.  Where it starts it by another
        # name, answers are the same, but a cancelled solver is left behind.
        if hasattr(self.solver, "_execute_command"):
            self.solver._execute_command = self._execute
        settings = {
            "threads": self.limits.threads,
            "seed": self.limits.seed,
            "gap": 0.0,
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
                raise InputError(
                    f"Pyomo's solver {self.name} failed: {error}", field="engine"
                ) from error

    def start_taken(self) -> str:
        """Return the line in which CBC says that it took the start; '' if it does not."""
        said = START_TAKEN.search(self.log)
        if said is None:
            return ""
        # CBC completes what it is given, and counts without the columns that presolve removed:
        # it is our start if that or the incumbent it makes of it is worth the same.
        costs = [float(said[1])]
        first = FIRST_INCUMBENT.search(self.log, said.end())
        if first:
            costs.append(float(first[1]))
        same = any(
            abs(cost - worth) <= 1e-5 * max(1.0, abs(worth))
            for cost in costs
            for worth in self.start_worth
        )
        return said[0] if same else ""

    def _read(self, results: Results, values: Array | None, program: Linear) -> Outcome:
        from pyomo.opt import TerminationCondition

        condition = results.solver.termination_condition
        outcome = Outcome(status=Status.UNKNOWN, message=str(condition))
        if condition == TerminationCondition.infeasible and self.cancelled_at is None:
            outcome.status = Status.INFEASIBLE
            return outcome
        if values is not None:
            outcome.status, outcome.values = Status.FEASIBLE, values
            outcome.objective = program.objective(values)
        optimal = condition == TerminationCondition.optimal and values is not None
        if optimal or self.known.limit_bound:
            outcome.bound = _lower_bound(results, outcome.objective)
        if optimal:
            assert outcome.objective is not None
            slack = 1e-6 * max(1.0, abs(outcome.objective))
            if outcome.bound is None or outcome.bound >= outcome.objective - slack:
                outcome.status = Status.OPTIMAL
        return outcome


def _loaded_values(model: Model, results: Results, program: Linear) -> Array | None:
    """Return the solution in `results` by column, or None without one."""
    if len(results.solution) == 0:
        return None
    columns = [model.x[column] for column in range(program.columns)]
    for variable in columns:
        variable.set_value(None)
    with _quiet():
        try:
            model.solutions.load_from(results)
        except ValueError:  # the solver ended in an error
            return None
    values = _unused(program)
    for column, variable in enumerate(columns):
        if variable.value is not None:
            values[column] = variable.value
    return values


def _unused(program: Linear) -> Array:
    """Return any value in the bounds of each column, for those that no constraint uses."""
    low, high = np.ceil(program.lower), np.floor(program.upper)
    return np.asarray(np.clip(0.0, low, np.maximum(low, high)))


def _accepted(values: Array | None, program: Linear) -> Array | None:
    """Return `values`, nearly whole numbers made whole, if they keep to the model."""
    if values is None:
        return None
    # Whole numbers come with their last digits off, which large coefficients multiply.
    near = np.rint(values)
    values = np.where(program.integral & (np.abs(values - near) <= 1e-4), near, values)
    largest = float(np.abs(program.value).max(initial=1.0))
    # Some solvers write down their last, infeasible point.
    return values if program.violation(values) <= 1e-5 * largest else None


def _lower_bound(results: Results, objective: float | None) -> float | None:
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
