"""Compiled kernel of annealing over placements in which some blocks share addresses at a cost.

Cost: O(m log m) for a move of a block that m others keep away from some of its places.  Source: see
:mod:`.placing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.local_search.overlaps_kernels import sort
from stagepack.heuristics.random_kernels import draw
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

IDLE = 16
MOVE, LOOK, ENTRY = 40, 2, 30
"""Steps of a move, and of each entry of the row of the block that it moves."""

COST, CLASHES = range(2)


class Placing(NamedTuple):
    """A placement, and what each block should keep clear of; int64 arrays unless stated."""

    # (b + 1,), (e,): rows of what each block keeps clear of: at `low` <= o_i - o_other <= `high`
    # the two share an address, at `cost`; at a cost of 0 they must not, and clash.
    ptr: Array
    other: Array
    low: Array
    high: Array
    cost: Array
    weight: Array  # float (e,): what it weighs in a move: `cost`, or that of a clash
    twin: Array  # (e,): the same two in the other row
    # (b + 1,), (ranges,): legal offsets [`begin`, `last`] of each block, multiples of `step`.
    range_ptr: Array
    begin: Array
    last: Array
    step: Array  # (b,)
    movable: Array  # (movable,): blocks with more than one legal offset
    offsets: Array  # (b,)
    state: Array  # (2,): cost of the placement, and how many pairs clash
    best: Array  # (b,): the cheapest placement without a clash so far, where its cost is not -1
    record: Array  # (1,): its cost
    # (longest row,) each: the entries of a row in the order of where they begin and end to count,
    # and where: two for each entry.
    at: Array
    change: Array  # float
    # (2 * longest row + 1 for each range of a block,) each: places to choose from, what they weigh.
    place: Array
    price: Array  # float
    random: Array  # uint64 (1,): state of the generator


@step
def _places(i: int, search: Placing) -> int:
    """Write the places of block i, one or two a stretch of equal weight; return how many."""
    at, change, offsets = search.at, search.change, search.offsets
    events, found, unit = 0, 0, search.step[i]
    for e in range(search.ptr[i], search.ptr[i + 1]):
        where = offsets[search.other[e]]
        at[events], change[events] = where + search.low[e], search.weight[e]
        at[events + 1], change[events + 1] = where + search.high[e] + 1, -search.weight[e]
        events += 2
    sort(at, change, events)
    for r in range(search.range_ptr[i], search.range_ptr[i + 1]):
        here, last, weight, k = search.begin[r], search.last[r], 0.0, 0
        while here <= last:
            while k < events and at[k] <= here:
                weight += change[k]
                k += 1
            # The weight is the same up to the next event.
            stop = last
            if k < events and at[k] <= last:
                stop = at[k] - 1
            low = (here + unit - 1) // unit * unit
            high = stop // unit * unit
            if low <= high:
                # Blocks rest on what is below them, or hang from what is above.
                place = low if draw(search.random, 2) == 0 else high
                search.place[found], search.price[found] = place, weight
                found += 1
            here = stop + 1
    return found


@step
def _enter(i: int, sign: int, search: Placing) -> None:
    """Count what block i shares and clashes with where it is, or take it back."""
    for e in range(search.ptr[i], search.ptr[i + 1]):
        distance = search.offsets[i] - search.offsets[search.other[e]]
        if search.low[e] <= distance <= search.high[e]:
            if search.cost[e] > 0:
                search.state[COST] += sign * search.cost[e]
            else:
                search.state[CLASHES] += sign


@compiled
def count(search: Placing) -> None:
    """Count the cost and the clashes of the placement, and keep it if nothing clashes."""
    search.state[:] = 0
    for i in range(len(search.offsets)):
        _enter(i, 1, search)
    # Each was counted in both rows.
    search.state[COST] //= 2
    search.state[CLASHES] //= 2
    _keep(search)


@step
def _keep(search: Placing) -> None:
    """Keep the placement if it is the best one."""
    cost = search.state[COST]
    if search.state[CLASHES] == 0 and (search.record[0] < 0 or cost < search.record[0]):
        search.record[0] = cost
        for i in range(len(search.best)):
            search.best[i] = search.offsets[i]


@step
def _weigh(i: int, more: float, search: Placing) -> None:
    """Raise what the clashes of block i weigh, in both rows."""
    for e in range(search.ptr[i], search.ptr[i + 1]):
        distance = search.offsets[i] - search.offsets[search.other[e]]
        if search.cost[e] == 0 and search.low[e] <= distance <= search.high[e]:
            search.weight[e] += more
            search.weight[search.twin[e]] += more


@compiled
def anneal(search: Placing, hot: float, cold: float, more: float, floor: int, steps: int) -> int:
    """Move blocks, each to a place drawn by what it weighs; return how many steps are left.

    A place is drawn with a probability proportional to exp(-weight / temperature).  Calls end
    between two moves.

    `search` goes on from call to call.  The temperature falls from `hot` to `cold` over all `steps`
    to be done.  A clash weighs `more` once a move of its block has left it.  The call ends early
    once the best placement costs no more than `floor`.
    """
    movable, left, until = search.movable, steps, steps
    temperature, factor = hot, (cold / hot) ** (1.0 / 64)
    while left > 0 and not 0 <= search.record[0] <= floor:
        # In 64 stairs: a power a move would cost as much as an entry.
        if left < until:
            temperature *= factor
            until -= max(1, steps // 64)
        i = movable[draw(search.random, len(movable))]
        left -= MOVE + ENTRY * (search.ptr[i + 1] - search.ptr[i])
        many = _places(i, search)
        if many == 0:
            continue
        least = search.price[0]
        for k in range(1, many):
            least = min(least, search.price[k])
        whole = 0.0
        for k in range(many):
            over = (search.price[k] - least) / temperature
            # What is drawn once in 160,000 times is not worth its exponential.
            search.price[k] = np.exp(-over) if over < 12.0 else 0.0
            whole += search.price[k]
        luck = (draw(search.random, 1 << 30) + 0.5) / (1 << 30) * whole
        k = 0
        while k < many - 1 and luck >= search.price[k]:
            luck -= search.price[k]
            k += 1
        if search.place[k] != search.offsets[i]:
            _enter(i, -1, search)
            search.offsets[i] = search.place[k]
            _enter(i, 1, search)
            _keep(search)
        _weigh(i, more, search)
    return left
