"""The first placement of every run: the valley heuristic, or a simple stack if that fails."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.constructive import valleys
from stagepack.heuristics.packing.constructive.stack import stack
from stagepack.heuristics.packing.local_search import hotspots, repair
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.profile import Array
from stagepack.methods.packing import graphs
from stagepack.methods.packing.attempt import Attempt, PackingProgress
from stagepack.progress import Stopped

FAR = 1.2
"""A peak so many times its bound is told in words."""

POOR = 1.1
"""A first placement so many times its bound is worth another one before anything else."""

ANOTHER = 1.2
"""How long another placement takes, its check included, in terms of the first one."""

PATIENCE = 6
"""Windows of growing size that are packed anew at one hot spot before all is placed anew."""

ANEW = 0.6
"""Part of the work that is left for placing all anew."""

MOST_CONFLICTS = 100_000
"""Pairs of a conflict graph from which on it is not looked at anew where time is over."""

EACH = 3e-6
"""Seconds that a first placement and its check take, of each block in each turn of time."""

LATE = 0.1
"""Part of its time, beside :data:`.graphs.LATE`, that a run may be late with first fit over its
conflicts in place of a stack."""

_placed: weakref.WeakSet[PackingProgress] = weakref.WeakSet()
"""Runs that have made the first placement: it would be the same again."""


class Quick(NamedTuple):
    """What is known after quick placements.

    Attributes
    ----------
    spans : Spans
        Of the blocks, rounded.
    seconds : float
        How long the first one took; of the clock, so that a busy machine tells itself.
    offsets : ndarray of int64, shape (b,), or None
        The lowest one in valleys.
    key : str
        Of :data:`~stagepack.heuristics.packing.constructive.valleys.KEYS`: its classes.
    """

    spans: valleys.Spans
    seconds: float
    offsets: Array | None
    key: str


def place_first(attempt: Attempt) -> Quick:
    """Offer a placement in n log n, whether or not there is time."""
    progress, key = attempt.progress, valleys.KEYS[0]
    began, best = progress.spent, None
    attempt.keep_going()  # the normal form of a million buffers took its time
    if progress.solution is None and _tangled(attempt.instance):
        graphs.offer_first_fit(attempt.instance, progress)
    spans = valleys.Spans(attempt.blocks.rounded)
    _placed.add(progress)
    if attempt.instance.objective is not Objective.SPILL:
        best = valleys.first(spans, keep_going=attempt.keep_going)
    offsets = None
    if best is not None:
        attempt.offer(*best)
        offsets = None if best[1] == valleys.RING else best[0]
    # On the clock that ends the run, so that runs that are to repeat do.
    return Quick(spans, progress.spent - began, offsets, key)


def _tangled(instance: LmemPacking) -> bool:
    """Whether first fit over conflicts comes first: valleys over cliques may be a stack."""
    graph = instance.conflicts
    many = graph is not None and len(graph) > MOST_CONFLICTS
    return many and not math.isinf(graphs.first_fit_takes(instance))


def before_it_is_too_late(attempt: Attempt) -> Callable[[], bool]:
    """Return a `keep_going` that leaves the time for a first placement, should it be needed."""
    seconds = EACH * attempt.blocks.b * (1 if attempt.blocks.linear else 2)
    if _tangled(attempt.instance):
        seconds += graphs.first_fit_takes(attempt.instance)

    def go_on() -> bool:
        return attempt.keep_going() and attempt.progress.remaining > seconds

    return go_on


def place_more(
    attempt: Attempt, quick: Quick, *, enough: float = 0, following: Sequence[float] = ()
) -> Quick:
    """Offer more placements in n log n, by other classes; none is begun that would not end in time.

    Parameters
    ----------
    attempt : Attempt
    quick : Quick
        The first one.
    enough : float
        A peak so many times the bound is left as it is after two placements.
    following : sequence of float
        Times that what comes next takes until it has its first and its further results, in terms
        of the first placement.  Where there is time for one of these, but not for other placements
        as well, it is left to it, unless the lowest so far is far above its bound.
    """
    progress, bound = attempt.progress, attempt.progress.bound or 0
    if attempt.instance.objective is Objective.SPILL:
        return quick
    lowest = _peak(attempt, quick.offsets)
    least = min(lowest, _peak(attempt, attempt.best))
    for turn, key in enumerate(valleys.KEYS[1:]):
        left = progress.remaining / max(quick.seconds, 1e-9)
        if left < ANOTHER or not attempt.keep_going():
            break
        alone = any(
            time <= left < time + others * ANOTHER for others, time in enumerate(following, 1)
        )
        if least <= POOR * bound and alone:
            break
        if turn and least <= enough * bound:
            break
        offsets = valleys.place(
            quick.spans, valleys.classes_by(key, quick.spans), keep_going=attempt.keep_going
        )
        peak = _peak(attempt, offsets)
        if peak < lowest:
            lowest, quick = peak, quick._replace(offsets=offsets, key=key)
        if offsets is not None and peak < least:
            least = peak
            attempt.offer(offsets, f"valleys by {key}")
    return quick


def place_anew(attempt: Attempt, quick: Quick, seed: int) -> None:
    """Improve until time is over: hot spots that are soon gone, all anew, then hot spots again.

    Parameters
    ----------
    attempt : Attempt
    quick : Quick
        Whose first placement valleys go on from.
    seed : int
    """
    _cool(attempt, seed, patience=PATIENCE)
    keep_going = attempt.keep_going
    if not repair.unsupported(attempt.blocks.rounded):  # hot spots take what is left then
        keep_going = attempt.for_a_while(effort.left() * ANEW)
    if quick.offsets is not None:
        valleys.improve(
            quick.spans,
            quick.offsets,
            quick.key,
            target=int(attempt.progress.bound or 0),
            known=_peak(attempt, attempt.best),
            keep_going=keep_going,
            on_solution=lambda offsets: attempt.offer(offsets, "valleys, anew"),
        )
    _cool(attempt, seed + 1)


def _cool(attempt: Attempt, seed: int, patience: int | None = None) -> None:
    """Pack the windows anew in which the best placement is the highest."""
    low, blocks = attempt.best, attempt.blocks.rounded
    if low is None or repair.unsupported(blocks):
        return
    hotspots.improve(
        blocks,
        low,
        target=int(attempt.progress.bound or 0),
        seed=seed,
        keep_going=attempt.keep_going,
        on_solution=lambda offsets: attempt.offer(offsets, "hot spots"),
        patience=patience,
    )


def _peak(attempt: Attempt, offsets: Array | None) -> float:
    return math.inf if offsets is None else int((offsets + attempt.blocks.size).max(initial=0))


def last_resort(instance: LmemPacking, progress: PackingProgress) -> None:
    """Offer a quick placement where a run has none, else a stack."""
    graph = instance.conflicts
    if progress not in _placed and (graph is None or len(graph) <= MOST_CONFLICTS):
        with contextlib.suppress(Stopped):
            place_first(Attempt(instance, progress))
    late = graphs.LATE + LATE * progress.spent
    if progress.solution is None and graphs.first_fit_takes(instance) < late:
        graphs.offer_first_fit(instance, progress)
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
