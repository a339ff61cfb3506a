"""What is placed before anything else, and where nothing else was: valleys, at worst a stack."""

from __future__ import annotations

import contextlib
import math
import weakref

from stagepack.heuristics.packing import valleys
from stagepack.heuristics.packing.baselines import stack
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.methods.packing.attempt import Attempt, PackingProgress, compile_kernels
from stagepack.result import Stopped

FAR = 1.2
"""A peak so many times its bound is told in words."""

POOR = 1.1
"""A first placement so many times its bound is worth another one before anything else."""

ANOTHER = 1.2
"""How long another placement takes, its check included, in terms of the first one."""

MOST_CONFLICTS = 100_000
"""Pairs of a conflict graph from which on it is not looked at anew where time is over."""

_in_vain: weakref.WeakSet[PackingProgress] = weakref.WeakSet()
"""Runs in which the first placement failed: it would fail again."""


def place_quickly(attempt: Attempt, *, only_first: bool = False, following: float = 0) -> float:
    """Offer placements in n log n; the first whether or not there is time.

    Others are not begun where they would not end in time.

    Parameters
    ----------
    attempt : Attempt
    only_first : bool
        Whether to leave it at the first.
    following : float
        What comes next takes so many times as long as the first placement.  Where there is time
        for that, but not for another placement as well, it is left to it, unless the first one is
        far above its bound.

    Returns
    -------
    float
        Seconds that the first placement took; of the clock, so that a busy machine tells itself.
    """
    progress = attempt.progress
    if attempt.instance.objective is Objective.SPILL:
        return 0.0
    compile_kernels(attempt, "greedy")
    blocks, size, began = attempt.blocks.rounded, attempt.blocks.size, progress.spent
    best = valleys.first(blocks, keep_going=attempt.keep_going)
    if best is not None:
        attempt.offer(*best)
    else:
        _in_vain.add(progress)
    # On the clock that ends the run, so that runs that are to repeat do.
    seconds = progress.spent - began
    if only_first:
        return seconds
    spans, bound = valleys.Spans(blocks), progress.bound or 0
    least = math.inf if best is None else int((best[0] + size).max())
    for key in valleys.KEYS[1:]:
        left = progress.remaining / max(seconds, 1e-9)
        if not attempt.keep_going() or left < ANOTHER:
            break
        if following <= left < following + ANOTHER and least <= POOR * bound:
            break
        offsets = valleys.place(
            spans, valleys.classes_by(key, spans), keep_going=attempt.keep_going
        )
        peak = math.inf if offsets is None else int((offsets + size).max())
        if offsets is not None and peak < least:
            least = peak
            attempt.offer(offsets, f"valleys by {key}")
    return seconds


def last_resort(instance: LmemPacking, progress: PackingProgress) -> None:
    """Offer a quick placement where a run has none, else a stack."""
    graph = instance.conflicts
    if progress not in _in_vain and (graph is None or len(graph) <= MOST_CONFLICTS):
        with contextlib.suppress(Stopped):
            place_quickly(Attempt(instance, progress), only_first=True)
    if progress.solution is None and progress.infeasible_reason is None:
        offsets = stack(instance)
        if offsets is not None:
            progress.offer(PackingSolution.of(instance, offsets), "stack")


def say_if_far(instance: LmemPacking, progress: PackingProgress) -> None:
    """Say in words that a peak is far above its bound, where nothing else is said."""
    peak, bound = progress.objective, progress.bound
    if instance.objective not in (Objective.PEAK, Objective.FIT) or progress.reason:
        return
    if peak is not None and bound and peak > FAR * bound and not progress.proved:
        progress.reason = (
            f"the peak is {peak / bound:.2f} times its bound ({progress.bound_source}): "
            "more time, or the method auto, may find a lower one"
        )
