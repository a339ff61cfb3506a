"""Compiled exact search for blocks of any shape: places a block as low as possible, or excludes it.

For two blocks i and j that are alive together, certain distances o_i - o_j are forbidden.  They
form runs of integers, one for each way in which their pieces can meet (equal offsets are allowed
for a pair that may share them).  All legal positions (one below the other, interlocked, in place)
are gaps between these runs.

Among the packings within a capacity, consider one with the least sum of offsets.  Each of its
blocks *rests*: the next lower multiple of its alignment is not a legal offset, or is forbidden by
another block.  Likewise every legal offset below that of a block is forbidden by some other block.
The search keeps, for each unplaced block, the lowest offset that is legal, that no placed block
forbids, and at which it may still rest.  It branches on the block for which this offset is least:

- PLACE it there, or
- EXCLUDE it from there: it is placed higher, and an unplaced block forbids the offset.

A node fails if in some section the unplaced blocks do not fit above their lowest offsets, even when
cut into slices that fill all gaps; or if no block can forbid an offset from which a block was
excluded.  Identical blocks are placed in index order.  After a placement, the components of the
remaining conflict graph are solved one by one.  No rule depends on the capacity.  An exhausted tree
therefore also yields the least height at which a branch was cut, and no packing is lower.

The depth-first search is a loop over an explicit stack and can stop and continue at any node.  A
node costs O(runs of the blocks whose lowest offset changes, and pieces of their sections).
Source: place or postpone as in scheduling (Le Pape and others, "Time-versus-capacity compromises in
project scheduling", 1994), bottom-left packings for irregular shapes (Burke and others, "A new
bottom-left-fill heuristic for the two-dimensional irregular packing problem", 2006).
"""

from __future__ import annotations

