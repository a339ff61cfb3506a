"""Rows of unequal length in two arrays (CSR): row i is entries ptr[i] : ptr[i + 1] of the other.

Rows of blocks that meet are collected by kernels; rows of any kind are picked and transposed.

Cost: O(entries + columns).  Source: common.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered


def rows(ptr: Array, which: Array) -> tuple[Array, Array]:
    """Return the positions of the entries of some rows of a CSR structure, and their own ptr."""
    count = ptr[which + 1] - ptr[which]
    own = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(count, out=own[1:])
    return np.arange(own[-1]) + np.repeat(ptr[which] - own[:-1], count), own


@tiered(entries)
def transposed(ptr: Array, column: Array, columns: int) -> tuple[Array, Array]:
    """Return (ptr, rows): the rows of each of some `columns` of a CSR structure, ascending.

    Row r has the columns `column` [ptr[r] : ptr[r + 1]]; `ptr` has an entry a row and one more,
    what is returned one a column and one more.  Entries are counted by column first; each is then
    written once. O(entries + columns).
    """
    own = np.zeros(columns + 1, dtype=np.int64)
    for c in column:
        own[c + 1] += 1
    for c in range(columns):
        own[c + 1] += own[c]
    top, row = own[:-1].copy(), np.empty(len(column), dtype=np.int64)
    for r in range(len(ptr) - 1):
        for e in range(ptr[r], ptr[r + 1]):
            # Rows are gone through in order, so that those of a column ascend.
            row[top[column[e]]] = r
            top[column[e]] += 1
    return own, row


@tiered(entries)
def scatter(
    begin: int, end: int, owner: Array, low: Array, high: Array, top: Array, other: Array
) -> None:
    """Write the blocks of pieces [`begin`, `end`), and of those they meet, into each other's rows.

    A piece of a block, its `owner`, meets the pieces [`low`, `high`); int64 (pieces,).  Rows
    `other`, int32, end at `top`, int64 (blocks,), which moves on; that of a block has room for each
    q that its pieces p name and each p that names one of its pieces: nothing else is written.
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
def mirror(
    begin: int, end: int, ptr: Array, top: Array, other: Array, ends: Array, mirrored: Array
) -> None:
    """Write the rows of blocks [`begin`, `end`) into those they name, which ascend without copies.

    All earlier blocks are written.  Row i is other[ptr[i] : top[i]], of `ptr`, int64 (blocks + 1,),
    `top`, int64 (blocks,), and `other`, int32; each mirrored row ends so far at `ends`, int64
    (blocks,), which moves on, having begun at `ptr`.  The rows that are `mirrored`, int64, are of
    the same lengths: :func:`scatter` wrote each pair into both rows, so that no more entries name a
    block than its own row has.
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

    Row i is other[ptr[i] : ends[i]]: `ptr` (blocks + 1,), `ends` (blocks,), and `other`, all int64;
    the last is written over from the begin on: no row moves up.
    """
    own = np.zeros(len(ptr), dtype=np.int64)
    used = 0
    for i in range(len(ends)):
        for r in range(ptr[i], ends[i]):
            other[used] = other[r]
            used += 1
        own[i + 1] = used
    return own, other[:used]
