"""Annealing over placements: blocks move, one at a time, to places drawn by what they share there.

A state is an offset of each block within the capacity; blocks that must not may overlap meanwhile.
A move looks at all places of one block, which are stretches of equal weight: the costs of the pairs
that would share, and a weight for each overlap that is not allowed.  One is drawn with the
probability of its weight at the temperature (a heat bath), its lowest or its highest offset.
Overlaps that stay weigh more and more, so that at the end of a cooling none is left.  Then the
next cooling begins, twice as long.

Cost: O(m log m) for a move of a block that m others keep away from some of its places.  Source: own
work; heat baths are those of Creutz, "Monte Carlo study of quantized SU(2) gauge theory", 1980.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.exact_search.exact_state import ranks
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.heuristics.packing.penalties.placing_kernels import (
    ENTRY,
    MOVE,
    Placing,
    anneal,
    count,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped, pausing


def improve(
    pairs: Pairs,
    capacity: int,
    offsets: Array | None = None,
    *,
    floor: int = 0,
    seed: int = 0,
    keep_going: KeepGoing,
    on_solution: Callable[[Array], None],
    tuning: PackingTuning = TUNING,
) -> None:
    """Look for placements in which ever cheaper pairs share addresses.

    Parameters
    ----------
    pairs : Pairs
        The blocks, and what it costs that they share.
    capacity : int
        No block ends above it.
    offsets : ndarray of int64, shape (b,), optional
        A placement that is known.
    floor : int
        A lower bound on the cost: at which the search ends.
    seed : int
        Of random numbers.
    keep_going : callable
        Asked several times a second; the search ends once it says no.
    on_solution : callable
        Called with the offsets of every placement that is better than all before.
    """
    steer = tuning.penalties
    try:
        search = _search(pairs, capacity, seed, keep_going, tuning=tuning)
    except Stopped:
        return
    if not len(search.movable) or (np.diff(search.range_ptr) == 0).any():
        return
    if offsets is not None:
        search.offsets[:] = offsets
    count(search)
    known = int(search.record[0])
    scale = float(pairs.cost.mean()) if len(pairs) else 1.0
    sweep = MOVE * pairs.blocks.b + ENTRY * len(search.other)
    seconds = max(steer.first, steer.sweeps * sweep * steer.step)
    fall = steer.coldest / steer.hottest
    while keep_going():
        # What would be cut short is joined to the one before.
        left = effort.left()
        seconds = left if left < 3 * seconds else seconds
        legs = max(1, round(seconds / steer.leg))
        np.copyto(search.weight, np.where(search.cost > 0, search.cost, steer.clash * scale))
        for leg in range(legs):
            hot, cold = (scale * steer.hottest * fall ** (part / legs) for part in (leg, leg + 1))
            budget = max(1, int(min(steer.leg, seconds) / steer.step))
            left_over = anneal(
                search, hot, cold, steer.more * scale, floor - pairs.certain, budget
            )
            effort.spend(tuning.prices.call + steer.step * (budget - left_over))
            if search.record[0] != known:
                known = int(search.record[0])
                on_solution(search.best.copy())
            if 0 <= known <= floor - pairs.certain or not keep_going():
                return
        seconds *= 2
