"""Rows of unequal length in two arrays (CSR): row i is entries ptr[i] : ptr[i + 1] of the other."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array


def rows(ptr: Array, which: Array) -> tuple[Array, Array]:
    """Return the positions of the entries of some rows of a CSR structure, and their own ptr."""
    count = ptr[which + 1] - ptr[which]
    own = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(count, out=own[1:])
    return np.arange(own[-1]) + np.repeat(ptr[which] - own[:-1], count), own


def transposed(ptr: Array, column: Array, columns: int) -> tuple[Array, Array]:
    """Return the rows of each column of a CSR structure, ascending.

    Parameters
    ----------
    ptr : ndarray of int64, shape (rows + 1,)
    column : ndarray of int64
        Columns of row r: column[ptr[r] : ptr[r + 1]].
    columns : int
        Their number.

    Returns
    -------
    ptr, row : ndarray of int64, shape (columns + 1,), (entries,)
    """
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    own = np.zeros(columns + 1, dtype=np.int64)
    np.cumsum(np.bincount(column, minlength=columns), out=own[1:])
    if columns <= 2**16:  # which is sorted by digits, ten times as fast
        column = column.astype(np.uint16)
    return own, row[np.argsort(column, kind="stable")]
