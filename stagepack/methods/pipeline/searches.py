"""Implementations of the methods of pipeline partitioning; imported when one runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

from stagepack.errors import InputError
from stagepack.formulations import pipeline as formulations
from stagepack.heuristics import pipeline as heuristics
from stagepack.heuristics.effort import spend
from stagepack.heuristics.pipeline.bounds import work_bound
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods import Settings, counted
from stagepack.methods import pipeline as methods
from stagepack.methods.starts import offer_start
from stagepack.progress import Progress, Stopped

PipelineProgress = Progress[PipelineSolution]
Run = Callable[[PipelinePartition, PipelineProgress, Settings], None]
Rule = Callable[[RangeCosts, Callable[[], object], PipelineTuning], PipelineSolution | None]


# ---------------------------------------------------------------------- without an engine


def _equal_layers(
    instance: PipelinePartition, progress: PipelineProgress, settings: Settings
) -> None:
    """Cut the chain into stages of equally many layers."""
    _baselines(instance, progress, settings, "equal-layers")


def _greedy(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Fill every device to its share of the work."""
    _baselines(instance, progress, settings, "greedy")


def _baselines(
    instance: PipelinePartition, progress: PipelineProgress, settings: Settings, *names: str
) -> None:
    """Offer what naive rules give; then the best alternatives of layers for their cuts."""
    known = heuristics.baselines
    rules: dict[str, Rule] = {"equal-layers": known.equal_layers, "greedy": known.greedy}
    for closely in (False, True)[: 2 if instance.alternatives else 1]:
        for name in names:
            with _kept(progress):
                _offer_baseline(instance, progress, settings, name, rules[name], closely=closely)


def _greedy_repair(
    instance: PipelinePartition, progress: PipelineProgress, settings: Settings
) -> None:
    """Fill devices to their shares, and as far as the rest still fits; where both fail, probe."""
    _greedy(instance, progress, settings)
    if not _repair(instance, progress, settings) and not progress.reason:
        costs = _costs(instance, progress, settings, tables=False)
        methods.explain.conclude_infeasible(costs, progress, tuning=settings.tuned(TUNING))


