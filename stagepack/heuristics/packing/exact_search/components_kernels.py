"""Compiled kernels of what the exact packing search falls into: neighbours, and parts."""

from __future__ import annotations

import numba
import numpy as np

from stagepack.heuristics.packing.exact_search.exact_state import LISTS, PARTS, RANK, TRAIL, Record
from stagepack.instances.compiled import compiled, inner
from stagepack.instances.profile import Array


@compiled
def linear_neighbours(first: Array, last: Array) -> tuple[Array, Array]:
    """Return the blocks that share a section with each, as rows (ptr, other), ascending.

    The blocks are alive in the sections first .. last, and ascend in `first`.  O(b + pairs).
    """
    b = len(first)
    ptr = np.zeros(b + 1, dtype=np.int64)
    for i in range(b):
        j = i + 1
        while j < b and first[j] <= last[i]:
            ptr[j + 1] += 1
            j += 1
        ptr[i + 1] += j - i - 1
    for i in range(b):
        ptr[i + 1] += ptr[i]
    other = np.empty(ptr[b], dtype=np.int64)
    used = ptr[:-1].copy()
    for i in range(b):
        # Every row has its earlier blocks by now.
        j = i + 1
        while j < b and first[j] <= last[i]:
            other[used[i]] = j
            other[used[j]] = i
            used[i] += 1
            used[j] += 1
            j += 1
    return ptr, other


@numba.njit(inline="always")
def remember(control: Array, trail: Array, what: int, index: int, a: int, b: int, c: int) -> None:
    """Note values that are about to change."""
    top = control[TRAIL]
    change = trail[top]
    change.what = what
    change.index = index
    change.a = a
    change.b = b
    change.c = c
    control[TRAIL] = top + 1


@inner
def label(
    frame: Record,
    linear: bool,
    blocks: Array,
    sections: Array,
    section_ptr: Array,
    section_of: Array,
    neighbour_ptr: Array,
    neighbours: Array,
    member_ptr: Array,
    members: Array,
    lists: Array,
    queue: Array,
) -> int:
    """Label what the frame's part falls into after its choice was placed; return how many parts.

    Linear time is cut where no unplaced block crosses; otherwise the conflicts are searched.
    Returns 1, without labels, when nothing falls apart.
    """
    choice, begin, end = frame.choice, frame.begin, frame.begin + frame.count - 1
    parts = 0
    if linear:
        apart = False
        for r in range(section_ptr[choice], section_ptr[choice + 1]):
            s = section_of[r]
            if sections[s].crossing == 0 or sections[s].total == 0:
                apart = True
                break
        if not apart:
            return 1
        fresh = True
        for q in range(frame.section, frame.section_end):
            section = sections[lists[q]]
            section.label = -1
            if section.total > 0:
                if fresh:
                    parts += 1
                section.label = parts - 1
                fresh = section.crossing == 0
            else:
                fresh = True
        for q in range(begin, end):
            block = lists[q]
            blocks[block].label = sections[section_of[section_ptr[block]]].label
        return parts
    # Every part has a neighbour of the choice: search from these until all of them are met.
    for q in range(begin, end):
        blocks[lists[q]].label = -1
    unmet = 0
    for r in range(neighbour_ptr[choice], neighbour_ptr[choice + 1]):
        if blocks[neighbours[r]].offset < 0:
            blocks[neighbours[r]].label = -2
            unmet += 1
    for start in range(neighbour_ptr[choice], neighbour_ptr[choice + 1]):
        if blocks[neighbours[start]].offset >= 0 or blocks[neighbours[start]].label >= 0:
            continue
        head, tail = 0, 1
        queue[0] = neighbours[start]
        blocks[queue[0]].label = parts
        unmet -= 1
        while head < tail and (unmet > 0 or parts > 0):
            block = queue[head]
            head += 1
            for r in range(neighbour_ptr[block], neighbour_ptr[block + 1]):
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
        s = lists[q]
        sections[s].label = -1
        for r in range(member_ptr[s], member_ptr[s + 1]):
            if blocks[members[r]].offset < 0:
                sections[s].label = blocks[members[r]].label
                break
    return parts


@inner
def divide(
    frame: Record,
    parts: int,
    blocks: Array,
    sections: Array,
    section_ptr: Array,
    section_of: Array,
    lists: Array,
    part_rows: Array,
    trail: Array,
    control: Array,
) -> None:
    """Write the labelled parts as lists of blocks and of sections, and rank their blocks anew.

    The new rank is by descending weight times the largest load unplaced in a section of the
    block, then by the old rank.
    """
    begin, end = frame.begin, frame.begin + frame.count - 1
    first = control[PARTS]
    for p in range(first, first + parts):
        for column in range(4):
            part_rows[p, column] = 0
    for q in range(begin, end):
        part_rows[first + blocks[lists[q]].label, 1] += 1
    for q in range(frame.section, frame.section_end):
        label = sections[lists[q]].label
        if label >= 0:
            part_rows[first + label, 3] += 1
    top = control[LISTS]
    for p in range(first, first + parts):
        part_rows[p, 0] = top
        part_rows[p, 2] = top + part_rows[p, 1]
        top = part_rows[p, 2] + part_rows[p, 3]
        part_rows[p, 1] = 0
        part_rows[p, 3] = part_rows[p, 2]
    for q in range(begin, end):
        i = lists[q]
        block = blocks[i]
        p = first + block.label
        lists[part_rows[p, 0] + part_rows[p, 1]] = i
        part_rows[p, 1] += 1
        if block.weight > 0:
            load = 0
            for r in range(section_ptr[i], section_ptr[i + 1]):
                load = max(load, sections[section_of[r]].total)
            n = len(blocks)
            remember(control, trail, RANK, i, block.rank, 0, 0)
            block.rank = block.rank % n - n * np.int64(block.weight * load)
    for q in range(frame.section, frame.section_end):
        label = sections[lists[q]].label
        if label >= 0:
            p = first + label
            lists[part_rows[p, 3]] = lists[q]
            part_rows[p, 3] += 1
    control[LISTS] = top
    control[PARTS] = first + parts
