"""The end of a run: what is quick where nothing was found, and what is to be said."""

from __future__ import annotations

from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.methods.packing import quick
from stagepack.methods.packing.attempt import PackingProgress, nearest
from stagepack.result import Event


def conclude(instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning) -> None:
    """Offer what is quick where nothing was found; say what is to be known."""
    if progress.solution is None and progress.infeasible_reason is None:
        quick.last_resort(instance, progress, tuning=tuning)
    _say_if_far(instance, progress, tuning=tuning)
    peak, capacity = progress.objective, instance.capacity
    near = nearest(progress)
    if near is not None and progress.solution is None and instance.ceiling is not None:
        progress.reason = _undecided(near, instance.ceiling, progress)
    if instance.objective is not Objective.PEAK or peak is None or capacity is None:
        return
    if peak > capacity:
        remark = (
            f"the peak exceeds the capacity of {capacity:,}, which only the objective fit "
            f"enforces, by {peak - capacity:,}"
        )
        progress.reason = f"{progress.reason}; {remark}" if progress.reason else remark


def _undecided(near: Event, ceiling: int, progress: PackingProgress) -> str:
    """Return what is known where neither a placement nor a proof was found."""
    over = int(near.value) - ceiling
    bound = "" if progress.bound is None else f"; the bound is {progress.bound:,}"
    return (
        f"undecided: the best placement found needs {int(near.value):,} bytes, {over:,} "
        f"({100 * over / max(1, ceiling):.2g} %) over the capacity of {ceiling:,} ({near.source})"
        f"{bound}; the objective peak returns such a placement"
    )


def _say_if_far(
    instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
) -> None:
    """Say in words that a peak is far above its bound, where nothing else is said."""
    peak, bound = progress.objective, progress.bound
    if instance.objective not in (Objective.PEAK, Objective.FIT) or progress.reason:
        return
    if peak is not None and bound and peak > tuning.scale.far * bound and not progress.proved:
        progress.reason = (
            f"the peak is {peak / bound:.2f} times its bound ({progress.bound_source}): "
            "more time, or the method auto, may find a lower one"
        )
