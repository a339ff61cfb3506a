"""The interface of all engines, and the code that runs and cancels them.

An engine receives a model in its own language and is independent of problems.  Native solvers run
in a separate thread.  The calling thread watches the time limit, stop requests and Ctrl-C, because
most solvers check none of these during presolve or while they solve a large LP.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import math
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from stagepack import interrupts, memory
from stagepack.errors import InputError, StagepackError
from stagepack.linear import Array, Linear
from stagepack.result import Status

T = TypeVar("T")
OnSolution = Callable[[Array, float | None], object]
OnBound = Callable[[float], object]
ShouldStop = Callable[[], bool]

POLL = 0.05
"""Seconds between two looks of the calling thread at the clock and at `should_stop`."""

GRACE = 0.15
"""Seconds that a cancelled solver has to return before the run goes on without it.

With a `POLL` before, no more than the 0.2 s in which every run looks at the clock.
"""

EXIT_WAIT = 10.0
"""Seconds that a process which wants to end waits for solvers left behind."""

_workers: list[threading.Thread] = []


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a solve ends by itself, and what makes it reproducible.

    Parameters
    ----------
    time_limit : float, optional
        Seconds of wall clock from the start of the solve, loading the model included.
    threads : int
        Solver threads, at least 1.
    seed : int
        Seed of the solver's own random numbers, at least 0.
    work_limit : float, optional
        A limit that is the same on every machine: deterministic seconds in CP-SAT,
        :data:`stagepack.solvers.highs.NODES_PER_WORK` branch-and-bound nodes each in HiGHS.
        Without a `time_limit` beside it no clock ends the run.
    """

    time_limit: float | None = None
    threads: int = 1
    seed: int = 0
    work_limit: float | None = None


@dataclass(kw_only=True)
class Outcome:
    """What one engine found out about one model."""

    # Of the model: OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN.  OPTIMAL is the engine's own claim,
    # within its `tolerance`.
    status: Status
    # ndarray or None: the best solution, one value per column of the model.
    values: Array | None = None
    # The model's objective at `values`; None without a solution, or without an objective.
    objective: float | None = None
    # Raw lower bound on the objective in the model's units, exact up to the engine's `tolerance`;
    # None when none was proved.
    bound: float | None = None
    # ndarray or None: of a linear program without whole numbers, one value per row, from HiGHS.
    duals: Array | None = None
    # Whether the engine confirmed the hint as feasible in its own model (a hint for some columns
    # only: whether its first solution agrees with it).  False also when the engine cannot tell;
    # None when no hint was given.
    hint_accepted: bool | None = None
    hint_note: str = ""  # what that rests on: the engine's own words, or why nothing was confirmed
    work: float = 0.0  # work done, in the unit of `Limits.work_limit`; 0 when unknown
    runtime: float = 0.0  # seconds of wall clock, imports not counted
    message: str = ""  # the engine's own word for how it ended
    interrupted: bool = False  # whether Ctrl-C ended the run


class Relay:
    """Carries a solver's incumbents and bounds to the caller and keeps the best of them.

    The caller's functions run inside native callbacks, through which no exception may travel:
    the first one is kept in `failure`, and nothing is carried after it.
    """

    def __init__(self, on_solution: OnSolution | None, on_bound: OnBound | None) -> None:
        self._on_solution = on_solution
        self._on_bound = on_bound
        self._closed = False
        self.failure: BaseException | None = None
        self.first: Array | None = None
        self.best: tuple[Array, float | None] | None = None
        self.bound: float | None = None

    def incumbent(self, values: Array, objective: float | None) -> None:
        """Take an incumbent; callers pass an array that nobody changes later."""
        if self.first is None:
            self.first = values
        known = self.best[1] if self.best is not None else None
        if known is None or objective is None or objective < known:
            self.best = (values, objective)
        if self._on_solution is not None:
            self._guard(self._on_solution, values, self.bound)

    def lower(self, bound: float) -> None:
        """Take a lower bound; only a better one than before is passed on."""
        if not math.isfinite(bound) or (self.bound is not None and bound <= self.bound):
            return
        self.bound = bound
        if self._on_bound is not None:
            self._guard(self._on_bound, bound)

    def close(self) -> None:
        """Call the caller's functions no more, whatever a late solver reports."""
        self._closed = True

    def best_bound(self, final: float | None) -> float | None:
        """Return the better of the solver's `final` bound and the best one heard of."""
        known = [b for b in (final, self.bound) if b is not None and math.isfinite(b)]
        return max(known, default=None)

    def _guard(self, function: Callable[..., object], *arguments: object) -> None:
        if self._closed:
            return
        try:
            function(*arguments)
        except BaseException as error:  # raised again by the caller
            self.failure = error
            self._closed = True


def left_behind() -> bool:
    """Whether a cancelled solver is still winding down in the background.

    While it is, ``sys.exit`` waits up to :data:`EXIT_WAIT` seconds; a program that must end at
    once flushes its streams and calls ``os._exit``.
    """
    _workers[:] = [worker for worker in _workers if worker.is_alive()]
    return bool(_workers)


