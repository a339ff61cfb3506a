"""Implementations of the methods for pipeline schedules; imported, with kernels, when one runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

from stagepack.evidence import SEARCHED, witness
from stagepack.formulations import schedule as formulations
from stagepack.heuristics.effort import left, spend, spent
from stagepack.heuristics.schedule import effort, greedy, trips
from stagepack.heuristics.schedule.effort import ScheduleProgress
from stagepack.heuristics.schedule.lower_bounds import bounds, counting
from stagepack.heuristics.schedule.rules import RULES, apply, in_groups, one_by_one
from stagepack.heuristics.schedule.timing import Timing, tighten
from stagepack.heuristics.schedule.tuning import TUNING, ScheduleTuning
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.reasons import reasons
from stagepack.methods import Settings, counted
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.methods.schedule import windows
from stagepack.methods.schedule.explain import conclude_infeasible
from stagepack.methods.starts import offer_start
from stagepack.progress import Stopped
from stagepack.result import Termination
from stagepack.solvers import Engine

Run = Callable[[PipelineSchedule, ScheduleProgress, Settings], None]

FAR_ABOVE = 2
"""Times the bound from which on a run that time has ended says how far above it is."""


def _begin(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Tell `progress` what is known without looking at operations."""
    lacking = reasons(instance, progress.keep_going)
    if lacking:
        evidence = witness("memory") if instance.d == instance.p else SEARCHED
        conclude_infeasible(instance, progress, "memory", lacking, evidence)
        raise Stopped
    progress.raise_bound(bounds.work_bound(instance), "work bound", witness("machine"))
    look = effort.looking(progress)
    look(len(instance.order))  # both are found here, once for all that follows
    look(len(instance.operations.count))


def _bound(instance: PipelineSchedule, progress: ScheduleProgress, tuning: ScheduleTuning) -> None:
    """Tell `progress` of all bounds that need no search, as far as time allows."""
    keep_going = effort.asking(progress)
    best, source = bounds.bound(instance, keep_going, tuning.bounds)
    progress.raise_bound(best, source)
    counts = tuning.auto.counting and not counting.unsupported(instance, tuning.bounds)
    if counts and progress.keep_going():
        best = counting.counting_bound(instance, best, keep_going, tuning.bounds)
        progress.raise_bound(best, "counting bound")


# ---------------------------------------------------------------------- without an engine


