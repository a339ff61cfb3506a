"""Runs a model on an engine for any problem: warm start, limits, bounds and solutions."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from stagepack import solvers
from stagepack.contracts import Number, SolutionT
from stagepack.errors import ContradictionError, InputError
from stagepack.evidence import SEARCHED, TOLD
from stagepack.formulations.base import Formulation
from stagepack.linear import Array
from stagepack.methods import Settings
from stagepack.progress import Progress
from stagepack.result import Event, EventKind, Status, Termination

InstanceT = TypeVar("InstanceT")
BuiltT = TypeVar("BuiltT")


def find_engine(name: str, settings: Settings) -> solvers.Engine:
    """Return the engine that the settings name, else `name`, to be loaded where it is needed.

    Refuses one that is not available, or cannot do what the settings ask for.
    """
    engine = solvers.engine(settings.engine or name)
    reason = engine.unavailable()
    if reason:
        raise InputError(reason, field="engine")
    if settings.deterministic and not engine.counts_work:
        raise InputError(
            f"{engine.name} cannot be limited by work",
            field="deterministic",
            remedy="use cp-sat or highs, or a time limit",
        )
    return engine


def load_engine(name: str, progress: Progress[SolutionT], settings: Settings) -> solvers.Engine:
    """Return the engine that :func:`find_engine` finds by `name`, loaded; that counts as set-up."""
    engine = find_engine(name, settings)
    with progress.setup(f"loading {engine.name}"):
        engine.load()
    return engine


PACE = 0.1
"""Work of CP-SAT that takes about a second in models that it counts too cheap."""


def paced(
    settings: Settings,
    engine: solvers.Engine,
    remaining: float = math.inf,
    pace: float = PACE,
) -> Settings:
    """Return the settings with a limit, for an engine that works, in work instead of seconds.

    There are `remaining` seconds, where these count work, too; the `pace` is CP-SAT's work in one.
    """
    if not settings.deterministic or settings.time_limit is None:
        return settings
    seconds = max(0.0, min(settings.time_limit, remaining))
    work = pace * seconds if engine.name == "cp-sat" else seconds
    return dataclasses.replace(settings, time_limit=work)


def run_model(
    engine: solvers.Engine,
    build: Callable[[], Formulation[InstanceT, SolutionT]],
    name: str,
    progress: Progress[SolutionT],
    settings: Settings,
    *,
    start: SolutionT | None = None,
    start_value: Number | None = None,
    bound_value: Callable[[int], Number | None] = lambda bound: bound,
    work: float | None = None,
    pace: float = PACE,
    overdue: float = math.inf,
    conclude_infeasible: Callable[[], None],
) -> float:
    """Build a model, solve it on an engine, and report what it finds to `progress`.

    Returns the engine's work, in seconds of :func:`paced`.

    The model is called `name` in the source of answers.  `build` makes it where time or patience
    can end it, since large ones take long; of `settings`, limits, threads and seed are the
    engine's.

    The engine starts at `start`, whose objective value `start_value` is given only if it is worth
    no more than the model's `upper`.  `bound_value` turns the model's bounds into objective values.
    It ends after so much `work` (see :class:`Limits`), which does not end the run; `pace` is the
    work of CP-SAT in a second, as in :func:`paced`.  After `overdue` seconds of CPU it ends
    although the work is not done: much of what engines do before they search, and the building of
    models, is counted by none of them.

    `conclude_infeasible` is called when the model has no solution; it reports the reason, or
    contradicts.
    """
    progress.require_time()
    over = _deadline(f"{name} on {engine.name}", progress, overdue)
    model = _built(build, progress, over)
    if model is None:
        return 0.0
    if model.infeasible:
        conclude_infeasible()
        return 0.0
    if model.loading > progress.remaining:
        progress.reason = (
            f"{engine.name} would take about {model.loading:,.0f} s to load {name}, more than is "
            "left"
        )
        return 0.0
    progress.engine = engine.name
    source = f"{engine.name} ({name})"
    words = _Words(engine, model, source, progress, bound_value, start_value)
    if work is None and settings.deterministic and settings.time_limit is not None:
        within: float | None = max(0.0, settings.time_limit - pace * model.loading)
    else:
        within = work
    limits = _limits(progress, settings, within)
    outcome = engine.solve(
        model.model,
        hint=None if start is None else np.asarray(model.hint(start), dtype=np.float64),
        limits=limits,
        on_solution=words.solution,
        on_bound=words.bound,
        should_stop=over,
        parameters=model.parameters,
    )
    if outcome.interrupted:
        progress.interrupt()
    if start is not None and start_value is not None:
        _record_start(progress, start_value, outcome, source)
    if outcome.status is Status.INFEASIBLE:
        words.infeasible(conclude_infeasible)
    else:
        if outcome.values is not None:
            words.solution(outcome.values, outcome.bound)
        elif outcome.bound is not None:
            words.bound(outcome.bound)
        if progress.keep_going() and work is None:
            _account(engine, outcome, progress, limits)
    return outcome.work / (pace if engine.name == "cp-sat" else 1.0)


@dataclasses.dataclass
class _Words(Generic[InstanceT, SolutionT]):
    """What an engine says of a model, told to `progress` as far as it can be true."""

    engine: solvers.Engine
    model: Formulation[InstanceT, SolutionT]
    source: str
    progress: Progress[SolutionT]
    bound_value: Callable[[int], Number | None]
    start_value: Number | None

    def solution(self, values: Array, bound: float | None) -> None:
        """Take a solution of the model, and the bound at that time."""
        solution = self.model.decode(values)
        if self.model.coarse:
            self.progress.offer_if_valid(solution, self.source)
        else:
            self.progress.offer(solution, self.source)
        if bound is not None:
            self.bound(bound)

    def bound(self, raw: float) -> None:
        """Take a bound, unless it denies what is known."""
        progress, tolerance = self.progress, self.engine.tolerance
        if self.start_value is not None and self.model.denies(raw, tolerance):
            said = f"proved more than {self.start_value:,}, which a valid solution has"
            progress.disbelieve(self.source, said)
        elif math.isfinite(raw):
            bound = self.bound_value(self.model.lower_bound(raw, tolerance))
            progress.raise_bound(bound, self.source, TOLD)

    def infeasible(self, conclude: Callable[[], None]) -> None:
        """Take it that there is no solution, unless there is one."""
        try:
            conclude()
        except ContradictionError as error:
            said = f"finds no solution although there is one ({error})"
            self.progress.disbelieve(self.source, said)
        if self.progress.infeasible_reason is not None and self.progress.evidence == SEARCHED:
            self.progress.evidence = TOLD


def _deadline(what: str, progress: Progress[SolutionT], overdue: float) -> Callable[[], bool]:
    """Return what tells engines to end: the run is over, or `what` took far too long."""
    began = time.process_time()

    def over() -> bool:
        if time.process_time() - began > overdue:
            progress.reason = (
                f"{what} did not come to where work is counted, and was ended by "
                "the clock: another run may end elsewhere"
            )
            progress.stop(Termination.TIME_LIMIT)
        return not progress.keep_going()

    return over


def _built(
    build: Callable[[], BuiltT], progress: Progress[SolutionT], over: Callable[[], bool]
) -> BuiltT | None:
    """Build a model, or return None where time or Ctrl-C ended that."""
    # There is nothing to stop while a model is built, and no part of it to wait for.
    built = solvers.run_cancellable(build, lambda: False, over)
    if built.interrupted:
        progress.interrupt()
    progress.require_time()
    return built.value


def _limits(
    progress: Progress[SolutionT], settings: Settings, work: float | None
) -> solvers.Limits:
    """Return when an engine must end: by work where runs are to repeat, else by the clock."""
    left = None if math.isinf(progress.remaining) else max(0.0, progress.remaining)
    return solvers.Limits(
        time_limit=None if settings.deterministic else left,
        work_limit=work,
        threads=settings.threads,
        seed=settings.seed,
    )


def _account(
    engine: solvers.Engine,
    outcome: solvers.Outcome,
    progress: Progress[SolutionT],
    limits: solvers.Limits,
) -> None:
    """Say why an engine ended although the run could go on."""
    limit = limits.time_limit
    if outcome.status is Status.OPTIMAL:
        progress.reason = (
            f"{engine.name} calls it optimal, but its bound holds only within its tolerance"
        )
    elif limits.work_limit is not None or (limit and outcome.runtime >= limit / 2):
        progress.stop(Termination.TIME_LIMIT)  # engines may end early, when too little is left
    else:
        progress.reason = f"{engine.name} gave up: {outcome.message}"


def _record_start(
    progress: Progress[SolutionT], value: Number, outcome: solvers.Outcome, source: str
) -> None:
    """Write into the trace what became of the start: "warm-start" only if the engine said so."""
    note = f"{source}: {outcome.hint_note}"
    if outcome.hint_accepted:
        progress.confirm_warm_start(value, note)
    else:
        # The start still counts as an incumbent of ours, whatever the engine makes of it.
        progress.trace.events.append(Event(progress.elapsed, EventKind.UNUSED_START, value, note))
