"""Rows of unequal length in two arrays (CSR): row i is entries ptr[i] : ptr[i + 1] of the other.

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
    """Return the rows of each column of a CSR structure, ascending.  O(entries + columns).

    Entries are counted by column first; each is then written once.

    Parameters
    ----------
    ptr : ndarray of int64, shape (rows + 1,)
        Where rows begin.
    column : ndarray of int64
        Columns of row r: column[ptr[r] : ptr[r + 1]].
    columns : int
        Their number.

    Returns
    -------
    ptr, row : ndarray of int64, shape (columns + 1,), (entries,)
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
