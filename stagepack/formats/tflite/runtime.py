"""The placement that TensorFlow Lite Micro computes for tensors without a planned offset.

Source: ``tensorflow/lite/micro/memory_planner/greedy_memory_planner.cc``.  Planned tensors keep
their offsets.  The others are placed by decreasing size (of equals the last one first), each into
the lowest gap between the tensors alive with it.  Scratch buffers that kernels request are not part
of a model: they can change this placement, but never make tensors overlap.
"""

from __future__ import annotations

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.profile import Array


def whole(offsets: Array, size: Array, start: Array, end: Array) -> Array:
    """Return a plan with the places of all tensors; int64, shape (n,) each.

    `offsets` are -1 for tensors that are left; others below 0 stay as they are, and are wrong.
    Each tensor has a `size`, a multiple of the alignment, and lives in [`start`, `end`).  Takes
    O(n) a tensor that is left to the runtime, and the sorting of those that live with it.
    """
    left = np.flatnonzero(offsets == -1)[::-1]
    if len(left) and len(offsets) > 10_000:
        raise InputError(
            f"leaves {len(left)} of {len(offsets)} tensors to the runtime, too many to follow",
            field="metadata",
            remedy="plan all tensors",
        )
    found = offsets.copy()
    placed = offsets != -1
    for number in left[np.argsort(-size[left], kind="stable")].tolist():
        among = np.flatnonzero(placed & (start < end[number]) & (start[number] < end))
        among = among[np.argsort(found[among], kind="stable")]
        found[number] = _lowest(found[among], found[among] + size[among], int(size[number]))
        placed[number] = True
    return found


def _lowest(begin: Array, end: Array, nbytes: int) -> int:
    """Return the first place below, between or above intervals, in the order of their begins."""
    above = np.maximum.accumulate(np.concatenate(([0], end)))  # free from here on
    gaps = np.flatnonzero(begin - above[:-1] >= nbytes)
    return int(above[gaps[0]] if len(gaps) else above[-1])
