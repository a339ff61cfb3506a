"""Compiled kernels of allowed offsets, and of addresses that no block of a section may use.

Offsets are rows of inclusive spans, ascending and disjoint.

Cost: O(ranges and fixed neighbours) a block, O(holes) for each member of a section.  Source: ours.
"""

from __future__ import annotations

from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE, Rules, Spans
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

EVERYWHERE = 2**62
"""Beyond every offset, whatever size is added."""

AT, MEMBER, COUNT = range(3)
"""Entries of `control` of :func:`common_holes`: the section at work, the next of its members, and
how many holes are left."""


@compiled
def permitted(begin: int, end: int, rules: Rules, ptr: Array, low: Array, high: Array) -> None:
    """Write the places of blocks [begin, end) behind those of the blocks before.

    Parameters
    ----------
    begin, end : int
        The blocks of this call.
    ptr : ndarray of int64, shape (b + 1,)
        Where rows begin; those of blocks of which nothing is said stay empty.
    low, high : ndarray of int64
        Offsets, as many as ranges, fixed neighbours and blocks; a block without any place gets
        one out of reach.  A range gives a span, and another one for each fixed neighbour that is
        passed by, in it or in ranges before, but none twice; a block without ranges counts as one.
    """
    for i in range(begin, end):
        used = ptr[i]
        first, last = rules.range_ptr[i], rules.range_ptr[i + 1]
        # Of what is nothing said an empty row means anywhere.
        free = first == last
        if free and rules.near_ptr[i] == rules.near_ptr[i + 1]:
            ptr[i + 1] = used
            continue
        near = rules.near_ptr[i]
        if free:
            used, near = _between(i, 0, EVERYWHERE, near, used, rules, low, high)
        r = first
        while r < last:
            # From here on ranges are of offsets: the last one is where the block ends with the
            # range.
            a, b = rules.range_low[r], rules.range_high[r] - rules.size[i]
            r += 1
            # Ranges that touch are one, once they are of offsets.
            while r < last and rules.range_low[r] <= b + 1:
                b = max(b, rules.range_high[r] - rules.size[i])
                r += 1
            used, near = _between(i, a, b, near, used, rules, low, high)
        # An empty row would mean anywhere.
        if used == ptr[i]:
            low[used] = high[used] = NOWHERE
            used += 1
        ptr[i + 1] = used


@step
def _between(
    i: int, a: int, b: int, near: int, used: int, rules: Rules, low: Array, high: Array
) -> tuple[int, int]:
    """Write the offsets of [a, b] that are multiples and miss all fixed neighbours.

    Returns how many offsets are used now, and the first neighbour that may lie above `b`.  Why
    `low` and `high` have room: see :func:`permitted`.
    """
    step, last = rules.alignment[i], rules.near_ptr[i + 1]
    while a <= b:
        # Neighbours ascend, and so do ranges: none is passed by twice.
        while near < last and rules.near_high[near] <= a:
            near += 1
        stop = b
        if near < last:
            # Up to where the block ends below the next fixed neighbour.
            stop = min(b, rules.near_low[near] - rules.size[i])
        lowest, highest = (a + step - 1) // step * step, stop // step * step
        if lowest <= highest:
            low[used] = lowest
            high[used] = highest
            used += 1
        if near == last:
            break
        if stop == b:
            break
        # On from above it.
        a = rules.near_high[near]
    return used, near


@compiled
def common_holes(
    work: int, given: Spans, control: Array, hole_ptr: Array, holes: Array, scratch: Array
) -> bool:
    """Go on with the addresses that no block of a group in `given` may use; return whether that is
    done.

    A group of more holes than `scratch` takes, or for which `holes` has no room, gets none.  It
    returns to the caller after about `work` spans and holes.  `control`, int64 of shape (3,), is
    where the last call ended, between two members; zero at first.  `hole_ptr`, int64 of shape
    (groups + 1,), are the rows of `holes`, to be written.  `holes` and `scratch`, int64 of shape
    (., 2), are addresses [low, high), ascending; of any length, as no write goes beyond.
    """
    done = 0
    while control[AT] < len(hole_ptr) - 1:
        at = control[AT]
        begin = hole_ptr[at]
        if control[MEMBER] == 0:
            # At first everything below `top` is a hole; members take out what they may use.
            control[COUNT] = 1
            if begin < len(holes):
                holes[begin, 0], holes[begin, 1] = 0, given.top
            else:
                control[COUNT] = 0
        m = given.member_ptr[at] + control[MEMBER]
        # All members are through, or no hole is left for them to shrink.
        if m == given.member_ptr[at + 1] or control[COUNT] == 0:
            hole_ptr[at + 1] = begin + control[COUNT]
            control[AT], control[MEMBER] = at + 1, 0
            continue
        if done >= work:
            return False
        i = given.members[m]
        # As much as going through both rows side by side takes.
        done += given.end[i] - given.begin[i] + control[COUNT] + 1
        kept = _kept(i, begin, control[COUNT], given, holes, scratch)
        if begin + kept > len(holes):
            # No holes is always right: it only says less.
            kept = 0
        for h in range(kept):
            holes[begin + h, 0], holes[begin + h, 1] = scratch[h, 0], scratch[h, 1]
        control[COUNT], control[MEMBER] = kept, control[MEMBER] + 1
    return True


@step
def _kept(i: int, hole: int, count: int, given: Spans, holes: Array, scratch: Array) -> int:
    """Write what a block leaves of some holes to `scratch`; return how many are left.

    `scratch` may be of any length: 0, nothing known, is the answer where one more does not fit.
    """
    last, kept, used = hole + count, 0, 0
    for k in range(given.begin[i], given.end[i] + 1):
        # Between spans, and behind the last one, the block uses nothing.
        behind = k == given.end[i]
        end = given.top if behind else min(given.top, given.spans[k, 0])
        # Below all that is unused from here on.
        while hole < last and holes[hole, 1] <= used:
            hole += 1
        q = hole
        while q < last and holes[q, 0] < end and used < end:
            if kept == len(scratch):
                return 0
            scratch[kept, 0] = max(used, holes[q, 0])
            scratch[kept, 1] = min(end, holes[q, 1])
            kept += 1
            q += 1
        if not behind:
            # Offsets of a span and the block on top of the last of them.
            used = given.spans[k, 1] + given.size[i]
    return kept
