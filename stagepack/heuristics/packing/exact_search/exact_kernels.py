"""Compiled kernel of the exact packing search: canonical packings by placing and excluding.

Every feasible packing can be made canonical: among those of least sum(size * offset) take one of
least sum(size^2 * offset), identical blocks in index order.  In it no block can move to a lower
place, so a block that is not at the lowest place above all placed neighbours (its *base*) stands
on a neighbour that is still unplaced.  The search places blocks in ascending order of offset and
branches on the block of least base among those not excluded from their base (or on any block
that no unplaced neighbour fits below any more):

- PLACE it at its base, or
- EXCLUDE it from its base: its offset is at least ``min over unplaced neighbours j of
  effective_j + size_j``, where ``effective`` is what is proved so far about the offset.

A node fails when in some section what is unplaced does not fit above the lowest effective offset
of its members; when an unplaced block could drop to its base whatever follows; when of two blocks
of the same sections, stacked directly on one another, the lower would be the smaller (swapping
them lowers sum(size^2 * offset) and keeps sum(size * offset)).  After a placement the blocks that
are still connected by conflicts are parts that are solved one by one.

The depth-first search is a loop over an explicit stack and can stop and go on at any node: all it
knows is in arrays.  A node costs O(blocks of the part + sections and neighbours of the block).
Source: canonical bottom-left packings as in the literature on strip packing; dominance and the
portfolio of orders from MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023).
"""

from __future__ import annotations

import numba
import numpy as np

from stagepack.heuristics.packing.exact_search.components_kernels import divide, label, remember
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
    NODES,
    NOWHERE,
    OFFSET,
    PARTS,
    PLACED,
    PROFILE,
    RUNNING,
    SELECT,
    SPENT,
    TRAIL,
    Record,
)
from stagepack.instances.compiled import compiled, inner
from stagepack.instances.profile import Array


@numba.njit(inline="always")
def _settle(block: int, at: int, blocks: Array, spans: Array) -> int:
    """Return the lowest legal offset of a block from `at` up, or NOWHERE."""
    b: Record = blocks[block]
    if b.step > 1:
        at = (at + b.step - 1) // b.step * b.step
    span, end = b.span, b.span_end
    if span < end:
        while span < end and spans[span, 1] < at:
            span += 1
        if span == end:
            return NOWHERE
        at = max(at, spans[span, 0])
    return at


@inner
def _undo(mark: int, blocks: Array, sections: Array, trail: Array, control: Array) -> None:
    """Take back all changes since the trail had `mark` rows."""
    for t in range(control[TRAIL] - 1, mark - 1, -1):
        change = trail[t]
        if change.what == BOUNDS:
            block = blocks[change.index]
            block.base = change.a
            block.effective = change.b
            block.under = change.c
        elif change.what == PROFILE:
            section = sections[change.index]
            section.floor = change.a
            section.total = change.b
            section.crossing = change.c
        elif change.what == OFFSET:
            blocks[change.index].offset = -1
        else:
            blocks[change.index].rank = change.a
    control[TRAIL] = mark


@numba.njit(inline="always")
def _raise(
    block: int, effective: int, blocks: Array, spans: Array, trail: Array, control: Array
) -> int:
    """Raise the effective offset of a block and of its later twins; return the highest top."""
    top = effective
    while block >= 0 and blocks[block].effective < effective:
        b = blocks[block]
        remember(control, trail, BOUNDS, block, b.base, b.effective, b.under)
        b.effective = effective
        top = effective + b.size
        block = b.twin
        if block >= 0:
            effective = _settle(block, top, blocks, spans)
    return top


