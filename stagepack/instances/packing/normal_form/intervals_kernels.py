"""Compiled kernels that find lifetimes behind a conflict graph; see :mod:`.intervals`.

Each call does a part of the work and goes on where the last one ended.  Cost: as each says.
Source: see :mod:`.intervals`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, step, tiered

GOING, WHOLE, NONE = range(3)
"""What a call leaves: there is more to do; all is done; there are no lifetimes."""

NOW, CLIQUES, SPARE = range(3)
"""Entries of the state of a search: nodes visited, cliques found, numbers of classes to spare."""

PIVOTS, WAITING, LOOKS, NEXT, CLASSES = range(5)
"""Entries of the state of an order: pivots and edges that wait, the number of the step at hand,
the last clique that may not be alone in its class, and how many classes there are."""


class Rows(NamedTuple):
    """Whom each node conflicts with."""

    ptr: Array  # int64 (n + 1,): where rows begin
    other: Array  # int32 (2 m,): neighbours of i, ascending: other[ptr[i] : ptr[i + 1]]


class Search(NamedTuple):
    """A lexicographic breadth-first search, and the maximal cliques that it comes across.

    All arrays are int64.  Nodes that are not visited are parted into classes, runs of `order`: of
    these at most n have members, and a new one is made before the last member leaves an old one.
    """

    order: Array  # (n,): nodes, those visited first, in this order
    place: Array  # (n,): where each node is in it
    group: Array  # (n,): class of each node that is not visited
    # (n + 1,), by class: its run of the order, the class that those visited last leave it for, and
    # when that was made.
    begin: Array
    end: Array
    child: Array
    made: Array
    spare: Array  # (n + 1,): numbers of classes without members
    clique: Array  # (n,): the first clique of each node
    often: Array  # (n,): in how many cliques each node is
    # (n,), by clique, of which there are at most as many as nodes: the node with which it began,
    # its members, and the clique of which it shares all but those that came since; -1: none.
    began: Array
    size: Array
    above: Array
    state: Array  # (3,): counters, by the names above


class Order(NamedTuple):
    """Maximal cliques on their way to an order in which those of each node follow each other.

    Arrays are int64, of an entry a clique, unless said otherwise; classes are runs of `order`.
    """

    ptr: Array  # (n + 1,): where the cliques of each node begin in `member`
    member: Array  # int32 (members,): cliques
    order: Array  # cliques, class by class
    place: Array  # where each is in it
    group: Array  # class of each
    # By class, of which there are no more than cliques: its run of the order.
    begin: Array
    end: Array
    # The cliques below each one in the tree, as lists: the first one, and the next one of each.
    head: Array
    follow: Array
    cut: Array  # whether the edge from each one up is gone
    seen: Array  # the last step in which each took part
    # Pivots, (n,), and edges, by their lower ends: each waits once.
    pivot: Array
    waiting: Array
    told: Array  # (n,): whether each node was a pivot
    state: Array  # (5,): counters, by the names above


@tiered(lambda pairs, begin, end, ptr: end - begin)
def count_neighbours(pairs: Array, begin: int, end: int, ptr: Array) -> None:
    """Count the neighbours of each node i in ptr[i + 2], of pairs from `begin` up to `end`.

    `pairs`, int64 (m, 2), say who conflicts with whom; `ptr`, int64 (n + 2,), changes.
    """
    for e in range(begin, end):
        # Two places on: after the sums ptr[i + 1] is where row i begins, and moves to its end as
        # rows are filled.
        ptr[pairs[e, 0] + 2] += 1
        ptr[pairs[e, 1] + 2] += 1


@tiered(lambda pairs, begin, end, ptr, other: end - begin)
def enter_neighbours(pairs: Array, begin: int, end: int, ptr: Array, other: Array) -> None:
    """Enter the pairs from `begin` up to `end` into the rows of both.

    The row of i is filled up to ptr[i + 1].  `pairs` and `ptr` are as for :func:`count_neighbours`;
    `other`, int32 (2 m,), is written: rows are as long as that counted, given the same pairs.
    """
    for e in range(begin, end):
        i, j = pairs[e, 0], pairs[e, 1]
        # Both rows in one pass, in the order of the list.
        other[ptr[i + 1]] = j
        ptr[i + 1] += 1
        other[ptr[j + 1]] = i
        ptr[j + 1] += 1


@step
def _conflict(i: int, j: int, rows: Rows) -> bool:
    """Return whether two nodes conflict; O(log d)."""
    low, high = rows.ptr[i], rows.ptr[i + 1]
    while low < high:
        middle = (low + high) // 2
        if rows.other[middle] < j:
            low = middle + 1
        else:
            high = middle
    found: bool = low < rows.ptr[i + 1] and rows.other[low] == j
    return found


@step
def _take(v: int, rows: Rows, s: Search) -> int:
    """Visit the next node: move its neighbours ahead; return the one visited last, or -1.

    How many neighbours are visited goes to `s.often`, for the time being.
    """
    now, state = s.place[v], s.state
    c = s.group[v]
    s.begin[c] += 1
    if s.begin[c] == s.end[c]:
        s.spare[state[SPARE]] = c
        state[SPARE] += 1
    known, last = 0, -1
    for r in range(rows.ptr[v], rows.ptr[v + 1]):
        u = rows.other[r]
        if s.place[u] < now:
            known += 1
            last = max(last, s.place[u])
            continue
        c = s.group[u]
        if s.made[c] != now:
            # Neighbours leave their class for a new one right before it.
            state[SPARE] -= 1
            d = s.spare[state[SPARE]]
            s.begin[d] = s.end[d] = s.begin[c]
            s.made[c], s.child[c], s.made[d] = now, d, -1
        d, at = s.child[c], s.begin[c]
        w, back = s.order[at], s.place[u]
        s.order[back], s.place[w] = w, back
        s.order[at], s.place[u], s.group[u] = u, at, d
        s.begin[c] += 1
        s.end[d] += 1
        if s.begin[c] == s.end[c]:
            s.spare[state[SPARE]] = c
            state[SPARE] += 1
    state[NOW] += 1
    s.often[v] = known
    return last


@tiered(lambda rows, s, most: 4 * min(most, entries(rows)))
def visit(rows: Rows, s: Search, most: int) -> int:
    """Visit nodes for about `most` steps; NONE once four or more make a circle without a chord.

    `rows` are those of all nodes; what `s` holds says how calls go on.  O(m log d) in all: the
    visited neighbours of a node must be neighbours of the last one of them, too.  Of all graphs
    few pass the first such looks.
    """
    state = s.state
    while state[NOW] < len(s.order) and most > 0:
        v = s.order[state[NOW]]
        last = _take(v, rows, s)
        known, fresh = s.often[v], True
        up = -1
        if known > 0:
            p = s.order[last]
            up = s.clique[p]
            # It has met all of that clique: it joins.
            fresh = known != s.size[up]
            for r in range(rows.ptr[v], rows.ptr[v + 1]):
                u = rows.other[r]
                if s.place[u] < s.place[v]:
                    if u != p and not _conflict(p, u, rows):
                        return NONE
                    if fresh:
                        s.often[u] += 1
        if fresh:
            k = state[CLIQUES]
            s.began[k], s.size[k], s.above[k] = v, known + 1, up
            s.clique[v] = k
            state[CLIQUES] += 1
        else:
            s.clique[v] = up
            s.size[up] += 1
        s.often[v] = 1
        most -= 8 + 2 * (rows.ptr[v + 1] - rows.ptr[v])
    return WHOLE if state[NOW] == len(s.order) else GOING


@tiered(lambda begin, rows, s, cursor, member, most: 2 * min(most, entries(rows)))
def enter_cliques(
    begin: int, rows: Rows, s: Search, cursor: Array, member: Array, most: int
) -> int:
    """Enter the cliques of each node into its row of `member`; return where it stopped.

    Nodes come as they were visited, from `begin` on, for about `most` steps.  `cursor`, int64 (n,),
    is the next free place of each row: rows are as long as `s.often` says, which was counted as is
    gone through here.  `s` and `rows` are done with by :func:`visit`.
    """
    while begin < len(s.order) and most > 0:
        v = s.order[begin]
        k = s.clique[v]
        member[cursor[v]] = k
        cursor[v] += 1
        if s.began[k] == v:
            for r in range(rows.ptr[v], rows.ptr[v + 1]):
                u = rows.other[r]
                if s.place[u] < begin:
                    member[cursor[u]] = k
                    cursor[u] += 1
        most -= 4 + rows.ptr[v + 1] - rows.ptr[v]
        begin += 1
    return begin


@step
def _part(c: int, low: int, high: int, alone: int, right: bool, o: Order) -> None:
    """Part a class: of the cliques member[low:high], or the one `alone`, its own go to one side."""
    held = 1 if alone >= 0 else 0
    for e in range(low, high):
        held += o.group[o.member[e]] == c
    if held == o.end[c] - o.begin[c]:
        return
    # No class is empty: there are no more than cliques.
    d = o.state[CLASSES]
    o.state[CLASSES] += 1
    # What goes fills one end of the run, from the outside in, by swaps.
    if right:
        at = o.end[c] - 1
        o.begin[d], o.end[d] = o.end[c] - held, o.end[c]
        o.end[c] -= held
    else:
        at = o.begin[c]
        o.begin[d], o.end[d] = o.begin[c], o.begin[c] + held
        o.begin[c] += held
    for e in range(low, high + 1 if alone >= 0 else high):
        k = alone if alone >= 0 else o.member[e]
        if o.group[k] != c:
            continue
        w, back = o.order[at], o.place[k]
        o.order[back], o.place[w] = w, back
        o.order[at], o.place[k], o.group[k] = k, at, d
        at += -1 if right else 1


@step
def _leave(k: int, s: Search, o: Order) -> None:
    """Cut the edges of the tree from clique k to those that are not in the step at hand."""
    now = o.state[LOOKS]
    up = s.above[k]
    if up >= 0 and o.cut[k] == 0 and o.seen[up] != now:
        o.cut[k] = 1
        o.waiting[o.state[WAITING]] = k
        o.state[WAITING] += 1
    before, j = -1, o.head[k]
    while j >= 0:
        if o.cut[j] == 0 and o.seen[j] != now:
            o.cut[j] = 1
            o.waiting[o.state[WAITING]] = j
            o.state[WAITING] += 1
        # Those that are cut leave the list: each is met once more at most.
        if o.cut[j] == 0:
            before = j
        elif before < 0:
            o.head[k] = o.follow[j]
        else:
            o.follow[before] = o.follow[j]
        j = o.follow[j]


@tiered(lambda rows, s, o, most: 4 * min(most, entries(rows, s, o)))
def refine(rows: Rows, s: Search, o: Order, most: int) -> int:
    """Part the classes of cliques for about `most` steps, until each is alone; O(n + m) in all.

    The cliques of a node that is in two of them that were parted follow each other: in the first
    class that has some they go to its end, in the last one to its begin.  If there are lifetimes,
    the order of cliques is one of time in the end.  `rows` and `s` are done with; `o` changes.
    """
    state = o.state
    while most > 0:
        if state[WAITING] > 0:
            # What both ends of an edge share: who was visited before the lower one began.
            state[WAITING] -= 1
            v = s.began[o.waiting[state[WAITING]]]
            for r in range(rows.ptr[v], rows.ptr[v + 1]):
                u = rows.other[r]
                if s.place[u] < s.place[v] and o.told[u] == 0:
                    o.told[u] = 1
                    o.pivot[state[PIVOTS]] = u
                    state[PIVOTS] += 1
            most -= 4 + rows.ptr[v + 1] - rows.ptr[v]
            continue
        state[LOOKS] += 1
        if state[PIVOTS] > 0:
            state[PIVOTS] -= 1
            x = o.pivot[state[PIVOTS]]
            low, high = o.ptr[x], o.ptr[x + 1]
            a = b = o.group[o.member[low]]
            for e in range(low, high):
                o.seen[o.member[e]] = state[LOOKS]
                c = o.group[o.member[e]]
                if o.begin[c] < o.begin[a]:
                    a = c
                if o.begin[c] > o.begin[b]:
                    b = c
            _part(a, low, high, -1, True, o)
            if a != b:
                _part(b, low, high, -1, False, o)
            for e in range(low, high):
                _leave(o.member[e], s, o)
            most -= 8 + 4 * (high - low)
            continue
        # Begin anew with the clique that the search found last of those of its class.
        while state[NEXT] >= 0:
            c = o.group[state[NEXT]]
            if o.end[c] - o.begin[c] > 1:
                break
            state[NEXT] -= 1
            most -= 1
        if state[NEXT] < 0:
            return WHOLE
        k = state[NEXT]
        o.seen[k] = state[LOOKS]
        _part(o.group[k], 0, 0, k, True, o)
        _leave(k, s, o)
        most -= 8
    return GOING
