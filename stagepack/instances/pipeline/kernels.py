"""Compiled kernel for the memory of ranges with shared keys."""

from __future__ import annotations

import numpy as np

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array


@compiled
def furthest_fit(
    per_layer: Array, peak: Array, start: Array, key: Array, nbytes: Array, capacity: int
) -> Array:  # pragma: no cover - compiled
    """Return the furthest end of a range that fits, for every first layer.

    Two pointers; shared keys are counted in the window, the largest peak is the head of a
    decreasing queue.

    Parameters
    ----------
    per_layer, peak : ndarray of int64, shape (n,)
        Bytes that add up, bytes of which a range needs the largest.
    start : ndarray of int64, shape (n + 1,)
        Uses of layer l are key[start[l]:start[l + 1]].
    key : ndarray of int64, shape (uses,)
    nbytes : ndarray of int64, shape (keys,)
    capacity : int64

    Returns
    -------
    ndarray of int64, shape (n,)
        reach[a] >= a, non-decreasing.
    """
    n = len(per_layer)
    reach = np.empty(n, dtype=np.int64)
    inside = np.zeros(len(nbytes), dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    head, tail = 0, 0
    total = np.int64(0)
    b = 0
    for a in range(n):
        if b < a:
            b = a
        while b < n:
            added = per_layer[b]
            for u in range(start[b], start[b + 1]):
                if inside[key[u]] == 0:
                    added += nbytes[key[u]]
            highest = peak[b]
            if head < tail and peak[queue[head]] > highest:
                highest = peak[queue[head]]
            if total + added + highest > capacity:
                break
            total += added
            for u in range(start[b], start[b + 1]):
                inside[key[u]] += 1
            while head < tail and peak[queue[tail - 1]] <= peak[b]:
                tail -= 1
            queue[tail] = b
            tail += 1
            b += 1
        reach[a] = b
        if b > a:
            total -= per_layer[a]
            for u in range(start[a], start[a + 1]):
                inside[key[u]] -= 1
                if inside[key[u]] == 0:
                    total -= nbytes[key[u]]
            if head < tail and queue[head] == a:
                head += 1
    return reach
