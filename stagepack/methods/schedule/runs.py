"""What the methods of pipeline schedules do; loaded, with its compiled kernels, when one runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping

from stagepack.formulations import schedule as formulations
from stagepack.heuristics.schedule import bounds, greedy, modulo
from stagepack.heuristics.schedule.rules import RULES, apply
from stagepack.heuristics.schedule.timing import tighten
from stagepack.heuristics.schedule.timing import warm_up as warm_up_timing
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, reasons
from stagepack.methods import Settings
from stagepack.methods.models import PACE, load_engine, paced, run_model
from stagepack.methods.schedule.reasons import conclude_infeasible
from stagepack.result import InputError, Progress, Stopped, Termination
from stagepack.solvers import Engine

ScheduleProgress = Progress[ScheduleSolution]
Run = Callable[[PipelineSchedule, ScheduleProgress, Settings], None]

WORK = 2.0
"""Work of CP-SAT in the first turn of `auto`; about what a climb and a cooling take."""

QUICK = 400
"""Operations up to which the model has the first turn."""

MODELLED = 20_000
"""Operations up to which `auto` builds a model."""


def _begin(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Tell `progress` what is known without a search.

    Raises
    ------
    Stopped
        When nothing fits.
    """
    if reasons(instance):
        conclude_infeasible(instance, progress, "memory")
        raise Stopped
    with progress.setup("compiling kernels"):
        bounds.warm_up()
        warm_up_timing()
    progress.raise_bound(*bounds.bound(instance, progress.keep_going))


# ---------------------------------------------------------------------- without an engine


def run_rule(name: str) -> Run:
    """Return the `run` of one rule."""

    def run(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
        _begin(instance, progress)
        _given(instance, progress, settings)
        solution, reason = apply(RULES[name], instance)
        if solution is not None:
            progress.offer(solution, name)
            reason = RULES[name].remark(instance)
        progress.reason = reason

    return run


def _offer_rule(name: str, instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    solution, reason = apply(RULES[name], instance)
    if solution is not None:
        progress.offer(solution, name)
    elif progress.solution is None:
        progress.reason = reason


def _rules(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Offer what every rule gives that applies."""
    for name, rule in RULES.items():
        if not rule.unsupported(instance) and progress.keep_going():
            _offer_rule(name, instance, progress)


def searching(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Improve list schedules until time or patience ends."""
    _begin(instance, progress)
    _given(instance, progress, settings)
    greedy.search(instance, progress, settings)
    _out_of_work(progress, settings)


def periodic(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Search a period for the steady state, and complete it at both ends."""
    _begin(instance, progress)
    _given(instance, progress, settings)
    modulo.search(instance, progress, settings, progress.solution)
    _out_of_work(progress, settings)


def _out_of_work(progress: ScheduleProgress, settings: Settings) -> None:
    """Say why a run that is limited by work has ended."""
    if settings.deterministic and progress.keep_going():
        progress.stop(Termination.TIME_LIMIT)


# ---------------------------------------------------------------------- where to start


def _start(
    instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings
) -> greedy.Search:
    """Offer a first solution as the settings want it; return the search that goes on from it."""
    search = greedy.Search(instance, progress, settings.seed)
    _given(instance, progress, settings)
    if settings.warm_start == "auto":
        _rules(instance, progress)
        if progress.keep_going() or progress.solution is None:
            search.first_round()  # at least of one list, however late
    if progress.solution is not None:
        search.adopt(progress.solution)
        progress.reason = ""
    return search


def _given(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Offer the solution, or run the rule, that the settings name as a start.

    A solution is offered with the best times for its orders, too: where it waits without need,
    models may not have it.
    """
    wanted = settings.warm_start
    if wanted is None or wanted == "auto":
        return
    if isinstance(wanted, Mapping):  # as a result records it
        wanted = ScheduleSolution.from_dict(wanted, instance)
    if isinstance(wanted, ScheduleSolution):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        progress.offer(wanted, "warm start")
        progress.offer(tighten(instance, wanted), "warm start without needless waits")
        return
    if not isinstance(wanted, str) or wanted not in RULES:
        raise InputError(
            f"unknown warm start {wanted!r}",
            field="warm_start",
            remedy="choose auto, none, or one of " + ", ".join(RULES),
        )
    reason = RULES[wanted].unsupported(instance)
    if reason:
        raise InputError(f"{wanted}: {reason}", field="warm_start")
    _offer_rule(wanted, instance, progress)


# ---------------------------------------------------------------------- on an engine


def modelled(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Solve the interval model, from the best rule or list schedule."""
    engine = load_engine("cp-sat", progress, settings)
    _begin(instance, progress)
    _start(instance, progress, settings)
    if progress.keep_going():
        _model(instance, progress, engine, settings)


def _model(
    instance: PipelineSchedule,
    progress: ScheduleProgress,
    engine: Engine,
    settings: Settings,
    work: float | None = None,
) -> None:
    upper, lower = progress.objective, progress.bound
    run_model(
        engine,
        lambda: formulations.CpSat(
            instance,
            upper=None if upper is None else int(upper),
            lower=None if lower is None else int(lower),
        ),
        "CpSat",
        progress,
        paced(settings, engine),
        start=progress.solution,
        start_value=upper,
        work=work,
        conclude_infeasible=lambda: conclude_infeasible(instance, progress, engine.name),
    )


# ---------------------------------------------------------------------- composed


def auto(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Try rules and list schedules, then take turns: the model, and moves from the best known.

    Turns are measured in work, not in seconds, and get longer, so that runs that end by
    themselves repeat.
    """
    if settings.engine is not None:
        modelled(instance, progress, settings)
        return
    _begin(instance, progress)
    search = _start(instance, progress, settings)
    if not progress.keep_going():
        return
    n = len(instance.operations)
    engine = load_engine("cp-sat", progress, settings) if n <= MODELLED else None
    spent, effort = 0.0, 1
    for turn in itertools.count():
        # A small model is solved before a search gets anywhere.
        if turn or n > QUICK:
            _improve(search, progress, settings.seed + spent, effort)
        if turn == 1 and not modulo.unsupported(instance) and settings.warm_start == "auto":
            once = dataclasses.replace(settings, deterministic=True, time_limit=greedy.ROUND)
            modulo.search(instance, progress, once)
            progress.reason = ""
        limit = settings.time_limit if settings.deterministic else None
        if engine is not None and progress.keep_going():
            work = WORK * effort if limit is None else min(WORK * effort, PACE * (limit - spent))
            _model(instance, progress, engine, settings, work)
        spent += 2 * WORK * effort
        if not progress.keep_going() or (limit is not None and spent >= limit):
            _out_of_work(progress, settings)
            return
        effort *= 2


def _improve(search: greedy.Search, progress: ScheduleProgress, seed: float, rounds: int) -> None:
    """Climb and anneal from the best schedule known."""
    for number in range(rounds):
        if progress.solution is not None:
            search.adopt(progress.solution)
        if progress.keep_going():
            search.climb()
            search.anneal(int(seed) + number)


RUNS: dict[str, Run] = {
    "auto": auto,
    **{name: run_rule(name) for name in RULES},
    "greedy": searching,
    "modulo": periodic,
    "cp-sat": modelled,
}
"""What each method does."""
