"""Compiled kernel for the strong components of a graph."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered

UNSEEN = -1


@tiered(entries)
def strong_components(after_ptr: Array, after: Array) -> Array:
    """Return the strong component of each node; components are numbered topologically.

    Tarjan's algorithm with a path of its own in place of recursion, O(nodes + edges).  The path and
    the nodes that wait hold n entries: a node enters either when it is first seen, which is once.
    Successors of node u are after[after_ptr[u]:after_ptr[u + 1]]; all are int64, the result (n,).
    """
    n = len(after_ptr) - 1
    component = np.full(n, UNSEEN, dtype=np.int64)
    number = np.full(n, UNSEEN, dtype=np.int64)  # in the order in which they are first seen
    lowest = np.empty(n, dtype=np.int64)  # number reached from below, within the component
    edge = after_ptr[1:].copy()  # next edge to follow, from the last one down
    path, waiting = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    length, waiting_count, seen, found = 0, 0, 0, 0
    for root in range(n - 1, -1, -1):
        if number[root] != UNSEEN:
            continue
        path[0], length = root, 1
        while length:
            u = path[length - 1]
            if number[u] == UNSEEN:
                number[u] = lowest[u] = seen
                seen += 1
                waiting[waiting_count] = u
                waiting_count += 1
            if edge[u] > after_ptr[u]:
                edge[u] -= 1
                v = after[edge[u]]
                if number[v] == UNSEEN:
                    path[length] = v
                    length += 1
                # Seen and in no component yet: v is below u on the path, so both are on one circle.
                elif component[v] == UNSEEN:
                    lowest[u] = min(lowest[u], number[v])
                continue
            length -= 1
            if length:
                above = path[length - 1]
                lowest[above] = min(lowest[above], lowest[u])
            if lowest[u] == number[u]:
                v = UNSEEN
                while v != u:
                    waiting_count -= 1
                    v = waiting[waiting_count]
                    component[v] = found
                found += 1
    return found - 1 - component
