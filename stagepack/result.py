"""Statuses, traces and results: the neutral ground every wing stands on.

Nothing here knows a problem or a solver.  An instance says what an answer is
worth, an algorithm finds answers, and :class:`Progress` keeps the best of them
together with the best proved bound while the clock runs.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from stagepack import files
from stagepack.errors import CheckError as CheckError
from stagepack.errors import InputError as InputError
from stagepack.errors import StagepackError as StagepackError
from stagepack.shown import Shown, dataframe, presenter

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("stagepack")

Number = int | float
SolutionT = TypeVar("SolutionT")


class Status(StrEnum):
    """What is known about an instance after a run."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class Termination(StrEnum):
    """Why a run stopped."""

    PROVED = "PROVED"
    TIME_LIMIT = "TIME_LIMIT"
    INTERRUPTED = "INTERRUPTED"
    TARGET = "TARGET"
    FINISHED = "FINISHED"


def relative_gap(objective: Number | None, bound: Number | None) -> float | None:
    """Return ``(objective - bound) / max(1, |objective|)``, or None when either is missing."""
    if objective is None or bound is None:
        return None
    return float(objective - bound) / max(1.0, abs(float(objective)))


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a trace: an incumbent or a bound, and who found it after how many seconds."""

    time: float
    kind: str
    value: Number
    source: str


@dataclass(repr=False)
class Trace(Shown):
    """Incumbents and bounds of one run in the order in which they were found."""

    events: list[Event] = field(default_factory=list)

    @property
    def incumbents(self) -> list[Event]:
        """The incumbents, each better than the one before."""
        return [event for event in self.events if event.kind == "incumbent"]

    @property
    def bounds(self) -> list[Event]:
        """The lower bounds, each higher than the one before."""
        return [event for event in self.events if event.kind == "bound"]

    @property
    def warm_starts(self) -> list[Event]:
        """The hints an engine was given and confirmed as feasible in its own model."""
        return [event for event in self.events if event.kind == "warm-start"]

    def _line(self) -> str:
        return f"{len(self.incumbents)} incumbents, {len(self.bounds)} bounds"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row an event: time, kind, value, source; pandas must be installed."""
        names = ("time", "kind", "value", "source")
        return dataframe({name: [getattr(e, name) for e in self.events] for name in names})

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the trace as CSV (``time,kind,value,source``), and write it to `path` if given."""
        text = csv_text(
            ("time", "kind", "value", "source"),
            ((f"{e.time:.6f}", e.kind, e.value, e.source) for e in self.events),
        )
        if path is not None:
            files.write(path, text)
        return text


@dataclass(kw_only=True, repr=False)
class Result(Shown, Generic[SolutionT]):
    """The answer of one method on one instance.

    It prints as a summary, and shows itself in notebooks.  In the process that solved it, it knows
    its instance (`problem`); a pickle leaves that out.

    Attributes
    ----------
    status : Status
        What is known: OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN.
    termination : Termination
        Why the run stopped.
    objective : int or float or None
        Value of `solution` as the instance itself evaluates it; None without a solution.
    bound, bound_source : int or float or None, str
        A safe lower bound on every solution's objective, and how it was proved.
    solution : object or None
        The best solution found; its checker found no violation.  Declared as ``SolutionT | Any``,
        so that type checkers know its fields and do not ask for a None check at every use.
    method, engine : str
        What ran.
    runtime, setup_time : float
        Seconds of solving, and seconds spent importing engines and compiling kernels.
    reason : str
        For INFEASIBLE, what makes it so and what would mend it; otherwise empty or a remark.
    violations : tuple
        Always empty: a solution that fails its check is raised as :class:`CheckError`.
    instance, objective_name, digest : str
        Name, objective and fingerprint of the instance.
    options : dict
        Keyword arguments with which :func:`stagepack.solve` repeats the run.
    versions : dict
        Versions of Stagepack, Python and the libraries that did the work.
    trace : Trace
        Incumbents and bounds with their times.
    """

    status: Status
    termination: Termination
    objective: Number | None = None
    bound: Number | None = None
    bound_source: str = ""
    solution: SolutionT | Any = None
    method: str = ""
    engine: str = ""
    runtime: float = 0.0
    setup_time: float = 0.0
    reason: str = ""
    violations: tuple[Any, ...] = ()
    instance: str = ""
    kind: str = ""
    objective_name: str = ""
    digest: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    trace: Trace = field(default_factory=Trace)

    @property
    def gap(self) -> float | None:
        """Relative gap ``(objective - bound) / max(1, |objective|)``; None when unknown."""
        return relative_gap(self.objective, self.bound)

    def _line(self) -> str:
        known = f"{self.status}, objective {self.objective}, bound {self.bound}"
        return f"{known}, by {self.method}, {self.instance!r}"

    @property
    def problem(self) -> Any:
        """The instance itself; None in a result that was pickled or made by hand."""
        return self.__dict__.get("_problem")

    @functools.cached_property
    def instance_fields(self) -> dict[str, Any]:
        """What the instance is made of, to say later in what another one differs.

        Found when asked for, as it costs more than many a run; a pickle keeps it.
        """
        return {} if self.problem is None else dict(self.problem.fingerprints)

    def of(self, instance: Any) -> Self:
        """Let the result know its instance, for prints, pictures and tables; return it."""
        self.__dict__["_problem"] = instance
        return self

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return kept | {"instance_fields": self.instance_fields}

    def to_dataframe(self, instance: Any = None) -> pd.DataFrame:
        """Return one row a stage, buffer, operation or phase of the solution.

        Parameters
        ----------
        instance : instance, optional
            What was solved; needed where the result does not know it any more.

        Raises
        ------
        InputError
            Without a solution, or without the instance.
        StagepackError
            When pandas is not installed.
        """
        instance = self.problem if instance is None else instance
        if instance is None:
            raise InputError(
                "is not known to a result that was pickled",
                field="instance",
                remedy="to_dataframe(instance)",
            )
        return dataframe(presenter().columns(instance, self))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON data: finite numbers, strings, lists, null."""
        solution: Any = self.solution
        document = {
            "instance": self.instance,
            "problem": self.kind,
            "objective_name": self.objective_name,
            "status": str(self.status),
            "termination": str(self.termination),
            "objective": self.objective,
            "bound": self.bound,
            "bound_source": self.bound_source or None,
            "gap": self.gap,
            "method": self.method,
            "engine": self.engine or None,
            "runtime": round(self.runtime, 6),
            "setup_time": round(self.setup_time, 6),
            "solution": solution.to_dict() if hasattr(solution, "to_dict") else solution,
            "violations": [str(violation) for violation in self.violations],
            "reason": self.reason or None,
            "digest": self.digest,
            "instance_fields": self.instance_fields,
            "options": self.options,
            "versions": self.versions,
            "trace": [
                {"time": round(e.time, 6), "kind": e.kind, "value": e.value, "source": e.source}
                for e in self.trace.events
            ],
        }
        plain: dict[str, Any] = finite(document)
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as one JSON document, and write it to `path` if given."""
        text = json_text(self.to_dict()) + "\n"
        if path is not None:
            files.write(path, text)
        return text


PATIENCE = 2.0
"""Seconds of setup after which people are told what takes so long."""


class Compilation:
    """Tells, once a process, that kernels are compiled: not that they come from the cache.

    Attributes
    ----------
    kept : bool
        Whether the machine code is kept on disk, so that it need not be made again.
    told : bool
    """

    def __init__(self) -> None:
        self.kept = True
        self.told = False
        self._seconds = 0.0
        self._since: float | None = None
        self._depth = 0
        self._timer: threading.Timer | None = None

    @property
    def under_way(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    def begin(self) -> None:
        """Take the beginning of a compilation, perhaps within another one."""
        self._depth += 1
        if self._depth == 1 and not self.told:
            self._since = time.perf_counter()
            self._timer = threading.Timer(max(0.0, PATIENCE - self._seconds), self._tell)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Take the end of the last one begun."""
        self._depth -= 1
        if self._depth == 0 and self._since is not None:
            self._seconds += time.perf_counter() - self._since
            self._since = None
            if self._timer is not None:
                self._timer.cancel()

    def _tell(self) -> None:
        if not self.told:
            self.told = True
            why = "first use only" if self.kept else "at every start: no folder can keep them"
            log.info("compiling kernels (%s) ...", why)


