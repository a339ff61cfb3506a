"""Compiled kernel of the exact packing search: selects the block to branch on.

Any block below which no unplaced neighbour fits any more may be next.  The lowest one is such a
block, and so is the lowest one in each single section.  Cost: O(blocks of the part + its sections +
neighbours).  Source: see :mod:`.exact_kernels`.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing.exact_search.exact_state import (
    NOWHERE,
    SPENT,
    Record,
    SearchState,
)
from stagepack.kernels.compiled import step


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

    Parameters
    ----------
    frame : FRAME
        Of the part.
    otherwise : int
        Where the block of least base is.
    state : SearchState
        Its class says the shapes and meaning of its arrays; steps are counted.
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
