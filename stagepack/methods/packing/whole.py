"""Runs a packing method as a whole: limits, the second criterion, the final message."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from stagepack.errors import InputError
from stagepack.evidence import witness
from stagepack.heuristics import effort
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.blocks import Blocks
from stagepack.methods import Settings, counting
from stagepack.methods import packing as methods
from stagepack.methods.packing.attempt import PackingProgress, nearest
from stagepack.progress import Stopped
from stagepack.result import Event

Run = Callable[[LmemPacking, PackingProgress, Settings], None]


def whole(name: str, run: Run) -> Run:
    """Return the whole run of a method, given its name and what it searches."""

    def complete(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
        tuning = settings.tuned(TUNING)
        with counting(progress, settings, planned=True):
            directly = instance.conflicts is not None and methods.graphs.placed_first(
                name, instance, progress, settings
            )
            least = (
                methods.graphs.least(instance.n, tuning=tuning) if directly else tuning.graphs.least
            )
            going = not _hasty(instance, progress, least, tuning=tuning)
            if going and not directly:
                _require(name, instance, progress, tuning=tuning)
            try:
                if not going:
                    methods.graphs.place_as_listed(instance, progress, settings)
                elif directly:
                    going = methods.graphs.place(name, instance, progress, settings)
                    if going:
                        _require(name, instance, progress, tuning=tuning)
                if going:
                    _moving_little(name, run, instance, progress, settings)
            finally:
                _conclude(instance, progress, tuning=tuning)

    return complete


def _hasty(
    instance: LmemPacking, progress: PackingProgress, least: float, *, tuning: PackingTuning
) -> bool:
    """Whether conflicts are so many that the time is over before they are gone through.

    `least` is how long one of them takes, in seconds.
    """
    if instance.conflicts is None or progress.remaining == math.inf:
        return False
    seconds = least * len(instance.conflicts)
    if seconds <= tuning.scale.late + tuning.graphs.later * progress.remaining:
        return False
    progress.reason = (
        f"going through {len(instance.conflicts):,} conflicts takes about {seconds:,.1f} s, more "
        "than is left: a longer limit gives a lower placement and a higher bound"
    )
    if instance.objective in (Objective.PEAK, Objective.FIT):
        progress.raise_bound(int(instance.size.max()), "largest buffer", witness("place"))
    return True


def _require(
    name: str, instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning
) -> None:
    """Refuse instances that a method declines, once their normal form is made within the limit."""
    conflicts = 0 if instance.conflicts is None else len(instance.conflicts)
    looks = 0

    def spent(count: int) -> float:
        return min(tuning.graphs.covering_look * count, tuning.graphs.covering * conflicts)

    def look() -> bool:
        nonlocal looks
        looks += 1
        effort.spend(spent(looks) - spent(looks - 1))
        return (
            progress.keep_going() and progress.remaining > tuning.graphs.covering_left * conflicts
        )

    made = Blocks.of(instance, look)
    effort.spend(max(0.0, spent(made.looks) - spent(looks)))  # of a form that was made before
    effort.spend(tuning.graphs.covering_after * conflicts)
    method = next(method for method in methods.METHODS if method.name == name)
    reason = method.declines(instance)
    if reason:
        raise InputError(reason, field=f"method {name}")


def _moving_little(
    name: str,
    run: Run,
    instance: LmemPacking,
    progress: PackingProgress,
    settings: Settings,
) -> None:
    """Run, and where there is an old placement see to it that little moves."""
    tuning = settings.tuned(TUNING)
    if instance.previous.max(initial=-1) < 0 or not methods.relocation.matter(name, instance):
        with contextlib.suppress(Stopped):
            run(instance, progress, settings)
        return
    methods.relocation.before(name, instance, progress, settings)
    if progress.keep_going():
        with (
            methods.relocation.reserved(instance, progress, tuning=tuning),
            contextlib.suppress(Stopped),
        ):
            run(instance, progress, settings)
    methods.relocation.after(name, instance, progress, settings)


def _conclude(instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning) -> None:
    """Offer what is quick where nothing was found; say what is to be known."""
    if progress.solution is None and progress.infeasible_reason is None:
        methods.quick.last_resort(instance, progress, tuning=tuning)
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
