"""The compiled part of the checker: a sweep over time."""

from __future__ import annotations

import numpy as np

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array


@compiled
def sweep(events: Array, count: int, low: Array, high: Array) -> bool:
    """Tell whether any two rectangles intersect; O(n (log n + alive)).

    Plays births and deaths in time and keeps what is alive sorted by address: as long as nothing
    overlaps, a newcomer can only meet its two neighbours.

    Parameters
    ----------
    events : ndarray of int64, shape (2 n,)
        In order of time: i for the death of rectangle i, n + i for its birth.
    count : int
        n.
    low, high : ndarray of int64, shape (n,)
        Addresses [low, high) of each rectangle.
    """
    lows = np.empty(count, np.int64)
    highs = np.empty(count, np.int64)
    alive = 0
    for event in events:
        birth = event >= count
        item = event - count if birth else event
        left, right = 0, alive
        while left < right:
            middle = (left + right) // 2
            if lows[middle] < low[item]:
                left = middle + 1
            else:
                right = middle
        if birth:
            if left > 0 and highs[left - 1] > low[item]:
                return True
            if left < alive and lows[left] < high[item]:
                return True
            for k in range(alive, left, -1):
                lows[k] = lows[k - 1]
                highs[k] = highs[k - 1]
            lows[left] = low[item]
            highs[left] = high[item]
            alive += 1
        else:
            alive -= 1
            for k in range(left, alive):
                lows[k] = lows[k + 1]
                highs[k] = highs[k + 1]
    return False
