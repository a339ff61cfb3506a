"""Repairs large packings: packs a window of time around the highest block again.

Blocks that are alive only within some sections around the highest block are removed and placed
again by annealing over first-fit orders, beside those that reach beyond.  If this does not help,
the window is enlarged.  A packing never gets worse.  Cutting out a window costs O(b), and the
search takes the rest of the time.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array


def unsupported(blocks: Blocks) -> str:
    """Return why windows cannot be packed anew, or ''."""
    if not blocks.plain:
        return "repair needs plain blocks: no gaps, circular time, ranges or odd alignments"
    return ""


def improve(
    blocks: Blocks,
    offsets: Array,
    *,
    target: int,
    seed: int = 0,
    keep_going: KeepGoing | None = None,
    on_solution: Callable[[Array], None] | None = None,
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
    keep_going : callable, optional
        Asked several times a second.
    on_solution : callable, optional
        Called with offsets whenever the peak has fallen.

    Returns
    -------
    ndarray of int64, shape (b,)
        Offsets of a peak no higher than before.
    """
    offsets = offsets.copy()
    top = offsets + blocks.size
    reported = int(top.max(initial=0))
    tries = np.zeros(blocks.sections, dtype=np.int64)
    random = np.random.default_rng(seed)
    while (peak := int(top.max(initial=0))) > target:
        if peak < reported:
            reported = peak
            if on_solution is not None:
                on_solution(offsets.copy())
        if keep_going is not None and not keep_going():
            return offsets
        effort.spend(tuning.prices.item * blocks.b)
        worst = int(np.argmax(top))
        first, end = int(blocks.first[worst]), int(blocks.end[worst])
        attempt = int(tries[first:end].max())
        tries[first:end] += 1
        members, begin, stop = _window(blocks, first, end, attempt, tuning=tuning)
        window, inside = clipped(blocks, members, begin, stop)
        effort.spend(tuning.repair.cut + tuning.repair.cut_block * len(members))
        if inside.sum() > tuning.repair.movable_blocks or window.pairs > tuning.repair.pair_limit:
            inside = _chosen(window, inside, members == worst, random, tuning=tuning)
        found = _searched(
            window, inside, offsets[members], target, attempt, keep_going, tuning=tuning
        )
        if found is None:
            found = annealing.improve(
                window,
                offsets[members],
                target=target,
                seed=seed + attempt,
                movable=inside,
                legs=tuning.repair.calls << min(attempt, 8),
                keep_going=keep_going,
                tuning=tuning,
            )
        offsets[members] = found
        top[members] = found + blocks.size[members]
    if peak < reported and on_solution is not None:
        on_solution(offsets.copy())
    return offsets


def _searched(
    window: Blocks,
    inside: Array,
    offsets: Array,
    target: int,
    attempt: int,
    keep_going: KeepGoing | None,
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return the offsets of a small window packed as low as its surroundings allow, or None."""
    if len(inside) > tuning.repair.searched_blocks or not inside.any():
        return None
    effort.spend(tuning.repair.cut + 2 * tuning.prices.row * len(inside))
    around = LmemPacking.from_arrays(
        window.size,
        window.time[window.first],
        window.time[window.end - 1] + 1,
        alignment=window.alignment,
        fixed=np.where(inside, -1, offsets),
    )
    peak = int((offsets + window.size).max())
    floor = max(target, int((offsets + window.size)[~inside].max(initial=0)))
    # First half way down, then anything lower.
    capacity = max(floor, peak - max(1, (peak - floor) >> (attempt + 1)))
    if capacity >= peak:  # what may not move is as high
        return offsets
    decision = exact.decide(
        Blocks.of(around),
        capacity,
        keep_going=keep_going,
        node_limit=tuning.repair.nodes << min(attempt, 8),
        warm=offsets,
        tuning=tuning,
    )
    return decision.offsets


def _window(
    blocks: Blocks, first: int, end: int, attempt: int, *, tuning: PackingTuning
) -> tuple[Array, int, int]:
    """Return the blocks alive around [first, end), the more the later the attempt, and where."""
    while True:
        margin = (end - first + 8) << min(attempt, 20)
        begin, stop = max(0, first - margin), min(blocks.sections, end + margin)
        members = np.flatnonzero((blocks.first < stop) & (blocks.end > begin))
        if len(members) <= tuning.repair.cut_blocks or attempt == 0:
            return members, begin, stop
        attempt -= 1


def _chosen(
    window: Blocks,
    inside: Array,
    worst: Array,
    random: np.random.Generator,
    *,
    tuning: PackingTuning,
) -> Array:
    """Return a mask of some blocks out of those inside: the worst one, and any that it meets.

    As many as have no more pairs, all together, than a search may hold.
    """
    at = int(np.flatnonzero(worst)[0])
    meets = (window.first < window.end[at]) & (window.end > window.first[at])
    order = random.permutation(np.flatnonzero(inside & meets & ~worst))
    order = np.concatenate([[at], order])[: tuning.repair.movable_blocks]
    begun = np.searchsorted(np.sort(window.first), window.end[order], side="left")
    over = np.searchsorted(np.sort(window.end), window.first[order], side="right")
    chosen = np.zeros(window.b, dtype=bool)
    chosen[order[np.cumsum(begun - over) <= tuning.repair.pair_limit]] = True
    return chosen


def clipped(blocks: Blocks, members: Array, begin: int, stop: int) -> tuple[Blocks, Array]:
    """Return blocks as they are in a window of time, and which of them are wholly inside.

    Parameters
    ----------
    blocks : Blocks
        Whole ones.
    members : ndarray of int64
    begin, stop : int
        The window, sections [begin, stop).

    Returns
    -------
    Blocks, ndarray of bool, shape (members,)
    """
    first, end = blocks.first[members], blocks.end[members]
    inside = (first >= begin) & (end <= stop)
    window = LmemPacking.from_arrays(
        blocks.size[members],
        np.maximum(first, begin),
        np.minimum(end, stop),
        alignment=blocks.alignment[members],
    )
    return Blocks.of(window), inside
