"""The compiled part of keeping: which rectangles give way so that none intersect.

Cost: O(n (log n + alive)).  Source: see :mod:`.relocation`.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array


@compiled
def sieve(events: Array, low: Array, high: Array, weight: Array) -> Array:
    """Return which rectangles to drop so that no others intersect; O(n (log n + alive)).

    Plays births and deaths in time and keeps what is alive sorted by address.  A newcomer stays if
    it is heavier than all it meets together, else it goes.

    Parameters
    ----------
    events : ndarray of int64, shape (2 n,)
        In order of time: i for the death of rectangle i, n + i for its birth.
    low, high : ndarray of int64, shape (n,)
        Addresses [low, high) of each rectangle.
    weight : ndarray of float64, shape (n,)

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    count = len(low)
    dropped = np.zeros(count, np.bool_)
    alive = np.empty(count, np.int64)
    number = 0
    for event in events:
        birth = event >= count
        item = event - count if birth else event
        if dropped[item]:
            continue
        left, right = 0, number
        while left < right:
            middle = (left + right) // 2
            if low[alive[middle]] < low[item]:
                left = middle + 1
            else:
                right = middle
        if not birth:
            number -= 1
            for k in range(left, number):
                alive[k] = alive[k + 1]
            continue
        first, end, against = left, left, 0.0
        while first > 0 and high[alive[first - 1]] > low[item]:
            first -= 1
            against += weight[alive[first]]
        while end < number and low[alive[end]] < high[item]:
            against += weight[alive[end]]
            end += 1
        if first < end and against >= weight[item]:
            dropped[item] = True
            continue
        for k in range(first, end):
            dropped[alive[k]] = True
        # The newcomer takes the place of all it met.
        shift = 1 - (end - first)
        if shift > 0:
            for k in range(number, first, -1):
                alive[k] = alive[k - 1]
        elif shift < 0:
            for k in range(end, number):
                alive[k + shift] = alive[k]
        alive[first] = item
        number += shift
    return dropped
