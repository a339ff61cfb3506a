"""What is placed before anything else, and where nothing else was: valleys, at worst a stack."""

from __future__ import annotations

import contextlib
import math
import weakref
from typing import NamedTuple

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

_placed: weakref.WeakSet[PackingProgress] = weakref.WeakSet()
"""Runs that have made the first placement: it would be the same again."""


class Quick(NamedTuple):
    """What is known after quick placements.

    Attributes
    ----------
    seconds : float
        How long the first one took; of the clock, so that a busy machine tells itself.
    key : str
        Of :data:`~stagepack.heuristics.packing.valleys.KEYS`: classes of the lowest one in valleys.
    """

    seconds: float
    key: str


def place_quickly(
    attempt: Attempt, *, only_first: bool = False, enough: float = 0, following: float = 0
) -> Quick:
    """Offer placements in n log n; the first whether or not there is time.

    Others are not begun where they would not end in time.

    Parameters
    ----------
    attempt : Attempt
    only_first : bool
        Whether to leave it at the first.
    enough : float
        A peak so many times the bound ends it, too.
    following : float
        What comes next takes so many times as long as the first placement.  Where there is time
        for that, but not for another placement as well, it is left to it, unless the lowest so far
        is far above its bound.
    """
    progress, key = attempt.progress, valleys.KEYS[0]
    if attempt.instance.objective is Objective.SPILL:
        return Quick(0.0, key)
    compile_kernels(attempt, "greedy")
    size, began = attempt.blocks.size, progress.spent
    spans = valleys.Spans(attempt.blocks.rounded)
    best = valleys.first(spans, keep_going=attempt.keep_going)
    _placed.add(progress)
    if best is not None:
        attempt.offer(*best)
    # On the clock that ends the run, so that runs that are to repeat do.
    quick = Quick(progress.spent - began, key)
    bound = progress.bound or 0
    least = math.inf if best is None else int((best[0] + size).max(initial=0))
    for key in valleys.KEYS[1:]:
        left = progress.remaining / max(quick.seconds, 1e-9)
        if only_first or not attempt.keep_going() or left < ANOTHER:
            break
        if least <= POOR * bound and following <= left < following + ANOTHER:
            break
        if least <= enough * bound:
            break
        offsets = valleys.place(
            spans, valleys.classes_by(key, spans), keep_going=attempt.keep_going
        )
        peak = math.inf if offsets is None else int((offsets + size).max())
        if offsets is not None and peak < least:
            least, quick = peak, quick._replace(key=key)
            attempt.offer(offsets, f"valleys by {key}")
    return quick


def last_resort(instance: LmemPacking, progress: PackingProgress) -> None:
    """Offer a quick placement where a run has none, else a stack."""
    graph = instance.conflicts
    if progress not in _placed and (graph is None or len(graph) <= MOST_CONFLICTS):
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
