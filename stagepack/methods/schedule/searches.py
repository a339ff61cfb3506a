"""Implementations of the methods for pipeline schedules; imported, with kernels, when one runs."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from functools import partial

from stagepack.evidence import SEARCHED, witness
from stagepack.formulations import schedule as formulations
from stagepack.heuristics.effort import left, lending, spend
from stagepack.heuristics.schedule import (
    effort,
    greedy,
    modulo,
    prolonging,
    trips,
)
from stagepack.heuristics.schedule.effort import ScheduleProgress
from stagepack.heuristics.schedule.lower_bounds import bounds, counting
from stagepack.heuristics.schedule.rules import RULES, apply, in_groups, one_by_one
from stagepack.heuristics.schedule.timing import Timing, tighten
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.reasons import reasons
from stagepack.methods import Settings, counted
from stagepack.methods.models import PACE, load_engine, paced, run_model
from stagepack.methods.schedule import stretches, windows
from stagepack.methods.schedule.explain import conclude_infeasible
from stagepack.methods.starts import offer_start
from stagepack.progress import Part, Stopped
from stagepack.result import Termination
from stagepack.solvers import Engine

Run = Callable[[PipelineSchedule, ScheduleProgress, Settings], None]

MODEL_SHARE = 4.0
"""Seconds of CP-SAT, at most, for each of the search before it; less the larger the model."""

ORDERING = 0.2
"""Work of CP-SAT in the first turn that asks whether any order is within the memory."""

QUICK = 400
"""Operations up to which turns are short at first, and at which model and search take as long."""

PROLONGED, REPEATED = 0.4, 2
"""Part of the time for schedules of fewer or more microbatches, and how many are followed."""

WINDOWS = 0.6
"""Seconds of windows for each of the search before them."""

TRIPS = 8.0
"""Seconds of labels of a chain for each of the search."""

STRETCHES = 2.0
"""Seconds of fewer microbatches, and then of the model of all, for each of the search."""

MODELLED, BUILT = 20_000, 60_000
"""Operations up to which `auto` builds a model, and up to which one is built at all."""

OVERDUE = 1.2
"""Part of the seconds left after which an engine that still counts no work is ended."""

FAR_ABOVE = 2
"""Times the bound from which on a run that time has ended says how far above it is."""

LARGE = 20_000
"""Operations from which on searches begin with the rules, which take the least time."""


def _begin(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Tell `progress` what is known without looking at operations.

    Raises
    ------
    Stopped
        When nothing fits.
    """
    lacking = reasons(instance, progress.keep_going)
    if lacking:
        evidence = witness("memory") if instance.d == instance.p else SEARCHED
        conclude_infeasible(instance, progress, "memory", lacking, evidence)
        raise Stopped
    progress.raise_bound(bounds.work_bound(instance), "work bound", witness("machine"))
    look = effort.looking(progress)
    look(len(instance.order))  # both are found here, once for all that follows
    look(len(instance.operations.count))


