"""The first placement of every run: the valley heuristic, or a simple stack if that fails."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stagepack.heuristics.packing import constructive
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from stagepack.methods import packing as methods
from stagepack.methods.packing.attempt import Attempt, PackingProgress
from stagepack.progress import Stopped

_placed: weakref.WeakSet[PackingProgress] = weakref.WeakSet()
"""Runs that have made the first placement: it would be the same again."""


class Quick(NamedTuple):
    """What is known after quick placements."""

    spans: constructive.valleys.Spans  # of the blocks, rounded
    seconds: float  # how long the first one took; of the clock, so that a busy machine tells itself
    offsets: Array | None  # int64, shape (b,), or None: the lowest one in valleys
    key: str  # of :data:`~stagepack.heuristics.packing.constructive.valleys.KEYS`: its classes


def place_first(attempt: Attempt) -> Quick:
    """Offer a placement in n log n, whether or not there is time."""
    tuning = attempt.tuning
    progress, key = attempt.progress, constructive.valleys.KEYS[0]
    began = progress.spent
    attempt.keep_going()  # the normal form of a million buffers took its time
    if progress.solution is None and _tangled(attempt):
        methods.graphs.offer_first_fit(attempt.instance, progress, tuning=tuning)
    spans = constructive.valleys.Spans(attempt.blocks.rounded, tuning=tuning)
    _placed.add(progress)
    best = constructive.valleys.first(spans, keep_going=attempt.keep_going, tuning=tuning)
    offsets = None
    if best is not None:
        attempt.offer(*best)
        offsets = None if best[1] == constructive.valleys.RING else best[0]
    # On the clock that ends the run, so that runs that are to repeat do.
    return Quick(spans, progress.spent - began, offsets, key)


def _tangled(attempt: Attempt) -> bool:
    """Whether first fit over conflicts comes first: valleys over cliques may be a stack."""
    instance, tuning = attempt.instance, attempt.tuning
    graph = None if attempt.blocks.linear else instance.conflicts
    many = graph is not None and len(graph) > tuning.scale.late_conflicts
    return many and not math.isinf(methods.graphs.first_fit_takes(instance, tuning=tuning))


def before_it_is_too_late(attempt: Attempt) -> Callable[[], bool]:
    """Return a `keep_going` that leaves the time for a first placement, should it be needed."""
    tuning = attempt.tuning
    seconds = tuning.scale.block * attempt.blocks.b * (1 if attempt.blocks.linear else 2)
    if _tangled(attempt):
        seconds += methods.graphs.first_fit_takes(attempt.instance, tuning=tuning)

    def go_on() -> bool:
        return attempt.keep_going() and attempt.progress.remaining > seconds

    return go_on


def place_more(
    attempt: Attempt, quick: Quick, *, enough: float = 0, following: Sequence[float] = ()
) -> Quick:
    """Offer more placements in n log n, by other classes; none is begun that would not end in time.

    A peak `enough` times the bound is left as it is after two placements.  What comes next takes
    the times `following`, in terms of the first placement in `quick`, until it has its first and
    its further results.  Where there is time for one of these, but not for other placements as
    well, it is left to it, unless the lowest so far is far above its bound.
    """
    tuning = attempt.tuning
    progress, bound = attempt.progress, attempt.progress.bound or 0
    lowest = _peak(attempt, quick.offsets)
    least = min(lowest, _peak(attempt, attempt.best))
    for turn, key in enumerate(constructive.valleys.KEYS[1:]):
        left = progress.remaining / max(quick.seconds, 1e-9)
        if left < tuning.scale.another or not attempt.keep_going():
            break
        alone = any(
            time <= left < time + others * tuning.scale.another
            for others, time in enumerate(following, 1)
        )
        if least <= tuning.scale.poor * bound and alone:
            break
        if turn and least <= enough * bound:
            break
        offsets = constructive.valleys.place(
            quick.spans,
            constructive.valleys.classes_by(key, quick.spans),
            keep_going=attempt.keep_going,
            tuning=tuning,
        )
        peak = _peak(attempt, offsets)
        if peak < lowest:
            lowest, quick = peak, quick._replace(offsets=offsets, key=key)
        if offsets is not None and peak < least:
            least = peak
            attempt.offer(offsets, f"valleys by {key}")
    return quick


def place_anew(attempt: Attempt, quick: Quick) -> None:
    """Place all anew, again and again, until time is over."""
    if quick.offsets is not None and attempt.tuning.auto.anew:
        constructive.valleys.improve(
            quick.spans,
            quick.offsets,
            quick.key,
            target=int(attempt.progress.bound or 0),
            known=_peak(attempt, attempt.best),
            keep_going=attempt.keep_going,
            on_solution=lambda offsets: attempt.offer(offsets, "valleys, anew"),
            tuning=attempt.tuning,
        )


def _peak(attempt: Attempt, offsets: Array | None) -> float:
    """Return the peak of a placement of blocks; infinite for none."""
    return math.inf if offsets is None else int((offsets + attempt.blocks.size).max(initial=0))


def last_resort(
    instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
) -> None:
    """Offer a quick placement where a run has none, else a stack."""
    graph = instance.conflicts
    if progress not in _placed and (graph is None or len(graph) <= tuning.scale.late_conflicts):
        with contextlib.suppress(Stopped):
            place_first(Attempt(instance, progress, tuning=tuning))
    late = tuning.scale.late + tuning.scale.late_share * progress.spent
    if progress.solution is None and methods.graphs.first_fit_takes(instance, tuning=tuning) < late:
        methods.graphs.offer_first_fit(instance, progress, tuning=tuning)
    if progress.solution is None and progress.infeasible_reason is None:
        offsets = constructive.stack.stack(instance)
        if offsets is not None:
            progress.offer(PackingSolution.of(instance, offsets), "stack")