compilation = Compilation()
"""That of this process."""


class Stopped(Exception):  # noqa: N818 - a signal between our own functions, never an error
    """Raised inside a method when :class:`Progress` says that it is time to return."""


class Progress(Generic[SolutionT]):
    """The best solution and bound of a running solve, its clock, and its reasons to stop.

    Methods `offer` solutions and `raise_bound`; between steps they ask `keep_going`.  Only
    solutions that the instance's own checker accepts are kept.

    Parameters
    ----------
    evaluate : callable
        Objective value of a solution, as the instance defines it.
    check : callable
        Violations of a solution; a non-empty answer raises :class:`CheckError`.
    time_limit : float, optional
        Seconds from now, not counting time spent inside :meth:`setup`.
    target : int or float, optional
        Stop once the objective is at most this.
    gap : float
        Stop once the relative gap is at most this.
    tolerance : float
        Relative tolerance of objective values: 0 for integer data.
    on_incumbent : callable, optional
        Called with ``(solution, objective, bound)`` at each improvement.
    on_bound : callable, optional
        Called with ``(bound, source)`` at each better bound.
    secondary : callable, optional
        Of solutions of equal objective the one with the least of this is kept.
    """

    def __init__(
        self,
        evaluate: Callable[[SolutionT], Number],
        check: Callable[[SolutionT], tuple[Any, ...]],
        *,
        time_limit: float | None = None,
        target: Number | None = None,
        gap: float = 0.0,
        tolerance: float = 0.0,
        on_incumbent: Callable[[SolutionT, Number, Number | None], None] | None = None,
        on_bound: Callable[[Number, str], None] | None = None,
        secondary: Callable[[SolutionT], Number] | None = None,
    ) -> None:
        self._evaluate = evaluate
        self._secondary = secondary
        self._check = check
        self._time_limit = time_limit
        self._target = target
        self._gap = gap
        self._tolerance = tolerance
        self._on_incumbent = on_incumbent
        self._on_bound = on_bound
        self._started = time.perf_counter()
        self._lock = threading.RLock()
        self._interrupted = False
        self._closed = False
        self._stopped: Termination | None = None
        self._clock: Callable[[], float] | None = None
        self._work = 0.0
        self._offered = self._started
        self._checking = 0.0
        self.setup_time = 0.0
        self.trace = Trace()
        self.solution: SolutionT | None = None
        self.objective: Number | None = None
        self.bound: Number | None = None
        self.bound_source = ""
        self.infeasible_reason: str | None = None
        self.reason = ""
        self.engine = ""

    @property
    def elapsed(self) -> float:
        """Seconds of solving so far, setup not counted."""
        return time.perf_counter() - self._started - self.setup_time

    @property
    def remaining(self) -> float:
        """Seconds left; infinite without a time limit."""
        if self._time_limit is None:
            return math.inf
        return self._time_limit - self.spent

    @property
    def spent(self) -> float:
        """Seconds of the clock that ends the run: the wall's, or another one."""
        return self.elapsed if self._clock is None else self._clock()

    def limit_by(self, clock: Callable[[], float], seconds: float) -> None:
        """End by another clock than the wall's: once it says so many seconds."""
        self._clock, self._time_limit = clock, seconds

    def limit_by_work(self, seconds: float) -> None:
        """End after what was told to :meth:`spend`, whatever the wall's clock says."""
        self.limit_by(lambda: self._work, seconds)

    def spend(self, seconds: float) -> None:
        """Count work that takes about so many seconds, where runs are limited by it."""
        self._work += seconds

    @contextlib.contextmanager
    def setup(self, what: str) -> Iterator[None]:
        """Count the block (an import, a compilation) as setup, and say so when it takes long."""

        def tell() -> None:
            if not (compilation.told or compilation.under_way):  # it speaks for itself
                log.info("%s ...", what)

        notice = threading.Timer(PATIENCE, tell)
        notice.daemon = True
        began = time.perf_counter()
        notice.start()
        try:
            yield
        finally:
            notice.cancel()
            self.setup_time += time.perf_counter() - began

    @contextlib.contextmanager
    def reserving(self, part: float) -> Iterator[None]:
        """Keep a part, of 1, of the time that is left for what follows the block."""
        whole = self._time_limit
        if whole is not None:
            self._time_limit = whole - part * max(0.0, self.remaining)
        try:
            yield
        finally:
            if whole is not None and self.remaining <= 0:
                self.stop(Termination.TIME_LIMIT)
            self._time_limit = whole

    @property
    def stale(self) -> bool:
        """Whether nothing was offered for a moment: a fast search need not report every step.

        Nor may the checking of what it offers take more than a part of its time.
        """
        return time.perf_counter() - self._offered >= max(0.05, 5 * self._checking)

    def offer(self, solution: SolutionT, source: str) -> bool:
        """Check and evaluate `solution`; keep it if it is better.  Return whether it was."""
        better, violations = self._take(solution, source)
        if violations:
            raise CheckError(
                f"{source} returned a solution that fails its check: "
                + "; ".join(str(violation) for violation in violations[:3])
            )
        return better

    def offer_if_valid(self, solution: SolutionT, source: str) -> tuple[Any, ...]:
        """Do as :meth:`offer`, but return the violations of what a naive rule gave."""
        return self._take(solution, source)[1]

    def _take(self, solution: SolutionT, source: str) -> tuple[bool, tuple[Any, ...]]:
        """Return whether `solution` is better than what is known, and its violations."""
        began = time.perf_counter()
        violations = self._check(solution)
        if violations:
            return False, violations
        objective = self._evaluate(solution)
        self._offered = time.perf_counter()
        self._checking = self._offered - began
        with self._lock:
            if self._closed:
                return False, ()
            if self.objective is not None and objective >= self.objective:
                if objective == self.objective and self._preferred(solution):
                    self.solution = solution
                return False, ()
            self._require_consistent(objective, self.bound, source)
            self.solution, self.objective = solution, objective
            self.trace.events.append(Event(self.elapsed, "incumbent", objective, source))
            bound = self.bound
        log.debug("%.3fs incumbent %s (%s)", self.elapsed, objective, source)
        if self._on_incumbent is not None:
            self._on_incumbent(solution, objective, bound)
        return True, ()

    def _preferred(self, solution: SolutionT) -> bool:
        return (
            self._secondary is not None
            and self.solution is not None
            and self._secondary(solution) < self._secondary(self.solution)
        )

    def raise_bound(self, bound: Number | None, source: str) -> None:
        """Record that no solution is better than `bound`, if that is news."""
        if bound is None or not math.isfinite(bound):
            return
        with self._lock:
            if self._closed or (self.bound is not None and bound <= self.bound):
                return
            self._require_consistent(self.objective, bound, source)
            self.bound, self.bound_source = bound, source
            self.trace.events.append(Event(self.elapsed, "bound", bound, source))
        log.debug("%.3fs bound %s (%s)", self.elapsed, bound, source)
        if self._on_bound is not None:
            self._on_bound(bound, source)

    def confirm_warm_start(self, value: Number, source: str) -> None:
        """Record that an engine took the solution it was given, worth `value`, as its first."""
        with self._lock:
            self.trace.events.append(Event(self.elapsed, "warm-start", value, source))

    def prove_infeasible(self, reason: str) -> None:
        """Record that the instance has no solution, and why."""
        if self.solution is not None:
            raise CheckError(f"called infeasible although a valid solution is known: {reason}")
        self.infeasible_reason = reason

    def close(self) -> None:
        """Take nothing more, whatever a late thread still offers: the result is being read."""
        with self._lock:
            self._closed = True

    def _require_consistent(
        self, objective: Number | None, bound: Number | None, source: str
    ) -> None:
        if objective is None or bound is None:
            return
        if bound > objective + self._slack(objective):
            raise CheckError(
                f"{source}: the bound {bound:,} exceeds the value {objective:,} of a valid solution"
            )

    @property
    def interrupted(self) -> bool:
        """Whether the run was asked to end."""
        return self._interrupted

    def interrupt(self) -> None:
        """Ask the run to end with what it has (Ctrl-C, or a caller's own thread)."""
        self._interrupted = True

    def stop(self, why: Termination) -> None:
        """Record why a method ended by itself, where the clock alone does not tell."""
        self._stopped = why

    @property
    def proved(self) -> bool:
        """Whether nothing is left to find: optimal within the tolerance, or infeasible."""
        if self.infeasible_reason is not None:
            return True
        if self.objective is None or self.bound is None:
            return False
        return self.bound >= self.objective - self._slack(self.objective)

    def _slack(self, objective: Number) -> Number:
        # Relative to the value whatever its unit, unlike the gap.  Exactly 0 for exact data: a
        # float would round integers beyond 2**53.
        return self._tolerance * abs(objective) if self._tolerance else 0

    def stop_reason(self) -> Termination | None:
        """Return why the run should stop now, or None if it should go on."""
        if self._interrupted:
            return Termination.INTERRUPTED
        if self.proved:
            return Termination.PROVED
        if self.objective is not None:
            if self._target is not None and self.objective <= self._target:
                return Termination.TARGET
            gap = relative_gap(self.objective, self.bound)
            if self._gap > 0 and gap is not None and gap <= self._gap:
                return Termination.TARGET
        if self.remaining <= 0:
            return Termination.TIME_LIMIT
        return self._stopped

    def keep_going(self) -> bool:
        """Whether there is a reason and the time to search on."""
        return self.stop_reason() is None

    def require_time(self) -> None:
        """Raise :class:`Stopped` when the run should stop now."""
        if not self.keep_going():
            raise Stopped

    def outcome(self) -> tuple[Status, Termination]:
        """Return status and termination of what is known now, for the final result."""
        termination = self.stop_reason() or Termination.FINISHED
        if self.infeasible_reason is not None:
            return Status.INFEASIBLE, Termination.PROVED
        if self.objective is None:
            return Status.UNKNOWN, termination
        if self.proved:
            # Within the tolerance the bound may exceed the value: never report a negative gap.
            assert self.bound is not None
            self.bound = min(self.bound, self.objective)
            return Status.OPTIMAL, Termination.PROVED
        return Status.FEASIBLE, termination