@inner
def _fits(
    begin: int,
    end: int,
    level: int,
    capacity: int,
    blocks: Array,
    sections: Array,
    member_ptr: Array,
    members: Array,
    holes: Array,
    lists: Array,
    trail: Array,
    control: Array,
) -> bool:
    """Update the floors of sections lists[begin:end]; return whether what is unplaced may fit."""
    for q in range(begin, end):
        s = lists[q]
        section = sections[s]
        if section.total == 0:
            continue
        witness = blocks[section.witness]
        if witness.offset >= 0 or witness.effective > section.floor:
            least = NOWHERE
            for r in range(member_ptr[s], member_ptr[s + 1]):
                member = blocks[members[r]]
                if member.offset < 0 and member.effective < least:
                    least = member.effective
                    section.witness = members[r]
                    if least <= section.floor:
                        break
            if least > section.floor:
                remember(control, trail, PROFILE, s, section.floor, section.total, section.crossing)
                section.floor = least
        top = max(section.floor, level) + section.total
        for h in range(section.hole, section.hole_end):
            if holes[h, 1] > max(section.floor, level) and holes[h, 0] < top:
                top += holes[h, 1] - max(section.floor, level, holes[h, 0])
        if top > capacity:
            return False
    return True


@inner
def _in_lowest_section(
    frame: Record,
    blocks: Array,
    sections: Array,
    neighbour_ptr: Array,
    neighbours: Array,
    member_ptr: Array,
    members: Array,
    lists: Array,
) -> int:
    """Return where in the part's list the block to branch on is, or -1.

    It is the member of least base, then rank, of the section of least floor (then most unplaced),
    below which no unplaced neighbour fits any more: all that conflict with it will lie above it,
    though elsewhere lower places may still be taken.
    """
    where, lowest = -1, NOWHERE
    for q in range(frame.section, frame.section_end):
        section = sections[lists[q]]
        if section.total > 0 and (
            section.floor < lowest
            or (section.floor == lowest and section.total > sections[where].total)
        ):
            where, lowest = lists[q], section.floor
    tried_base, tried_rank = np.int64(-1), np.int64(0)
    while True:
        choice, base, rank = -1, NOWHERE, np.int64(0)
        for r in range(member_ptr[where], member_ptr[where + 1]):
            block = blocks[members[r]]
            if (
                block.offset < 0
                and block.effective == block.base
                and (block.base < base or (block.base == base and block.rank < rank))
                and (
                    block.base > tried_base
                    or (block.base == tried_base and block.rank > tried_rank)
                )
            ):
                choice, base, rank = members[r], block.base, block.rank
        if choice < 0:
            return -1
        settled = True
        for r in range(neighbour_ptr[choice], neighbour_ptr[choice + 1]):
            other = blocks[neighbours[r]]
            if other.offset < 0 and other.effective + other.size <= base:
                settled = False
                break
        if settled:
            break
        tried_base, tried_rank = np.int64(base), rank
    for q in range(frame.begin, frame.begin + frame.count):
        if lists[q] == choice:
            return q
    return -1