def _repair(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> bool:
    """Offer a partition that fits; return False where there is none, or probes are too large.

    There are no probes where one is known.
    """
    rule = heuristics.repair.greedy_within_reach
    _offer_baseline(instance, progress, settings, "greedy-repair", rule)
    progress.reason = ""
    if progress.solution is not None:
        return True
    costs = _costs(instance, progress, settings, tables=False)
    try:
        found = heuristics.repair.probed(costs, progress, settings.tuned(TUNING))
    except InputError as error:
        progress.reason = str(error)
        return False
    if found is not None:
        progress.offer(found, "greedy-repair")
    return found is not None


def _dp(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Search the limits on compute and transfer exactly."""
    _start(instance, progress, settings)
    chosen = heuristics.options.search if instance.alternatives else heuristics.dp
    with _kept(progress):
        _exactly(chosen.solve, instance, progress, settings)


def _dp_reference(
    instance: PipelinePartition, progress: PipelineProgress, settings: Settings
) -> None:
    """Solve Auto Pipeline's recurrence for every transfer threshold."""
    _exactly(heuristics.reference.solve, instance, progress, settings, "recurrence")


def _bisect(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Bisect on the plain bottleneck with greedy probes."""
    _exactly(heuristics.bisect.solve, instance, progress, settings)


def _rounds(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Search two rounds of stages exactly, or two of more in turn."""
    _start(instance, progress, settings)
    _exactly(heuristics.rounds.solve, instance, progress, settings, "rounds")


def _exactly(
    solve: Callable[..., bool],
    instance: PipelinePartition,
    progress: PipelineProgress,
    settings: Settings,
    part: str = "",
) -> None:
    """Run an exact search, `solve`, with its `part` of the tuning; say why it ends as it does."""
    costs, tuning = _costs(instance, progress, settings), settings.tuned(TUNING)
    if not solve(costs, progress, getattr(tuning, part) if part else tuning):
        methods.explain.conclude_infeasible(costs, progress, tuning=tuning)
    if costs.rounding and not progress.proved and not progress.reason:
        progress.reason = (
            "the figures differ by so many orders of magnitude that the largest ones leave less "
            "than nine digits of this objective; what they are rounded to is "
            f"{costs.value(1):.3g} cycles"
        )


def _offer_baseline(
    instance: PipelinePartition,
    progress: PipelineProgress,
    settings: Settings,
    name: str,
    rule: Rule,
    *,
    closely: bool = False,
) -> None:
    """Offer what a naive rule gives if it is valid; else say what is wrong with it.

    A rule pauses once for so many stages, which is counted as placing these.  Of layers with
    alternatives the best are chosen for its cuts where it is looked `closely`.
    """
    costs = _costs(instance, progress, settings, tables=False)
    tuning = settings.tuned(TUNING)

    def pause() -> None:
        spend(tuning.place_seconds * tuning.stages_at_once)
        progress.require_time()

    if instance.alternatives:
        solution = _chosen(costs, rule, tuning, pause, closely=closely)
    else:
        solution = rule(costs, pause, tuning)
    progress.require_time()
    if solution is None:
        progress.reason = f"{name} finds no partition that fits"
        return
    violations = progress.offer_if_valid(solution, name)
    spend(tuning.check_seconds * len(solution.devices))
    progress.reason = f"{name} breaks {violations[0]}" if violations else ""


def _chosen(
    costs: RangeCosts,
    rule: Rule,
    tuning: PipelineTuning,
    pause: Callable[[], object],
    *,
    closely: bool,
) -> PipelineSolution | None:
    """Return the cuts of a naive rule with choices for them; the best where it looks `closely`.

    The rule goes by the layers' own figures; where it, or they, find no room, by the least ones.
    """
    own, choose = settled(costs.instance, PipelineSolution((), ())), heuristics.options.search
    for one in (RangeCosts.of(own), costs):
        cut = rule(one, pause, tuning)
        found = cut and choose.chosen_for(costs, cut, tuning, pause, closely)
        if found:
            return found
    return None


@contextlib.contextmanager
def _kept(progress: PipelineProgress) -> Iterator[None]:
    """Keep what is known already where what follows is refused, such as what is too large."""
    try:
        yield
    except InputError as error:
        if progress.solution is None:
            raise
        progress.reason = str(error)


def _costs(
    instance: PipelinePartition,
    progress: PipelineProgress,
    settings: Settings,
    *,
    tables: bool = True,
) -> RangeCosts:
    """Return the range costs of an instance; `progress` hears of the bound they give at once.

    Without `tables` reductions of tied weights are left out: rules do not wait for these.
    """
    spend(settings.tuned(TUNING).layer_seconds * instance.n)
    progress.require_time()
    if instance.reduces and not tables:
        instance = instance.unreduced
    costs = RangeCosts.of(instance, progress.require_time)
    progress.require_time()
    bound, evidence = work_bound(costs)
    progress.raise_bound(costs.bound(bound), "work bound", evidence)
    return costs


# ---------------------------------------------------------------------- on an engine


def _on_engine(name: str, own_engine: str) -> Run:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
        from stagepack.methods.models import load_engine, paced, run_model

        formulation = methods.cp_sat(instance) if name == "CpSat" else getattr(formulations, name)
        tuning = settings.tuned(TUNING)
        engine = load_engine(own_engine, progress, settings)
        _start(instance, progress, settings, blind=True)
        start = progress.solution
        with _kept(progress):
            costs = _costs(instance, progress, settings)
            upper = None if start is None else costs.objective(start)
            run_model(
                engine,
                lambda: formulation(costs, upper=upper),
                name,
                progress,
                paced(settings, engine, progress.remaining, tuning.pace),
                start=start,
                start_value=None if start is None else instance.evaluate(start),
                bound_value=costs.bound,
                pace=tuning.pace,
                overdue=tuning.overdue * progress.remaining if settings.deterministic else math.inf,
                conclude_infeasible=lambda: methods.explain.conclude_infeasible(
                    costs, progress, name, tuning
                ),
            )

    return run


# ---------------------------------------------------------------------- where to start


def _start(
    instance: PipelinePartition,
    progress: PipelineProgress,
    settings: Settings,
    *,
    blind: bool = False,
) -> None:
    """Offer a first solution as the settings want it; one of probes, too, to a `blind` search."""
    tuning = settings.tuned(TUNING)

    def baselines_first() -> None:
        if instance.objective is Objective.MOVES:
            return  # rules know nothing of a previous cut
        if tuning.baselines:
            _baselines(instance, progress, settings, "equal-layers", "greedy")
        if instance.placed or instance.alternatives:
            pass  # what follows knows one stage a device, and the layers' own figures
        elif progress.solution is None and blind:
            _repair(instance, progress, settings)
        elif progress.solution is None and tuning.repair:
            rule = heuristics.repair.greedy_within_reach
            _offer_baseline(instance, progress, settings, "greedy-repair", rule)
        progress.reason = ""

    def alone(name: str) -> None:
        _PARTS[name](instance, progress, dataclasses.replace(settings, warm_start=None))

    starts = {name: functools.partial(alone, name) for name in STARTS}
    offer_start(instance, progress, settings, {"auto": baselines_first, **starts})


# ---------------------------------------------------------------------- composed


def _auto(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Run the fastest exact search that applies; CP-SAT, warm-started, where none does."""
    if settings.engine is not None:
        name = "cp-sat" if settings.engine == "cp-sat" else "milp-interval"
        _PARTS[name](instance, progress, settings)
        return
    unsupported = {method.name: method.unsupported for method in methods.METHODS}
    if not unsupported["rounds"](instance):
        _rounds(instance, progress, settings)
        if progress.proved or unsupported["cp-sat"](instance):
            return
        settings = dataclasses.replace(settings, warm_start=None)
    for name in ("bisect", "dp", "cp-sat"):
        if not unsupported[name](instance):
            _PARTS[name](instance, progress, settings)
            return
    _start(instance, progress, settings)
    last = "dp" if instance.alternatives else "cp-sat"
    progress.reason = f"no exact method applies; {last}: {unsupported[last](instance)}"


_PARTS: dict[str, Run] = {
    "auto": _auto,
    "equal-layers": _equal_layers,
    "greedy": _greedy,
    "greedy-repair": _greedy_repair,
    "bisect": _bisect,
    "rounds": _rounds,
    "dp-reference": _dp_reference,
    "dp": _dp,
    "milp-interval": _on_engine("MilpInterval", "highs"),
    "milp-assignment": _on_engine("MilpAssignment", "highs"),
    "cp-sat": _on_engine("CpSat", "cp-sat"),
}
"""What each method does, as part of a run."""


def _even(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Offer a partition that is as good as the proved one, and more even."""
    tuning, solution = settings.tuned(TUNING), progress.solution
    if not progress.proved or solution is None or not heuristics.even.applies(instance, tuning):
        return

    def pause() -> None:
        if progress.interrupted or progress.remaining <= 0:
            raise Stopped

    with contextlib.suppress(Stopped):
        for found in heuristics.even.evened(RangeCosts.of(instance), solution, tuning, pause):
            progress.offer(found, "evened")


def _from_what_is_given(run: Run) -> Run:
    """Return a run that begins with the start its settings name, and ends with even stages."""

    def begin(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
        if settings.warm_start not in (None, "auto"):
            _start(instance, progress, settings)
            settings = dataclasses.replace(settings, warm_start=None)
        try:
            run(instance, progress, settings)
        finally:  # searches also end by an exception: where what they have is proved
            if settings.tuned(TUNING).even:
                _even(instance, progress, settings)

    return begin


RUNS: dict[str, Run] = {name: counted(_from_what_is_given(run)) for name, run in _PARTS.items()}
"""What each method does as a run of its own: from the start that is given, on one clock."""

STARTS = ("equal-layers", "greedy", "greedy-repair", "bisect", "dp-reference", "dp")
"""Methods whose answer another one may start from."""
