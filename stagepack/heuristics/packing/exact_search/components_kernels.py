"""Compiled kernels of the components of a packing: bounds, parts of a search, where it branches.

Any block below which no unplaced neighbour fits any more may be next.  The lowest one is such a
block, and so is the lowest one in each single section.  Arrays are those of
:class:`.exact_state.SearchState`.

Cost: O(blocks, sections and members of the part), and its conflicts where time is not linear or a
block is to be chosen.  Source: see :mod:`.exact_kernels`.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing.exact_search.exact_state import (
    LISTS,
    NOWHERE,
    PART_BEGIN,
    PART_COUNT,
    PART_SECTION,
    PART_SECTION_END,
    PARTS,
    RANK,
    SPENT,
    TRAIL,
    Record,
    SearchState,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, inlined, step, tiered


@step
def topped(section: Record, floor: int, holes: Array, control: Array) -> int:
    """Return how high what is unplaced in a `section` reaches above a `floor`, around its holes.

    `holes`, int64 of shape (holes, 2), are addresses [low, high) that a section cannot use, those
    of a section ascending.  The entry `SPENT` of `control` counts the work.
    """
    top, h, end = floor + section.total, section.hole, section.hole_end
    last = end
    while h < last:  # the first hole that ends above the floor
        middle = (h + last) // 2
        if holes[middle, 1] > floor:
            last = middle
        else:
            h = middle + 1
    begin = h
    while h < end and holes[h, 0] < top:
        # What is pushed up by a hole may come to the next one.
        top += holes[h, 1] - max(floor, holes[h, 0])
        h += 1
    control[SPENT] += h - begin
    return int(top)


@tiered(entries)
def least_peak(blocks: Array, sections: Array, holes: Array) -> int:
    """Return a lower bound on the peak in units: what every section holds, above its floor.

    `blocks`, `sections` and `holes` are as in :class:`.exact_state.SearchState`, before anything is
    placed.
    """
    peak, control = 0, np.zeros(SPENT + 1, dtype=np.int64)
    for block in blocks:
        # A block that must lie high by itself.
        peak = max(peak, block.effective + block.size)
    for section in sections:
        peak = max(peak, topped(section, section.floor, holes, control))
    return peak


@inlined
def remember(control: Array, trail: Array, what: int, index: int, a: int, b: int, c: int) -> None:
    """Note values that are about to change; callers say why the trail has room.

    `control` and `trail` are both written.  `what` is `BOUNDS`, `OFFSET`, `PROFILE` or `RANK`, see
    :mod:`.exact_state`, of the block or section `index`; `a`, `b` and `c` are the values, in the
    order in which they are taken back.
    """
    top = control[TRAIL]
    change = trail[top]
    change.what = what
    change.index = index
    change.a = a
    change.b = b
    change.c = c
    control[TRAIL] = top + 1


@step
def label_runs(frame: Record, state: SearchState) -> int:
    """Label what a part falls into after its choice was placed, where time is a line; count them.

    It is cut where no unplaced block crosses.  Returns 1, without labels, when nothing falls apart.
    """
    blocks, sections, lists = state.blocks, state.sections, state.lists
    section_of, choice = state.section_of, blocks[frame.choice]
    apart = False
    for r in range(choice.section, choice.section_end):
        s = section_of[r]
        # Only where the choice lived can anything have come apart.
        if sections[s].crossing == 0 or sections[s].total == 0:
            apart = True
            break
    if not apart:
        return 1
    parts, fresh = 0, True
    state.control[SPENT] += frame.section_end - frame.section + frame.count
    for q in range(frame.section, frame.section_end):
        section = sections[lists[q]]
        section.label = -1
        if section.total > 0:
            if fresh:
                parts += 1
            section.label = parts - 1
            # Nothing unplaced goes on into the next section: there another part begins.
            fresh = section.crossing == 0
        else:
            fresh = True
    for q in range(frame.begin, frame.begin + frame.count - 1):
        block = blocks[lists[q]]
        # All sections of a block are of one part.
        block.label = sections[section_of[block.section]].label
    return parts


@step
def label_connected(frame: Record, state: SearchState) -> int:
    """Label what a part falls into after its choice was placed; return how many parts.

    Conflicts are searched from the neighbours of the choice, one of which is in every part.  Blocks
    get the label of their part when they enter the queue, which they do once: an entry a block is
    enough.  Returns 1, without labels, when nothing falls apart.
    """
    blocks, sections, members = state.blocks, state.sections, state.members
    lists, queue, neighbours = state.lists, state.queue, state.neighbours
    choice, control = blocks[frame.choice], state.control
    control[SPENT] += frame.count + choice.neighbour_end - choice.neighbour
    for q in range(frame.begin, frame.begin + frame.count - 1):
        blocks[lists[q]].label = -1
    parts, unmet = 0, 0
    for r in range(choice.neighbour, choice.neighbour_end):
        if blocks[neighbours[r]].offset < 0:
            # In every part there is one of these; once all are met, no other part is to come.
            blocks[neighbours[r]].label = -2
            unmet += 1
    for start in range(choice.neighbour, choice.neighbour_end):
        if blocks[neighbours[start]].offset >= 0 or blocks[neighbours[start]].label >= 0:
            continue
        head, tail = 0, 1
        queue[0] = neighbours[start]
        blocks[queue[0]].label = parts
        unmet -= 1
        # If the first search meets all of them nothing falls apart, and labels are of no use.
        while head < tail and (unmet > 0 or parts > 0):
            block = blocks[queue[head]]
            head += 1
            control[SPENT] += block.neighbour_end - block.neighbour
            for r in range(block.neighbour, block.neighbour_end):
                other = neighbours[r]
                if blocks[other].offset < 0 and blocks[other].label < 0:
                    unmet -= blocks[other].label == -2
                    blocks[other].label = parts
                    queue[tail] = other
                    tail += 1
        parts += 1
        if unmet == 0 and parts == 1:
            return 1
    for q in range(frame.section, frame.section_end):
        section = sections[lists[q]]
        section.label = -1
        r = section.member
        # Any unplaced member tells the part.
        while r < section.member_end and section.label < 0:
            if blocks[members[r]].offset < 0:
                section.label = blocks[members[r]].label
            r += 1
        control[SPENT] += r - section.member
    return parts


@step
def divide(frame: Record, state: SearchState) -> None:
    """Write what a part falls into after its choice was placed, and rank blocks of several anew.

    The new rank is by descending weight times the largest load unplaced in a section of the
    block, then by the old rank.  Every part has a block, so that there are no more of them, and
    takes its own blocks and sections of `lists`.
    """
    blocks, sections, lists, parts = state.blocks, state.sections, state.lists, state.parts
    section_of, trail, control = state.section_of, state.trail, state.control
    begin, end = frame.begin, frame.begin + frame.count - 1
    first = control[PARTS]
    # The choice was the last one.
    if begin == end:
        return
    count = label_runs(frame, state) if state.linear else label_connected(frame, state)
    if count == 1:
        # The part goes on with the lists as they are: nothing is copied.
        parts[first, PART_BEGIN] = begin
        parts[first, PART_COUNT] = end - begin
        parts[first, PART_SECTION] = frame.section
        parts[first, PART_SECTION_END] = frame.section_end
        control[PARTS] = first + 1
        return
    _make_room(frame, first, count, state)
    control[SPENT] += 2 * (end - begin + frame.section_end - frame.section)
    for q in range(begin, end):
        i = lists[q]
        block = blocks[i]
        p = first + block.label
        lists[parts[p, PART_BEGIN] + parts[p, PART_COUNT]] = i
        parts[p, PART_COUNT] += 1
        if block.weight > 0:
            load = 0
            control[SPENT] += block.section_end - block.section
            for r in range(block.section, block.section_end):
                load = max(load, sections[section_of[r]].total)
            n = len(blocks)
            # Loads change as parts shrink, and with them who is preferred.
            remember(control, trail, RANK, i, block.rank, 0, 0)
            # The old rank is what is left of the division by n.
            block.rank = block.rank % n - n * np.int64(block.weight * load)
    for q in range(frame.section, frame.section_end):
        label = sections[lists[q]].label
        if label >= 0:
            p = first + label
            lists[parts[p, PART_SECTION_END]] = lists[q]
            parts[p, PART_SECTION_END] += 1
    control[PARTS] = first + count


@step
def _make_room(frame: Record, first: int, count: int, state: SearchState) -> None:
    """Give each part, still empty, the place in `lists` that its blocks and sections take."""
    blocks, sections, lists, parts = state.blocks, state.sections, state.lists, state.parts
    for p in range(first, first + count):
        for column in range(4):
            parts[p, column] = 0
    for q in range(frame.begin, frame.begin + frame.count - 1):
        parts[first + blocks[lists[q]].label, PART_COUNT] += 1
    for q in range(frame.section, frame.section_end):
        label = sections[lists[q]].label
        if label >= 0:
            # For the time being a count; turned into an end below.
            parts[first + label, PART_SECTION_END] += 1
    top = state.control[LISTS]
    for p in range(first, first + count):
        parts[p, PART_BEGIN] = top
        parts[p, PART_SECTION] = top + parts[p, PART_COUNT]
        top = parts[p, PART_SECTION] + parts[p, PART_SECTION_END]
        parts[p, PART_COUNT] = 0
        parts[p, PART_SECTION_END] = parts[p, PART_SECTION]
    state.control[LISTS] = top


# ---------------------------------------------------------------------- where to branch


@step
def of_least_base(frame: Record, state: SearchState) -> int:
    """Return where in the part's list the block of least base is that may lie there.

    -1: none may, or another one fits below it whatever follows.
    """
    blocks, lists = state.blocks, state.lists
    least, rank, lowest, at = NOWHERE, np.int64(0), NOWHERE, -1
    for q in range(frame.begin, frame.begin + frame.count):
        block = blocks[lists[q]]
        base = block.base
        # Excluded blocks count as well: such a one may still fit below all others.
        lowest = min(lowest, base + block.size)
        if block.effective == base and (base < least or (base == least and block.rank < rank)):
            least, rank, at = base, block.rank, q
    return at if least < lowest else -1


@step
def in_lowest_section(frame: Record, otherwise: int, state: SearchState) -> int:
    """Return where in the part's list the block to branch on is, `otherwise` if there is none.

    It is the member of least base, then rank, of the section of least floor (then most unplaced),
    below which no unplaced neighbour fits any more: all that conflict with it will lie above it,
    though elsewhere lower places may still be taken.

    `frame` is the part's; `otherwise` is where the block of least base is.  Steps are counted in
    `state`.
    """
    blocks, sections, lists, members = state.blocks, state.sections, state.lists, state.members
    state.control[SPENT] += frame.section_end - frame.section
    # A section of least floor is one in which the lowest member has nothing below it but the floor.
    where, lowest = -1, NOWHERE
    for q in range(frame.section, frame.section_end):
        section = sections[lists[q]]
        if section.total > 0 and (
            section.floor < lowest
            or (section.floor == lowest and section.total > sections[where].total)
        ):
            where, lowest = lists[q], section.floor
    # Candidates are taken in order of base and rank; those up to `tried` were not settled.
    tried_base, tried_rank = np.int64(-1), np.int64(0)
    while True:
        choice, base, rank = -1, NOWHERE, np.int64(0)
        state.control[SPENT] += sections[where].member_end - sections[where].member
        for r in range(sections[where].member, sections[where].member_end):
            block = blocks[members[r]]
            if (
                # Unplaced, not excluded, and the next one after what was tried.
                block.offset < 0
                and block.effective == block.base
                and (block.base < base or (block.base == base and block.rank < rank))
                and (
                    block.base > tried_base
                    or (block.base == tried_base and block.rank > tried_rank)
                )
            ):
                choice, base, rank = members[r], block.base, block.rank
        # No member of the section may come next: the block of least base always may.
        if choice < 0:
            return otherwise
        if _settled(choice, base, state):
            break
        tried_base, tried_rank = np.int64(base), rank
    for q in range(frame.begin, frame.begin + frame.count):
        if lists[q] == choice:
            return q
    return otherwise


@step
def _settled(i: int, base: int, state: SearchState) -> bool:
    """Return whether no unplaced neighbour of a block fits below its base."""
    blocks, neighbours = state.blocks, state.neighbours
    begin, end = blocks[i].neighbour, blocks[i].neighbour_end
    r = begin
    while r < end:
        other = blocks[neighbours[r]]
        r += 1
        # The row is left early: steps are counted as they are taken.
        if other.offset < 0 and other.effective + other.size <= base:
            state.control[SPENT] += r - begin
            return False
    state.control[SPENT] += r - begin
    return True
