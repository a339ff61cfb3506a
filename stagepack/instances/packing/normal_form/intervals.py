"""Lifetimes that explain a conflict graph: who conflicts is alive together, nobody else is.

What compilers list as conflicts is often made from lifetimes.  With these a graph has an exact
clique for every moment, and is packed like any other set of lifetimes.  A lexicographic
breadth-first search finds the maximal cliques and a tree of them, or a circle without a chord,
which lifetimes never make; most other graphs are given up after a few nodes.  Cliques are then
parted until those of each node follow each other: their order is that of time.  Whatever is found
is compared with the list of conflicts.  Cost: O(n + m log d) for m conflicts of nodes with d
neighbours, in memory of about 12 bytes a conflict.  Source: Habib, McConnell, Paul, Viennot 2000.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form import intervals_kernels as kernels
from stagepack.instances.packing.normal_form.intervals_kernels import (
    CLASSES,
    CLIQUES,
    GOING,
    NEXT,
    NONE,
    SPARE,
    Order,
    Rows,
    Search,
)
from stagepack.instances.profile import Array

Spans = tuple[Array, Array, int]
"""Sections [first, end) of each node, int64 (n,), and how many sections there are."""

_known: weakref.WeakKeyDictionary[LmemPacking, Spans | None] = weakref.WeakKeyDictionary()
"""What was found; None: that there are no lifetimes."""

PART = 1_000_000
"""Steps, or conflicts, between two questions: less than a tenth of a second."""


def explained(
    instance: LmemPacking, pairs: Array, keep_going: Callable[[], bool], rows: Rows | None = None
) -> Spans | None:
    """Return the :func:`lifetimes` of an instance, by those `pairs` of its conflicts that count.

    They are remembered, and so is that there are none; the pairs, shape (m, 2), are always the
    same. `rows` are the :func:`neighbours` by them, where known; `keep_going` as for
    :func:`lifetimes`.
    """
    if instance in _known:
        return _known[instance]
    rows = neighbours(pairs, instance.n, keep_going) if rows is None else rows
    found = lifetimes(pairs, rows, keep_going)
    if found is not None or keep_going():
        _known[instance] = found
    return found


def neighbours(pairs: Array, n: int, keep_going: Callable[[], object]) -> Rows:
    """Return the neighbours of each of n nodes, ascending; O(n + m).

    `pairs`, int64 (m, 2), ascend and differ, the lower node of each first.  `keep_going` is asked
    several times a second, and not heeded.
    """
    m = len(pairs)
    # Each pair enters the rows of both.
    ptr, other = np.zeros(n + 2, dtype=np.int64), np.empty(2 * m, dtype=np.int32)
    for begin in range(0, m, PART):
        keep_going()
        kernels.count_neighbours(pairs, begin, min(m, begin + PART), ptr)
    np.cumsum(ptr, out=ptr)
    for begin in range(0, m, PART):
        keep_going()
        kernels.enter_neighbours(pairs, begin, min(m, begin + PART), ptr, other)
    return Rows(ptr[:-1].copy(), other)


def lifetimes(pairs: Array, rows: Rows, keep_going: Callable[[], bool]) -> Spans | None:
    """Return the sections in which each node is alive.

    Nodes are alive together exactly where they conflict, and the sections are the maximal cliques.
    None where there are no such lifetimes, or `keep_going`, asked several times a second, says no.
    `pairs`, int64 (m, 2), are those of which :func:`neighbours` made the `rows`.
    """
    found = _search(rows, keep_going)
    if found is None:
        return None
    order = _ordered(rows, found, keep_going)
    if order is None:
        return None
    place = order.place[order.member]
    first = np.minimum.reduceat(place, order.ptr[:-1])
    end = np.maximum.reduceat(place, order.ptr[:-1]) + 1
    count = len(order.order)
    begun, ended = (np.cumsum(np.bincount(at, minlength=count + 1)) for at in (first, end))
    met = begun[end - 1] - ended[first]
    # As many pairs alive together as conflicts, and each conflict is one of them.
    if (end - first != found.often).any() or met.sum() - len(first) != 2 * len(pairs):
        return None
    for begin in range(0, len(pairs), PART):
        i, j = pairs[begin : begin + PART].T
        if not keep_going() or ((first[i] >= end[j]) | (first[j] >= end[i])).any():
            return None
    return first, end, count


def _search(rows: Rows, keep_going: Callable[[], bool]) -> Search | None:
    """Return a search of all nodes; None where there is a circle without a chord, or no time."""
    n = len(rows.ptr) - 1
    order, place = np.arange(n), np.arange(n)
    group, clique, often, began, size, above = np.zeros((6, n), dtype=np.int64)
    begin, end, child, made = np.zeros((4, n + 1), dtype=np.int64)
    # At first all are in one class, number 0; the others are to spare.
    end[0], made[:], spare = n, -1, np.append(np.arange(1, n + 1), 0)
    state = np.zeros(3, dtype=np.int64)
    state[SPARE] = n
    nodes, classes = (order, place, group), (begin, end, child, made, spare)
    found = Search(*nodes, *classes, clique, often, began, size, above, state)
    while keep_going():
        done = kernels.visit(rows, found, PART)
        if done != GOING:
            return None if done == NONE else found
    return None


def _ordered(rows: Rows, s: Search, keep_going: Callable[[], bool]) -> Order | None:
    """Return all cliques in an order, one of time if there is one; None where time is over."""
    n, count = len(s.order), int(s.state[CLIQUES])
    ptr = np.concatenate([[0], np.cumsum(s.often)])
    member, cursor, at = np.empty(ptr[-1], dtype=np.int32), ptr[:-1].copy(), 0
    while at < n:
        if not keep_going():
            return None
        at = kernels.enter_cliques(at, rows, s, cursor, member, PART)
    head, follow = np.full((2, count), -1, dtype=np.int64)
    below = np.flatnonzero(s.above[:count] >= 0)
    below = below[np.argsort(s.above[below], kind="stable")]
    up = s.above[below]
    new = np.append(True, up[1:] != up[:-1])[: len(up)]
    head[up[new]] = below[new]
    follow[below[:-1]] = np.where(new[1:], -1, below[1:])
    group, begin, end, cut, seen, waiting = np.zeros((6, count), dtype=np.int64)
    end[0] = count
    pivot, told = np.zeros((2, n), dtype=np.int64)
    state = np.zeros(5, dtype=np.int64)
    state[NEXT], state[CLASSES] = count - 1, 1
    order, place = np.arange(count), np.arange(count)
    classes, tree = (order, place, group, begin, end), (head, follow, cut)
    found = Order(ptr, member, *classes, *tree, seen, pivot, waiting, told, state)
    while keep_going():
        if kernels.refine(rows, s, found, PART) != GOING:
            return found
    return None
