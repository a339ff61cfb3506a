"""Compiled kernel of the exact search for blocks of any shape: place at the lowest place, or not.

Two blocks i and j alive together may not have certain distances o_i - o_j: runs of integers, one
for each way in which their pieces can meet (equal offsets are taken out for a pair that may share
them).  Below one another, interlocked, in place: all are gaps between runs.

Among the packings within a capacity take one of least sum of offsets.  Each of its blocks *rests*:
the next lower multiple of its alignment is no legal place, or another block forbids it.  And each
place that a block could be at below its own is forbidden by some other block.  The search keeps,
for each unplaced block, the lowest place that is legal, that no placed block forbids and where it
may still rest; it branches on the block for which that is least:

- PLACE it there, or
- EXCLUDE it from there: it lies higher, and what forbids the place is still unplaced.

A node fails when in some section what is unplaced does not fit above its lowest places, even cut
to slices that fill all that placed blocks leave; when nothing can forbid a place from which a
block was excluded.  Identical blocks lie in index order.  After a placement the blocks that are
still connected by conflicts are parts that are solved one by one.  No rule depends on the
capacity, so that an exhausted tree also tells the least height at which it was cut: no packing
is lower than that.

The depth-first search is a loop over an explicit stack and can stop and go on at any node.  A node
costs O(runs of the blocks whose lowest place changes, and pieces of their sections).
Source: place or postpone as in scheduling (Le Pape and others, "Time-versus-capacity compromises in
project scheduling", 1994), bottom-left packings for what is irregular (Burke and others, "A new
bottom-left-fill heuristic for the two-dimensional irregular packing problem", 2006).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.exact_state import (
    EXCLUDE,
    EXHAUSTED,
    FOUND,
    FULL,
    LIMIT,
    LOWEST_SECTION,
    NOWHERE,
    PLACED,
    RUNNING,
    SELECT,
    Record,
)
from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array

DEPTH, TRAIL, LISTS, PARTS, NODES, ANSWER, LEAST, WORK, WAITING, TOUCHED, STAMP, FOCUS = range(12)
"""Entries of `control`: frames; used rows of the arrays; nodes; last answer; the least height at
which the tree was cut; steps; used rows of `queue` and `touched`; mark of the sections in it; where
to branch."""

STATE, BEGIN, COUNT, CHOICE, MARK, LISTED, PART, PART_END, NEXT = range(9)
"""Entries of a frame: what it does next; its unplaced blocks lists[begin : begin + count]; the
block chosen, and the tops of trail and lists before; its parts, and which is next."""

BEGUN = EXCLUDE + 1
"""The state of a frame of which nothing was deduced so far."""

LOWEST, OFFSET, HOLE = range(3)
"""What a change on the trail was of."""

RAISES, STEPS = 4, 1_000_000
"""Raised places a block, and steps, after which no more follows from a raise: blocks that rest on
each other only may rise for long."""

SMALL, SOMETIMES = 64, 16
"""Parts of more blocks than this are divided only as often, because that takes a look at all."""


BLOCK = np.dtype(
    [
        ("offset", np.int64),  # -1: unplaced
        ("lowest", np.int64),  # proved lower bound on the offset
        ("hole", np.int64),  # an excluded place that no placed block forbade then, or -1
        ("size", np.int64),
        ("step", np.int64),  # offsets are multiples of this
        ("rank", np.int64),  # the lower is preferred at equal places
        ("near", np.int64),  # its rows of `near` are near .. near_end - 1
        ("near_end", np.int64),
        ("range", np.int64),  # its rows of `ranges`; none: may lie anywhere
        ("range_end", np.int64),
        ("section", np.int64),  # its rows of `section_of`
        ("section_end", np.int64),
        ("before", np.int64),  # the identical block next below, or -1
        ("after", np.int64),  # the identical block next above, or -1
        ("apart", np.int64),  # least distance from the one below
        ("waiting", np.int64),  # whether it is in `queue`
        ("label", np.int64),  # scratch: seen
    ],
    align=True,
)

NEAR = np.dtype([("block", np.int64), ("run", np.int64), ("run_end", np.int64)], align=True)
"""A block alive together with another one, and which of `runs` are forbidden distances from it."""

SPAN = np.dtype([("low", np.int64), ("high", np.int64)], align=True)
"""A forbidden run of distances or an allowed range of offsets, low .. high."""

MEMBER = np.dtype(
    [
        ("block", np.int64),
        ("low", np.int64),  # it holds [low, high) above the offset
        ("high", np.int64),
        ("partner", np.int64),  # its rows of `partners`
        ("partner_end", np.int64),
    ],
    align=True,
)
"""A piece of a block in a section."""

SECTION = np.dtype(
    [
        ("member", np.int64),  # its rows of `members`
        ("member_end", np.int64),
        ("stamp", np.int64),  # tells whether it is in `touched`
        ("top", np.int64),  # how high it had to reach when last looked at; 0: nothing waits
    ],
    align=True,
)


class Shapes(NamedTuple):
    """Blocks of any shape over sections, in units.

    Attributes
    ----------
    blocks, near, members, sections : ndarray of BLOCK, NEAR, MEMBER, SECTION
    runs, ranges : ndarray of SPAN
        Ascending in every row.
    partners : ndarray of int64
        Blocks of a member's section with which it may share its offset.
    section_of : ndarray of int64
        Sections of each block.
    order : ndarray of int64, shape (members,)
        The members of each section, nearly ascending in address.
    queue : ndarray of int64, shape (b,)
        Blocks whose place is to be looked at.
    touched : ndarray of int64, shape (sections,)
        Sections to be looked at.
    """

    blocks: Array
    near: Array
    members: Array
    sections: Array
    runs: Array
    ranges: Array
    partners: Array
    section_of: Array
    order: Array
    queue: Array
    touched: Array


# ---------------------------------------------------------------------- distances


@compiled
def forbidden(
    near_ptr: Array,
    near: Array,
    piece_ptr: Array,
    pieces: Array,
    share_ptr: Array,
    share: Array,
    ptr: Array,
    low: Array,
    high: Array,
) -> int:  # pragma: no cover - compiled
    """Write the forbidden distances o_i - o_j of the entries (i, j) of `near` as rows of runs.

    Parameters
    ----------
    near_ptr, near : ndarray of int64
        Blocks that share a section, as rows.
    piece_ptr : ndarray of int64
    pieces : ndarray of int64, shape (pieces, 4)
        First section, end, and bytes [low, high) above the offset.
    share_ptr, share : ndarray of int64
        Rows of the blocks that may share an offset.
    ptr, low, high : ndarray of int64
        To be written: rows of runs, each in as many entries as pairs of pieces, and one.

    Returns
    -------
    int
        Number of runs.
    """
    used = 0
    for i in range(len(near_ptr) - 1):
        for e in range(near_ptr[i], near_ptr[i + 1]):
            j = near[e]
            begin = used
            for p in range(piece_ptr[i], piece_ptr[i + 1]):
                for q in range(piece_ptr[j], piece_ptr[j + 1]):
                    if pieces[p, 0] < pieces[q, 1] and pieces[q, 0] < pieces[p, 1]:
                        k = used
                        a = pieces[q, 2] - pieces[p, 3] + 1
                        while k > begin and low[k - 1] > a:
                            low[k] = low[k - 1]
                            high[k] = high[k - 1]
                            k -= 1
                        low[k] = a
                        high[k] = pieces[q, 3] - pieces[p, 2] - 1
                        used += 1
            joined = begin
            for k in range(begin + 1, used):
                if low[k] <= high[joined] + 1:
                    high[joined] = max(high[joined], high[k])
                else:
                    joined += 1
                    low[joined] = low[k]
                    high[joined] = high[k]
            used = joined + 1 if used > begin else begin
            for r in range(share_ptr[i], share_ptr[i + 1]):
                if share[r] == j:
                    used = _without_zero(low, high, begin, used)
            ptr[e + 1] = used
    return used


@compiled
def _without_zero(
    low: Array, high: Array, begin: int, used: int
) -> int:  # pragma: no cover - compiled
    """Take zero out of the runs begin .. used - 1; return where they end."""
    for k in range(begin, used):
        if low[k] <= 0 <= high[k]:
            if low[k] < 0 < high[k]:
                for r in range(used, k, -1):
                    low[r] = low[r - 1]
                    high[r] = high[r - 1]
                high[k] = -1
                low[k + 1] = 1
                return used + 1
            if low[k] < 0:
                high[k] = -1
            elif high[k] > 0:
                low[k] = 1
            else:
                for r in range(k, used - 1):
                    low[r] = low[r + 1]
                    high[r] = high[r + 1]
                return used - 1
            return used
    return used


# ---------------------------------------------------------------------- places


@compiled
def _legal(block: Record, at: int, ranges: Array) -> int:  # pragma: no cover - compiled
    """Return the lowest offset from `at` up that the block's ranges allow, or NOWHERE."""
    at = max(0, (at + block.step - 1) // block.step * block.step)
    if block.range == block.range_end:
        return at
    for r in range(block.range, block.range_end):
        if ranges[r].high >= at:
            return int(max(at, ranges[r].low))
    return NOWHERE


@compiled
def _forbids(entry: Record, distance: int, runs: Array) -> int:  # pragma: no cover - compiled
    """Return the run of an entry of `near` that holds a distance, or -1."""
    for r in range(entry.run, entry.run_end):
        if distance <= runs[r].high:
            return r if distance >= runs[r].low else -1
    return -1


@compiled
def _free(
    block: Record, at: int, shapes: Shapes, control: Array
) -> int:  # pragma: no cover - compiled
    """Return the lowest legal offset from `at` up that no placed block forbids, or NOWHERE."""
    while True:
        at = _legal(block, at, shapes.ranges)
        control[WORK] += 2 * (block.near_end - block.near) + 4
        before = at
        if at >= NOWHERE:
            return NOWHERE
        for e in range(block.near, block.near_end):
            entry = shapes.near[e]
            where = shapes.blocks[entry.block].offset
            if where >= 0:
                run = _forbids(entry, at - where, shapes.runs)
                if run >= 0:
                    at = where + shapes.runs[run].high + 1
        if at == before:
            return at


@compiled
def _resting(
    block: Record, at: int, shapes: Shapes, control: Array
) -> int:  # pragma: no cover - compiled
    """Return the lowest free offset from `at` up where the block may rest, or NOWHERE.

    On what is placed, on a bound of its ranges, or on an unplaced block that may lie just there.
    """
    blocks, runs, near = shapes.blocks, shapes.runs, shapes.near
    loose = NOWHERE  # from here up some unplaced block may hold it
    for e in range(block.near, block.near_end):
        other = blocks[near[e].block]
        if other.offset < 0 and near[e].run < near[e].run_end:
            loose = min(loose, other.lowest + runs[near[e].run].high + 1)
    control[WORK] += block.near_end - block.near
    while True:
        at = _free(block, at, shapes, control)
        if at >= NOWHERE or at >= loose:
            return at
        below = at - block.step
        if below < 0 or _legal(block, below, shapes.ranges) != below:
            return at
        control[WORK] += 2 * (block.near_end - block.near)
        following = loose
        for r in range(block.range, block.range_end):
            if shapes.ranges[r].low > at:
                following = min(following, shapes.ranges[r].low)
                break
        for e in range(block.near, block.near_end):
            where = blocks[near[e].block].offset
            if where < 0:
                continue
            if _forbids(near[e], below - where, runs) >= 0:
                return at
            for r in range(near[e].run, near[e].run_end):
                if where + runs[r].high + 1 > at:
                    following = min(following, where + runs[r].high + 1)
                    break
        if following >= NOWHERE:
            return NOWHERE
        at = following


# ---------------------------------------------------------------------- facts


@compiled
def _remember(
    what: int, index: int, old: int, trail: Array, control: Array
) -> None:  # pragma: no cover - compiled
    top = control[TRAIL]
    trail[top, 0] = what
    trail[top, 1] = index
    trail[top, 2] = old
    control[TRAIL] = top + 1


@compiled
def _undo(
    mark: int, blocks: Array, trail: Array, control: Array
) -> None:  # pragma: no cover - compiled
    for top in range(control[TRAIL] - 1, mark - 1, -1):
        block, old = blocks[trail[top, 1]], trail[top, 2]
        if trail[top, 0] == LOWEST:
            block.lowest = old
        elif trail[top, 0] == OFFSET:
            block.offset = old
        else:
            block.hole = old
    control[TRAIL] = mark


@compiled
def _cut(height: int, control: Array) -> None:  # pragma: no cover - compiled
    """Note that the tree is cut here, because what is below it has at least this height."""
    control[LEAST] = min(control[LEAST], height)


@compiled
def _await(
    i: int, blocks: Array, queue: Array, control: Array
) -> None:  # pragma: no cover - compiled
    block = blocks[i]
    if block.offset < 0 and not block.waiting:
        block.waiting = 1
        queue[control[WAITING]] = i
        control[WAITING] += 1


@compiled
def _touch(block: Record, shapes: Shapes, control: Array) -> None:  # pragma: no cover - compiled
    """Have the sections and neighbours of a block looked at."""
    for r in range(block.section, block.section_end):
        s = shapes.section_of[r]
        if shapes.sections[s].stamp != control[STAMP]:
            shapes.sections[s].stamp = control[STAMP]
            shapes.touched[control[TOUCHED]] = s
            control[TOUCHED] += 1
    for e in range(block.near, block.near_end):
        _await(shapes.near[e].block, shapes.blocks, shapes.queue, control)
    if block.after >= 0:
        _await(block.after, shapes.blocks, shapes.queue, control)


@compiled
def _absorbed(
    member: Record, blocks: Array, partners: Array
) -> bool:  # pragma: no cover - compiled
    """Return whether an unplaced member may lie within what another one of its section holds."""
    i = member.block
    for r in range(member.partner, member.partner_end):
        other = blocks[partners[r]]
        if other.offset >= 0:
            if blocks[i].lowest <= other.offset:
                return True
        elif other.size > blocks[i].size or (other.size == blocks[i].size and partners[r] < i):
            return True
    return False


@compiled
def _top(s: int, shapes: Shapes, control: Array) -> int:  # pragma: no cover - compiled
    """Return how high a section must reach: unplaced pieces cut to slices fill what is free."""
    blocks, members, order = shapes.blocks, shapes.members, shapes.order
    begin, end = shapes.sections[s].member, shapes.sections[s].member_end
    control[WORK] += 6 * (end - begin)
    for k in range(begin + 1, end):
        m = order[k]
        block = blocks[members[m].block]
        start = max(block.lowest, block.offset) + members[m].low
        r = k
        while r > begin:
            other = blocks[members[order[r - 1]].block]
            if max(other.lowest, other.offset) + members[order[r - 1]].low <= start:
                break
            order[r] = order[r - 1]
            r -= 1
            control[WORK] += 1
        order[r] = m
    filled, waiting = 0, 0  # all below `filled` is in use or free for ever; what waits for room
    for k in range(begin, end):
        member = members[order[k]]
        block = blocks[member.block]
        height = member.high - member.low
        start = max(block.lowest, block.offset) + member.low
        if start > filled:
            waiting = max(0, waiting - (start - filled))
            filled = start
        if block.offset >= 0:
            filled = max(filled, start + height)
        elif not _absorbed(member, blocks, shapes.partners):
            waiting += height
    shapes.sections[s].top = filled + waiting if waiting else 0
    return filled + waiting


@compiled
def _deduce(
    count: int, capacity: int, shapes: Shapes, trail: Array, control: Array
) -> bool:  # pragma: no cover - compiled
    """Raise lowest places until they hold, then look at the sections touched; False: failure."""
    raises, fits, until = 0, True, control[WORK] + STEPS
    while control[WAITING] > 0:
        control[WAITING] -= 1
        i = shapes.queue[control[WAITING]]
        block = shapes.blocks[i]
        block.waiting = 0
        if not fits or block.offset >= 0:
            continue
        at = block.lowest
        if block.before >= 0:
            below = shapes.blocks[block.before]
            at = max(at, max(below.lowest, below.offset) + block.apart)
        at = _resting(block, at, shapes, control)
        if at > block.lowest:
            _remember(LOWEST, i, block.lowest, trail, control)
            block.lowest = at
            if at + block.size > capacity:
                _cut(at + block.size, control)
                fits = False
            raises += 1
            if fits and raises <= RAISES * count and control[WORK] < until:
                _touch(block, shapes, control)
    for k in range(control[TOUCHED]):
        if not fits:
            break
        top = _top(shapes.touched[k], shapes, control)
        if top > capacity:
            _cut(top, control)
            fits = False
    control[TOUCHED] = 0
    control[STAMP] += 1
    return fits


@compiled
def _blockable(
    block: Record, shapes: Shapes, control: Array
) -> bool:  # pragma: no cover - compiled
    """Return whether something may still keep an unplaced block from its excluded place."""
    control[WORK] += block.near_end - block.near
    for e in range(block.near, block.near_end):
        entry = shapes.near[e]
        other = shapes.blocks[entry.block]
        if other.offset >= 0:
            if _forbids(entry, block.hole - other.offset, shapes.runs) >= 0:
                return True
        elif entry.run < entry.run_end and (
            other.lowest <= block.hole - shapes.runs[entry.run].low
        ):
            return True
    return False


@compiled
def _exclude(
    i: int, capacity: int, shapes: Shapes, trail: Array, control: Array
) -> bool:  # pragma: no cover - compiled
    """Raise an unplaced block from its lowest place, which something must forbid in the end."""
    block = shapes.blocks[i]
    kept = block.hole >= 0
    for e in range(block.near, block.near_end):
        where = shapes.blocks[shapes.near[e].block].offset
        if kept and where >= 0 and _forbids(shapes.near[e], block.hole - where, shapes.runs) >= 0:
            kept = False
    if not kept:  # the lower of two is the harder to forbid
        _remember(HOLE, i, block.hole, trail, control)
        block.hole = block.lowest
    at = _resting(block, block.lowest + 1, shapes, control)
    _remember(LOWEST, i, block.lowest, trail, control)
    block.lowest = at
    if at + block.size > capacity:
        _cut(at + block.size, control)
        return False
    _touch(block, shapes, control)
    return _blockable(block, shapes, control)


# ---------------------------------------------------------------------- the search


@compiled
def least_peak(shapes: Shapes, control: Array) -> int:  # pragma: no cover - compiled
    """Return a lower bound on the peak, from what is known about all blocks."""
    peak = 0
    for i in range(len(shapes.blocks)):
        block = shapes.blocks[i]
        peak = max(peak, max(block.lowest, block.offset) + block.size)
    for s in range(len(shapes.sections)):
        peak = max(peak, _top(s, shapes, control))
    return peak


@compiled
def _chosen(
    begin: int, end: int, focus: int, shapes: Shapes, lists: Array
) -> int:  # pragma: no cover - compiled
    """Return the block of lists[begin : end] of the lowest place, then of the least rank.

    Of those in the section that had to reach highest, with the focus on sections.
    """
    blocks = shapes.blocks
    best, highest, lowest, rank = -1, 0, NOWHERE, 0
    for at in range(begin, end):
        block = blocks[lists[at]]
        if block.before >= 0 and blocks[block.before].offset < 0:
            continue
        top = 0
        if focus == LOWEST_SECTION:
            for r in range(block.section, block.section_end):
                top = max(top, shapes.sections[shapes.section_of[r]].top)
        if top > highest:
            highest, lowest = top, NOWHERE
        if top == highest and (
            block.lowest < lowest or (block.lowest == lowest and block.rank < rank)
        ):
            best, lowest, rank = lists[at], block.lowest, block.rank
    return best


@compiled
def _divide(
    frame: Array, shapes: Shapes, lists: Array, parts: Array, control: Array
) -> None:  # pragma: no cover - compiled
    """Write the connected parts of a frame's unplaced blocks to `lists` and `parts`."""
    blocks = shapes.blocks
    first, end = frame[BEGIN], frame[BEGIN] + frame[COUNT]
    together = frame[COUNT] > SMALL and frame[COUNT] % SOMETIMES != 0
    for at in range(first, end):
        blocks[lists[at]].label = 0
    frame[PART] = control[PARTS]
    for at in range(first, end):
        if blocks[lists[at]].offset >= 0 or blocks[lists[at]].label:
            continue
        begin, used = control[LISTS], control[LISTS] + 1
        lists[begin] = lists[at]
        blocks[lists[at]].label = 1
        head = begin
        if together:
            for later in range(at + 1, end):
                if blocks[lists[later]].offset < 0:
                    blocks[lists[later]].label = 1
                    lists[used] = lists[later]
                    used += 1
            head = used
        while head < used:
            block = blocks[lists[head]]
            head += 1
            control[WORK] += block.near_end - block.near
            for e in range(block.near, block.near_end):
                j = shapes.near[e].block
                if blocks[j].offset < 0 and not blocks[j].label:
                    blocks[j].label = 1
                    lists[used] = j
                    used += 1
        control[LISTS] = used
        parts[control[PARTS], 0] = begin
        parts[control[PARTS], 1] = used - begin
        control[PARTS] += 1
    frame[PART_END] = control[PARTS]
    frame[NEXT] = frame[PART]


@compiled
def search(
    capacity: int,
    node_limit: int,
    work_limit: int,
    shapes: Shapes,
    frames: Array,
    trail: Array,
    lists: Array,
    parts: Array,
    control: Array,
) -> int:  # pragma: no cover - compiled
    """Search until something is known or the work is done.

    Parameters
    ----------
    capacity : int
    node_limit, work_limit : int
        Nodes in all; elementary steps of this call.
    shapes : Shapes
        All blocks in the queue and all sections touched, to begin with; on FOUND the offsets of
        the blocks are a packing.
    frames : ndarray of int64, shape (b + 1, 9)
        The first one in the state BEGUN, with all unplaced blocks.
    trail : ndarray of int64, shape (rows, 3)
    lists : ndarray of int64
    parts : ndarray of int64, shape (rows, 2)
    control : ndarray of int64, shape (12,)

    Returns
    -------
    int
        RUNNING, FOUND, EXHAUSTED, LIMIT, or FULL: call again with longer arrays.
    """
    blocks = shapes.blocks
    control[WORK] = 0
    while control[WORK] < work_limit:
        depth = control[DEPTH]
        if depth < 0:
            return int(control[ANSWER])
        frame = frames[depth]
        count = frame[COUNT]
        if (
            control[TRAIL] + (RAISES + 2) * (count + 2) + len(blocks) > len(trail)
            or control[LISTS] + count > len(lists)
            or control[PARTS] + count > len(parts)
        ):
            return FULL
        if frame[STATE] == BEGUN:
            if _deduce(count, capacity, shapes, trail, control):
                frame[STATE] = SELECT
            else:
                control[ANSWER] = EXHAUSTED
                control[DEPTH] = depth - 1
        elif frame[STATE] == SELECT:
            if control[NODES] >= node_limit:
                return LIMIT
            control[NODES] += 1
            control[WORK] += 8 * count
            i = _chosen(frame[BEGIN], frame[BEGIN] + count, control[FOCUS], shapes, lists)
            frame[CHOICE] = i
            frame[MARK] = control[TRAIL]
            frame[LISTED] = control[LISTS]
            frame[PART] = control[PARTS]
            _remember(OFFSET, i, -1, trail, control)
            blocks[i].offset = blocks[i].lowest
            _touch(blocks[i], shapes, control)
            fits = _deduce(count, capacity, shapes, trail, control)
            for at in range(frame[BEGIN], frame[BEGIN] + count):
                block = blocks[lists[at]]
                if fits and block.hole >= 0 and block.offset < 0:
                    fits = _blockable(block, shapes, control)
            if fits:
                _divide(frame, shapes, lists, parts, control)
                frame[STATE] = PLACED
                control[ANSWER] = FOUND
            else:
                frame[STATE] = EXCLUDE
        elif frame[STATE] == PLACED:
            if control[ANSWER] != FOUND:
                frame[STATE] = EXCLUDE
            elif frame[NEXT] == frame[PART_END]:
                control[DEPTH] = depth - 1
            else:
                part = parts[frame[NEXT]]
                frame[NEXT] += 1
                frames[depth + 1, STATE] = SELECT
                frames[depth + 1, BEGIN] = part[0]
                frames[depth + 1, COUNT] = part[1]
                control[DEPTH] = depth + 1
        else:
            _undo(frame[MARK], blocks, trail, control)
            control[LISTS] = frame[LISTED]
            control[PARTS] = frame[PART]
            fits = _exclude(frame[CHOICE], capacity, shapes, trail, control)
            if _deduce(count, capacity, shapes, trail, control) and fits:
                frame[STATE] = SELECT
            else:
                control[ANSWER] = EXHAUSTED
                control[DEPTH] = depth - 1
    return RUNNING
