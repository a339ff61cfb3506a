"""Compiled exact packing search: canonical packings by placing and excluding blocks.

Every feasible packing can be made canonical: among those of least sum(size * offset) take one of
least sum(size^2 * offset), with identical blocks in index order.  In it no block can move to a
lower place.  A block that is not at the lowest place above all placed neighbours (its *base*)
therefore stands on a neighbour that is still unplaced.  The search places blocks in ascending order
of offset.  It branches on the block with the least base among those not excluded from their base,
or on any block below which no unplaced neighbour fits any more:

- PLACE it at its base, or
- EXCLUDE it from its base: its offset is at least ``min over unplaced neighbours j of
  effective_j + size_j``, where ``effective`` is what is proved so far about the offset.

A node fails in three cases: in some section the unplaced blocks do not fit above the lowest
effective offset of its members; an unplaced block could drop to its base whatever follows; or two
blocks of the same sections are stacked directly on one another with the smaller one below (swapping
them lowers sum(size^2 * offset) and keeps sum(size * offset)).  After a placement, the components
of the remaining conflict graph are solved one by one.

For each failure, the placements that cause it are determined (:mod:`.blame_kernels`).  The search
jumps back to the last of these and excludes it, because later placements are not responsible.

The depth-first search is a loop over an explicit stack and can stop and continue at any node: its
whole state is in arrays.  A node costs O(blocks of the part + sections and neighbours of the
block).
Source: canonical bottom-left packings as in the literature on strip packing; dominance and the
portfolio of orders from MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023).
"""

from __future__ import annotations

