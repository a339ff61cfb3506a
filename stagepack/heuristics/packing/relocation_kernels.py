"""The compiled part of relocation: which rectangles are released so that none intersect.

Cost: O(n (log n + alive)), counted step by step.  Source: see :mod:`.relocation`.
"""

from __future__ import annotations

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled

EVENT = 50
"""Steps that an event counts as, beside the entries looked at or moved: it is looked up."""


@compiled
def sieve(
    events: Array,
    low: Array,
    high: Array,
    weight: Array,
    dropped: Array,
    alive: Array,
    at: Array,
    budget: int,
) -> int:
    """Find which rectangles to drop so that no others intersect; return the steps it took.

    Plays births and deaths in time and keeps what is alive sorted by address.  A newcomer stays if
    it is heavier than all it meets together, else it goes.  After `budget` steps it returns at the
    next event.

    `events`, int64 (2 n,), are in order of time: i for the death of rectangle i, n + i for its
    birth.  Of shape (n,): [`low`, `high`), int64, are the addresses of each; `weight`,
    float64, is what it is worth that each stays; `dropped`, bool, is set for those that go;
    `alive`, int64, are the sorted ones.  Each rectangle is there at most once: it is put in at its
    birth, which comes before its death, and taken out at its death or when it is dropped.  `at`,
    int64 (2,), is how many events were played and how many rectangles are alive, zero at first.
    """
    count, steps = len(low), 0
    number = at[1]
    for position in range(at[0], len(events)):
        if steps >= budget:
            at[0], at[1] = position, number
            return steps
        steps += EVENT
        event = events[position]
        birth = event >= count
        item = event - count if birth else event
        # It is not among those alive any more.
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
            steps += number - left
            for k in range(left, number):
                alive[k] = alive[k + 1]
            continue
        first, end, against = left, left, 0.0
        # Those alive are disjoint, so that both of their ends ascend.
        while first > 0 and high[alive[first - 1]] > low[item]:
            first -= 1
            against += weight[alive[first]]
        while end < number and low[alive[end]] < high[item]:
            against += weight[alive[end]]
            end += 1
        steps += end - first
        # Lighter than all it meets together: the newcomer goes.
        if first < end and against >= weight[item]:
            dropped[item] = True
            continue
        for k in range(first, end):
            dropped[alive[k]] = True
        # The newcomer takes the place of all it met.
        shift = 1 - (end - first)
        steps += number - first
        if shift > 0:
            for k in range(number, first, -1):
                alive[k] = alive[k - 1]
        elif shift < 0:
            for k in range(end, number):
                alive[k + shift] = alive[k]
        alive[first] = item
        number += shift
    at[0], at[1] = len(events), number
    return steps
