"""Compiled kernels of greedy placement: puts one block after another into a gap.

There are two ways to find the gaps.  *Slabs* are for blocks of one full-height piece: time is cut
into slabs at least as long as a block, so that a block touches at most two.  Each slab keeps its
placed blocks sorted by address, and a gap is found by merging two lists.  *Obstacles* are for all
other blocks: the offsets that a block may not take are intervals, which are collected piece by
piece in a heap and swept from the lowest up.

Cost: O(m) a block with m blocks in its slabs, O(m log m) with m obstacles.  Source: own work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.constructive.rules import BANKS, BEST, FIRST, TOP
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, inlined, step, tiered

NOWHERE = -1
FAR = 1 << 62


class Slabs(NamedTuple):
    """Placed blocks by slab of time, each slab ascending in address."""

    # int64 (slabs + 1,): slab c holds the sections [c << shift, (c + 1) << shift) and its list
    # starts at ptr[c].
    ptr: Array
    length: Array  # int64 (slabs,): length of each list
    # int64 (entries,): address range of each entry.
    low: Array
    high: Array
    # int32 (entries,): sections of each entry.
    first: Array
    end: Array
    shift: int  # a slab has 2 ** shift sections


class Whole(NamedTuple):
    """Blocks of one full-height piece each, which may lie anywhere: int64 arrays of shape (b,)."""

    # Sections [first, end).
    first: Array
    end: Array
    # Bytes, and what offsets are multiples of.
    size: Array
    alignment: Array
    segment: int  # no block lies across a multiple of it, a multiple of all alignments; 0: any may


@step
def clear_of_walls(at: int, size: int, segment: int) -> int:
    """Return the lowest offset from `at` up of what is not to lie across a multiple of `segment`.

    It has `size` bytes, no more than a segment; 0: there are no segments.
    """
    if segment > 0 and at % segment + size > segment:
        at += segment - at % segment
    return at


@tiered(entries)
def make_slabs(placed: Array, todo: Array, blocks: Whole, offsets: Array, shift: int) -> Slabs:
    """Return slabs that hold the blocks `placed` and have room for the blocks `todo`.

    O(slabs + entries).  The list of a slab is as long as there are `blocks` of either that touch
    it, each of which :func:`fill_slabs` or this enters there once.  `placed` and `todo` are int64;
    `placed` ascend in `offsets`, int64 (b,); no others are read.  A slab has 2**shift sections.
    """
    first, end = blocks.first, blocks.end
    # Only as many slabs as something touches: long sections without blocks cost nothing.
    slabs = 0
    for i in todo:
        slabs = max(slabs, ((end[i] - 1) >> shift) + 1)
    for i in placed:
        slabs = max(slabs, ((end[i] - 1) >> shift) + 1)
    ptr = np.zeros(slabs + 1, np.int64)
    for some in (placed, todo):
        for i in some:
            for c in range(first[i] >> shift, ((end[i] - 1) >> shift) + 1):
                # Counted one place on, so that the sums below are where each list begins.
                ptr[c + 1] += 1
    for c in range(slabs):
        ptr[c + 1] += ptr[c]
    length = np.zeros(slabs, np.int64)
    low = np.empty(ptr[slabs], np.int64)
    high = np.empty(ptr[slabs], np.int64)
    starts = np.empty(ptr[slabs], np.int32)
    stops = np.empty(ptr[slabs], np.int32)
    for i in placed:
        for c in range(first[i] >> shift, ((end[i] - 1) >> shift) + 1):
            k = ptr[c] + length[c]
            length[c] += 1
            # `placed` ascends in offset, and so does every list.
            low[k] = offsets[i]
            high[k] = offsets[i] + blocks.size[i]
            starts[k] = first[i]
            stops[k] = end[i]
    return Slabs(ptr, length, low, high, starts, stops, shift)


@inlined
def _gap_in_slabs(i: int, policy: int, blocks: Whole, slabs: Slabs) -> int:
    """Return the offset that block i takes: its one or two slabs are merged by address."""
    a, b, s, step = blocks.first[i], blocks.end[i], blocks.size[i], blocks.alignment[i]
    left, right = a >> slabs.shift, (b - 1) >> slabs.shift
    p, q = slabs.ptr[left], slabs.ptr[right]
    p_end = p + slabs.length[left]
    # A block within one slab has no second list.
    q_end = q + slabs.length[right] if right > left else q
    lowest, chosen, least = 0, NOWHERE, FAR
    while p < p_end or q < q_end:
        # A block in both slabs is met twice, which does no harm: the second time it raises nothing.
        if q >= q_end or (p < p_end and slabs.low[p] <= slabs.low[q]):
            x = p
            p += 1
        else:
            x = q
            q += 1
        # In the slab, but not alive together.
        if slabs.first[x] >= b or slabs.end[x] <= a:
            continue
        # `lowest` is aligned and above all that was met: the gap below this entry begins there.
        begin = clear_of_walls(lowest, s, blocks.segment)
        room = slabs.low[x] - begin
        # For FIRST the first gap is the one, for BEST the tightest.
        if policy != TOP and room >= s and room < least:
            chosen, least = begin, room
            if policy == FIRST:
                break
        if slabs.high[x] > lowest:
            lowest = (slabs.high[x] + step - 1) // step * step
    # Above everything there is always room.
    return int(clear_of_walls(lowest, s, blocks.segment) if chosen == NOWHERE else chosen)


@inlined
def _put_into_slab(c: int, i: int, offset: int, blocks: Whole, slabs: Slabs) -> None:
    """Add block i to the list of slab c, which stays ascending in address."""
    begin = slabs.ptr[c]
    k = begin + slabs.length[c]
    slabs.length[c] += 1
    # From the end: blocks mostly land on top of what there is.
    while k > begin and slabs.low[k - 1] > offset:
        slabs.low[k] = slabs.low[k - 1]
        slabs.high[k] = slabs.high[k - 1]
        slabs.first[k] = slabs.first[k - 1]
        slabs.end[k] = slabs.end[k - 1]
        k -= 1
    slabs.low[k] = offset
    slabs.high[k] = offset + blocks.size[i]
    slabs.first[k] = blocks.first[i]
    slabs.end[k] = blocks.end[i]


def _slab_steps(
    todo: Array, begin: int, policy: int, ceiling: int, blocks: Whole, slabs: Slabs, *_: object
) -> int:
    """Return the most entries at which :func:`fill_slabs` looks."""
    del policy, ceiling, blocks
    return (len(todo) - begin) * (8 + len(slabs.low))


@tiered(_slab_steps)
def fill_slabs(
    todo: Array,
    begin: int,
    policy: int,
    ceiling: int,
    blocks: Whole,
    slabs: Slabs,
    offsets: Array,
    budget: int,
    spent: Array,
) -> int:
    """Place the `blocks` todo[begin:], in that order; none longer than a slab.

    Return where to go on in `todo` (its length: all are placed), between two blocks; -1 when a
    block does not fit.  `begin` is where this call goes on in `todo`, int64.  `policy` is FIRST,
    BEST or TOP; no block may exceed the address `ceiling`.  `slabs` have room for `todo`, see
    :func:`make_slabs`; `offsets`, int64 (b,), are set for blocks that are placed.  It looks at
    `budget` entries, counted in `spent`, int64 (1,), before it returns.
    """
    work = 0
    for at in range(begin, len(todo)):
        if work > budget:
            spent[0] += work
            return at
        i = todo[at]
        left, right = blocks.first[i] >> slabs.shift, (blocks.end[i] - 1) >> slabs.shift
        # The list is gone through to find a gap; 8 for the block itself.
        work += slabs.length[left] + 8
        if right > left:
            work += slabs.length[right]
        chosen = _gap_in_slabs(i, policy, blocks, slabs)
        if chosen + blocks.size[i] > ceiling:
            spent[0] += work
            return -1
        offsets[i] = chosen
        for c in range(left, right + 1):
            _put_into_slab(c, i, chosen, blocks, slabs)
    spent[0] += work
    return len(todo)


class Pieces(NamedTuple):
    """Blocks of any kind as the kernel sees them; int64 arrays named as in `Blocks`."""

    size: Array
    alignment: Array
    piece_ptr: Array
    first: Array
    end: Array
    low: Array
    high: Array
    range_ptr: Array
    range_low: Array
    range_high: Array
    # Rows of the blocks whose offset block i may take although they overlap.
    share_ptr: Array
    share: Array
    # Rows of the blocks that should not be in a bank of block i.
    bank_ptr: Array
    bank_other: Array
    # 0: no banks.
    bank_bytes: int
    bank_count: int


class Lists(NamedTuple):
    """Placed pieces by slab of time, and a heap of forbidden offsets."""

    # int64: as in :class:`Slabs`
    ptr: Array
    length: Array
    # int64: pieces of placed blocks, in no order.  The list of a slab has room for all pieces that
    # touch it, and each is entered once, when its block is placed.
    entry: Array
    owner: Array  # int64 (pieces,): block of each piece
    # int64: offsets [low, high) that the block at hand may not take; a heap by `low`.  Two for each
    # placed piece that one of its pieces meets (of a partner both sides of its offset; of those
    # that share several slabs the first counts), one below each of its ranges and one above all.
    heap_low: Array
    heap_high: Array
    shift: int  # a slab has 2 ** shift sections


@step
def push_interval(low: int, high: int, filled: int, heap_low: Array, heap_high: Array) -> int:
    """Add the offsets from `low` up to `high` to the heap; return its new length.

    Nothing is added where none of them is 0 or more.  The heap is by its `heap_low`; this and
    `heap_high`, int64, are longer than its length `filled`: callers say of how many intervals.
    """
    # Offsets start at 0, where the heap's sweep begins.
    if high <= low or high <= 0:
        return filled
    k = filled
    # The hole goes up, parents come down: written once, at the end.
    while k > 0 and heap_low[(k - 1) >> 1] > low:
        heap_low[k] = heap_low[(k - 1) >> 1]
        heap_high[k] = heap_high[(k - 1) >> 1]
        k = (k - 1) >> 1
    heap_low[k] = low
    heap_high[k] = high
    return filled + 1


@step
def pop_interval(filled: int, heap_low: Array, heap_high: Array) -> int:
    """Take the lowest interval off the heap; return its new length.

    The heap has length `filled`, at least 1, and is by its `heap_low`; `heap_high` ends; int64.
    """
    filled -= 1
    low, high = heap_low[filled], heap_high[filled]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= filled:
            break
        if child + 1 < filled and heap_low[child + 1] < heap_low[child]:
            child += 1
        if heap_low[child] >= low:
            break
        heap_low[k] = heap_low[child]
        heap_high[k] = heap_high[child]
        k = child
    heap_low[k] = low
    heap_high[k] = high
    return filled


@inlined
def _forbid_beside(
    i: int, p: int, q: int, filled: int, pieces: Pieces, lists: Lists, offsets: Array
) -> int:
    """Forbid block i the offsets at which its piece p meets the placed piece q; return the length.

    The offset of a partner, with which it may share, stays allowed.
    """
    j = lists.owner[q]
    # Strictly between these the two pieces share an address.
    low = offsets[j] + pieces.low[q] - pieces.high[p] + 1
    high = offsets[j] + pieces.high[q] - pieces.low[p]
    for r in range(pieces.share_ptr[i], pieces.share_ptr[i + 1]):
        if pieces.share[r] == j:
            # Two intervals, with the partner's offset between them.
            if low <= offsets[j] < high:
                filled = push_interval(low, offsets[j], filled, lists.heap_low, lists.heap_high)
                low = offsets[j] + 1
            break
    return push_interval(low, high, filled, lists.heap_low, lists.heap_high)


@step
def _forbid(i: int, ceiling: int, pieces: Pieces, lists: Lists, offsets: Array) -> tuple[int, int]:
    """Fill the heap with the offsets block i may not take; return its length and the work done."""
    heap_low, heap_high, shift = lists.heap_low, lists.heap_high, lists.shift
    size = pieces.size[i]
    filled, work, begin = 0, 8, 0
    for r in range(pieces.range_ptr[i], pieces.range_ptr[i + 1]):
        # What lies between two ranges is forbidden.
        filled = push_interval(begin, pieces.range_low[r], filled, heap_low, heap_high)
        # The last offset of a range is the one at which the block ends with it.
        begin = max(begin, pieces.range_high[r] - size + 1)
    # Without ranges only the ceiling ends what is allowed.
    if pieces.range_ptr[i] == pieces.range_ptr[i + 1]:
        begin = ceiling - size + 1
    # Endless, so that a sweep always ends at an interval.
    filled = push_interval(max(min(begin, ceiling - size + 1), 0), FAR, filled, heap_low, heap_high)
    for p in range(pieces.piece_ptr[i], pieces.piece_ptr[i + 1]):
        a, b = pieces.first[p], pieces.end[p]
        for c in range(a >> shift, ((b - 1) >> shift) + 1):
            work += lists.length[c]
            for k in range(lists.ptr[c], lists.ptr[c] + lists.length[c]):
                q = lists.entry[k]
                if pieces.first[q] >= b or pieces.end[q] <= a:
                    continue
                # Two pieces that share several slabs meet in the first of these only.
                if max(a, pieces.first[q]) >> shift != c:
                    continue
                filled = _forbid_beside(i, p, q, filled, pieces, lists, offsets)
    return filled, work


@step
def _bank_cost(i: int, offset: int, pieces: Pieces, offsets: Array) -> int:
    """Return twice the partners of block i in its banks, plus 1 if it straddles without need."""
    nbytes, size = pieces.bank_bytes, pieces.size[i]
    low, high = offset // nbytes, (offset + size - 1) // nbytes
    # Less than a partner costs: it only decides between equals.
    cost = 1 if high > low and size <= nbytes else 0
    for r in range(pieces.bank_ptr[i], pieces.bank_ptr[i + 1]):
        j = pieces.bank_other[r]
        if offsets[j] >= 0:
            j_low = offsets[j] // nbytes
            j_high = (offsets[j] + pieces.size[j] - 1) // nbytes
            if j_low <= high and low <= j_high:
                cost += 2
    return cost


@step
def _bank_gap(i: int, low: int, high: int, pieces: Pieces, offsets: Array) -> tuple[int, int]:
    """Return the best offset of block i from a gap [low, high), and what it costs in banks.

    Asked are the bottom of the gap, and the banks that begin in it.
    """
    step, bank, offset = pieces.alignment[i], low // pieces.bank_bytes, low
    chosen, least = NOWHERE, FAR
    while True:
        cost = _bank_cost(i, offset, pieces, offsets)
        # Of equal ones the lowest.
        if cost < least:
            chosen, least = offset, cost
        bank += 1
        # What a place costs changes only where a bank begins.
        offset = (bank * pieces.bank_bytes + step - 1) // step * step
        if offset >= high or bank > pieces.bank_count:
            break
    return chosen, least


@step
def _gap_in_lists(
    i: int, policy: int, filled: int, pieces: Pieces, lists: Lists, offsets: Array
) -> tuple[int, int]:
    """Return the offset that block i takes, and how many intervals were taken off the heap."""
    heap_low, heap_high, step = lists.heap_low, lists.heap_high, pieces.alignment[i]
    lowest, chosen, least, top, taken = 0, NOWHERE, FAR, NOWHERE, 0
    while filled > 0:
        low, high = heap_low[0], heap_high[0]
        filled = pop_interval(filled, heap_low, heap_high)
        taken += 1
        # A gap of offsets, not of addresses: sizes are in the intervals already.
        if low > lowest:
            top = lowest
            if policy == FIRST:
                chosen = lowest
                break
            # The one on top of all, whose end is the endless interval, is taken only if it is the
            # only one.
            if policy == BEST and (chosen == NOWHERE or (low - lowest < least and high < FAR)):
                chosen, least = lowest, low - lowest
            elif policy == BANKS:
                offset, cost = _bank_gap(i, lowest, low, pieces, offsets)
                if cost < least:
                    chosen, least = offset, cost
        # Nothing is allowed above.
        if high >= FAR:
            break
        lowest = max(lowest, (high + step - 1) // step * step)
    return top if policy == TOP else chosen, taken


@step
def _put_into_lists(i: int, pieces: Pieces, lists: Lists) -> None:
    """Add the pieces of block i to the slabs that they touch."""
    for p in range(pieces.piece_ptr[i], pieces.piece_ptr[i + 1]):
        for c in range(pieces.first[p] >> lists.shift, ((pieces.end[p] - 1) >> lists.shift) + 1):
            lists.entry[lists.ptr[c] + lists.length[c]] = p
            lists.length[c] += 1


LISTED = 8
"""Steps that an interval is worth when it is put on a heap, and again when it is taken off."""


def _list_steps(
    todo: Array, begin: int, policy: int, ceiling: int, pieces: Pieces, lists: Lists, *_: object
) -> int:
    """Return the most entries at which :func:`fill_lists` looks."""
    del policy, ceiling
    return (len(todo) - begin) * (8 + 2 * len(lists.entry)) + len(pieces.range_low)


@tiered(_list_steps)
def fill_lists(
    todo: Array,
    begin: int,
    policy: int,
    ceiling: int,
    pieces: Pieces,
    lists: Lists,
    offsets: Array,
    budget: int,
    spent: Array,
) -> int:
    """Place the blocks todo[begin:], in that order, whatever their pieces, ranges and partners.

    O(m log m) a block with m placed pieces in its time.  What is given and returned is as for
    :func:`fill_slabs`: `todo`, `begin`, `ceiling`, `offsets`, `budget`, `spent`, and `policy`,
    which may be BANKS, too.
    """
    work = 0
    for at in range(begin, len(todo)):
        if work > budget:
            spent[0] += work
            return at
        i = todo[at]
        filled, looked = _forbid(i, ceiling, pieces, lists, offsets)
        chosen, taken = _gap_in_lists(i, policy, filled, pieces, lists, offsets)
        # An entry of a list costs a comparison of four numbers, an interval a walk through a heap.
        work += 4 * looked + LISTED * (filled + taken)
        if chosen == NOWHERE:
            spent[0] += work
            return -1
        offsets[i] = chosen
        _put_into_lists(i, pieces, lists)
    spent[0] += work
    return len(todo)
