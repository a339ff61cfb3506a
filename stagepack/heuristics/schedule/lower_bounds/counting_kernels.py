"""Compiled counting of the operations that a device must run before another one can start.

Cost: O(k^2) for the k operations of a device.  Source: see :mod:`.counting`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered


class Side(NamedTuple):
    """One direction of time; in the other, starts are ends and what takes memory gives it back."""

    # bool (rows, rows): whether the operations of one row come before, or are, those of another, of
    # a microbatch.
    reach: Array
    turn: Array  # int64 (n,): place of each operation in its row
    delta: Array  # int64 (rows,): change of memory
    limit: Array  # int64 (d,): memory of each device, in units of all changes
    # Kinds of operations; from a row to the next of its stage, 1 or -1.
    kinds: int
    step: int


@step
def _first(side: Side, row: int) -> bool:
    """Whether the operations of a row are the first of their stage."""
    kind = row % side.kinds
    return bool(kind == (0 if side.step == 1 else side.kinds - 1))


@step
def _given_back(
    graph: Graph, side: Side, own: Array, place: Array, before: Array, v: int, given: Array
) -> int:
    """Set given[a] to what own[a] may give back before v beside what it must; return the sum.

    Of a stage and microbatch, whose operations run in turn, each gives back what it brings memory
    below the least before it; those that must run before v are done.
    """
    total = 0
    given[:] = 0
    # Each stage and microbatch once: from the operation that is the first not sure to be done.
    for a in range(len(own)):
        u = own[a]
        row = graph.row[u]
        i = u - graph.origin[row]
        at = row
        if before[a]:  # done: the next of its microbatch, unless that is done as well
            at = row + side.step
            if at // side.kinds != row // side.kinds or at < 0:
                continue
            then = graph.origin[at] + i
            if then == v or before[place[then]]:
                continue
        elif u == v or not _first(side, row):
            continue
        # What follows on the way to v counts only below the least that was held before it.
        level = least = 0
        while at >= 0 and at // side.kinds == row // side.kinds:
            c = graph.origin[at] + i
            if c == v:  # it and what follows on it come too late
                break
            level += side.delta[at]
            if level < least:
                given[place[c]] = least - level
                total += least - level
                least = level
            at += side.step
    return total


def _pairs(_: Graph, __: object, own: Array, *rest: object) -> int:
    """Return about how many steps :func:`tighten` takes: each pair of operations is looked at."""
    del rest
    return len(own) ** 2


@tiered(_pairs)
def tighten(
    graph: Graph, side: Side, own: Array, place: Array, head: Array, found: Array, limit: int
) -> bool:
    """Raise heads of the operations of a device by what it must have done before; whether it did.

    Operation v starts after all that must come before it on its device has run, one at a time; and,
    where v takes memory that this leaves no room for, after others have given back enough.  From
    any moment r on, those with heads of at least r take their time, and what cannot have been given
    back before r takes at least the shortest time in which as much can be.

    `own`, int64 (k,), are the operations of a device with memory `limit`, those of greatest head
    first; of shape (n,), int64, `place` is where each is in `own`, `head` are lower bounds on
    starts, -FAR: none, and `found`, at least `head`, is raised.
    """
    k = len(own)
    before, given = np.zeros(k, dtype=np.bool_), np.zeros(k, dtype=np.int64)
    raised = False
    for v in own:
        row = graph.row[v]
        held = side.delta[row]
        for a in range(k):
            u = own[a]
            before[a] = u != v and side.turn[u] <= side.turn[v] and side.reach[graph.row[u], row]
            if before[a]:
                held += side.delta[graph.row[u]]
        # Only what takes memory can lack it.
        lacking = held - limit if side.delta[row] > 0 else 0
        rest = 0
        given[:] = 0
        if lacking > 0:
            rest = lacking - _given_back(graph, side, own, place, before, v, given)
        # From the greatest head down: `energy` is the work from r on, for every r in turn.
        best, energy, a = head[v], 0, 0
        cycles, amount = 0, 0  # of what gives back most in a cycle, of those with heads from r on
        while a < k and head[own[a]] > -FAR:
            r = head[own[a]]
            while a < k and head[own[a]] == r:
                duration = graph.duration[graph.row[own[a]]]
                if before[a]:
                    energy += duration
                if given[a] > 0:
                    rest += given[a]
                    # Cross-multiplied: the best rate of giving back, without division.
                    if amount == 0 or duration * amount < cycles * given[a]:
                        cycles, amount = duration, given[a]
                a += 1
            time = energy
            if lacking > 0 and rest > 0 and amount > 0:
                time -= -rest * cycles // amount  # rounded up: -(-a // b)
            if time > 0:
                best = max(best, r + time)
        if best > found[v]:
            found[v] = best
            raised = True
    return raised


@step
def _sink(heap: Array, key: Array, size: int, at: int) -> None:
    """Let the entry at a place of a heap sink to where none below has a smaller key."""
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[at]] <= key[heap[child]]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


def _pairs_of_idle(_: Graph, __: Array, ___: int, own: Array, *rest: object) -> int:
    """Return about how many steps :func:`idle` takes."""
    del rest
    return len(own) ** 2


@tiered(_pairs_of_idle)
def idle(
    graph: Graph, delta: Array, limit: int, own: Array, head: Array, moment: Array, least: Array
) -> int:
    """Find how long a device is idle before each head at least; return how many were found.

    Before a moment r, operations with earlier heads may have run for as long as there is until r;
    of those that take memory, as many as fit into the limit and what others may have given back.

    All arrays are int64.  `delta`, (rows,), is the change of memory, in the direction of time, and
    `limit` that of the device; `own`, (k,), are its operations, those of least head first, and
    `head`, (n,), lower bounds on starts.  `moment` and `least`, (k + 1,), get moments, in order,
    and idle cycles before them; 0 and 0 come first, then one for each operation at most.  The heap
    within holds operations before one: fewer than k.
    """
    k = len(own)
    moment[0] = least[0] = 0
    count = 1
    part, heap = np.zeros(k), np.zeros(k, dtype=np.int64)  # sorting takes long to compile
    for z in range(k):
        r = head[own[z]]
        if r <= 0 or (z > 0 and head[own[z - 1]] == r):
            continue  # equal heads are one moment
        room, work = limit, 0
        alike, size, takers = True, 0, 0
        for a in range(z):
            v = own[a]
            row = graph.row[v]
            # Of its cycles those before r, if it starts at its head.
            time = min(graph.duration[row], r - head[v])
            if delta[row] <= 0:
                work += time
                if head[v] + graph.duration[row] < r:
                    room -= delta[row]
            else:
                part[a] = -time / delta[row]  # most cycles for a byte come first
                heap[takers] = a
                takers += 1
                alike = alike and (size == 0 or size == delta[row])
                size = delta[row]
        for at in range(takers // 2 - 1, -1, -1):
            _sink(heap, part, takers, at)
        # As in a knapsack whose last piece is cut: more than any choice can work.
        while takers > 0 and room > 0:
            a = heap[0]
            takers -= 1
            heap[0] = heap[takers]
            _sink(heap, part, takers, 0)
            row = graph.row[own[a]]
            time = min(graph.duration[row], r - head[own[a]])
            if delta[row] <= room:
                work += time
            elif not alike:
                work += time  # more than its part that fits
            room -= delta[row]
        if r - work > 0:
            moment[count], least[count] = r, r - work
            count += 1
    return count
