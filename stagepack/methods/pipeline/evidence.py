"""Finds evidence that can be verified for what only an engine, or a search, has proved."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.errors import InputError
from stagepack.evidence import SEARCHED
from stagepack.heuristics.pipeline import dp
from stagepack.heuristics.pipeline.bounds import filled
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.order import StageOrder
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods import Settings
from stagepack.methods.evidence import strengthened
from stagepack.progress import Part, Progress, Stopped
from stagepack.result import slack


def strengthen(
    instance: PipelinePartition,
    progress: Progress[PipelineSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Prove by filling devices, from the solution known, what was proved otherwise.

    A solution that contradicts the bound is offered, and raises.
    """
    several = instance.placed or instance.alternatives
    if not keep_going() or several or StageOrder.refusal(instance) is not None:
        return
    costs = RangeCosts.of(instance)
    tuning = settings.tuned(TUNING)
    unasked = max(tuning.evidence_seconds, tuning.evidence_share * progress.elapsed)
    limit = None if settings.proof else unasked
    by_steps = settings.deterministic and not settings.proof  # a share of the clock is none of it
    if by_steps or filled(costs) == SEARCHED:  # it may be shown for all that
        strengthened(instance, progress, progress.remaining if limit is None else limit)
        return
    part: Progress[PipelineSolution] = Part(
        progress,
        instance.evaluate,
        instance.check,
        time_limit=limit,
        tolerance=instance.tolerance,
        polishing=True,
    )
    if progress.solution is not None:
        part.offer(progress.solution, "known")
    try:
        fits = dp.solve(costs, part, tuning)
    except (InputError, Stopped):
        fits = True
    if not fits and progress.infeasible_reason is not None:
        progress.prove_infeasible(progress.infeasible_reason, filled(costs))
    if part.solution is not None:
        progress.offer(part.solution, "dp")
    if part.bound is None or part.evidence is None or progress.bound is None:
        return
    if part.bound >= progress.bound - slack(progress.bound, instance.tolerance / 2):
        progress.raise_bound(max(part.bound, progress.bound), progress.bound_source, part.evidence)
