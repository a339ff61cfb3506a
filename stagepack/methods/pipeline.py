"""Methods of pipeline partitioning: baselines, exact searches, models on engines, and ``auto``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from stagepack.errors import CheckError, InputError
from stagepack.formulations import pipeline as models
from stagepack.heuristics.pipeline import baselines, reference
from stagepack.heuristics.pipeline import bisect as bisection
from stagepack.heuristics.pipeline import dp as search
from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.feasibility import explain
from stagepack.heuristics.pipeline.prober import Prober
from stagepack.instances.pipeline import KIND, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.order import StageOrder
from stagepack.instances.pipeline.ranges import RangeCosts, load_kernels, needs_kernels
from stagepack.methods import Method, Settings
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.progress import Progress

PipelineProgress = Progress[PipelineSolution]
Run = Callable[[PipelinePartition, PipelineProgress, Settings], None]

OVERDUE = 1.2
"""Part of the seconds that work stands for after which engines that count none are ended."""

PASSES = 1e-7
"""Seconds of work that a layer takes before any search."""

PLACING = 2e-5
"""The same of a stage that a naive rule places, and of the check of it."""


# ---------------------------------------------------------------------- without an engine


def equal_layers(instance: PipelinePartition, progress: PipelineProgress, _: Settings) -> None:
    """Cut the chain into stages of equally many layers."""
    _offer_baseline(instance, progress, "equal-layers", baselines.equal_layers)


def greedy(instance: PipelinePartition, progress: PipelineProgress, _: Settings) -> None:
    """Fill every device to its share of the work."""
    _offer_baseline(instance, progress, "greedy", baselines.greedy)


def dp(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Search the limits on compute and transfer exactly."""
    _warm_start(instance, progress, settings)
    costs = _costs(instance, progress)
    search.solve(costs, progress)
    _say_what_rounding_leaves_open(costs, progress)


def dp_reference(instance: PipelinePartition, progress: PipelineProgress, _: Settings) -> None:
    """Solve Auto Pipeline's recurrence for every transfer threshold."""
    costs = _costs(instance, progress)
    reference.solve(costs, progress)
    _say_what_rounding_leaves_open(costs, progress)


def bisect(instance: PipelinePartition, progress: PipelineProgress, _: Settings) -> None:
    """Bisect on the plain bottleneck with greedy probes."""
    costs = _costs(instance, progress)
    bisection.solve(costs, progress)
    _say_what_rounding_leaves_open(costs, progress)


def _say_what_rounding_leaves_open(costs: RangeCosts, progress: PipelineProgress) -> None:
    """Say why a search that looked at everything has not proved its answer."""
    if costs.rounding and not progress.proved and not progress.reason:
        progress.reason = (
            "the figures differ by so many orders of magnitude that the largest ones leave less "
            "than nine digits of this objective; what they are rounded to is "
            f"{costs.value(1):.3g} cycles"
        )


def _offer_baseline(
    instance: PipelinePartition,
    progress: PipelineProgress,
    name: str,
    rule: Callable[[RangeCosts, Callable[[], object]], PipelineSolution | None],
) -> PipelineSolution | None:
    """Offer what a naive rule gives if it is valid; else say what is wrong with it."""
    costs = _costs(instance, progress)
    progress.spend(PLACING * costs.k)
    solution = rule(costs, progress.require_time)
    progress.require_time()
    if solution is None:
        progress.reason = f"{name} finds no partition that fits"
        return None
    violations = progress.offer_if_valid(solution, name)
    if violations:
        progress.reason = f"{name} breaks {violations[0]}"
        return None
    return solution


def _costs(instance: PipelinePartition, progress: PipelineProgress) -> RangeCosts:
    """Return the range costs of an instance; `progress` hears of the bound they give at once."""
    if needs_kernels(instance) and not load_kernels.cache_info().currsize:
        with progress.setup("loading kernels"):
            load_kernels()
    progress.require_time()
    costs = RangeCosts.of(instance, progress.require_time)
    progress.require_time()
    progress.raise_bound(costs.bound(objective_bound(costs)), "work bound")
    return costs


# ---------------------------------------------------------------------- on an engine