@atexit.register
def _wait_for_workers() -> None:
    """Let solvers left behind end first: native threads abort a process that ends under them."""
    give_up = time.perf_counter() + EXIT_WAIT
    try:
        while left_behind() and time.perf_counter() < give_up:
            time.sleep(POLL)
    except KeyboardInterrupt:
        os._exit(130)


@dataclass
class Run(Generic[T]):
    """What a solve in its own thread returned, and whether Ctrl-C ended it.

    The value is None where the solver was cancelled, had not returned in time and was left behind.
    """

    value: T | None = None
    interrupted: bool = False
    left_behind: bool = False


def run_cancellable(
    solve: Callable[[], T],
    cancel: Callable[[], bool | None],
    should_stop: ShouldStop | None = None,
    *,
    relay: Relay | None = None,
    time_limit: float | None = None,
) -> Run[T]:
    """Run `solve` in a thread of its own; cancel it on request, on Ctrl-C and out of time.

    A solver that does not return within :data:`GRACE` seconds of its cancellation is left behind:
    its thread ends by itself later, unheard, and the caller goes on with what the relay has kept.
    The solver should stop by itself after `time_limit` seconds; it is cancelled 5 % + 0.1 s later.
    `should_stop` is polled in the calling thread; a failure in `relay`, which is closed at the end,
    cancels the run.  What they or `solve` raise is raised, and KeyboardInterrupt on the second
    Ctrl-C.

    `cancel` asks the solver to return soon.  It is called repeatedly until it has, possibly before
    it began.  False says that it is code of ours, with nothing to wait for: it is left behind at
    once, and ended by an exception at its next step.
    """
    done = threading.Event()
    returned: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        with contextlib.suppress(Abandoned):
            try:
                returned.append(solve())
            except BaseException as error:  # raised again by the caller
                raised.append(error)
            finally:
                done.set()

    _take_back_interrupts()
    # A daemon, so that a solver left behind cannot keep the process from ending.
    worker = threading.Thread(target=work, name="stagepack-engine", daemon=True)
    if not memory.has_room():
        raise MemoryError
    deadline = math.inf
    if time_limit is not None:
        deadline = time.perf_counter() + 1.05 * time_limit + 0.1
    interrupted = False
    fault: BaseException | None = None

    def over() -> bool:
        failed = relay is not None and relay.failure is not None
        late = failed or time.perf_counter() >= deadline
        return late or (should_stop is not None and bool(should_stop()))

    try:
        try:
            worker.start()
            while not done.wait(POLL) and not over():
                pass
        except KeyboardInterrupt:
            interrupted = True
        except BaseException as error:  # raised again once the solver is down
            fault = error
        _wind_down(worker, done, cancel)
    finally:
        if relay is not None:
            relay.close()
        stopped = not done.is_set()
        if stopped:
            _workers.append(worker)
    failure = fault or (relay.failure if relay is not None else None)
    if failure is not None:
        raise failure
    if raised and not isinstance(raised[0], Abandoned):
        raise raised[0]
    return Run(returned[0] if returned else None, interrupted, stopped)


def _take_back_interrupts() -> None:
    """Let Python hear of Ctrl-C again: native code that ran before may have taken SIGINT away."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)


def _wind_down(
    worker: threading.Thread, done: threading.Event, cancel: Callable[[], bool | None]
) -> None:
    """Ask a solver to return until it has, or its time of :data:`GRACE` is over."""
    give_up = time.perf_counter() + GRACE
    while not done.is_set() and time.perf_counter() < give_up:
        if cancel() is False:
            _end(worker)
            break
        done.wait(POLL)


class Abandoned(BaseException):
    """Raised in a thread whose result nobody waits for any more."""


def _end(worker: threading.Thread) -> None:
    """Raise :class:`Abandoned` in a thread that runs Python; it comes between two of its steps."""
    for handler in logging.getLogger("pyomo").handlers:
        handler.addFilter(_unless_abandoned)  # the same one again adds nothing
    interrupts.heed(Abandoned, _again)
    _raise_in(worker)


def _again() -> None:
    """Raise :class:`Abandoned` anew where it came in a callback, out of which nothing is raised."""
    while True:  # from elsewhere and later: here it would be lost as well
        with contextlib.suppress(Abandoned):  # a machine so busy that later came at once
            again = threading.Timer(0.01, _raise_in, (threading.current_thread(),))
            again.daemon = True
            again.start()
            return


def _raise_in(worker: threading.Thread) -> None:
    if worker.ident is not None and worker.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(worker.ident), ctypes.py_object(Abandoned)
        )


def _unless_abandoned(_: logging.LogRecord) -> bool:
    """Whether Pyomo has something to complain of: its handler writes to the standard output."""
    return not isinstance(sys.exc_info()[1], Abandoned)


def require_program(model: object) -> Linear:
    """Return a model that is a program; refuse what other engines take."""
    if not isinstance(model, Linear):
        raise StagepackError(f"takes a Linear, not a {type(model).__name__}")
    return model


def checked_hint(hint: Array | None, columns: int) -> Array | None:
    """Return `hint` as float64 of shape (columns,), or None when it hints at nothing."""
    if hint is None:
        return None
    values = np.asarray(hint, dtype=np.float64)
    if values.shape != (columns,):
        raise InputError(
            f"has shape {values.shape} for a model of {columns} columns",
            field="hint",
            remedy="give one value per column, NaN where there is none",
        )
    if np.isinf(values).any():
        raise InputError("holds an infinite value", field="hint", remedy="use NaN for no hint")
    return None if np.isnan(values).all() else values


FIRST_AGREES = "its first solution is the start"
"""`Outcome.hint_note` where the engine printed nothing but returned the hint."""


def agrees(first: Array | None, hint: Array) -> bool:
    """Whether a solver's first solution, if any, equals the hint wherever that is not NaN."""
    if first is None:
        return False
    given = ~np.isnan(hint)
    scale = np.maximum(1.0, np.abs(hint[given]))
    return bool((np.abs(first[given] - hint[given]) <= 1e-6 * scale).all())


