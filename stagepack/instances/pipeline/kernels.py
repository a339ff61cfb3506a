"""Compiled kernels for the memory of ranges with shared keys."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered

FIRST, END, HEAD, TAIL, TOTAL = range(5)


class Layers(NamedTuple):
    """Bytes of a chain's layers; int64 arrays."""

    # `added`, `peak`: ndarray, shape (n,): bytes that add up, and bytes of which a range needs the
    # largest.
    added: Array
    peak: Array
    latest: Array  # ndarray, shape (n,): no range that begins at a layer ends later than this
    start: Array  # ndarray, shape (n + 1,): uses of layer l are key[start[l]:start[l + 1]]
    key: Array  # ndarray, shape (uses,): key of each use, layer by layer
    nbytes: Array  # ndarray, shape (keys,): bytes of each key


class Window(NamedTuple):
    """A range that slides along a chain; int64 arrays."""

    # ndarray, shape (5,): first layer and end, head and tail of the queue, bytes that add up.
    state: Array
    inside: Array  # ndarray, shape (keys,): uses of each key in the range
    # ndarray, shape (n,): layers of the range by falling peak: each enters once, when the range's
    # end passes it.
    queue: Array

    @classmethod
    def of(cls, layers: Layers) -> Window:
        """Return an empty range at the first layer."""
        state, inside = np.zeros(5, dtype=np.int64), np.zeros_like(layers.nbytes)
        return cls(state, inside, np.empty_like(layers.peak))


@tiered(entries)
def furthest_fit(budget: int, layers: Layers, capacity: int, window: Window, reach: Array) -> bool:
    """Find the furthest end of a range that fits, for every first layer.

    Two pointers; shared keys are counted in the window, the largest peak is the head of a
    decreasing queue.  Goes on from where the window is, for about `budget` elementary steps, and
    returns whether that was enough.

    Parameters
    ----------
    budget : int64
        Elementary steps after which to return.
    capacity : int64
        Bytes of the device.
    reach : ndarray of int64, shape (n,)
        Written: reach[a] >= a, non-decreasing.
    """
    added, peak, nbytes = layers.added, layers.peak, layers.nbytes
    start, key = layers.start, layers.key
    state, inside, queue = window
    n, a, b = len(peak), state[FIRST], state[END]
    head, tail, total = state[HEAD], state[TAIL], state[TOTAL]
    while a < n and budget > 0:
        b, full = max(a, b), False
        # The end only moves on: a range that begins later reaches no less far.
        while b < n and budget > 0:
            budget -= 1 + start[b + 1] - start[b]
            more = added[b]
            # Shared keys count with the first use in the range alone.
            for u in range(start[b], start[b + 1]):
                if inside[key[u]] == 0:
                    more += nbytes[key[u]]
            highest = peak[b]
            if head < tail and peak[queue[head]] > highest:
                highest = peak[queue[head]]
            if total + more + highest > capacity:
                full = True
                break
            total += more
            for u in range(start[b], start[b + 1]):
                inside[key[u]] += 1
            # Layers that need no more than this one and leave sooner are never the largest again.
            while head < tail and peak[queue[tail - 1]] <= peak[b]:
                tail -= 1
            queue[tail] = b
            tail += 1
            b += 1
        if b < n and not full:
            break  # it may reach further
        reach[a] = min(b, layers.latest[a])
        budget -= 1 + start[a + 1] - start[a]
        # The first layer leaves: keys with its last use, and its peak where that is the largest.
        if b > a:
            total -= added[a]
            for u in range(start[a], start[a + 1]):
                inside[key[u]] -= 1
                if inside[key[u]] == 0:
                    total -= nbytes[key[u]]
            if head < tail and queue[head] == a:
                head += 1
        a += 1
    state[FIRST], state[END], state[HEAD], state[TAIL], state[TOTAL] = a, b, head, tail, total
    return bool(a == n)


@tiered(entries)
def add_keys(span: Array, key: Array, nbytes: Array, seen: Array, needs: Array) -> None:
    """Add to the needs of each span, in order, the bytes of the keys that its uses name, once.

    Parameters
    ----------
    span, key : ndarray of int64, shape (uses,)
        The span of each use, non-decreasing, and its key.
    nbytes, seen : ndarray of int64, shape (keys,)
        Bytes of each key, and the last span that had it: -1 at first.
    needs : ndarray of int64, shape (spans,)
        Bytes of each span; added to.
    """
    for u in range(len(span)):
        # Uses come span by span, so the last span of a key tells whether this one has it.
        if seen[key[u]] != span[u]:
            seen[key[u]] = span[u]
            needs[span[u]] += nbytes[key[u]]
