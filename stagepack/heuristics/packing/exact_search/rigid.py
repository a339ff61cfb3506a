"""A restriction to rigid blocks: no shrinking, no pauses, no shared offsets.

Gaps, groups of unlike members and in-place pairs only add possibilities.  A packing in which all
blocks keep their full height all the time and share nothing is therefore also a packing of the
original blocks, and the search for it is about ten times as fast.  Optimality or infeasibility of
the restricted problem proves nothing about the original one.

Cost: O(sections * blocks).  Source: own work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.places import aligned_unit
from stagepack.instances.profile import Array


def made_rigid(blocks: Blocks) -> Iterator[Blocks]:
    """Yield blocks whose packings are packings of `blocks`, the most rigid first; O(sections * b).

    First, where time is a line, each block from its first section to its last; then each in the
    sections where it has bytes.  Nothing where that is what `blocks` are.
    """
    several = bool((np.diff(blocks.piece_ptr) > 1).any())
    if blocks.linear and several:
        yield _whole(blocks, *_hulls(blocks))
    if not blocks.rigid:
        owner, first, end = _unions(blocks)
        if not (blocks.linear and several and len(owner) == len(np.unique(owner))):
            yield _whole(blocks, owner, first, end)


def _hulls(blocks: Blocks) -> tuple[Array, Array, Array]:
    """Return block, first section and end of what spans all pieces of each block that has any."""
    owner = np.flatnonzero(np.diff(blocks.piece_ptr))
    at = blocks.piece_ptr[owner]
    return owner, np.minimum.reduceat(blocks.first, at), np.maximum.reduceat(blocks.end, at)


def _unions(blocks: Blocks) -> tuple[Array, Array, Array]:
    """Return block, first section and end of each run of sections that pieces of a block cover."""
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    order = np.lexsort((blocks.first, owner))
    runs: list[tuple[int, int, int]] = []
    columns = owner[order], blocks.first[order], blocks.end[order]
    for i, first, end in zip(*(column.tolist() for column in columns), strict=True):
        if runs and runs[-1][0] == i and first <= runs[-1][2]:
            runs[-1] = i, runs[-1][1], max(end, runs[-1][2])
        else:
            runs.append((i, first, end))
    block, begin, stop = np.array(runs, dtype=np.int64).reshape(-1, 3).T.copy()
    return block, begin, stop


def _whole(blocks: Blocks, owner: Array, first: Array, end: Array) -> Blocks:
    """Return blocks of full height in these sections, without pairs that may share."""
    size = blocks.size[owner]
    ptr = np.zeros(blocks.b + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=blocks.b), out=ptr[1:])
    load = np.zeros(blocks.sections + 1, dtype=np.int64)
    np.add.at(load, first, size)
    np.add.at(load, end, -size)
    fixed = blocks.fixed[blocks.fixed >= 0]
    lengths = (blocks.size, blocks.range_low, fixed)
    unit = math.gcd(*(int(np.gcd.reduce(part)) for part in lengths if len(part)))
    return replace(
        blocks,
        piece_ptr=ptr,
        first=first,
        end=end,
        low=np.zeros(len(owner), dtype=np.int64),
        high=size,
        load=np.cumsum(load)[:-1],
        may_share=np.zeros((0, 2), dtype=np.int64),
        unit=aligned_unit(unit, blocks.alignment),
    )
