"""Rows of unequal length in two arrays (CSR): row i is entries ptr[i] : ptr[i + 1] of the other.

Cost: O(entries).  Source: common.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array


def rows(ptr: Array, which: Array) -> tuple[Array, Array]:
    """Return the positions of the entries of some rows of a CSR structure, and their own ptr."""
    count = ptr[which + 1] - ptr[which]
    own = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(count, out=own[1:])
    return np.arange(own[-1]) + np.repeat(ptr[which] - own[:-1], count), own