def _on_engine(formulation: str, own_engine: str) -> Callable[..., None]:
    """Return the `run` of a method that solves a model on an engine."""

    def run(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
        engine = load_engine(own_engine, progress, settings)
        costs = _costs(instance, progress)
        start = _warm_start(instance, progress, settings)
        upper = None if start is None else costs.objective(start)
        run_model(
            engine,
            lambda: getattr(models, formulation)(costs, upper=upper),
            formulation,
            progress,
            paced(settings, engine, progress.remaining),
            start=start,
            start_value=None if start is None else instance.evaluate(start),
            bound_value=costs.bound,
            overdue=OVERDUE * progress.remaining if settings.deterministic else math.inf,
            conclude_infeasible=lambda: _conclude_infeasible(costs, progress, formulation),
        )

    return run


def _conclude_infeasible(costs: RangeCosts, progress: PipelineProgress, source: str) -> None:
    try:
        partition = Prober(costs, progress).probe()
        reason = explain(costs, progress)
    except InputError:  # too large to look into: free order of many unlike devices
        partition, reason = None, f"{source} proves that no partition fits the devices' memory"
    if partition is not None or progress.solution is not None:
        raise CheckError(f"{source} calls an instance infeasible that has a valid partition")
    progress.prove_infeasible(reason)


def _warm_start(
    instance: PipelinePartition, progress: PipelineProgress, settings: Settings
) -> PipelineSolution | None:
    """Return the best start at hand, offered to `progress`; None when none is wanted or found."""
    wanted = settings.warm_start
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):  # as a result records it
        wanted = PipelineSolution.from_dict(wanted)
    if isinstance(wanted, PipelineSolution):
        violations = instance.check(wanted)
        if violations:
            raise InputError(
                f"the solution given breaks {violations[0]}",
                field="warm_start",
                remedy="give a valid one or none",
            )
        progress.offer(wanted, "warm start")
        return wanted
    if wanted == "auto":
        equal_layers(instance, progress, settings)
        greedy(instance, progress, settings)
    else:
        by_name = {m.name: m for m in METHODS if not m.engines and m.name != "auto"}
        if not isinstance(wanted, str) or wanted not in by_name:
            raise InputError(
                f"unknown warm start {wanted!r}",
                field="warm_start",
                remedy="choose auto, none, or one of " + ", ".join(by_name),
            )
        reason = by_name[wanted].unsupported(instance)
        if reason:
            raise InputError(f"{wanted}: {reason}", field="warm_start")
        by_name[wanted].run(instance, progress, dataclasses.replace(settings, warm_start=None))
    progress.reason = ""
    return progress.solution


# ---------------------------------------------------------------------- composed


def auto(instance: PipelinePartition, progress: PipelineProgress, settings: Settings) -> None:
    """Run the fastest exact search that applies; CP-SAT, warm-started, where none does."""
    chosen = settings.engine
    if chosen is not None:
        name = "cp-sat" if chosen == "cp-sat" else "milp-interval"
        next(method for method in METHODS if method.name == name).run(instance, progress, settings)
        return
    for name in ("bisect", "dp", "cp-sat"):
        method = next(method for method in METHODS if method.name == name)
        if not method.unsupported(instance):
            if name == "bisect":
                _warm_start(instance, progress, settings)
                progress.require_time()
            method.run(instance, progress, settings)
            return


def _limited(run: Run) -> Run:
    """Return a method that ends by work instead of the clock where runs are to repeat."""

    def limited(
        instance: PipelinePartition, progress: PipelineProgress, settings: Settings
    ) -> None:
        if settings.deterministic and settings.time_limit is not None:
            progress.limit_by_work(settings.time_limit)
            progress.spend(PASSES * instance.n)
        run(instance, progress, settings)

    return limited


# ---------------------------------------------------------------------- what applies


def _searchable(instance: PipelinePartition) -> str:
    refusal = StageOrder.refusal(instance)
    return "" if refusal is None else str(refusal)


def _expressible(formulation: str) -> Callable[[PipelinePartition], str]:
    def unsupported(instance: PipelinePartition) -> str:
        reason: str = getattr(models, formulation).unsupported(instance)
        return reason

    return unsupported


METHODS = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="greedy rules, then the fastest exact method that applies",
        run=_limited(auto),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="equal-layers",
        kind=KIND,
        exact=False,
        description="stages of equally many layers",
        run=_limited(equal_layers),
        limited_by_work=True,
    ),
    Method(
        name="greedy",
        kind=KIND,
        exact=False,
        description="fill each device to its share of the work left",
        run=_limited(greedy),
        limited_by_work=True,
    ),
    Method(
        name="bisect",
        kind=KIND,
        exact=True,
        description="plain bottleneck by bisection with greedy probes, for very long chains",
        run=_limited(bisect),
        limited_by_work=True,
        unsupported=bisection.unsupported,
        default=False,
    ),
    Method(
        name="dp-reference",
        kind=KIND,
        exact=True,
        description="the recurrence of Auto Pipeline over every transfer threshold",
        run=_limited(dp_reference),
        limited_by_work=True,
        unsupported=reference.unsupported,
        default=False,
    ),
    Method(
        name="dp",
        kind=KIND,
        exact=True,
        description="fast exact search over compute and transfer limits",
        run=_limited(dp),
        limited_by_work=True,
        unsupported=_searchable,
    ),
    Method(
        name="milp-interval",
        kind=KIND,
        exact=True,
        description="MILP: one binary a stage interval, a path through them",
        run=_limited(_on_engine("MilpInterval", "highs")),
        limited_by_work=True,
        unsupported=_expressible("MilpInterval"),
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
    ),
    Method(
        name="milp-assignment",
        kind=KIND,
        exact=True,
        description="MILP: which layers are on which stage (Pyomo)",
        run=_limited(_on_engine("MilpAssignment", "pyomo:highs")),
        limited_by_work=True,
        unsupported=_expressible("MilpAssignment"),
        engines=("pyomo:highs", "highs", "pyomo:NAME"),
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: one integer variable a cut",
        run=_limited(_on_engine("CpSat", "cp-sat")),
        limited_by_work=True,
        unsupported=_expressible("CpSat"),
        engines=("cp-sat",),
    ),
)