@compiled
def search(
    capacity: int,
    node_limit: int,
    work: int,
    linear: bool,
    blocks: Array,
    sections: Array,
    section_ptr: Array,
    section_of: Array,
    neighbour_ptr: Array,
    neighbours: Array,
    member_ptr: Array,
    members: Array,
    spans: Array,
    holes: Array,
    frames: Array,
    trail: Array,
    lists: Array,
    part_rows: Array,
    queue: Array,
    control: Array,
) -> int:
    """Go on with the search until it ends, `work` steps are done or an array is too short.

    Parameters
    ----------
    capacity : int
    node_limit : int
        Give up after this many nodes in all.
    work : int
        Return to the caller after about this many elementary steps.
    linear : bool
        Every block is alive in a run of sections.
    blocks, sections : ndarray of BLOCK, SECTION, shape (b,), (sections,)
    section_ptr, section_of : ndarray of int64
        Sections of every block as rows, ascending.
    neighbour_ptr, neighbours : ndarray of int64
        Blocks that share a section with each, as rows, ascending.
    member_ptr, members : ndarray of int64
        Blocks of every section as rows.
    spans : ndarray of int64, shape (., 2)
        Legal offsets of blocks, ends included, ascending.
    holes : ndarray of int64, shape (., 2)
        Addresses [low, high) that no block of a section may use, ascending.
    frames, trail : ndarray of FRAME, CHANGE
    lists, part_rows : ndarray of int64, shape (.,), (., 4)
        Blocks and sections of parts; the rows say where: begin, count, sections' begin and end.
    queue : ndarray of int64, shape (b,)
        Scratch.
    control : ndarray of int64, shape (8,)

    Returns
    -------
    int
        RUNNING, FOUND, EXHAUSTED, LIMIT or FULL.
    """
    # What one step can add: a row of the trail for every bound, floor and rank.
    step, given = 4 * len(blocks) + 3 * len(sections) + 8, work
    while work > 0:
        depth = control[DEPTH]
        if depth < 0:
            control[SPENT] = given - work
            return int(control[ANSWER])
        if (
            control[TRAIL] + step > len(trail)
            or control[LISTS] + len(blocks) + len(sections) > len(lists)
            or control[PARTS] + len(blocks) > len(part_rows)
        ):
            control[SPENT] = given - work
            return FULL
        frame = frames[depth]

        if frame.state == PLACED:
            if control[ANSWER] == FOUND and frame.next < control[PARTS]:
                p = frame.next
                frame.next = p + 1
                child = frames[depth + 1]
                child.state = SELECT
                child.begin = part_rows[p, 0]
                child.count = part_rows[p, 1]
                child.section = part_rows[p, 2]
                child.section_end = part_rows[p, 3]
                child.level = frame.level
                control[DEPTH] = depth + 1
                continue
            if control[ANSWER] == FOUND:
                control[PARTS] = frame.parts
                control[LISTS] = frame.lists
                control[DEPTH] = depth - 1
                continue
            control[PARTS] = frame.parts
            control[LISTS] = frame.lists
            _undo(frame.trail, blocks, sections, trail, control)
            frame.state = EXCLUDE

        if frame.state == SELECT:
            control[NODES] += 1
            if control[NODES] > node_limit:
                control[SPENT] = given - work
                return LIMIT
            work -= frame.count + 8
            if frame.count == 0:
                control[ANSWER] = FOUND
                control[DEPTH] = depth - 1
                continue
            # The block of least base that may be there, and the lowest place for a top.
            least, rank, lowest, at = NOWHERE, np.int64(0), NOWHERE, -1
            for q in range(frame.begin, frame.begin + frame.count):
                block = blocks[lists[q]]
                base = block.base
                lowest = min(lowest, base + block.size)
                if block.effective == base and (
                    base < least or (base == least and block.rank < rank)
                ):
                    least, rank, at = base, block.rank, q
            if at < 0 or least >= lowest:
                control[ANSWER] = EXHAUSTED
                control[DEPTH] = depth - 1
                continue
            if control[FOCUS] == LOWEST_SECTION:
                work -= frame.section_end - frame.section
                better = _in_lowest_section(
                    frame,
                    blocks,
                    sections,
                    neighbour_ptr,
                    neighbours,
                    member_ptr,
                    members,
                    lists,
                )
                if better >= 0:
                    at, least = better, blocks[lists[better]].base
            i = lists[at]
            block = blocks[i]
            frame.choice = i
            frame.level = least if control[FOCUS] == LOWEST_BLOCK else 0
            frame.state = EXCLUDE
            under = block.under
            swapped = (
                under >= 0
                and block.family >= 0
                and blocks[under].family == block.family
                and blocks[under].size < block.size
                and blocks[under].offset + blocks[under].size == least
            )
            if not swapped:
                frame.trail = control[TRAIL]
                frame.lists = control[LISTS]
                frame.parts = control[PARTS]
                last = frame.begin + frame.count - 1
                lists[at] = lists[last]
                lists[last] = i
                top = least + block.size
                remember(control, trail, OFFSET, i, 0, 0, 0)
                block.offset = least
                low, high = section_of[section_ptr[i]], section_of[section_ptr[i + 1] - 1]
                for r in range(section_ptr[i], section_ptr[i + 1]):
                    s = section_of[r]
                    section = sections[s]
                    remember(
                        control, trail, PROFILE, s, section.floor, section.total, section.crossing
                    )
                    section.floor = max(section.floor, top)
                    section.total -= block.size
                    section.crossing -= s != high
                fits = top <= capacity
                work -= 4 * (neighbour_ptr[i + 1] - neighbour_ptr[i])
                for r in range(neighbour_ptr[i], neighbour_ptr[i + 1]):
                    j = neighbours[r]
                    other = blocks[j]
                    if other.offset >= 0 or other.base >= top:
                        continue
                    base = _settle(j, top, blocks, spans)
                    if other.effective < base:
                        low = min(low, section_of[section_ptr[j]])
                        high = max(high, section_of[section_ptr[j + 1] - 1])
                        if _raise(j, base, blocks, spans, trail, control) > capacity:
                            fits = False
                            break
                    remember(control, trail, BOUNDS, j, other.base, other.effective, other.under)
                    other.base = base
                    other.under = i
                if fits:
                    origin = lists[frame.section]
                    fits = _fits(
                        frame.section + low - origin if linear else frame.section,
                        frame.section + high + 1 - origin if linear else frame.section_end,
                        frame.level,
                        capacity,
                        blocks,
                        sections,
                        member_ptr,
                        members,
                        holes,
                        lists,
                        trail,
                        control,
                    )
                if fits:
                    # An excluded block must still have something that keeps it off its base.
                    for r in range(neighbour_ptr[i], neighbour_ptr[i + 1]):
                        j = neighbours[r]
                        other = blocks[j]
                        if other.offset >= 0 or other.effective == other.base:
                            continue
                        free = True
                        for q in range(neighbour_ptr[j], neighbour_ptr[j + 1]):
                            third = blocks[neighbours[q]]
                            if third.offset < 0 and third.effective < other.base + other.size:
                                free = False
                                break
                        if free:
                            fits = False
                            break
                if not fits:
                    _undo(frame.trail, blocks, sections, trail, control)
                else:
                    frame.state = PLACED
                    parts = label(
                        frame,
                        linear,
                        blocks,
                        sections,
                        section_ptr,
                        section_of,
                        neighbour_ptr,
                        neighbours,
                        member_ptr,
                        members,
                        lists,
                        queue,
                    )
                    frame.next = frame.parts
                    control[ANSWER] = FOUND
                    if parts == 1 and frame.count > 1:
                        p = control[PARTS]
                        part_rows[p, 0] = frame.begin
                        part_rows[p, 1] = frame.count - 1
                        part_rows[p, 2] = frame.section
                        part_rows[p, 3] = frame.section_end
                        control[PARTS] = p + 1
                    elif frame.count > 1:
                        divide(
                            frame,
                            parts,
                            blocks,
                            sections,
                            section_ptr,
                            section_of,
                            lists,
                            part_rows,
                            trail,
                            control,
                        )
                    continue

        # EXCLUDE: the choice stands on something that is still unplaced.
        i = frame.choice
        block = blocks[i]
        ceiling = block.base + block.size
        held, least = False, NOWHERE
        work -= neighbour_ptr[i + 1] - neighbour_ptr[i]
        for r in range(neighbour_ptr[i], neighbour_ptr[i + 1]):
            j = neighbours[r]
            other = blocks[j]
            if other.offset >= 0:
                continue
            if other.effective < ceiling:
                held = True
            if (
                other.family >= 0
                and other.family == block.family
                and (other.size < block.size or (other.size == block.size and j > i))
            ):
                continue  # never directly below
            least = min(least, other.effective + other.size)
        fits = held and least < NOWHERE
        if fits:
            effective = _settle(i, max(least, block.base + 1), blocks, spans)
            fits = _raise(i, effective, blocks, spans, trail, control) <= capacity
        if fits:
            origin = lists[frame.section]
            low, high = section_of[section_ptr[i]], section_of[section_ptr[i + 1] - 1]
            fits = _fits(
                frame.section + low - origin if linear else frame.section,
                frame.section + high + 1 - origin if linear else frame.section_end,
                frame.level,
                capacity,
                blocks,
                sections,
                member_ptr,
                members,
                holes,
                lists,
                trail,
                control,
            )
        if fits:
            frame.state = SELECT
        else:
            control[ANSWER] = EXHAUSTED
            control[DEPTH] = depth - 1
    control[SPENT] = given - work
    return RUNNING
