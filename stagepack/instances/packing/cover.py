"""Cliques that cover a conflict graph, as far as time allows: what is left of its edges are pairs.

The greedy cover of :mod:`.cover_kernels`, a part of the work at a time with a question between.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.instances.packing import cover_kernels as kernels
from stagepack.instances.packing.cover_kernels import BEGIN, COUNT, FILLED, Cover, Rows
from stagepack.instances.profile import Array

PART = 500_000
"""Edges, or steps, between two questions: less than a tenth of a second."""


def clique_cover(
    low: Array, high: Array, weight: Array, keep_going: Callable[[], bool]
) -> tuple[Array, Array, int, bool]:
    """Return members (node, clique), the number of cliques, and whether it was cut short.

    Cliques cover every edge; a node without edges is one by itself.

    Parameters
    ----------
    low, high : ndarray of int64, shape (m,)
        The ends of each edge, low < high, ascending by both.
    weight : ndarray of int64, shape (n,)
        Of two nodes that cover as many edges the heavier joins a clique.
    keep_going : callable
        Asked now and then; once it says no, what is not covered is covered pair by pair.
    """
    n, m = len(weight), len(low)
    order = np.argsort(-weight, kind="stable")
    candidate, gain = np.empty((2, n), dtype=np.int64)
    node, clique = np.empty((2, n + 2 * m), dtype=np.int32)
    found = Cover(np.zeros(m, bool), candidate, gain, node, clique, np.zeros(6, np.int64))
    rows = _rows(low, high, order, keep_going)
    whole = False
    if rows is not None:
        while not (whole := kernels.cover(order, weight, rows, found, PART)) and keep_going():
            pass
    begin, end, count = found.state[[BEGIN, FILLED, COUNT]].tolist()
    if whole:
        return node[:end], clique[:end], count, False
    if begin < end:  # what there is of a clique is one
        clique[begin:end] = count
        count += 1
    keep_going()  # of millions every pass takes a while: others hear of it
    rest = np.flatnonzero(~found.covered)
    members = np.concatenate([node[:end], np.stack([low[rest], high[rest]], axis=1).ravel()])
    keep_going()
    alone = np.flatnonzero(np.bincount(members, minlength=n) == 0)
    pairs, ones = np.split(count + np.arange(len(rest) + len(alone)), [len(rest)])
    numbers = np.concatenate([clique[:end], pairs.repeat(2), ones])
    return np.concatenate([members, alone]), numbers, count + len(rest) + len(alone), True


def _rows(low: Array, high: Array, order: Array, keep_going: Callable[[], bool]) -> Rows | None:
    """Return the neighbours of each node; None where time is over."""
    n, m = len(order), len(low)
    degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    ptr = np.concatenate([[0], np.cumsum(degree)])
    other, edge, back, ranked = np.empty((4, 2 * m), dtype=np.int32)
    rows = Rows(ptr, other, edge, back, ranked)
    cursor, above = ptr[:-1].copy(), np.empty(m, dtype=np.int32)
    for enter in (kernels.enter_lower, kernels.enter_higher):
        for begin in range(0, m, PART):
            if not keep_going():
                return None
            enter(low, high, begin, min(m, begin + PART), cursor, above, rows)
    cursor, at = ptr[:-1].copy(), 0
    while at < n:
        if not keep_going():
            return None
        at = kernels.rank(order, at, PART, cursor, rows)
    return rows
