"""Lowers large packings at their highest points: replaces one window of time at once, by best fit.

In a placement of very many blocks, few end high.  All blocks that are alive only within a window
around the highest one are removed and placed again between the others, those under the heaviest
load first, or the longest first where many meet, which takes a tenth of the time.  If this does not
lower the window, it is enlarged; once it has become large, the order is perturbed slightly.

Finding a window costs O(b), and then a best fit of its blocks: fractions of a second.  Source:
own work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import BEST, Measures
from stagepack.heuristics.packing.local_search.repair import clipped
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array


def improve(
    blocks: Blocks,
    offsets: Array,
    *,
    target: int,
    seed: int,
    keep_going: Callable[[], bool],
    on_solution: Callable[[Array], None],
    patience: int | None = None,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Lower the peak of a packing window by window.

    Parameters
    ----------
    blocks : Blocks
        Plain ones.
    offsets : ndarray of int64, shape (b,)
        A packing.
    target : int
        Stop at this peak: the best bound known.
    seed : int
        Of random numbers.
    keep_going : callable
        Asked several times a second.
    on_solution : callable
        Called with offsets when the peak has fallen by a good part, and at the end.
    patience : int, optional
        Tries at one place after which to give up.

    Returns
    -------
    ndarray of int64, shape (b,)
        Offsets of a peak no higher than before.
    """
    offsets = offsets.copy()
    top = offsets + blocks.size
    peak = reported = int(top.max(initial=0))
    tries = np.zeros(blocks.sections, dtype=np.int64)
    random = np.random.default_rng(seed)
    while peak > target and keep_going():
        if reported - peak > reported // tuning.hot_spots.report_part:
            reported = peak
            on_solution(offsets.copy())
        worst = int(np.argmax(top))
        here = slice(int(blocks.first[worst]), int(blocks.end[worst]))
        attempt = int(tries[here].max())
        if attempt == patience:
            break
        tries[here] += 1
        members, begin, stop = _window(
            blocks,
            here,
            tuning.hot_spots.first_window << min(attempt, tuning.hot_spots.doublings),
            tuning=tuning,
        )
        window, inside = clipped(blocks, members, begin, stop)
        effort.spend(tuning.repair.cut + tuning.repair.cut_block * len(members))
        found = _fitted(
            window, inside, offsets[members], attempt, random, keep_going, tuning=tuning
        )
        if found is None:
            break
        if (found + window.size)[inside].max(initial=0) < peak:
            offsets[members] = found
            top[members] = found + window.size
            peak = int(top.max())
            tries[here] = 0
    if peak < reported:
        on_solution(offsets)
    return offsets


def _window(
    blocks: Blocks, here: slice, fewest: int, *, tuning: PackingTuning
) -> tuple[Array, int, int]:
    """Return the blocks alive around some sections, and a window in which enough of them live.

    It stops growing before what would be placed again meets too much; around what is alive for so
    long that this is so at once, it is narrower.
    """
    margin, found = tuning.hot_spots.margin + here.stop - here.start, None
    while True:
        begin, stop = max(0, here.start - margin), min(blocks.sections, here.stop + margin)
        effort.spend(tuning.prices.item * blocks.b / 10)
        members = np.flatnonzero((blocks.first < stop) & (blocks.end > begin))
        inside = (blocks.first[members] >= begin) & (blocks.end[members] <= stop)
        number = int(inside.sum())
        # What is alive at once is about what reaches beyond.
        pairs = number * (len(members) - number + 1)
        if found is not None and pairs > tuning.hot_spots.pair_limit:
            return found
        if (
            found is None
            and pairs > tuning.hot_spots.longest_pair_limit
            and margin > tuning.hot_spots.margin
        ):
            margin = max(tuning.hot_spots.margin, margin // tuning.hot_spots.narrowed)
            continue
        found = members, begin, stop
        if number >= fewest or stop - begin == blocks.sections:
            return found
        margin *= 2


def _fitted(
    window: Blocks,
    inside: Array,
    offsets: Array,
    attempt: int,
    random: np.random.Generator,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return all blocks of a window with those inside placed again; None when time is over."""
    measures, number = Measures(window), int(inside.sum())
    sections, many = (
        measures.sections,
        number * (window.b - number + 1) > tuning.hot_spots.pair_limit,
    )
    if attempt >= (1 if many else tuning.hot_spots.doublings):
        sections = sections * random.lognormal(0, tuning.hot_spots.noise, window.b)
    if many:
        order = np.lexsort((-measures.size, -sections, -measures.length_class))
    else:
        order = np.lexsort((-measures.area, -sections, -measures.heaviest_load))
    placed = np.where(inside, -1, offsets)
    return greedy.place_in_order(
        window, order, policy=BEST, placed=placed, keep_going=keep_going, tuning=tuning
    )
