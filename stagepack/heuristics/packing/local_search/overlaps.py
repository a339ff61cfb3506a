"""Overlap minimisation: lowers the ceiling, allows overlaps below it, and removes them one by one.

The ceiling of the best packing is lowered, at first by half of the distance to the target; blocks
above it are moved below, onto other blocks.  Then a random overlapping block is moved to the place
where its overlaps cost least, until none is left.  If no place is better, the weights of its
overlaps are increased (guided local search).  If a ceiling is not reached, the next one is closer
to the packing, in turns.

Cost: O(m log m) for a move of a block that meets m others; no other blocks are examined.  Source:
Voudouris and Tsang, "Guided local search and its application to the traveling salesman problem",
1999; Egeblad, Nielsen and Odgaard, "Fast neighborhood search for two- and three-dimensional nesting
problems", 2007; ceilings and weights of pairs: own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.local_search.overlaps_kernels import Overlaps, begin, separate
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped, pausing


def unsupported(blocks: Blocks) -> str:
    """Return why overlaps are not minimised for `blocks`, or ''."""
    if not blocks.rigid:
        return "overlaps are minimised for blocks of full height at all times only"
    if len(blocks.range_low) or blocks.segment:
        return "overlaps are minimised for blocks that may lie anywhere only"
    if (np.gcd.reduce(blocks.size) % blocks.alignment).any():
        return "overlaps are minimised where all sizes are multiples of all alignments only"
    return ""


def improve(
    blocks: Blocks,
    offsets: Array,
    *,
    target: int,
    seed: int = 0,
    keep_going: KeepGoing,
    on_solution: Callable[[Array], None] | None = None,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Lower the peak of a packing.

    The blocks are of the supported kind, and their neighbours must fit in memory.  `offsets`, int64
    (b,), are a packing; what is returned has no higher peak.  It stops at the peak `target`, the
    best bound known, or any that will do, or once `keep_going`, asked several times a second, says
    no.  Random numbers follow from `seed`; `on_solution` is called with the offsets at every
    improvement.
    """
    unit = math.gcd(int(np.gcd.reduce(blocks.size)), *offsets.tolist())
    best, peak = offsets, int((offsets + blocks.size).max(initial=0)) // unit
    target = -(-target // unit)
    if peak <= target or (unit % blocks.alignment).any():
        return best
    try:
        search = _search(blocks, unit, seed, keep_going, tuning=tuning)
    except Stopped:
        return best
    part, seconds = 0.5, tuning.overlaps.first_try
    while peak > target:
        ceiling = peak - max(1, int((peak - target) * part))
        search.offsets[:] = np.minimum(best // unit, ceiling - search.size)
        search.weight[:] = 1.0
        begin(search)
        effort.spend(tuning.prices.call + tuning.overlaps.entry * len(search.other))
        until = effort.spent() + seconds
        while search.many[0] > 0 and effort.spent() < until:
            if not keep_going():
                return best
            steps = min(
                tuning.overlaps.budget, int((until - effort.spent()) / tuning.overlaps.step) + 1
            )
            effort.spend(
                tuning.prices.call
                + tuning.overlaps.step * (steps - separate(ceiling, steps, search))
            )
        if search.many[0] == 0:
            best = search.offsets * unit
            peak = int((search.offsets + search.size).max(initial=0))
            if on_solution is not None:
                on_solution(best)
        elif part > tuning.overlaps.nearest and peak - ceiling > 1:
            part /= 2
        else:
            part, seconds = 0.5, 2 * seconds
        if not keep_going():
            return best
    return best


def _search(
    blocks: Blocks, unit: int, seed: int, keep_going: KeepGoing, *, tuning: PackingTuning
) -> Overlaps:
    """Return a search, in units, that has not begun."""
    ptr, other = blocks.neighbours(pausing(keep_going))
    effort.spend(tuning.overlaps.entry * len(other))
    room = 4 * int(np.diff(ptr).max(initial=0)) + 2  # bends: four a neighbour, and both ends
    return Overlaps(
        ptr=ptr,
        other=other,
        weight=np.empty(len(other)),
        size=blocks.size // unit,
        offsets=np.empty(blocks.b, dtype=np.int64),
        clashes=np.empty(blocks.b, dtype=np.int64),
        listed=np.empty(blocks.b, dtype=np.int64),
        place=np.empty(blocks.b, dtype=np.int64),
        many=np.zeros(1, dtype=np.int64),
        bend=np.empty(room, dtype=np.int64),
        slope=np.empty(room),
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
    )
