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

    Return the position of the next block, and the sections looked at.  `order` has blocks, the most
    valuable first, and `at` is where to go on in it; `budget` are the sections to look at before
    returning.  `order`, `piece_ptr`, `first`, `end` and `height` are int64, the last four those of
    :class:`.Blocks`.  `load`, int64 (sections,), of the blocks taken, changes; it may not exceed
    `capacity` anywhere.  `taken`, bool of the shape of `order`, is set where a block is taken.
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
