"""Compiled kernels of the lowest-offset dive: a heap of blocks over a skyline in a segment tree.

Cost: O(log b + log sections) a step.  Source: see :mod:`.dive`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.constructive.greedy_kernels import clear_of_walls
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled


class Dive(NamedTuple):
    """A dive under way; int64 arrays."""

    # (2 * leaves,): the skyline, a segment tree over sections: `whole` is a height all of a node's
    # sections have reached, `most` the greatest in it.  A block only ever raises the skyline under
    # itself, so that the height of a section is the greatest `whole` on the way to the root.
    whole: Array
    most: Array
    # (b,): heap of the blocks to come, by (base, rank): an offset the block cannot go below, and
    # its place in the order.  All are there at first, and it only gets shorter.
    base: Array
    rank: Array
    left: Array  # (1,): how many are in the heap


@compiled
def begin(b: int, sections: int) -> Dive:
    """Return a dive with an empty skyline and all blocks to come."""
    leaves = 1
    while leaves < sections:
        leaves *= 2
    return Dive(
        np.zeros(2 * leaves, np.int64),
        np.zeros(2 * leaves, np.int64),
        np.zeros(b, np.int64),
        np.arange(b),
        np.full(1, b),
    )


@compiled
def proceed(
    dive: Dive,
    order: Array,
    first: Array,
    end: Array,
    size: Array,
    segment: int,
    offsets: Array,
    steps: int,
) -> int:
    """Place blocks on the skyline, always the one that can go lowest, until `steps` are done.

    Return how many are still to come.  A step takes the top of the heap: it is placed if the
    skyline under it is no higher than its base, else it goes back with the height found; O(log b +
    log sections).  The dive is one of :func:`begin` and goes on from call to call, which end
    between two steps.

    All arrays are int64 (b,): `order` has blocks by rank, of those that can go equally low the
    first one is placed; [`first`, `end`) are their sections, `size` bytes; `offsets` are set for
    blocks that are placed.  None lies across a multiple of `segment`, none is larger; 0: any may.
    """
    whole, most, base, rank = dive.whole, dive.most, dive.base, dive.rank
    leaves = len(whole) // 2
    left = dive.left[0]
    while left > 0 and steps > 0:
        steps -= 1
        r = rank[0]
        i = order[r]
        x, y = first[i] + leaves, end[i] - 1 + leaves
        # Ancestors say what whole subtrees have reached; the nodes between say the greatest in
        # them.
        height = max(whole[x], whole[y])
        lo, hi = x >> 1, y >> 1
        while lo > 0:
            height = max(height, whole[lo], whole[hi])
            lo >>= 1
            hi >>= 1
        lo, hi = x, y + 1
        while lo < hi:
            if lo & 1:
                height = max(height, most[lo])
                lo += 1
            if hi & 1:
                hi -= 1
                height = max(height, most[hi])
            lo >>= 1
            hi >>= 1
        height = clear_of_walls(height, size[i], segment)
        # As low as it was thought: no other can be lower, as bases only rise.
        if height == base[0]:
            offsets[i] = height
            top = height + size[i]
            lo, hi = x, y + 1
            while lo < hi:
                if lo & 1:
                    # Whatever was below is covered: the block is higher than anything under it.
                    whole[lo] = most[lo] = top
                    lo += 1
                if hi & 1:
                    hi -= 1
                    whole[hi] = most[hi] = top
                lo >>= 1
                hi >>= 1
            lo, hi = x >> 1, y >> 1
            while lo > 0:
                most[lo] = max(most[lo], top)
                most[hi] = max(most[hi], top)
                lo >>= 1
                hi >>= 1
            left -= 1
            # The last of the heap goes to the top.
            height, r = base[left], rank[left]
        # Sift (height, r) down from the top.
        k = 0
        while True:
            child = 2 * k + 1
            if child >= left:
                break
            if child + 1 < left and (
                base[child + 1] < base[child]
                or (base[child + 1] == base[child] and rank[child + 1] < rank[child])
            ):
                child += 1
            if height < base[child] or (height == base[child] and r < rank[child]):
                break
            base[k] = base[child]
            rank[k] = rank[child]
            k = child
        base[k] = height
        rank[k] = r
    dive.left[0] = left
    return int(left)
