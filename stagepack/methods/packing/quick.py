"""What is placed before anything else, and where nothing else was: valleys, at worst a stack."""

from __future__ import annotations

import contextlib
import math

from stagepack.heuristics.packing import valleys
from stagepack.heuristics.packing.baselines import stack
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.methods.packing.attempt import Attempt, PackingProgress, compile_kernels
from stagepack.result import Stopped

FAR = 1.2
"""A peak so many times its bound is told in words."""

MOST_CONFLICTS = 100_000
"""Pairs of a conflict graph from which on it is not looked at anew where time is over."""


def place_quickly(attempt: Attempt, *, only_first: bool = False) -> None:
    """Offer placements in n log n; the first whether or not there is time."""
    if attempt.instance.objective is Objective.SPILL:
        return
    compile_kernels(attempt, "greedy")
    blocks, size = attempt.blocks.rounded, attempt.blocks.size
    best = valleys.first(blocks, keep_going=attempt.keep_going)
    if best is not None:
        attempt.offer(*best)
    if only_first or not attempt.keep_going():
        return
    # A check takes as long as a placement: only the best one is offered.
    known = attempt.lowest
    least = math.inf if known is None else int((known + size).max())
    best = None
    for offsets, source in valleys.others(blocks, keep_going=attempt.keep_going):
        peak = int((offsets + size).max())
        if peak < least:
            best, least = (offsets, source), peak
        if least <= (attempt.progress.bound or 0):
            break
    if best is not None:
        attempt.offer(*best)


def last_resort(instance: LmemPacking, progress: PackingProgress) -> None:
    """Offer a quick placement where a run has none, else a stack."""
    graph = instance.conflicts
    if graph is None or len(graph) <= MOST_CONFLICTS:
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