def finite(data: Any) -> Any:
    """Return `data` with NaN and infinities as None, NumPy scalars and arrays as plain data."""
    if type(data) is dict and _flat(data.values()) and set(map(type, data)) == {str}:
        return dict(data)
    if type(data) is list and _flat(data):
        return list(data)
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if hasattr(data, "tolist"):
        return finite(data.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def _flat(values: Iterable[Any]) -> bool:
    """Tell whether all values are integers, strings or None: millions of them at once."""
    return {int, str, bool, type(None)}.issuperset(map(type, values))


def json_text(data: Any, indent: str = "") -> str:
    """Return what :func:`finite` returned as ``json.dumps(data, indent=2)`` does, but sooner.

    The standard library indents in Python; what holds no containers is left to its compiled part.
    """
    if not isinstance(data, dict | list) or not data:
        return json.dumps(data, allow_nan=False)
    inner = f"{indent}  "
    between = f",\n{inner}"
    values = data.values() if isinstance(data, dict) else data
    if not any(isinstance(value, dict | list) for value in values):
        body = json.dumps(data, allow_nan=False, separators=(between, ": "))[1:-1]
    elif isinstance(data, dict):
        body = between.join(f"{json.dumps(k)}: {json_text(v, inner)}" for k, v in data.items())
    else:
        body = between.join(json_text(value, inner) for value in data)
    opening, closing = "{}" if isinstance(data, dict) else "[]"
    return f"{opening}\n{inner}{body}\n{indent}{closing}"


def csv_text(header: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> str:
    """Return rows as CSV with a header and Unix line ends; names are :func:`.files.guarded`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(
        tuple(files.guarded(cell) if isinstance(cell, str) else cell for cell in row)
        for row in rows
    )
    return stream.getvalue()
