"""The compiled part of spilling: which blocks fit into the remaining load of a memory.

Cost: O(sections) for each block tested.  Source: see :mod:`.spill`.
"""

from __future__ import annotations

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled


@compiled
def fill(
    order: Array,
    at: int,
    piece_ptr: Array,
    first: Array,
    end: Array,
    height: Array,
    capacity: int,
    load: Array,
    taken: Array,
    budget: int,
) -> tuple[int, int]:
    """Take blocks, one after the other, whose pieces fit on the load.

    Parameters
    ----------
    order : ndarray of int64
        Blocks, the most valuable first.
    at : int
        Position in `order` to go on from.
    piece_ptr, first, end, height : ndarray of int64
        Pieces of each block; see :class:`.Blocks`.
    capacity : int
        What the load may not exceed anywhere.
    load : ndarray of int64, shape (sections,)
        Of the blocks taken; changed.
    taken : ndarray of bool, shape of `order`
        Set where a block is taken.
    budget : int
        Sections to look at before returning.

    Returns
    -------
    at : int
        Position of the next block.
    steps : int
        Sections looked at.
    """
    steps = 0
    while at < len(order) and steps < budget:
        pieces = range(piece_ptr[order[at]], piece_ptr[order[at] + 1])
        fits = True
        for p in pieces:
            for section in range(first[p], end[p]):
                steps += 1
                if load[section] + height[p] > capacity:
                    fits = False
                    break
            if not fits:
                break
        if fits:
            taken[at] = True
            for p in pieces:
                # Pieces of a block never meet, so that each was tested on the load before it.
                load[first[p] : end[p]] += height[p]
                steps += end[p] - first[p]
        steps += 1
        at += 1
    return at, steps
