"""Annealing over placements: blocks move, one at a time, to places drawn by what they share there.

A state is an offset of each block within the capacity; blocks that must not may overlap meanwhile.
A move looks at all places of one block, which are stretches of equal weight: the costs of the pairs
that would share, and a weight for each overlap that is not allowed.  One is drawn with the
probability of its weight at the temperature (a heat bath), its lowest or its highest offset.
Overlaps that stay weigh more and more, so that at the end of a cooling none is left.  Then the
next cooling begins, twice as long: at the best placement, at a lower temperature.

Cost: O(m log m) for a move of a block that m others keep away from some of its places.  Source: own
work; heat baths are those of Creutz, "Monte Carlo study of quantized SU(2) gauge theory", 1980.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.exact_search.address_ranges import places
from stagepack.heuristics.packing.exact_search.exact_general import forbidden
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.heuristics.packing.penalties.placing_kernels import (
    CLASHES,
    ENTRY,
    MOVE,
    Placing,
    anneal,
    count,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.meetings import Pause
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

    No block ends above `capacity`.  The search begins near `offsets`, int64 of shape (b,), a
    placement that is known, else anywhere; it ends at `floor`, a lower bound on the cost.  Random
    numbers are of the `seed`.  `keep_going` is asked several times a second; the search ends once
    it says no.  `on_solution` is called with the offsets of every placement that is better than all
    before.
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
    while keep_going():
        # What would be cut short is joined to the one before.
        left = effort.left()
        seconds = left / 1.3 if left < 4 * seconds else seconds
        legs = max(1, round(seconds / steer.leg))
        weight = np.where(search.cost > 0, search.cost, steer.clash * scale)
        np.copyto(search.weight, weight)
        hottest = steer.hottest
        if known >= 0:
            search.offsets[:] = search.best
            count(search)
            hottest = steer.reheated
        fall = steer.coldest / hottest
        budget = max(1, int(min(steer.leg, seconds) / steer.step))
        for leg in range(legs + legs // 4 + 1):
            if leg > legs and not search.state[CLASHES]:
                break
            # What still overlaps at the end is parted in the cold, whatever that costs.
            hot, cold = (scale * hottest * fall ** min(1, at / legs) for at in (leg, leg + 1))
            more = steer.more * scale * (1 if leg < legs else steer.parting)
            left_over = anneal(search, hot, cold, more, floor - pairs.certain, budget)
            effort.spend(tuning.prices.call + steer.step * (budget - left_over))
            if search.record[0] != known:
                known = int(search.record[0])
                on_solution(search.best.copy())
            if 0 <= known <= floor - pairs.certain or not keep_going():
                return
        seconds *= 2


def _search(
    pairs: Pairs, capacity: int, seed: int, keep_going: KeepGoing, *, tuning: PackingTuning
) -> Placing:
    """Return a search that has not begun, with all blocks at 0 or as low as they may lie."""
    pause = pausing(keep_going)
    blocks, b = pairs.blocks, pairs.blocks.b
    ptr, other, low, high, cost = _rows(pairs, pause)
    effort.spend(tuning.annealing.shaped_entry * len(other))
    owner = np.repeat(np.arange(b), np.diff(ptr))
    twin = np.empty(len(other), dtype=np.int64)
    # The same two in the same distances, seen from either.
    twin[np.lexsort((cost, low, other, owner))] = np.lexsort((cost, -high, owner, other))
    range_ptr, begin, last = _ranges(pairs, capacity, keep_going, tuning=tuning)
    row, spans = int(np.diff(ptr).max(initial=0)), int(np.diff(range_ptr).max(initial=0))
    offsets = np.zeros(b, dtype=np.int64)
    somewhere = np.diff(range_ptr) > 0
    offsets[somewhere] = begin[range_ptr[:-1][somewhere]]
    movable = np.add.reduceat(last - begin, range_ptr[:-1]) > 0 if somewhere.all() else somewhere
    movable |= np.diff(range_ptr) > 1
    return Placing(
        ptr=ptr,
        other=other,
        low=low,
        high=high,
        cost=cost,
        weight=np.empty(len(other)),
        twin=twin,
        range_ptr=range_ptr,
        begin=begin,
        last=last,
        step=blocks.alignment.copy(),
        movable=np.flatnonzero(movable),
        offsets=offsets,
        state=np.zeros(2, dtype=np.int64),
        best=np.zeros(b, dtype=np.int64),
        record=np.full(1, -1, dtype=np.int64),
        at=np.empty(2 * row, dtype=np.int64),
        change=np.empty(2 * row),
        place=np.empty(2 * row + spans, dtype=np.int64),
        price=np.empty(2 * row + spans),
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
    )


def _ranges(
    pairs: Pairs, capacity: int, keep_going: KeepGoing, *, tuning: PackingTuning
) -> tuple[Array, Array, Array]:
    """Return the legal offsets of each block below the capacity: rows of [begin, last]."""
    blocks = pairs.blocks
    legal = places(blocks, np.arange(blocks.b), pausing(keep_going), tuning=tuning)
    anywhere = np.flatnonzero(~legal.limited)
    owner = np.concatenate([np.repeat(np.arange(blocks.b), np.diff(legal.ptr)), anywhere])
    top = (capacity - blocks.size) // blocks.alignment * blocks.alignment
    begin = np.concatenate([legal.low, np.zeros(len(anywhere), dtype=np.int64)])
    last = np.minimum(np.concatenate([legal.high, top[anywhere]]), top[owner])
    order = np.lexsort((begin, owner))
    order = order[(begin <= last)[order]]
    many = np.bincount(owner[order], minlength=blocks.b)
    return np.concatenate([[0], np.cumsum(many)]), begin[order], last[order]


def _rows(pairs: Pairs, pause: Pause) -> tuple[Array, Array, Array, Array, Array]:
    """Return what each block must or should keep clear of: ptr, other, low, high, cost.

    Rows of the blocks: at low <= o_i - o_other <= high the two share an address, which is forbidden
    at a cost of 0.
    """
    blocks, b = pairs.blocks, pairs.blocks.b
    ptr, near = blocks.neighbours(pause)
    pieces = np.stack([blocks.first, blocks.end, blocks.low, blocks.high], axis=1)
    i, j = np.concatenate([blocks.may_share, blocks.may_share[:, ::-1]]).T
    order = np.lexsort((j, i))
    partners = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=b))])
    run, spans = forbidden(ptr, near, blocks.piece_ptr, pieces, partners, j[order])
    many = np.diff(run)
    owner = np.repeat(np.repeat(np.arange(b), np.diff(ptr)), many)
    one, another = pairs.member.T
    owner = np.concatenate([owner, one, another])
    order = np.argsort(owner, kind="stable")
    nothing = np.zeros(int(run[-1]), dtype=np.int64)
    low, high = pairs.nearest
    return (
        np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=b))]),
        np.concatenate([np.repeat(near, many), another, one])[order],
        np.concatenate([spans["low"], low, -high])[order],
        np.concatenate([spans["high"], high, -low])[order],
        np.concatenate([nothing, pairs.cost, pairs.cost])[order],
    )