from stagepack.heuristics.packing.exact_search.blame_kernels import (
    REASON,
    begin,
    blame_place,
    blame_reason,
    explain,
    explain_deadlock,
    explain_drop,
    explain_section,
    explain_top,
    need,
    need_room,
    never_below,
    note_reason,
)
from stagepack.heuristics.packing.exact_search.components_kernels import (
    divide,
    in_lowest_section,
    of_least_base,
    remember,
    topped,
)
from stagepack.heuristics.packing.exact_search.exact_state import (
    ANSWER,
    BOUNDS,
    DEPTH,
    EXCLUDE,
    EXHAUSTED,
    FOCUS,
    FOUND,
    FULL,
    LIMIT,
    LISTS,
    LOWEST_BLOCK,
    LOWEST_SECTION,
    NO_CAUSE,
    NODES,
    NOWHERE,
    OFFSET,
    PART_BEGIN,
    PART_COUNT,
    PART_SECTION,
    PART_SECTION_END,
    PARTS,
    PLACED,
    PROFILE,
    REASONS,
    RUNNING,
    SELECT,
    SPENT,
    TRAIL,
    TWIN,
    Record,
    SearchState,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, inlined, step, tiered

LIFTED = 3
"""Steps of lifting a neighbour, beside the one of looking at it."""

OUT_OF_LINE = 3
"""Steps of looking at a section of many that do not lie in a line, nor in a cache."""

# ---------------------------------------------------------------------- facts


@inlined
def settle(block: Record, at: int, spans: Array) -> int:
    """Return the lowest legal offset of a `block` from `at`, in units, up, or NOWHERE.

    `spans`, int64 of shape (rows, 2), are inclusive spans of offsets, those of a block in a row and
    ascending.
    """
    if block.step > 1:
        # Spans are in multiples of the step, so that a rounded offset stays rounded below.
        at = (at + block.step - 1) // block.step * block.step
    span, end = block.span, block.span_end
    if span < end:
        last = end
        while span < last:  # the first span that ends at `at` or above
            middle = (span + last) // 2
            if spans[middle, 1] >= at:
                last = middle
            else:
                span = middle + 1
        if span == end:
            return NOWHERE
        at = max(at, spans[span, 0])
    return at


@step
def _undo(mark: int, state: SearchState) -> None:
    """Take back all changes since the trail had `mark` rows."""
    blocks, sections, trail = state.blocks, state.sections, state.trail
    # Backwards: of several changes of one fact the first has what was true before.
    state.control[SPENT] += state.control[TRAIL] - mark
    for t in range(state.control[TRAIL] - 1, mark - 1, -1):
        change = trail[t]
        if change.what == BOUNDS:
            block = blocks[change.index]
            block.base = change.a
            block.effective = change.b
            block.under = change.c
            if change.cause != NO_CAUSE:
                state.latest[change.index] = change.earlier
                # An exclusion had written its reason, which is the last one.
                if change.cause < 0:
                    state.control[REASONS] = -1 - change.cause
        elif change.what == PROFILE:
            section = sections[change.index]
            # The witness stays: a block that was lowest is so still, or is looked for again.
            section.floor = change.a
            section.total = change.b
            section.crossing = change.c
        elif change.what == OFFSET:
            blocks[change.index].offset = -1
        else:
            blocks[change.index].rank = change.a
    state.control[TRAIL] = mark


@step
def _raise(i: int, effective: int, cause: int, state: SearchState) -> int:
    """Raise the effective offset of a block and of its later twins; return the highest top.

    What causes it is as in a row of the trail, of which each of them takes one.
    """
    blocks, spans, trail, control = state.blocks, state.spans, state.trail, state.control
    top = effective
    while i >= 0 and blocks[i].effective < effective:
        block = blocks[i]
        change = trail[control[TRAIL]]
        # Written before the row is: `remember` fills the rest of it, and the trail has room for
        # both.
        change.cause, change.earlier = cause, state.latest[i]
        state.latest[i], cause = control[TRAIL], TWIN
        remember(control, trail, BOUNDS, i, block.base, block.effective, block.under)
        block.effective = effective
        top = effective + block.size
        # Twins are placed in order of index, so that the next one lies on this one or higher.
        i = block.twin
        if i >= 0:
            effective = settle(blocks[i], top, spans)
    return top


@step
def _fits(frame: Record, low: int, high: int, capacity: int, state: SearchState) -> bool:
    """Update the floors of a part's sections; return whether what is unplaced may fit.

    Of sections in a line only those from `low` to `high` have changed.
    """
    blocks, sections, holes, lists = state.blocks, state.sections, state.holes, state.lists
    members, control, trail = state.members, state.control, state.trail
    begin, end, level = frame.section, frame.section_end, frame.level
    if state.linear:
        # In a line the sections of a part are consecutive, so that section s is s - lists[begin]
        # on.
        begin, end = begin + low - lists[begin], begin + high + 1 - lists[begin]
    control[SPENT] += (end - begin) * (1 if state.linear else OUT_OF_LINE)
    for q in range(begin, end):
        s = lists[q]
        section = sections[s]
        if section.total == 0:
            continue
        # The member that was lowest when this was last looked at: while it stays there, so does the
        # floor.
        witness = blocks[section.witness]
        if witness.offset >= 0 or witness.effective > section.floor:
            least = NOWHERE
            for r in range(section.member, section.member_end):
                member = blocks[members[r]]
                if member.offset < 0 and member.effective < least:
                    least = member.effective
                    section.witness = members[r]
                    # Floors only rise, and none is lower than this one.
                    if least <= section.floor:
                        break
            # `r` is where the loop was left.
            control[SPENT] += r + 1 - section.member
            if least > section.floor:
                remember(control, trail, PROFILE, s, section.floor, section.total, section.crossing)
                section.floor = least
        # Nothing of this part lies below the block that was placed last, where that is the order.
        floor = max(section.floor, level)
        if topped(section, floor, holes, control) > capacity:
            explain_section(s, frame, capacity, state)
            return False
    return True


# ---------------------------------------------------------------------- placing and excluding


@step
def _place(frame: Record, at: int, capacity: int, state: SearchState) -> bool:
    """Place the block lists[at] at its base, and note what follows; False: that cannot be.

    Of two blocks of the same sections, one on the other, the smaller must not be the lower.
    """
    blocks, lists, control = state.blocks, state.lists, state.control
    i = lists[at]
    block = blocks[i]
    under = block.under
    if (
        # Swapping the two would give a packing of the same sum(size * offset) that comes before
        # this one.
        under >= 0
        and block.family >= 0
        and blocks[under].family == block.family
        and blocks[under].size < block.size
        and blocks[under].offset + blocks[under].size == block.base
    ):
        begin(state)
        blame_place(under, state)
        # This frame as well: it is its own placement that must not be.
        state.blamed[control[DEPTH]] = True
        return False
    frame.trail = control[TRAIL]
    frame.lists = control[LISTS]
    frame.parts = control[PARTS]
    # What is placed goes to the end of the list, out of the way of the parts that are divided next.
    last = frame.begin + frame.count - 1
    lists[at] = lists[last]
    lists[last] = i
    remember(control, state.trail, OFFSET, i, 0, 0, 0)
    block.offset = block.base
    # Explanations ask which rows came after this placement.
    state.row[i] = control[TRAIL]
    state.depth[i] = control[DEPTH]
    _fill_sections(i, state)
    if block.offset + block.size > capacity:
        explain_top(i, capacity, state)
        _undo(frame.trail, state)
        return False
    low, high = _lift_neighbours(i, capacity, state)
    if low <= high and _fits(frame, low, high, capacity, state) and _still_excluded(i, state):
        return True
    _undo(frame.trail, state)
    return False


@step
def _fill_sections(i: int, state: SearchState) -> None:
    """Take a block that was placed out of what its sections still have to hold."""
    sections, section_of, block = state.sections, state.section_of, state.blocks[i]
    control, trail = state.control, state.trail
    high = section_of[block.section_end - 1]
    for r in range(block.section, block.section_end):
        s = section_of[r]
        section = sections[s]
        remember(control, trail, PROFILE, s, section.floor, section.total, section.crossing)
        section.floor = max(section.floor, block.offset + block.size)
        section.total -= block.size
        # Of the gaps between sections of a line it crosses all but the one after its last.
        section.crossing -= s != high


@step
def _lift_neighbours(i: int, capacity: int, state: SearchState) -> tuple[int, int]:
    """Lift the bases of unplaced neighbours above a block that was placed.

    Return the first and the last section of what was lifted; last < first: something is too high.
    """
    blocks, section_of, neighbours = state.blocks, state.section_of, state.neighbours
    spans, control, trail, block = state.spans, state.control, state.trail, state.blocks[i]
    top = block.offset + block.size
    low, high = section_of[block.section], section_of[block.section_end - 1]
    control[SPENT] += block.neighbour_end - block.neighbour
    for r in range(block.neighbour, block.neighbour_end):
        j = neighbours[r]
        other = blocks[j]
        if other.offset >= 0 or other.base >= top:
            continue
        control[SPENT] += LIFTED
        base = settle(other, top, spans)
        # Only what rises can make a floor rise; bases may rise without that.
        if other.effective < base:
            low = min(low, section_of[other.section])
            high = max(high, section_of[other.section_end - 1])
            if _raise(j, base, i, state) > capacity:
                explain_top(j, capacity, state)
                return 0, -1
        # What is proved about the offset has its row above; this row only restores base and
        # support.
        state.trail[control[TRAIL]].cause = NO_CAUSE
        remember(control, trail, BOUNDS, j, other.base, other.effective, other.under)
        other.base = base
        other.under = i
    return low, high


@step
def _still_excluded(i: int, state: SearchState) -> bool:
    """Return whether every excluded neighbour still has something to keep it off its base."""
    blocks, neighbours = state.blocks, state.neighbours
    state.control[SPENT] += blocks[i].neighbour_end - blocks[i].neighbour
    for r in range(blocks[i].neighbour, blocks[i].neighbour_end):
        other = blocks[neighbours[r]]
        # An excluded block is one that is kept above its base.
        if other.offset >= 0 or other.effective == other.base:
            continue
        free, q = True, other.neighbour
        while free and q < other.neighbour_end:
            third = blocks[neighbours[q]]
            # Only what may end up below the top that it would have at its base keeps it from there.
            free = third.offset >= 0 or third.effective >= other.base + other.size
            q += 1
        state.control[SPENT] += q - other.neighbour
        if free:
            explain_drop(neighbours[r], state)
            return False
    return True


@step
def _exclude(frame: Record, capacity: int, state: SearchState) -> bool:
    """Raise the choice from its base, as it stands on something unplaced; False: it cannot."""
    blocks, neighbours, i = state.blocks, state.neighbours, frame.choice
    block = blocks[i]
    ceiling = block.base + block.size
    held, least = False, NOWHERE
    state.control[SPENT] += block.neighbour_end - block.neighbour
    for r in range(block.neighbour, block.neighbour_end):
        j = neighbours[r]
        other = blocks[j]
        if other.offset >= 0:
            continue
        # It may come to lie in the way of the base, which then is no place to drop to.
        if other.effective < ceiling:
            held = True
        # Of what may carry it the lowest top is proved; a smaller one of the same sections never
        # does.
        if not never_below(j, i, state):
            least = min(least, other.effective + other.size)
    start = state.control[REASONS]
    # Nothing can keep it off its base, or carry it: so the placements before are to blame.
    if not held or least >= NOWHERE:
        begin(state)
        blame_reason(start, state)
        need(i, block.base, state)
        need_room(i, 0 if held else ceiling, state)
        explain(state)
        return False
    # At its base it was tried.
    least = max(least, block.base + 1)
    effective = settle(block, least, state.spans)
    state.reasons[start + 1] = least
    # The reason was written when the search retreated (`note_reason`); from now on it is kept.
    state.control[REASONS] += REASON + max(0, state.reasons[start])
    if _raise(i, effective, -1 - start, state) > capacity:
        explain_top(i, capacity, state)
        return False
    low, high = state.section_of[block.section], state.section_of[block.section_end - 1]
    return bool(_fits(frame, low, high, capacity, state))


# ---------------------------------------------------------------------- the search


@step
def _enter_next_part(frame: Record, state: SearchState) -> None:
    """Begin the next part of a frame whose choice is placed."""
    child = state.frames[state.control[DEPTH] + 1]
    p = frame.next
    frame.next = p + 1
    child.state = SELECT
    child.begin = state.parts[p, PART_BEGIN]
    child.count = state.parts[p, PART_COUNT]
    child.section = state.parts[p, PART_SECTION]
    child.section_end = state.parts[p, PART_SECTION_END]
    child.level = frame.level
    state.control[DEPTH] += 1


@step
def _retreat(state: SearchState) -> None:
    """Take back all placements from the last one that is blamed on, which is excluded next."""
    control, blamed = state.control, state.blamed
    depth = control[DEPTH]
    # Frames between are not responsible: whatever is placed there, it fails as this did.
    while depth >= 0 and not blamed[depth]:
        depth -= 1
    control[DEPTH] = depth
    if depth < 0:
        control[ANSWER] = EXHAUSTED
        return
    frame = state.frames[depth]
    if frame.state == PLACED:
        control[PARTS], control[LISTS] = frame.parts, frame.lists
        _undo(frame.trail, state)
    frame.state = EXCLUDE
    note_reason(state)


@inlined
def _leave(answer: int, control: Array) -> None:
    """Go back to the frame before, with an answer."""
    control[ANSWER] = answer
    control[DEPTH] -= 1


def _steps(capacity: int, node_limit: int, work: int, state: SearchState) -> int:
    """Return the most steps of :func:`search`, which ends behind a node."""
    del capacity, node_limit
    return work + entries(state.sections, state.members, state.neighbours)


@tiered(_steps)
def search(capacity: int, node_limit: int, work: int, state: SearchState) -> int:
    """Go on with the search until it ends, `work` steps are done or an array is too short.

    It gives up after `node_limit` nodes in all; `capacity` is in units.  Arrays of `state` that
    hold what is known change.  Return RUNNING, FOUND, EXHAUSTED, LIMIT or FULL.
    """
    control, blocks, sections = state.control, len(state.blocks), len(state.sections)
    most = 4 * blocks + 3 * sections + 8  # rows of the trail: see `SearchState`
    control[SPENT] = 0
    while control[SPENT] < work:
        # The first frame was left: that is the answer.
        if control[DEPTH] < 0:
            return int(control[ANSWER])
        if (
            control[TRAIL] + most > len(state.trail)
            or control[LISTS] + blocks + sections > len(state.lists)
            or control[PARTS] + blocks > len(state.parts)
            or control[REASONS] + blocks + REASON > len(state.reasons)
        ):
            return FULL
        frame = state.frames[control[DEPTH]]
        if frame.state == PLACED:
            # Parts are independent: all have to be packed, and one that cannot be ends the
            # placement.
            if control[ANSWER] == FOUND and frame.next < control[PARTS]:
                _enter_next_part(frame, state)
                continue
            control[PARTS] = frame.parts
            control[LISTS] = frame.lists
            _leave(FOUND, control)
            continue
        if frame.state == SELECT:
            if control[NODES] >= node_limit:
                return LIMIT
            control[NODES] += 1
            control[SPENT] += frame.count + 8
            if frame.count == 0:
                _leave(FOUND, control)
                continue
            # It is asked for in any case, as none means that something fits below all others.
            at = of_least_base(frame, state)
            if at >= 0 and control[FOCUS] == LOWEST_SECTION:
                at = in_lowest_section(frame, at, state)
            if at < 0:
                explain_deadlock(frame, state)
                _retreat(state)
                continue
            frame.choice = state.lists[at]
            base = state.blocks[frame.choice].base
            # Only where blocks come in order of offset does all that follows lie above this one.
            frame.level = base if control[FOCUS] == LOWEST_BLOCK else 0
            if _place(frame, at, capacity, state):
                frame.next = frame.parts
                divide(frame, state)
                frame.state = PLACED
                control[ANSWER] = FOUND
                continue
            _retreat(state)
            continue
        if _exclude(frame, capacity, state):
            # The choice stays unplaced and is higher from now on: another block is chosen.
            frame.state = SELECT
        else:
            state.blamed[control[DEPTH]] = False  # nothing is placed there any more
            _retreat(state)
    return RUNNING