def _run_rule(name: str) -> Run:
    """Return the `run` of one rule."""

    def run(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
        def affords(steps: int) -> bool:
            affordable = effort.affords(instance, progress, steps)
            if not affordable:
                progress.stop(Termination.TIME_LIMIT)
            return affordable

        _begin(instance, progress)
        _given(instance, progress, settings)
        solution, reason = apply(RULES[name], instance, effort.looking(progress), affords)
        if solution is not None:
            effort.offer(instance, progress, solution, name)
            reason = RULES[name].remark(instance)
        _bound(instance, progress, settings.tuned(TUNING))
        progress.reason = reason

    return run


def _offer_rule(
    name: str, instance: PipelineSchedule, progress: ScheduleProgress, operations: float = math.inf
) -> None:
    """Offer what a rule gives, where that is within memory; of so many `operations` together."""
    look, affords = effort.looking(progress), partial(effort.affords, instance, progress)
    solution, _ = apply(RULES[name], instance, look, affords, operations)
    if solution is not None:
        effort.offer(instance, progress, solution, name)


PLAIN = {"gpipe in groups that fit": in_groups, "one microbatch after the other": one_by_one}
"""Orders that keep within the memory wherever most others do not."""


def _rules(instance: PipelineSchedule, progress: ScheduleProgress, tuning: ScheduleTuning) -> None:
    """Offer what every start gives that applies; something, however late, where memory allows it.

    Where a rule takes long, what fits comes first.
    """
    large = len(instance.operations) > tuning.auto.rules_first
    if large:
        _plain(instance, progress, quick=True)
    for name, rule in RULES.items():
        if rule.start and not rule.unsupported(instance) and progress.keep_going():
            _offer_rule(name, instance, progress, tuning.auto.rule_operations)
    if not large:
        _plain(instance, progress)


def _plain(instance: PipelineSchedule, progress: ScheduleProgress, *, quick: bool = False) -> None:
    """Offer the first of `PLAIN` that is valid, unless there is a solution.

    This may be all there is time for, and late: large ones get times that are quickly found.
    """
    look, affords = effort.looking(progress), partial(effort.affords, instance, progress)
    for source, make in PLAIN.items():
        if progress.solution is None and not progress.interrupted:
            timed = Timing(instance, look)
            order = make(instance, look)
            if order is None or not timed.fits(order):
                continue
            start = timed.timely(order, affords, quick=quick)
            if start is not None:
                effort.offer(instance, progress, ScheduleSolution.of(instance, start), source)


def _searching(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Improve list schedules until time or patience ends."""
    tuning = settings.tuned(TUNING)
    _begin(instance, progress)
    _given(instance, progress, settings)
    if len(instance.operations) > tuning.auto.rules_first:
        _rules(instance, progress, tuning)
    _bound(instance, progress, tuning)
    if not progress.keep_going() and progress.solution is not None:
        return
    search = _orders(instance, progress, settings)
    search.first_round(tuning.lists.first_round)
    if progress.solution is None:
        if progress.keep_going() and not progress.reason:
            progress.reason = "list scheduling found no order within the memory limits"
        return
    endless = settings.deterministic and settings.time_limit is None
    for turn in itertools.count():
        if not progress.keep_going() or (endless and turn == tuning.lists.rounds):
            return
        search.improve(tuning.auto.turn)


def _orders(
    instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings
) -> greedy.OrderSearch:
    """Return a search over orders that goes on from the best solution known."""
    search = greedy.OrderSearch(instance, progress, settings.seed, settings.tuned(TUNING))
    if progress.solution is not None:
        search.adopt(progress.solution)
    return search


# ---------------------------------------------------------------------- where to start


def _start(
    instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings
) -> greedy.OrderSearch:
    """Offer a first solution as the settings want it; return the search that goes on from it."""
    tuning = settings.tuned(TUNING)
    _given(instance, progress, settings)
    if settings.warm_start == "auto":
        _rules(instance, progress, tuning)
    _bound(instance, progress, tuning)
    effort.looking(progress)(0)
    search = _orders(instance, progress, settings)
    if settings.warm_start == "auto":
        # At least of one list, however late, where there is no rule.
        search.first_round(tuning.lists.first_round)
    if progress.solution is not None:
        progress.reason = ""
    return search


def _given(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Offer the solution, or run the rule, that the settings name as a start.

    A solution is offered with the best times for its orders, too: where it waits without need,
    models may not have it.
    """

    def offer(solution: ScheduleSolution, source: str) -> None:
        effort.offer(instance, progress, solution, source)
        better = tighten(instance, solution, effort.looking(progress))
        effort.offer(instance, progress, better, f"{source} without needless waits")

    starts: dict[str, Callable[[], object]] = {
        "auto": lambda: None,  # comes later, with what else is known then
        **{name: partial(_offer_rule, name, instance, progress) for name in RULES},
    }
    offer_start(instance, progress, settings, starts, offer)


# ---------------------------------------------------------------------- on an engine


def _modelled(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Solve the interval model, from the best rule or list schedule."""
    tuning = settings.tuned(TUNING)
    _begin(instance, progress)
    _start(instance, progress, settings)
    if not progress.keep_going():
        return
    engine = load_engine("cp-sat", progress, settings)
    _order(instance, progress, engine, settings, tuning.auto.order_work)
    n, most = len(instance.operations), tuning.auto.alone_operations
    if n > most:
        progress.reason = (
            f"cp-sat is for models of up to {most:,} operations, not {n:,}: what was found first"
        )
        return
    loading = tuning.model.loading * n
    if loading > progress.remaining:
        progress.reason = (
            f"{engine.name} would take about {loading:.1f} s to load {n:,} operations, more than "
            "is left: what was found first"
        )
        progress.stop(Termination.TIME_LIMIT)
        return
    _model(instance, progress, engine, settings)


def _order(
    instance: PipelineSchedule,
    progress: ScheduleProgress,
    engine: Engine,
    settings: Settings,
    work: float,
) -> None:
    """Find any order within the memory, or none, where lists found none; with so much work."""
    tuning = settings.tuned(TUNING).model
    unsupported, pace = formulations.WithinMemory.unsupported(instance, tuning), tuning.order_pace
    if progress.solution is not None or unsupported or not progress.keep_going():
        return
    run_model(
        engine,
        lambda: formulations.WithinMemory(instance),
        "WithinMemory",
        progress,
        paced(settings, engine, pace=pace),
        work=work,
        pace=pace,
        conclude_infeasible=lambda: conclude_infeasible(instance, progress, engine.name),
    )
    spend(work / pace)
    progress.require_time()


def _model(
    instance: PipelineSchedule,
    progress: ScheduleProgress,
    engine: Engine,
    settings: Settings,
    work: float | None = None,
) -> None:
    """Let CP-SAT improve and prove what is known; for so much work, or to the end."""
    tuning = settings.tuned(TUNING)
    upper, lower, pace = progress.objective, progress.bound, tuning.model.pace
    run_model(
        engine,
        lambda: formulations.CpSat(
            instance,
            upper=None if upper is None else int(upper),
            lower=None if lower is None else int(lower),
            tuning=tuning.model,
        ),
        "CpSat",
        progress,
        paced(settings, engine, pace=pace),
        start=progress.solution,
        start_value=upper,
        work=None if work is None else pace * work,
        pace=pace,
        overdue=tuning.auto.overdue * progress.remaining if settings.deterministic else math.inf,
        conclude_infeasible=lambda: conclude_infeasible(instance, progress, engine.name),
    )


# ---------------------------------------------------------------------- composed


def _auto(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Try rules and list schedules, then take turns: the model, and moves from the best known.

    Turns are measured in work, not in seconds, and get longer, so that runs that end by
    themselves repeat.
    """
    if settings.engine is not None:
        _modelled(instance, progress, settings)
        return
    _begin(instance, progress)
    search = _start(instance, progress, settings)
    if not progress.keep_going():
        return
    tuning, n = settings.tuned(TUNING), len(instance.operations)
    auto, loading = tuning.auto, tuning.model.loading * n
    engine = load_engine("cp-sat", progress, settings) if n <= auto.model_operations else None
    small, share = n <= auto.quick, min(auto.model_share, (auto.quick / n) ** 2)
    seconds = auto.turn * (0.25 if small else 1.0)
    order_work = auto.order_work * (0.25 if small else 1.0)
    labels = asked = None
    if auto.labels and not trips.unsupported(instance, tuning.labels):
        labels = trips.Trips(instance, progress, tuning.labels)
    if auto.windows and engine is not None and not windows.unsupported(instance, tuning):
        asked = windows.Windows(instance, progress, engine, settings)
    for turn in itertools.count():
        before = spent()
        modelled = auto.cp_sat and engine is not None and loading <= progress.remaining
        if engine is not None:
            most = min(order_work, tuning.model.order_pace * left())
            _order(instance, progress, engine, settings, most)
        if progress.solution is None and not modelled:
            search.first_round()  # nothing else finds a first one
            if progress.solution is None and progress.keep_going():
                progress.reason = (
                    f"lists found no schedule, and {n:,} operations are too many for a model"
                )
                return
        if labels is not None and progress.keep_going():
            labels.find(auto.labels_share * seconds)
        if asked is not None and turn >= int(small) and progress.keep_going():
            asked.raise_bound(auto.windows_share * seconds)
        _improve(search, progress, seconds)
        modelled = auto.cp_sat and loading <= progress.remaining
        if engine is not None and modelled and progress.keep_going():
            work = min(seconds * share, left())
            _model(instance, progress, engine, settings, work)
            spend(work + loading)
        if not progress.keep_going() or (turn and spent() == before):
            return
        seconds, order_work = 2 * seconds, 2 * order_work


def _improve(search: greedy.OrderSearch, progress: ScheduleProgress, work: float) -> None:
    """Anneal from the best schedules known, for so many seconds of work."""
    if progress.solution is not None:
        search.adopt(progress.solution)
    search.improve(work)


def _telling(run: Run) -> Run:
    """Return a run that says where it ends with nothing, or far above its bound."""

    def told(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
        try:
            run(instance, progress, settings)
        finally:
            value, bound = progress.objective, progress.bound
            ended = progress.stop_reason() is Termination.TIME_LIMIT
            if ended and value is not None and bound and value > FAR_ABOVE * bound:
                above = (
                    f"the {instance.objective} is {value / bound:,.2f} times its bound "
                    f"({progress.bound_source}): more time may find a shorter one"
                )
                progress.reason = "; ".join(filter(None, (progress.reason, above)))
            if value is None and ended and not progress.reason:
                progress.reason = (
                    "no schedule within the memory was found in time, nor a proof that "
                    "there is none"
                )

    return told


RUNS: dict[str, Run] = {
    name: counted(run)
    for name, run in {
        "auto": _telling(_auto),
        **{name: _run_rule(name) for name in RULES},
        "greedy": _telling(_searching),
        "cp-sat": _telling(_modelled),
    }.items()
}
"""What each method does."""
