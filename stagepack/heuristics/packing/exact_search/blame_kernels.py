"""Compiled conflict analysis of the exact packing search: the placements that cause a failure.

Each time an effective offset is raised, a row of the trail records the cause: a placement below, an
earlier identical block, or an exclusion, which in turn depends on the placements responsible for
the failure that led to it.  Starting from a failure, the rows it depends on are explained once,
backwards.  The resulting placements cannot occur together in a canonical packing, whatever else is
placed.  The set may be larger than necessary: where an explanation would take long, all placements
are used.

Cost: O(rows that are needed and neighbours of excluded blocks).  Source: own work; jumping back to
the last responsible decision is Prosser, "Hybrid Algorithms for the Constraint Satisfaction
Problem", 1993, and explanations of bounds are those of lazy clause generation.
"""

from __future__ import annotations

from stagepack.heuristics.packing.exact_search.exact_state import (
    AGENDA,
    DEPTH,
    EXPLAINED,
    NOTED,
    NOWHERE,
    REASONS,
    SPENT,
    STAMP,
    TWIN,
    Record,
    SearchState,
)
from stagepack.kernels.compiled import step

REASON = 3
"""Entries of a reason before its placements: how many these are (-1: all before), what the excluded
block's offset was proved to be at least, and the frame that it was excluded in."""


@step
def begin(state: SearchState) -> None:
    """Begin to look for what is to blame."""
    control = state.control
    for d in range(control[DEPTH] + 1):
        state.blamed[d] = False
    # Flags are cleared by the machine eight at a time.
    control[SPENT] += control[DEPTH] // 8
    control[AGENDA] = 0
    # Rows of the trail with older stamps are on no agenda.
    control[STAMP] += 1


@step
def blame_all(state: SearchState) -> None:
    """Blame all placements, the one under way included."""
    for d in range(state.control[DEPTH] + 1):
        state.blamed[d] = True


@step
def blame_place(i: int, state: SearchState) -> None:
    """Blame where a block was placed, unless it was before the search."""
    # What was placed before the search is given, and nobody's fault.
    if state.row[i] >= 0:
        state.blamed[state.depth[i]] = True


@step
def blame_reason(start: int, state: SearchState) -> None:
    """Blame what an exclusion rests on, given where its reason begins."""
    reasons, count = state.reasons, state.reasons[start]
    if count < 0:
        # Too many were noted to be listed: all placements before that exclusion.
        for d in range(reasons[start + 2]):
            state.blamed[d] = True
    for r in range(start + REASON, start + REASON + count):
        state.blamed[reasons[r]] = True


@step
def note_reason(state: SearchState) -> None:
    """Note what is blamed as the reason of the exclusion that comes next, in the frame at work.

    It takes `REASON` entries and one for each frame before, of which there are fewer than blocks:
    so much is free in `reasons` (:func:`.exact_kernels.search`).
    """
    control, blamed, reasons = state.control, state.blamed, state.reasons
    start, count = control[REASONS], 0
    for d in range(control[DEPTH]):
        if blamed[d]:
            # Counted further all the same: more than can be noted are told by -1.
            if count < control[NOTED]:
                reasons[start + REASON + count] = d
            count += 1
    control[SPENT] += control[DEPTH] // 4
    reasons[start] = count if count <= control[NOTED] else -1
    reasons[start + 2] = control[DEPTH]


@step
def _explain_row(row: int, state: SearchState) -> None:
    """Put a row of the trail on the agenda, if it was not there, so that it has room for all."""
    if state.trail[row].stamp != state.control[STAMP]:
        state.trail[row].stamp = state.control[STAMP]
        state.agenda[state.control[AGENDA]] = row
        state.control[AGENDA] += 1


@step
def need(i: int, value: int, state: SearchState) -> None:
    """Ask why a block's effective offset is `value`, in units, or more.

    What is blamed in `state` changes.
    """
    trail, row, looked = state.trail, state.latest[i], 1
    # Rows of a block go from the last rise to the first; `b` is what was proved before it. So this
    # ends at the rise that got to `value`.
    while row >= 0 and trail[row].b >= value:
        row = trail[row].earlier
        looked += 1
    state.control[SPENT] += 2 * looked
    # Else it was so from the beginning.
    if row >= 0:
        _explain_row(row, state)


@step
def need_room(i: int, at: int, state: SearchState) -> None:
    """Ask why all unplaced neighbours of block `i` lie at `at` or above; blame all other places.

    `at` is in units; 0: they may lie anywhere.  What is blamed in `state` changes.
    """
    blocks, neighbours = state.blocks, state.neighbours
    for r in range(blocks[i].neighbour, blocks[i].neighbour_end):
        j = neighbours[r]
        if blocks[j].offset >= 0:
            blame_place(j, state)
        # With 0 there is nothing to ask: any offset will do.
        elif at > 0:
            need(j, at, state)


@step
def explain_top(i: int, capacity: int, state: SearchState) -> None:
    """Blame what makes block `i`, or an identical one above it, end above the `capacity`, in units.

    What is blamed in `state` changes.
    """
    blocks = state.blocks
    # The rise was handed on from twin to twin; one of them ends too high.
    while blocks[i].effective + blocks[i].size <= capacity:
        i = blocks[i].twin
    begin(state)
    # Less than was proved: what is not needed blames fewer.
    need(i, capacity - blocks[i].size + 1, state)
    explain(state)


