"""Cliques that cover a conflict graph, compiled.

Greedy: a clique grows from an uncovered edge by the node that covers most new edges, the heavier
first, then the lower number.  Neighbours are looked up by bisection in the shorter row of the two,
so that a clique costs what its smallest members' degrees are, and a star no more than its edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.compiled import compiled, inner

Array = np.ndarray[Any, np.dtype[Any]]


@inner
def _position(node: int, row: int, ptr: Array, other: Array) -> int:
    """Return where `node` is in a row of `other`, or -1."""
    low, high = ptr[row], ptr[row + 1]
    while low < high:
        middle = (low + high) // 2
        if other[middle] < node:
            low = middle + 1
        else:
            high = middle
    found: int = low if low < ptr[row + 1] and other[low] == node else -1
    return found


@compiled
def graph_rows(low: Array, high: Array, order: Array) -> tuple[Array, Array, Array, Array]:
    """Return the rows `ptr`, `other`, `edge` and `ranked` that :func:`clique_cover` takes.

    O(n + m): nodes are entered into the rows of their neighbours in the order asked for.

    Parameters
    ----------
    low, high : ndarray of int64, shape (m,)
        The ends of each edge, low < high, ascending by both.
    order : ndarray of int64, shape (n,)
        Nodes, the heavier first, then the lower.
    """
    n, m = len(order), len(low)
    ptr = np.zeros(n + 1, dtype=np.int64)
    for e in range(m):
        ptr[low[e] + 1] += 1
        ptr[high[e] + 1] += 1
    for node in range(n):
        ptr[node + 1] += ptr[node]
    other, edge = np.empty(2 * m, dtype=np.int32), np.empty(2 * m, dtype=np.int32)
    back = np.empty(2 * m, dtype=np.int32)  # where the same edge stands in the other row
    cursor, above = ptr[:-1].copy(), np.empty(m, dtype=np.int32)
    for e in range(m):
        at = above[e] = cursor[high[e]]
        other[at], edge[at] = low[e], e
        cursor[high[e]] += 1
    for e in range(m):
        at = cursor[low[e]]
        other[at], edge[at] = high[e], e
        back[at], back[above[e]] = above[e], at
        cursor[low[e]] += 1
    ranked, cursor = np.empty(2 * m, dtype=np.int32), ptr[:-1].copy()
    for node in order:
        for at in range(ptr[node], ptr[node + 1]):
            ranked[cursor[other[at]]] = back[at]
            cursor[other[at]] += 1
    return ptr, other, edge, ranked


@compiled
def clique_cover(
    order: Array, weight: Array, ptr: Array, other: Array, edge: Array, ranked: Array
) -> tuple[Array, Array, int]:
    """Return members (node, clique), and the number of cliques; a node alone is one.

    O(edges^1.5 log n) at worst, about linear in sparse graphs and in complete ones.

    Parameters
    ----------
    order : ndarray of int64, shape (n,)
        Nodes in the order in which cliques start from them.
    weight : ndarray of int64, shape (n,)
    ptr, other, edge : ndarrays of int64, int32, int32, shapes (n + 1,), (2 m,), (2 m,)
        Rows of neighbours, increasing, and which edge leads to each.
    ranked : ndarray of int32, shape (2 m,)
        Positions in `other`, by row: the heavier neighbour first, then the lower.
    """
    n = len(order)
    covered = np.zeros(len(other) // 2, dtype=np.bool_)
    candidate, gain = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    node, clique = (
        np.empty(n + len(other), dtype=np.int32),
        np.empty(n + len(other), dtype=np.int32),
    )
    filled, count = 0, 0
    for i in order:
        at = ptr[i]
        alone = at == ptr[i + 1]
        while True:
            while at < ptr[i + 1] and covered[edge[ranked[at]]]:
                at += 1
            if at == ptr[i + 1] and not alone:
                break
            alone = False
            begin = filled
            node[filled] = i
            filled += 1
            if at < ptr[i + 1]:
                best = other[ranked[at]]
                covered[edge[ranked[at]]] = True
                # Nodes that meet both, and how many new edges each would cover.
                few, many = (
                    (i, best) if ptr[i + 1] - ptr[i] < ptr[best + 1] - ptr[best] else (best, i)
                )
                left = 0
                for r in range(ptr[few], ptr[few + 1]):
                    p = _position(other[r], many, ptr, other)
                    if p >= 0:
                        candidate[left] = other[r]
                        gain[left] = (not covered[edge[r]]) + (not covered[edge[p]])
                        left += 1
                node[filled] = best
                filled += 1
                while left > 0:
                    top = 0
                    for r in range(1, left):
                        c, b = candidate[r], candidate[top]
                        if gain[r] != gain[top]:
                            better = gain[r] > gain[top]
                        elif weight[c] != weight[b]:
                            better = weight[c] > weight[b]
                        else:
                            better = c < b
                        if better:
                            top = r
                    best = candidate[top]
                    for r in range(begin, filled):
                        covered[edge[_position(node[r], best, ptr, other)]] = True
                    node[filled] = best
                    filled += 1
                    kept = 0
                    for r in range(left):
                        p = _position(candidate[r], best, ptr, other)
                        if p >= 0:
                            candidate[kept] = candidate[r]
                            gain[kept] = gain[r] + (not covered[edge[p]])
                            kept += 1
                    left = kept
            clique[begin:filled] = count
            count += 1
    return node[:filled], clique[:filled], count
