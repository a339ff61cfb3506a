"""Compiled kernels of the range costs: the transfers of the phases of every group.

Cost: O(groups) for a chain; to compare the rows of a group O(rows^2).  Source: own work.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered

LOADED, HOST, STORED, ADDED = range(4)


@tiered(entries)
def traffic(
    start: Array,
    nbytes: Array,
    pointer: Array,
    read: Array,
    ends: Array,
    ending: Array,
    last: Array,
    seen: Array,
    found: Array,
    low: int,
    high: int,
) -> None:
    """Find what the groups from layers [low, high) move of tensors that cross their boundaries.

    O(groups) for a chain; all arrays are int64.

    Parameters
    ----------
    start : ndarray, shape (n + 1,)
        Groups from layer a are numbered start[a], ... start[a + 1] - 1, by rising end.
    nbytes : ndarray, shape (n + 1,)
        Bytes of x_0 ... x_n.
    pointer, read, ends, ending : ndarray
        Layer l reads the tensors read[pointer[l]:pointer[l + 1]]; those that it is the last to
        read are ending[ends[l]:ends[l + 1]].
    last, seen : ndarray, shape (n + 1,)
        Last reader of each tensor, -1 where nobody reads it; scratch, -1 at first.
    found : ndarray, shape (4, groups)
        Bytes read from remote memory, and of x_0; bytes written that later groups read; bytes
        read, but for x_0, that later groups read, too (their gradients add up).
    low, high : int
        First layers of the groups to look at.
    """
    for a in range(low, high):
        loaded, host, stored, added = 0, 0, 0, 0
        # Each group is the one before and a layer: what it moves grows with it.
        for g in range(start[a], start[a + 1]):
            layer = a + g - start[a]
            for k in range(pointer[layer], pointer[layer + 1]):
                t = read[k]
                # From outside, and read for the first time by groups from this layer on.
                if t <= a and seen[t] != a:
                    seen[t] = a
                    if t == 0:
                        host += nbytes[t]
                    else:
                        loaded += nbytes[t]
                        added += nbytes[t]
            # Written for whoever is behind; taken back once its last reader has joined.
            if last[layer + 1] >= 0:
                stored += nbytes[layer + 1]
            for k in range(ends[layer], ends[layer + 1]):
                t = ending[k]
                if t > a:
                    stored -= nbytes[t]
                elif t > 0:
                    added -= nbytes[t]
            found[LOADED, g] = loaded
            found[HOST, g] = host
            found[STORED, g] = stored
            found[ADDED, g] = added


def _steps(values: Array, begin: Array, stays: Array, low: int, high: int) -> int:
    """Return the most steps of :func:`undominated`, which compares the rows of a group."""
    del stays
    earlier = (low + high - 1) * (high - low) // 2 - int(begin[low:high].sum())
    return int((high - low + earlier) * values.shape[1])


@tiered(_steps)
def undominated(values: Array, begin: Array, stays: Array, low: int, high: int) -> None:
    """Mark which of the rows [low, high) an earlier one of their group matches or beats everywhere.

    The rows of each group in `values`, int64 (rows, columns), are in lexicographic order: none
    beats an earlier one.  `begin`, int64 (rows,), is where the group of each row begins.  `stays`,
    bool (rows,), is right for the rows before `low`, true from there on; it becomes right up to
    `high`.
    """
    columns = values.shape[1]
    for i in range(low, high):
        for j in range(begin[i], i):
            # What beats that one beats this one, too.
            if not stays[j]:
                continue
            better = True
            for c in range(columns):
                if values[j, c] > values[i, c]:
                    better = False
                    break
            if better:
                stays[i] = False
                break


@tiered(entries)
def frontier(state: Array, kept: Array, order: Array) -> Array:
    """Return which labels are on the frontier of their state, bool (labels,).

    Labels of different `state` do not beat each other; of those in `order`, that is by (state,
    cycles, kept), each stays that keeps fewer bytes, `kept`, than all before it.  All three are
    int64 (labels,).
    """
    stays = np.zeros(len(order), np.bool_)
    least = 0
    for at in range(len(order)):
        i = order[at]
        # Cycles rise within a state: only fewer bytes make up for that.
        if at == 0 or state[i] != state[order[at - 1]] or kept[i] < least:
            stays[i] = True
            least = kept[i]
    return stays