def _bound(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Tell `progress` of all bounds that need no search, as far as time allows."""
    keep_going = effort.asking(progress)
    best, source = bounds.bound(instance, keep_going)
    progress.raise_bound(best, source)
    if progress.keep_going() and not counting.unsupported(instance):
        progress.raise_bound(counting.counting_bound(instance, best, keep_going), "counting bound")


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
        _bound(instance, progress)
        progress.reason = reason

    return run


def _offer_rule(name: str, instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    look, affords = effort.looking(progress), partial(effort.affords, instance, progress)
    solution, _ = apply(RULES[name], instance, look, affords)
    if solution is not None:
        effort.offer(instance, progress, solution, name)


PLAIN = {"gpipe in groups that fit": in_groups, "one microbatch after the other": one_by_one}
"""Orders that keep within the memory wherever most others do not."""


def _rules(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
    """Offer what every rule gives that applies; something, however late, where memory allows it.

    Where a rule takes long, what fits comes first.
    """
    if len(instance.operations) > LARGE:
        _plain(instance, progress)
    for name, rule in RULES.items():
        if not rule.unsupported(instance) and progress.keep_going():
            _offer_rule(name, instance, progress)
    if len(instance.operations) <= LARGE:
        _plain(instance, progress)


def _plain(instance: PipelineSchedule, progress: ScheduleProgress) -> None:
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
            start = timed.timely(order, affords, quick=timed.n > LARGE)
            if start is not None:
                effort.offer(instance, progress, ScheduleSolution.of(instance, start), source)


def _searching(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Improve list schedules until time or patience ends."""
    _begin(instance, progress)
    _given(instance, progress, settings)
    if len(instance.operations) > LARGE:
        _rules(instance, progress)
    _bound(instance, progress)
    if progress.keep_going() or progress.solution is None:
        greedy.search(instance, progress, settings)


def _periodic(instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings) -> None:
    """Search a period for the steady state, and complete it at both ends."""
    _begin(instance, progress)
    _given(instance, progress, settings)
    if len(instance.operations) > LARGE:
        _rules(instance, progress)
    _bound(instance, progress)
    if progress.keep_going():
        modulo.search(instance, progress, settings, progress.solution)
    _out_of_work(progress, settings)


def _out_of_work(progress: ScheduleProgress, settings: Settings) -> None:
    """Say why a run that is limited by work has ended."""
    if settings.deterministic and progress.keep_going():
        progress.stop(Termination.TIME_LIMIT)


# ---------------------------------------------------------------------- where to start


def _start(
    instance: PipelineSchedule, progress: ScheduleProgress, settings: Settings
) -> greedy.OrderSearch:
    """Offer a first solution as the settings want it; return the search that goes on from it."""
    _given(instance, progress, settings)
    if settings.warm_start == "auto":
        _rules(instance, progress)
    _bound(instance, progress)
    effort.looking(progress)(0)
    search = greedy.OrderSearch(instance, progress, settings.seed)
    if progress.solution is not None:
        search.adopt(progress.solution)
    if settings.warm_start == "auto":
        # At least of one list, however late, where there is no rule.
        search.first_round(greedy.FIRST_ROUND)
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
    _begin(instance, progress)
    _start(instance, progress, settings)
    if not progress.keep_going():
        return
    engine = load_engine("cp-sat", progress, settings)
    _order(instance, progress, engine, settings, ORDERING)
    n = len(instance.operations)
    if n > BUILT:
        progress.reason = (
            f"cp-sat is for models of up to {BUILT:,} operations, not {n:,}: what was found first"
        )
        return
    loading = formulations.LOADING * n
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
    unsupported = formulations.WithinMemory.unsupported(instance)
    if progress.solution is not None or unsupported or not progress.keep_going():
        return
    run_model(
        engine,
        lambda: formulations.WithinMemory(instance),
        "WithinMemory",
        progress,
        paced(settings, engine),
        work=work,
        conclude_infeasible=lambda: conclude_infeasible(instance, progress, engine.name),
    )
    spend(work / PACE)
    progress.require_time()


def _model(
    instance: PipelineSchedule,
    progress: ScheduleProgress,
    engine: Engine,
    settings: Settings,
    work: float | None = None,
    fewer: stretches.Stretches | None = None,
) -> None:
    pace = stretches.PACE
    upper, lower = progress.objective, progress.bound
    run_model(
        engine,
        lambda: formulations.CpSat(
            instance,
            upper=None if upper is None else int(upper),
            lower=None if lower is None else int(lower),
            stretches=None if fewer is None else fewer.cycles,
        ),
        "CpSat",
        progress,
        paced(settings, engine, pace=pace),
        start=progress.solution,
        start_value=upper,
        work=None if work is None else pace * work,
        pace=pace,
        overdue=OVERDUE * progress.remaining if settings.deterministic else math.inf,
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
    n = len(instance.operations)
    engine = load_engine("cp-sat", progress, settings) if n <= MODELLED else None
    loading = formulations.LOADING * n
    small, share = n <= QUICK, min(MODEL_SHARE, (QUICK / n) ** 2)
    longer = 0.25 if small else 1.0
    labels, asked, fewer = _labels(instance, progress), None, None
    if labels is None and engine is not None and not stretches.unsupported(instance):
        fewer, share = stretches.Stretches(instance, progress, engine, settings), STRETCHES
    elif engine is not None and not windows.unsupported(instance):
        asked = windows.Windows(instance, progress, engine, settings)
    for turn in itertools.count():
        modelled = engine is not None and loading <= progress.remaining
        if engine is not None:
            _order(instance, progress, engine, settings, min(ORDERING * longer, PACE * left()))
        if progress.solution is None and not modelled:
            search.first_round()  # nothing else finds a first one
            if progress.solution is None and progress.keep_going():
                progress.reason = (
                    f"lists found no schedule, and {n:,} operations are too many for a model"
                )
                return
        if labels is not None and progress.keep_going():
            labels.find(TRIPS * greedy.ROUND * longer)
        led = labels is not None and labels.leading  # other ways to begin would take their time
        if asked is not None and turn >= int(small) and progress.keep_going():
            asked.raise_bound(WINDOWS * greedy.ROUND * longer)
        if fewer is not None and turn >= int(small) and progress.keep_going():
            fewer.find(STRETCHES * greedy.ROUND * longer)
            for order in fewer.prolonged()[:REPEATED]:
                search.follow(order, "prolonged schedule")
        elif turn == int(small) and not led:
            _adapt(search, settings, prolonging.fewer(instance), "prolonged schedule")
        _improve(search, progress, greedy.ROUND * longer)
        if fewer is None and turn == int(small):
            # Long: what anneals at once has had a turn.
            _adapt(search, settings, prolonging.more(instance), "shortened schedule")
        periodic = settings.warm_start == "auto" and not modulo.unsupported(instance)
        if periodic and turn == int(small) and not led:
            with lending(1, greedy.ROUND):
                modulo.search(instance, progress, settings)
            progress.reason = ""
        if engine is not None and loading <= progress.remaining and progress.keep_going():
            work = min(greedy.ROUND * longer * share, left())
            _model(instance, progress, engine, settings, work, fewer)
            spend(work + loading)
        if not progress.keep_going():
            return
        longer *= 2


def _labels(instance: PipelineSchedule, progress: ScheduleProgress) -> trips.Trips | None:
    """Return labels of an instance that may have them, else None."""
    if trips.unsupported(instance):
        return None
    return trips.Trips(instance, progress)


def _adapt(
    search: greedy.OrderSearch, settings: Settings, other: PipelineSchedule | None, source: str
) -> None:
    """Anneal from schedules of another number of microbatches, a part of them repeated or cut out.

    Parameters
    ----------
    search : OrderSearch
    settings : Settings
    other : PipelineSchedule or None
        The instance with that number, None where nothing speaks for one.
    source : str
        What is said of the schedules found.
    """
    progress = search.progress
    if other is None or settings.warm_start != "auto" or not progress.keep_going():
        return
    part: ScheduleProgress = Part(progress, other.evaluate, other.check)
    known = None
    with lending(PROLONGED, 2 * greedy.ROUND), contextlib.suppress(Stopped):
        known = _start(other, part, settings)
        known.improve(left())
    if known is None:
        return
    # The part may be over, its bound met: what is made of its schedules is of the whole run.
    timing = Timing(other, effort.looking(progress))
    found: dict[int, Array] = {}
    for order in known.best:
        orders = prolonging.prolonged(timing, order, search.lists.timing)
        if orders is not None and progress.keep_going():
            found.setdefault(*orders)
    for value in sorted(found)[:REPEATED]:
        search.follow(found[value], source)


def _improve(search: greedy.OrderSearch, progress: ScheduleProgress, work: float) -> None:
    """Anneal and climb from the best schedules known, for so many seconds of work."""
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
        "modulo": _telling(_periodic),
        "cp-sat": _telling(_modelled),
    }.items()
}
"""What each method does."""
