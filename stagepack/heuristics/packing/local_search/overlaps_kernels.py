"""Compiled kernel of overlap minimisation.

Cost: O(m log m) for a move of a block that meets m others.  Source: see :mod:`.overlaps`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.random_kernels import draw
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

MOVE, BEND = 40, 12
"""Steps of a move, and of each of the four bends that a neighbour gives to what a place costs."""


class Overlaps(NamedTuple):
    """Blocks below a ceiling, some of which overlap; int64 arrays unless stated otherwise."""

    # (b + 1,), (e,): rows of the blocks that meet each block.
    ptr: Array
    other: Array
    weight: Array  # float (e,): what a unit of overlap of two blocks costs; the same in both rows
    # (b,): of each block.
    size: Array
    offsets: Array
    clashes: Array  # (b,): how many others each block overlaps
    # (b,): the blocks that overlap any, first `many[0]` entries; where each is there.  A block is
    # added when its `clashes` leave 0, and taken out when they return to it, so it is there once.
    listed: Array
    place: Array
    many: Array  # (1,): how many overlap
    # (4 * most neighbours + 2,), the latter of float: where what a place costs
    # bends, and by how much: at both ends, and four times a neighbour.
    bend: Array
    slope: Array
    random: Array  # uint64 (1,): state of the generator


@compiled
def separate(ceiling: int, steps: int, search: Overlaps) -> int:
    """Move blocks that overlap to where that costs least; return how many of `steps` are left.

    Where a move gains nothing, what the block overlaps costs more from then on.  No block ends
    above `ceiling`.  Blocks of `search` are listed by :func:`begin`; calls end between two moves.
    """
    while steps > 0 and search.many[0] > 0:
        i = search.listed[draw(search.random, search.many[0])]
        now, at, least = _cheapest(i, ceiling, search)
        # A local minimum of this block: what it overlaps becomes dearer, until it moves.
        if least == now:
            _weigh(i, search)
        # Equal places may differ: then it wanders, at the same cost.
        if at != search.offsets[i]:
            _recount(i, at, search)
            search.offsets[i] = at
        steps -= MOVE + 4 * BEND * (search.ptr[i + 1] - search.ptr[i])
    return steps


@compiled
def begin(search: Overlaps) -> None:
    """List the blocks that overlap any."""
    search.many[0] = 0
    search.clashes[:] = 0
    for i in range(len(search.size)):
        for r in range(search.ptr[i], search.ptr[i + 1]):
            if _overlap(i, search.offsets[i], search.other[r], search) > 0:
                search.clashes[i] += 1
        if search.clashes[i] > 0:
            search.place[i] = search.many[0]
            search.listed[search.many[0]] = i
            search.many[0] += 1


@step
def _overlap(i: int, at: int, j: int, search: Overlaps) -> int:
    """Return by how much block i would overlap block j if it began there; 0 or less: not at all."""
    low, high = search.offsets[j], search.offsets[j] + search.size[j]
    return int(min(at + search.size[i], high) - max(at, low))


@step
def _cheapest(i: int, ceiling: int, search: Overlaps) -> tuple[float, int, float]:
    """Return what the place of block i costs, the cheapest one, at random among equals, and that.

    What a place costs is linear between bends, so that one of them is the cheapest, or an end.
    """
    size, offsets, bend, slope = search.size, search.offsets, search.bend, search.slope
    now, end = 0.0, ceiling - size[i]
    bend[0], slope[0] = 0, 0.0
    bend[1], slope[1] = end, 0.0
    k = 2
    for r in range(search.ptr[i], search.ptr[i + 1]):
        j, weight = search.other[r], search.weight[r]
        # Overlap grows from `low`, is `both` for a while, and falls to 0 at `high`.
        low, high, both = offsets[j] - size[i], offsets[j] + size[j], min(size[i], size[j])
        bend[k], slope[k] = low, weight
        bend[k + 1], slope[k + 1] = low + both, -weight
        bend[k + 2], slope[k + 2] = high - both, -weight
        bend[k + 3], slope[k + 3] = high, weight
        k += 4
        now += weight * max(0, _overlap(i, offsets[i], j, search))
    sort(bend, slope, k)
    # Swept from the lowest bend; before the first nothing overlaps... nor counts: places below 0
    # are no places.
    cost, rising, ties = 0.0, 0.0, 1
    best, least, before = offsets[i], now, bend[0]
    for r in range(k):
        here = bend[r]
        cost += rising * (here - before)
        rising += slope[r]
        before = here
        # Above it would stick out of the ceiling.
        if here > end:
            break
        # Its own place has a cost of its own, `now`, that all others are held against.
        if here < 0 or here == offsets[i]:
            continue
        if cost < least:
            best, least, ties = here, cost, 1
        # Each of several equal places is as likely, without a list of them.
        elif cost == least:
            ties += 1
            if draw(search.random, ties) == 0:
                best = here
    return now, best, least


@step
def sort(bend: Array, slope: Array, many: int) -> None:
    """Sort the first entries by `bend`, in place: Shell's sort, a few hundred of them mostly.

    Both it and `slope` have `many` entries at least.
    """
    gap = 1
    while gap < many // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for r in range(gap, many):
            at, more, q = bend[r], slope[r], r
            while q >= gap and bend[q - gap] > at:
                bend[q], slope[q] = bend[q - gap], slope[q - gap]
                q -= gap
            bend[q], slope[q] = at, more
        gap //= 3


@step
def _weigh(i: int, search: Overlaps) -> None:
    """Raise what it costs that block i overlaps those that it does, in both rows."""
    for r in range(search.ptr[i], search.ptr[i + 1]):
        j = search.other[r]
        if _overlap(i, search.offsets[i], j, search) > 0:
            search.weight[r] += 1.0
            q = search.ptr[j]
            # The same pair in the other row.
            while search.other[q] != i:
                q += 1
            search.weight[q] += 1.0


@step
def _recount(i: int, at: int, search: Overlaps) -> None:
    """Count overlaps anew for a move of block i."""
    for r in range(search.ptr[i], search.ptr[i + 1]):
        j = search.other[r]
        before = _overlap(i, search.offsets[i], j, search) > 0
        after = _overlap(i, at, j, search) > 0
        if before != after:
            change = 1 if after else -1
            _count(i, change, search)
            _count(j, change, search)


@step
def _count(i: int, change: int, search: Overlaps) -> None:
    """Change how many others block i overlaps; keep the list of those that overlap any."""
    listed, place, many = search.listed, search.place, search.many
    # It overlaps its first one.
    if search.clashes[i] == 0:
        place[i], listed[many[0]] = many[0], i
        many[0] += 1
    search.clashes[i] += change
    if search.clashes[i] == 0:
        many[0] -= 1
        # The last of the list takes its place.
        last = listed[many[0]]
        listed[place[i]], place[last] = last, place[i]
