"""Compiled greedy clique cover of a conflict graph, computed in parts.

A clique grows from an uncovered edge by the node that covers most new edges; ties are broken by
weight, then by the lower number.  Neighbours are looked up by bisection in the shorter of two rows,
so a clique costs as much as the degrees of its smallest members, and a star no more than its edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stagepack.kernels.compiled import compiled, step

Array = np.ndarray[Any, np.dtype[Any]]

INDEX, AT, BEGIN, FILLED, COUNT, LEFT, SPARE = range(7)
"""Entries of the state of a cover: which node of the order cliques start from, and its next
position; where the clique at hand begins and all members end; cliques that are complete;
candidates for the one at hand; places left for members that cover no new edge."""


class RankedRows(NamedTuple):
    """Neighbours of each node."""

    ptr: Array  # int64, shape (n + 1,): where rows begin
    # `other`, `edge`: int32, shape (2 m,): neighbours, increasing in every row, and which edge
    # leads to each.
    other: Array
    edge: Array
    back: Array  # int32, shape (2 m,): where the same edge stands in the other row
    # int32, shape (2 m,): positions in `other`, by row: the heavier neighbour first, then the
    # lower.
    ranked: Array


class Cover(NamedTuple):
    """Cliques so far; see :func:`cover`.

    Calls may end after any member: the clique at hand, its candidates and what they would cover
    are all here, and nothing is set up by a first call.
    """

    covered: Array  # bool, shape (m,): which edges are in a clique
    # `candidate`, `gain`: int64, shape (n,): what may join the clique at hand, and how many new
    # edges each would cover.  Candidates are different nodes.
    candidate: Array
    gain: Array
    # `node`, `clique`: int32, shape (n + 2 m,): members, clique by clique; a node alone is one.  Of
    # n + 2 m places each node without edges takes one, and each edge that is covered for the first
    # time gives two: enough for the two that a clique begins with, and for each that joins and
    # covers a new edge.  Others join while places are left over (`SPARE`: at first one for each
    # node with edges).
    node: Array
    clique: Array
    state: Array  # int64, shape (7,): counters, by the names above


@compiled
def add_lower_neighbours(
    low: Array, high: Array, begin: int, end: int, cursor: Array, above: Array, rows: RankedRows
) -> None:
    """Write the lower end of the edges [`begin`, `end`) into the row of the higher one.

    Edges have `low` < `high`, int64 (m,), and ascend by both; `cursor` is the next free position of
    each row, int64, shape (n,).  Written are `above`, int32, shape (m,), where each edge stands in
    the row of its higher end, and `rows`: a row is as long as its node has edges, each of which is
    written there once.
    """
    for e in range(begin, end):
        # Edges ascend by both ends: so do the lower neighbours of every node.
        at = above[e] = cursor[high[e]]
        rows.other[at], rows.edge[at] = low[e], e
        cursor[high[e]] += 1


@compiled
def add_higher_neighbours(
    low: Array, high: Array, begin: int, end: int, cursor: Array, above: Array, rows: RankedRows
) -> None:
    """Write the higher end into the row of the lower one, behind all its lower neighbours.

    So every row is in order, and each of its places knows the one that the edge has in the other
    row (`rows.back`).  Once all edges went through :func:`add_lower_neighbours`, which wrote
    `above`, and of which `low`, `high`, `begin`, `end` and `cursor` are.
    """
    for e in range(begin, end):
        at = cursor[low[e]]
        rows.other[at], rows.edge[at] = high[e], e
        # Each entry knows its twin: rows need not be searched for it.
        rows.back[at], rows.back[above[e]] = above[e], at
        cursor[low[e]] += 1


@compiled
def rank(order: Array, begin: int, most: int, cursor: Array, rows: RankedRows) -> int:
    """Rank nodes from `begin` on in the rows of their neighbours; return where it stopped.

    The `order` is int64, shape (n,): the heavier first, then the lower.  It stops after `most`
    neighbours.  Every node writes one entry into the row of each of its neighbours in `ranked`, at
    its `cursor`.
    """
    steps = 0
    while begin < len(order) and steps < most:
        node = order[begin]
        for at in range(rows.ptr[node], rows.ptr[node + 1]):
            where = rows.other[at]
            # Nodes come by weight, and so do the entries that they write into the rows of others.
            rows.ranked[cursor[where]] = rows.back[at]
            cursor[where] += 1
        steps += 1 + rows.ptr[node + 1] - rows.ptr[node]
        begin += 1
    return begin


@step
def _position(node: int, row: int, rows: RankedRows) -> int:
    """Return where `node` is in a row, or -1."""
    low, high = rows.ptr[row], rows.ptr[row + 1]
    while low < high:
        middle = (low + high) // 2
        if rows.other[middle] < node:
            low = middle + 1
        else:
            high = middle
    found: int = low if low < rows.ptr[row + 1] and rows.other[low] == node else -1
    return found


@step
def _open(i: int, at: int, rows: RankedRows, found: Cover) -> int:
    """Begin a clique with an edge of node i; return the steps that took.

    Its two ends take the two places that the edge gives (see :class:`Cover`).  Candidates are
    nodes of one row, each once: `candidate` and `gain` have an entry a node.
    """
    ptr, state = rows.ptr, found.state
    # The heaviest neighbour by an edge that no clique covers yet.
    best = rows.other[rows.ranked[at]]
    found.covered[rows.edge[rows.ranked[at]]] = True
    # Nodes that meet both, and how many new edges each would cover.
    # The shorter row is gone through, the longer one is searched.
    few, many = (i, best) if ptr[i + 1] - ptr[i] < ptr[best + 1] - ptr[best] else (best, i)
    left = 0
    for r in range(ptr[few], ptr[few + 1]):
        p = _position(rows.other[r], many, rows)
        if p >= 0:
            found.candidate[left] = rows.other[r]
            found.gain[left] = (not found.covered[rows.edge[r]]) + (not found.covered[rows.edge[p]])
            left += 1
    found.node[state[FILLED]] = best
    state[FILLED] += 1
    state[LEFT] = left
    steps: int = 2 + ptr[few + 1] - ptr[few]
    return steps


@step
def _grow(weight: Array, rows: RankedRows, found: Cover) -> int:
    """Add the best candidate to the clique at hand; return the steps that took.

    One that covers no new edge joins while there are places to spare (see :class:`Cover`); else the
    clique is complete.  Candidates that are left move to the front, never behind what was read.
    """
    candidate, gain, state = found.candidate, found.gain, found.state
    # The most new edges; of equal ones the heaviest, then the lowest: the answer is the same
    # always.
    left, top = state[LEFT], 0
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
    if gain[top] == 0 and state[SPARE] == 0:
        state[LEFT] = 0
        return int(left)
    # Each new edge gives two places, and the member takes one.
    state[SPARE] += 2 * gain[top] - 1
    best = candidate[top]
    for r in range(state[BEGIN], state[FILLED]):
        # Some are covered already: that is no harm.
        found.covered[rows.edge[_position(found.node[r], best, rows)]] = True
    found.node[state[FILLED]] = best
    state[FILLED] += 1
    kept = 0
    for r in range(left):
        p = _position(candidate[r], best, rows)
        if p >= 0:
            candidate[kept] = candidate[r]
            # What meets the new member as well stays, and may cover one edge more.
            gain[kept] = gain[r] + (not found.covered[rows.edge[p]])
            kept += 1
    state[LEFT] = kept
    steps: int = 2 * left + state[FILLED] - state[BEGIN]
    return steps


@compiled
def cover(order: Array, weight: Array, rows: RankedRows, found: Cover, most: int) -> bool:
    """Go on with a cover for about `most` steps; return whether it is complete.

    Cliques start from nodes in their `order`, and the heavier by `weight` come first; both int64,
    shape (n,).  The class of `found` says why all members have room, and what calls go on with.
    O(edges^1.5 log n) at worst, about linear in sparse graphs and in complete ones.
    """
    ptr, state, steps = rows.ptr, found.state, 0
    while state[INDEX] < len(order):
        if steps >= most:
            return False
        i = order[state[INDEX]]
        end = ptr[i + 1]
        if state[LEFT] > 0:
            steps += _grow(weight, rows, found)
            continue
        # The clique at hand has no candidates left: it is complete.
        if state[BEGIN] < state[FILLED]:
            found.clique[state[BEGIN] : state[FILLED]] = state[COUNT]
            state[COUNT] += 1
            state[BEGIN] = state[FILLED]
        at = ptr[i] + state[AT]
        # Edges stay covered, so that the next look goes on from here.
        while at < end and found.covered[rows.edge[rows.ranked[at]]]:
            at += 1
        steps += 1 + at - ptr[i] - state[AT]
        state[AT] = at - ptr[i]
        # It begins a clique, if only one of its own, where it has no neighbour at all.
        if at < end or ptr[i] == end:
            found.node[state[FILLED]] = i
            state[FILLED] += 1
        if at < end:
            steps += _open(i, at, rows, found)
        else:
            state[INDEX] += 1
            state[AT] = 0
            if ptr[i] == end:
                found.clique[state[BEGIN] : state[FILLED]] = state[COUNT]
                state[COUNT] += 1
                state[BEGIN] = state[FILLED]
    return True


@compiled
def rest(low: Array, high: Array, begin: int, end: int, found: Cover, alone: Array) -> None:
    """Make cliques of two of the edges [`begin`, `end`) that no clique covers.

    An edge (`low`, `high`) that is not covered has not given its two places yet; these are what it
    takes in `found`.  `alone`, bool, shape (n,), is set false for the ends of these edges.
    """
    state = found.state
    for e in range(begin, end):
        alone[low[e]] = alone[high[e]] = False
        if not found.covered[e]:
            at = state[FILLED]
            found.node[at], found.node[at + 1] = low[e], high[e]
            found.clique[at] = found.clique[at + 1] = state[COUNT]
            state[FILLED] += 2
            state[COUNT] += 1


@compiled
def count_pieces(node: Array, begin: int, end: int, block: Array, count: Array) -> None:
    """Add the members of cliques from `begin` up to `end` to the `count` of their `block`.

    A member is a `node`, int32; `block`, (n,), and `count`, (blocks,), are int64.
    """
    for at in range(begin, end):
        count[block[node[at]]] += 1


@compiled
def enter_pieces(
    member: tuple[Array, Array],
    begin: int,
    end: int,
    buffer: tuple[Array, Array, Array],
    cursor: Array,
    piece: tuple[Array, Array, Array],
    load: Array,
) -> None:
    """Enter the members [`begin`, `end`) of cliques into the rows of their blocks.

    A `member` is node and clique, int32; a `buffer` block, low and high end, int64; `cursor` is the
    next free position of each row, shape (blocks,).  Written are `piece`, three arrays int64
    (members,), clique and ends by row, rows as long as :func:`count_pieces` counted, and `load`,
    int64 (cliques,), to which sizes are added.
    """
    node, clique = member
    block, bottom, top = buffer
    first, low, high = piece
    for at in range(begin, end):
        i, c = node[at], clique[at]
        where = cursor[block[i]]
        first[where], low[where], high[where] = c, bottom[i], top[i]
        cursor[block[i]] += 1
        load[c] += top[i] - bottom[i]