@step
def explain_section(s: int, frame: Record, capacity: int, state: SearchState) -> None:
    """Blame what makes section `s` overflow above its floor, or above what a part lies above.

    The queue has an entry a block and one more; a block enters it once, as it is then labelled.
    `frame` is the part's, `capacity` in units.  What is blamed in `state` changes.
    """
    blocks, members, section = state.blocks, state.members, state.sections[s]
    at = max(section.floor, frame.level)
    if section.hole == section.hole_end:  # a lower one would do
        # The least floor with which it overflows blames fewer placements than the floor that it
        # has.
        at = capacity - section.total + 1
    begin(state)
    # The part lies above its level, not its own floors: that is asked of those below.
    if section.floor < at:
        _unlabel(frame, state)
    tail = 0
    for r in range(section.member, section.member_end):
        i = members[r]
        if blocks[i].offset >= 0:
            continue
        if blocks[i].effective >= at:
            need(i, at, state)
        else:
            # In the queue; those of other parts keep what they had, as none is met.
            blocks[i].label = -2
            state.queue[tail] = i
            tail += 1
    _need_height(at, tail, state)
    explain(state)


@step
def explain_drop(i: int, state: SearchState) -> None:
    """Blame what makes an excluded block have nothing that keeps it off its base."""
    block = state.blocks[i]
    begin(state)
    need(i, block.base + 1, state)
    need_room(i, block.base + block.size, state)
    explain(state)


@step
def explain_deadlock(frame: Record, state: SearchState) -> None:
    """Blame what makes all blocks that may lie at their bases have another one fit below."""
    blocks, lists = state.blocks, state.lists
    least, first = NOWHERE, lists[frame.begin]
    for q in range(frame.begin, frame.begin + frame.count):
        block = blocks[lists[q]]
        if block.base + block.size < least:
            least, first = block.base + block.size, lists[q]
    begin(state)
    _unlabel(frame, state)
    # One block is enough: that it ends so low is why others may not come first.
    blocks[first].label = -2
    state.queue[0] = first
    _need_height(least, 1, state)
    explain(state)


@step
def _unlabel(frame: Record, state: SearchState) -> None:
    """Take the labels off all blocks of a part."""
    for q in range(frame.begin, frame.begin + frame.count):
        state.blocks[state.lists[q]].label = -1
    state.control[SPENT] += frame.count


@step
def _need_height(at: int, count: int, state: SearchState) -> None:
    """Ask why excluded blocks, the first of the queue, cannot lie below `at`.

    What they might lie on there was excluded, too, or lies higher; and so on, but of some blocks
    one must be the lowest.  Blocks are labelled when they enter the queue, which they do once: an
    entry a block is enough.
    """
    blocks, neighbours, queue = state.blocks, state.neighbours, state.queue
    head, tail = 0, count
    while head < tail:
        i = queue[head]
        head += 1
        block = blocks[i]
        need(i, block.base + 1, state)
        state.control[SPENT] += block.neighbour_end - block.neighbour
        for r in range(block.neighbour, block.neighbour_end):
            j = neighbours[r]
            if blocks[j].offset >= 0:
                blame_place(j, state)
            elif blocks[j].effective >= at:
                need(j, at, state)
            # It may lie below `at` only on something that was excluded in its turn.
            elif blocks[j].label == -1:
                blocks[j].label = -2
                queue[tail] = j
                tail += 1


@step
def explain(state: SearchState) -> None:
    """Blame all placements that what is on the agenda rests on."""
    blocks, trail, control = state.blocks, state.trail, state.control
    until = control[SPENT] + control[EXPLAINED]
    while control[AGENDA] > 0:
        if control[SPENT] > until:
            blame_all(state)
            return
        # The last one first: it needs no order, as every row is explained once.
        control[AGENDA] -= 1
        row = state.agenda[control[AGENDA]]
        i, cause = trail[row].index, trail[row].cause
        # Rows of a chain of twins follow one another.
        if cause == TWIN:  # its twin was raised just before
            _explain_row(row - 1, state)
        elif cause >= 0:  # it lies above what was placed
            blame_place(cause, state)
            # It met the other block's addresses: from so low on it could not lie below that.
            need(i, blocks[cause].offset - blocks[i].size + 1, state)
        else:
            _explain_exclusion(row, state)


@step
def _explain_exclusion(row: int, state: SearchState) -> None:
    """Blame why a block is not at its base, and why all that it may stand on ends so high."""
    blocks, neighbours, change = state.blocks, state.neighbours, state.trail[row]
    i, start = change.index, -1 - change.cause
    block, least = blocks[i], state.reasons[start + 1]
    blame_reason(start, state)
    need(i, change.a, state)
    # By one unit from its base, whatever it stands on.
    if least == change.a + 1:
        return
    state.control[SPENT] += block.neighbour_end - block.neighbour
    for r in range(block.neighbour, block.neighbour_end):
        j = neighbours[r]
        # Placed before the exclusion, so that it could not carry it; those placed later were
        # unplaced then.
        if blocks[j].offset >= 0 and state.row[j] < row:
            blame_place(j, state)
        elif not never_below(j, i, state):
            need(j, least - blocks[j].size, state)


@step
def never_below(j: int, i: int, state: SearchState) -> bool:
    """Return whether block `j` never lies directly below block `i` in a canonical packing.

    Nothing in `state` changes.
    """
    one, other = state.blocks[j], state.blocks[i]
    if one.family < 0 or one.family != other.family:
        return False
    return bool(one.size < other.size or (one.size == other.size and j > i))