from stagepack.heuristics.packing.exact_search.exact_general_state import (
    ANSWER,
    BEGIN,
    BEGUN,
    CHOICE,
    COUNT,
    DEPTH,
    FOCUS,
    HOLE,
    LEAST,
    LISTED,
    LISTS,
    LOWEST,
    MARK,
    NEXT,
    NODES,
    OFFSET,
    PART,
    PART_END,
    PARTS,
    RAISES,
    SMALL,
    SOMETIMES,
    STAMP,
    STATE,
    STEPS,
    TOUCHED,
    TRAIL,
    WAITING,
    WORK,
    Shapes,
)
from stagepack.heuristics.packing.exact_search.exact_state import (
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
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

# ---------------------------------------------------------------------- places


@step
def _legal(block: Record, at: int, ranges: Array) -> int:
    """Return the lowest offset from `at` up that the block's ranges allow, or NOWHERE."""
    at = max(0, (at + block.step - 1) // block.step * block.step)
    if block.range == block.range_end:
        return at
    for r in range(block.range, block.range_end):
        # Ranges ascend and do not overlap: the first one that ends late enough has the lowest
        # offset.
        if ranges[r].high >= at:
            return int(max(at, ranges[r].low))
    return NOWHERE


@step
def _forbids(entry: Record, distance: int, runs: Array) -> int:
    """Return the run of an entry of `near` that holds a distance, or -1."""
    for r in range(entry.run, entry.run_end):
        if distance <= runs[r].high:
            # Runs ascend: this is the first that could hold it.
            return r if distance >= runs[r].low else -1
    return -1


@step
def _free(block: Record, at: int, shapes: Shapes, control: Array) -> int:
    """Return the lowest legal offset from `at` up that no placed block forbids, or NOWHERE."""
    while True:
        at = _legal(block, at, shapes.ranges)
        # Counted for every round, as each goes through all neighbours.
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
                    # Past the run; neighbours looked at before may forbid that, so there is another
                    # round.
                    at = where + shapes.runs[run].high + 1
        if at == before:
            return at


@step
def _resting(block: Record, at: int, shapes: Shapes, control: Array) -> int:
    """Return the lowest free offset from `at` up where the block may rest, or NOWHERE.

    On what is placed, on a bound of its ranges, or on an unplaced block that may lie just there.
    """
    blocks, runs, near = shapes.blocks, shapes.runs, shapes.near
    loose = NOWHERE  # from here up some unplaced block may hold it
    for e in range(block.near, block.near_end):
        other = blocks[near[e].block]
        # Lowest at its own lowest place; it holds what is just above its first forbidden run.
        if other.offset < 0 and near[e].run < near[e].run_end:
            loose = min(loose, other.lowest + runs[near[e].run].high + 1)
    control[WORK] += block.near_end - block.near
    while True:
        at = _free(block, at, shapes, control)
        # From `loose` on nothing is ruled out: what is unplaced may be just there.
        if at >= NOWHERE or at >= loose:
            return at
        below = at - block.step
        # It rests on the floor, or on the begin of a range.
        if below < 0 or _legal(block, below, shapes.ranges) != below:
            return at
        control[WORK] += 2 * (block.near_end - block.near)
        # Nothing placed holds it here: the next offset at which something may is sought.
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
            # Above the end of a forbidden run a block rests on what forbids it.
            for r in range(near[e].run, near[e].run_end):
                if where + runs[r].high + 1 > at:
                    following = min(following, where + runs[r].high + 1)
                    break
        if following >= NOWHERE:
            return NOWHERE
        at = following


# ---------------------------------------------------------------------- facts


@step
def _remember(what: int, index: int, old: int, trail: Array, control: Array) -> None:
    """Note a value that is about to change."""
    top = control[TRAIL]
    trail[top, 0] = what
    trail[top, 1] = index
    trail[top, 2] = old
    control[TRAIL] = top + 1


@step
def _undo(mark: int, blocks: Array, trail: Array, control: Array) -> None:
    """Take back all changes since the trail had `mark` rows."""
    for top in range(control[TRAIL] - 1, mark - 1, -1):
        block, old = blocks[trail[top, 1]], trail[top, 2]
        if trail[top, 0] == LOWEST:
            block.lowest = old
        elif trail[top, 0] == OFFSET:
            block.offset = old
        else:
            block.hole = old
    control[TRAIL] = mark


@step
def _cut(height: int, control: Array) -> None:
    """Note that the tree is cut here, because what is below it has at least this height."""
    control[LEAST] = min(control[LEAST], height)


@step
def _await(i: int, blocks: Array, queue: Array, control: Array) -> None:
    """Have an unplaced block looked at again, once."""
    block = blocks[i]
    if block.offset < 0 and not block.waiting:
        block.waiting = 1
        queue[control[WAITING]] = i
        control[WAITING] += 1


@step
def _touch(block: Record, shapes: Shapes, control: Array) -> None:
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


@step
def _absorbed(member: Record, blocks: Array, partners: Array) -> bool:
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


@step
def _top(s: int, shapes: Shapes, control: Array) -> int:
    """Return how high a section must reach: unplaced pieces cut to slices fill what is free."""
    blocks, members, order = shapes.blocks, shapes.members, shapes.order
    begin, end = shapes.sections[s].member, shapes.sections[s].member_end
    control[WORK] += 6 * (end - begin)
    # Insertion sort: from one look to the next the order hardly changes.
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
        # What waits flows into the gap below this piece, as if it were cut to slices.
        if start > filled:
            waiting = max(0, waiting - (start - filled))
            filled = start
        if block.offset >= 0:
            filled = max(filled, start + height)
        # A partner at the same offset holds its bytes already.
        elif not _absorbed(member, blocks, shapes.partners):
            waiting += height
    # Sections that are placed to the end are of no interest to the choice.
    shapes.sections[s].top = filled + waiting if waiting else 0
    return filled + waiting


@step
def _deduce(count: int, capacity: int, shapes: Shapes, trail: Array, control: Array) -> bool:
    """Raise lowest places until they hold, then look at the sections touched; False: failure."""
    # After a failure the queue is emptied all the same: nothing may wait in the next turn.
    raises, fits, until = 0, True, control[WORK] + control[STEPS]
    while control[WAITING] > 0:
        control[WAITING] -= 1
        i = shapes.queue[control[WAITING]]
        block = shapes.blocks[i]
        block.waiting = 0
        # A block may have been placed while it waited.
        if not fits or block.offset >= 0:
            continue
        at = block.lowest
        if block.before >= 0:
            below = shapes.blocks[block.before]
            # Of identical blocks the one before lies lower; at a lesser distance they would
            # overlap.
            at = max(at, max(below.lowest, below.offset) + block.apart)
        at = _resting(block, at, shapes, control)
        if at > block.lowest:
            _remember(LOWEST, i, block.lowest, trail, control)
            block.lowest = at
            if at + block.size > capacity:
                _cut(at + block.size, control)
                fits = False
            raises += 1
            # Beyond that raising is cut off: places stay lower bounds, only weaker ones.
            if fits and raises <= control[RAISES] * count and control[WORK] < until:
                _touch(block, shapes, control)
    for k in range(control[TOUCHED]):
        if not fits:
            break
        top = _top(shapes.touched[k], shapes, control)
        if top > capacity:
            _cut(top, control)
            fits = False
    control[TOUCHED] = 0
    # All sections count as not touched again.
    control[STAMP] += 1
    return fits


@step
def _blockable(block: Record, shapes: Shapes, control: Array) -> bool:
    """Return whether something may still keep an unplaced block from its excluded place."""
    control[WORK] += block.near_end - block.near
    for e in range(block.near, block.near_end):
        entry = shapes.near[e]
        other = shapes.blocks[entry.block]
        if other.offset >= 0:
            # Something placed does so, and it stays.
            if _forbids(entry, block.hole - other.offset, shapes.runs) >= 0:
                return True
        elif entry.run < entry.run_end and (
            # The distance to it only falls as it rises: it must not be below the first run already.
            other.lowest <= block.hole - shapes.runs[entry.run].low
        ):
            return True
    return False


@step
def _exclude(i: int, capacity: int, shapes: Shapes, trail: Array, control: Array) -> bool:
    """Raise an unplaced block from its lowest place, which something must forbid in the end."""
    block = shapes.blocks[i]
    kept = block.hole >= 0
    for e in range(block.near, block.near_end):
        where = shapes.blocks[shapes.near[e].block].offset
        # What was excluded before is forbidden by now, so that there is nothing more to wait for.
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
def least_peak(shapes: Shapes, control: Array) -> int:
    """Return a lower bound on the peak of what the present state of the search can become.

    The larger of two: no block ends below its size on top of its offset, or of the lowest one that
    it can still have; and no section reaches less high than when pieces that are not placed yet are
    cut to slices, which fill whatever is free above the lowest offset of each (:func:`_top`).
    O(blocks + members of the sections).

    In units of the blocks; WORK in `control`, int64, is raised by the steps that this takes.
    """
    peak = 0
    for i in range(len(shapes.blocks)):
        block = shapes.blocks[i]
        peak = max(peak, max(block.lowest, block.offset) + block.size)
    for s in range(len(shapes.sections)):
        peak = max(peak, _top(s, shapes, control))
    return peak


@step
def _chosen(begin: int, end: int, focus: int, shapes: Shapes, lists: Array) -> int:
    """Return the block of lists[begin : end] of the lowest place, then of the least rank.

    Of those in the section that had to reach highest, with the focus on sections.
    """
    blocks = shapes.blocks
    best, highest, lowest, rank = -1, 0, NOWHERE, 0
    for at in range(begin, end):
        block = blocks[lists[at]]
        # Of identical blocks only the first one that is left.
        if block.before >= 0 and blocks[block.before].offset < 0:
            continue
        top = 0
        if focus == LOWEST_SECTION:
            for r in range(block.section, block.section_end):
                top = max(top, shapes.sections[shapes.section_of[r]].top)
        # A higher section outdoes all that was seen so far.
        if top > highest:
            highest, lowest = top, NOWHERE
        if top == highest and (
            block.lowest < lowest or (block.lowest == lowest and block.rank < rank)
        ):
            best, lowest, rank = lists[at], block.lowest, block.rank
    return best


@step
def _divide(frame: Array, shapes: Shapes, lists: Array, parts: Array, control: Array) -> None:
    """Write the connected parts of a frame's unplaced blocks to `lists` and `parts`.

    Each block is written once, when it is labelled, and begins a part at most.
    """
    blocks = shapes.blocks
    first, end = frame[BEGIN], frame[BEGIN] + frame[COUNT]
    # Large parts seldom fall apart, and to find out costs as much as a node.
    together = frame[COUNT] > control[SMALL] and frame[COUNT] % control[SOMETIMES] != 0
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
        # All at once, without a look at who meets whom.
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
    # Parts are taken in this order.
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
) -> int:
    """Search until something is known or the work is done.

    Parameters
    ----------
    capacity : int
        In units.
    node_limit, work_limit : int
        Nodes in all; elementary steps of this call.
    shapes : Shapes
        All blocks in the queue and all sections touched, to begin with; on FOUND the offsets of
        the blocks are a packing.
    frames : ndarray of int64, shape (b + 1, 9)
        The first one in the state BEGUN, with all unplaced blocks; then one for each placed block.
    trail : ndarray of int64, shape (rows, 3)
        A turn takes at most two rows for the choice, `RAISES` for each block of the part and one
        more, after which nothing enters the queue, and one for each block that still waits there.
    lists : ndarray of int64
        Blocks of parts.
    parts : ndarray of int64, shape (rows, 2)
        See :func:`_divide`.
    control : ndarray of int64, shape (16,)
        Counters, by their names.

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
            control[TRAIL] + (control[RAISES] + 2) * (count + 2) + len(blocks) > len(trail)
            or control[LISTS] + count > len(lists)
            or control[PARTS] + count > len(parts)
        ):
            return FULL
        # The first deduction of all, before anything is chosen.
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
            # A failure leaves the trail as it is: it is undone when the choice is excluded.
            fits = _deduce(count, capacity, shapes, trail, control)
            for at in range(frame[BEGIN], frame[BEGIN] + count):
                block = blocks[lists[at]]
                # Nobody may be able to forbid it any more, now that the choice has its place.
                if fits and block.hole >= 0 and block.offset < 0:
                    fits = _blockable(block, shapes, control)
            if fits:
                _divide(frame, shapes, lists, parts, control)
                frame[STATE] = PLACED
                control[ANSWER] = FOUND
            else:
                frame[STATE] = EXCLUDE
        elif frame[STATE] == PLACED:
            # A part could not be packed; the others are left.
            if control[ANSWER] != FOUND:
                frame[STATE] = EXCLUDE
            # All parts are packed, so the answer stays FOUND for the frame before.
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
            # Asked first, so that the queue is empty whatever comes.
            if _deduce(count, capacity, shapes, trail, control) and fits:
                frame[STATE] = SELECT
            else:
                control[ANSWER] = EXHAUSTED
                control[DEPTH] = depth - 1
    return RUNNING