@dataclass(kw_only=True)
class Task:
    """What an engine is asked to do: what :meth:`Engine.solve` takes, and when its clock began."""

    model: Any
    hint: Array | None
    limits: Limits
    parameters: Mapping[str, object]
    relay: Relay
    began: float


class Job(Protocol):
    """One run of an engine."""

    def run(self) -> Outcome:
        """Do the work, in a thread of its own."""

    def cancel(self) -> bool | None:
        """End it soon; see :func:`run_cancellable`."""

    def start_taken(self) -> str:
        """Return in which words the engine confirmed the hint, '' if it did not."""


class Engine(ABC):
    """A solver behind one interface."""

    name: str  # the name that :func:`stagepack.solvers.engine` knows
    takes_starts: bool = True  # whether it takes hints; else one that is given is ignored
    counts_work: bool = True  # whether `Limits.work_limit` ends it
    # Relative tolerance of bounds and feasibility: 0.0 for exact integer arithmetic. ``bound -
    # tolerance * max(1, |bound|)`` is safe.
    tolerance: float

    @abstractmethod
    def unavailable(self) -> str:
        """Return '' when the engine can be used, else why not and what to do, in one line."""

    def load(self) -> None:
        """Import what the engine needs, or refuse it; the second time costs nothing."""
        reason = self.unavailable()
        if reason:
            raise InputError(f"engine {self.name} is unavailable: {reason}", field="engine")

    @abstractmethod
    def job(self, task: Task) -> Job:
        """Return the run of a task; raise a StagepackError for a model in another language."""

    def solve(
        self,
        model: Any,
        *,
        hint: Array | None = None,
        limits: Limits | None = None,
        on_solution: OnSolution | None = None,
        on_bound: OnBound | None = None,
        should_stop: ShouldStop | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Minimise `model`, in the engine's language; of CP-SAT's, the hint becomes a part.

        The `hint` has one value per column, NaN where there is none; `parameters` are settings of
        the engine's own that suit the model: any of CP-SAT; of HiGHS, ``tolerance`` for feasibility
        and integrality.  `on_solution` is called with ``(values, bound or None)`` for every new
        incumbent, `on_bound` with every better lower bound, possibly from another thread.
        `should_stop` is polled about every 50 ms in the calling thread; true ends the run, which
        keeps its incumbent and bound, as `limits` do.

        Raises StagepackError when the engine rejects the model, the hint or an option, whatever a
        callback raises, after the run was cancelled, and KeyboardInterrupt on a second Ctrl-C; the
        first returns an outcome that is marked `interrupted`.
        """
        self.load()
        began = time.perf_counter()
        limits = limits or Limits()
        relay = Relay(on_solution, on_bound)
        job = self.job(
            Task(
                model=model,
                hint=hint,
                limits=limits,
                parameters=parameters or {},
                relay=relay,
                began=began,
            )
        )
        run = run_cancellable(
            job.run, job.cancel, should_stop, relay=relay, time_limit=limits.time_limit
        )
        outcome = run.value or Outcome(
            status=Status.UNKNOWN, message="left behind: did not return when cancelled"
        )
        if outcome.status is Status.UNKNOWN and relay.best is not None:
            outcome.status = Status.FEASIBLE
            outcome.values, outcome.objective = relay.best
        if outcome.status is not Status.INFEASIBLE:
            outcome.bound = relay.best_bound(outcome.bound)
        if hint is not None:
            taken = job.start_taken()
            outcome.hint_accepted = taken != ""
            outcome.hint_note = taken or (
                "did not confirm the start" if self.takes_starts else "takes no start"
            )
        outcome.interrupted = run.interrupted
        outcome.runtime = time.perf_counter() - began
        return outcome
