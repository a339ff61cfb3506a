"""Sections of a conflict graph: moments of time, or a cover by cliques, within a time limit.

Lifetimes that explain all conflicts, if there are any, are found by :mod:`.intervals`.  If not, the
greedy cover of :mod:`.cover_kernels` is computed in parts, and limits are checked in between; edges
left over are covered by pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from stagepack.instances.packing.normal_form import cover_kernels as kernels
from stagepack.instances.packing.normal_form.cover_kernels import (
    BEGIN,
    COUNT,
    FILLED,
    SPARE,
    Cover,
    RankedRows,
)
from stagepack.instances.profile import Array

KeepGoing = Callable[[], bool]

PART = 500_000
"""Edges, or steps, between two questions: less than a tenth of a second."""

AHEAD = 4
"""So many times the edges of a part are gone through in order between two questions."""


def clique_cover(
    low: Array, high: Array, weight: Array, keep_going: KeepGoing
) -> tuple[Array, Array, int, bool]:
    """Return members (node, clique), the number of cliques, and whether it was cut short.

    Cliques cover every edge (`low`, `high`), int64, low < high, ascending by both; a node without
    edges is one by itself.  Of two nodes that cover as many edges the one of more `weight`, shape
    (n,), joins.  Once `keep_going`, asked now and then, says no, what is left is covered pair by
    pair.
    """
    n, m = len(weight), len(low)
    order = np.argsort(-weight, kind="stable")
    candidate, gain = np.empty((2, n), dtype=np.int64)
    # One for each node and two for each edge: `Cover` says why no more are written.
    node, clique = np.empty((2, n + 2 * m), dtype=np.int32)
    found = Cover(np.zeros(m, bool), candidate, gain, node, clique, np.zeros(7, np.int64))
    rows = _rows(low, high, order, keep_going)
    whole = False
    if rows is not None:
        found.state[SPARE] = np.count_nonzero(np.diff(rows.ptr))
        while not (whole := kernels.cover(order, weight, rows, found, PART)) and keep_going():
            pass
    begin, end, count = found.state[[BEGIN, FILLED, COUNT]].tolist()
    if whole:
        return node[:end], clique[:end], count, False
    if begin < end:  # what there is of a clique is one
        clique[begin:end] = count
        count += 1
    found.state[BEGIN : COUNT + 1] = begin, end, count
    alone = np.ones(n, dtype=bool)
    alone[node[:end]] = False
    for begin in range(0, m, AHEAD * PART):
        kernels.rest(low, high, begin, min(m, begin + AHEAD * PART), found, alone)
        keep_going()  # of millions every pass takes a while: others hear of it
    end, count = found.state[[FILLED, COUNT]].tolist()
    ones = np.flatnonzero(alone)
    node[end : end + len(ones)] = ones
    clique[end : end + len(ones)] = count + np.arange(len(ones))
    end, count = end + len(ones), count + len(ones)
    return node[:end], clique[:end], count, True


def pieces(
    member: tuple[Array, Array],
    cliques: int,
    block: Array,
    window: tuple[Array, Array],
    count: Array,
    keep_going: KeepGoing,
) -> tuple[Array, Array, Array, Array]:
    """Return clique and bytes [low, high) of pieces, by block and clique, and loads of `cliques`.

    `member` is (buffer, clique), int32, the cliques in order; `block` and `window`, int64, where
    it lies above the offset of the block, are of each buffer; to `count`, int64, zeros of shape
    (blocks,), the pieces of each block are added.  `keep_going` is asked now and then, and not
    heeded.  O(members).
    """
    members, load = len(member[0]), np.zeros(cliques, dtype=np.int64)
    first, low, high = np.empty((3, members), dtype=np.int64)
    buffer = block, *window
    parts = list(pairwise([*range(0, members, AHEAD * PART), members]))
    for begin, end in parts:
        keep_going()
        kernels.count_pieces(member[0], begin, end, block, count)
        # Pieces come in any order: the first ones would wait for the memory of all.
        first[begin:end] = low[begin:end] = high[begin:end] = 0
    cursor = np.concatenate([[0], np.cumsum(count)[:-1]])
    for begin, end in parts:
        keep_going()
        kernels.enter_pieces(member, begin, end, buffer, cursor, (first, low, high), load)
    return first, low, high, load


def _rows(low: Array, high: Array, order: Array, keep_going: KeepGoing) -> RankedRows | None:
    """Return the neighbours of each node; None where time is over."""
    n, m = len(order), len(low)
    degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    ptr = np.concatenate([[0], np.cumsum(degree)])
    # Each edge is in the rows of both its ends, once.
    other, edge, back, ranked = np.empty((4, 2 * m), dtype=np.int32)
    rows = RankedRows(ptr, other, edge, back, ranked)
    cursor, above = ptr[:-1].copy(), np.empty(m, dtype=np.int32)
    for enter in (kernels.add_lower_neighbours, kernels.add_higher_neighbours):
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
