"""Topological numbers of nodes, or of the cycles that contain them."""

from __future__ import annotations

import numpy as np

from stagepack.instances.arrays import distinct
from stagepack.instances.profile import Array


def numbered(n: int, edges: Array) -> Array:
    """Return a number for each node, the same for those on one circle, rising along edges.

    `edges` has shape (edges, 2): source and target.  Numbers run from 0 without gaps; the nodes
    keep their own where those rise already.
    """
    if (edges[:, 0] < edges[:, 1]).all():
        return np.arange(n)
    from stagepack.instances.graph.components_kernels import strong_components

    ptr, after = rows(n, edges[:, 0], edges[:, 1])
    found: Array = strong_components(ptr, after)
    return found


def rows(n: int, row: Array, value: Array) -> tuple[Array, Array]:
    """Return the values of each of n rows, rising and each once, as pointers and values.

    `row` and `value` are int64 from 0, below 2**31.
    """
    width = int(value.max(initial=0)) + 1
    keys = distinct(row * width + value)
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // width, minlength=n), out=ptr[1:])
    return ptr, keys % width
