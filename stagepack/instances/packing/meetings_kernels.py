"""Compiled kernels that collect the conflicts of blocks in rows and sort them."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered


@tiered(entries)
def scatter(
    begin: int, end: int, owner: Array, low: Array, high: Array, top: Array, other: Array
) -> None:
    """Write the blocks of pieces [`begin`, `end`), and of those that they meet, into each other's
    rows.

    A piece, of a block, its `owner`, meets the pieces from `low` up to `high`; int64.  Rows
    `other`, int32, end at `top`, int64, which moves on; that of a block has room for each q that
    its pieces p name and each p that names one of its pieces: nothing else is written.
    """
    for p in range(begin, end):
        i = owner[p]
        for q in range(low[p], high[p]):
            j = owner[q]
            other[top[i]] = j
            top[i] += 1
            other[top[j]] = i
            top[j] += 1


@tiered(entries)
def transpose(
    begin: int, end: int, ptr: Array, top: Array, other: Array, ends: Array, mirrored: Array
) -> None:
    """Write the rows of blocks [`begin`, `end`) into those they name, which ascend without copies.

    All earlier blocks are written.  Row i is other[ptr[i] : top[i]], of `ptr`, `top` and `other`;
    each mirrored row ends so far at `ends`, which moves on, having begun at `ptr`.  The rows that
    are `mirrored`, int64, are of the same lengths: :func:`scatter` wrote each pair into both rows,
    so that no more entries name a block than its own row has.
    """
    for i in range(begin, end):
        for r in range(ptr[i], top[i]):
            j = other[r]
            at = ends[j]
            # Blocks come in order, so that copies of one follow each other in a mirrored row.
            if j != i and (at == ptr[j] or mirrored[at - 1] != i):
                mirrored[at] = i
                ends[j] = at + 1


@tiered(entries)
def close_up(ptr: Array, ends: Array, other: Array) -> tuple[Array, Array]:
    """Move rows down to where the ones before end; return where they begin now, and the rows.

    Row i is other[ptr[i] : ends[i]], of `ptr`, `ends` and `other`, int64, which is written over
    from the begin on: no row moves up.
    """
    own = np.zeros(len(ptr), dtype=np.int64)
    used = 0
    for i in range(len(ends)):
        for r in range(ptr[i], ends[i]):
            other[used] = other[r]
            used += 1
        own[i + 1] = used
    return own, other[:used]
