"""Compiled kernels that collect the conflicts of blocks in rows and sort them."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered


@tiered(entries)
def scatter(
    begin: int, end: int, owner: Array, low: Array, high: Array, top: Array, other: Array
) -> None:
    """Write the blocks of pieces that meet into each other's rows.

    Parameters
    ----------
    begin, end : int
        Only of pieces [begin, end) with those that they meet.
    owner : ndarray of int64, shape (pieces,)
        The block of each piece.
    low, high : ndarray of int64, shape (pieces,)
        Piece p meets the pieces low[p] .. high[p] - 1.
    top : ndarray of int64, shape (blocks,)
        Where each row ends so far; moved on.
    other : ndarray of int32
        The rows; that of a block has room for each q that its pieces p name and each p that names
        one of its pieces: nothing else is written.
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
    """Write the rows of blocks [begin, end) into those they name, which ascend without copies.

    Parameters
    ----------
    begin, end : int
        All earlier blocks are written.
    ptr, top : ndarray of int64, shape (blocks + 1,), (blocks,)
        Row i is other[ptr[i] : top[i]].
    other : ndarray of int32
        Entries of the rows.
    ends : ndarray of int64, shape (blocks,)
        Where each mirrored row ends so far, having begun at `ptr`; moved on.
    mirrored : ndarray of int64
        The rows that are written, of the same lengths: :func:`scatter` wrote each pair into both
        rows, so that no more entries name a block than its own row has.
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

    Parameters
    ----------
    ptr, ends : ndarray of int64, shape (blocks + 1,), (blocks,)
        Row i is other[ptr[i] : ends[i]].
    other : ndarray of int64
        Written over, from the begin on: no row moves up.
    """
    own = np.zeros(len(ptr), dtype=np.int64)
    used = 0
    for i in range(len(ends)):
        for r in range(ptr[i], ends[i]):
            other[used] = other[r]
            used += 1
        own[i + 1] = used
    return own, other[:used]
