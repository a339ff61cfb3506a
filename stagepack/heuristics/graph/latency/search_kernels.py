"""Compiled kernels of latency: when all ends, cuts along an order, and annealing of places.

Places are accelerators 0..k - 1, -1 for CPUs.  Cost and source: see :mod:`.search`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stagepack.heuristics.random_kernels import draw
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

FAR = 2**61
"""Ticks of what cannot be: all latencies are below."""
BEST, STEPS, VALUE, STAMP = range(4)
"""Entries of the state: ticks of the best places, steps of the last call, ticks of the places now,
mark of the last move."""


class Graph(NamedTuple):
    """What never changes: v nodes in b blocks, n nets, on k accelerators; int64 arrays.

    Lists of rows are in one row with where they begin, as long as there are rows and one more.
    """

    block: Array  # (v,): of each node
    node_ptr: Array  # (b + 1,): where the nodes of each block begin
    node: Array  # (v,): the nodes, by block
    after_ptr: Array  # (v + 1,): where the readers of each node begin
    after: Array  # (edges,): readers
    near_ptr: Array  # (b + 1,): where the neighbours of each block begin
    near: Array  # (neighbours,): blocks that a block reads from, as -1 - block, and that read it
    of_net_ptr: Array  # (n + 1,): where the blocks of each net begin
    of_net: Array  # (members,): blocks of the nets
    cost: Array  # (n,): ticks of each net
    time: Array  # (k, b): ticks of a block on an accelerator, `FAR` where it may not be
    cpu: Array  # (v,): ticks of a node on a CPU
    slow: Array  # (b,): 1 where a block may be on a CPU
    size: Array  # (b,): bytes
    room: Array  # (k,): bytes of each accelerator


class Scratch(NamedTuple):
    """What a look at places writes; int64 arrays.  There are k + v groups: each node of a CPU is
    one, and each accelerator.
    """

    load: Array  # (k + v,): ticks of each group
    ready: Array  # (k + v,): when all that it reads is there
    waits: Array  # (k + v,): edges from other groups that are not done
    queue: Array  # (k + v,): groups that are ready; each comes once
    first: Array  # (k,): the first node of each accelerator, -1 for none
    next: Array  # (v,): the node after each on its accelerator, -1 for none
    mark: (
        Array  # (max(k, b),): of the net, or the move, that looked at an accelerator or block last
    )
    moved: Array  # (b,): blocks that move at once
    origin: Array  # (b,): where they were
    held: Array  # (k,): bytes on each accelerator


@step
def ends(places: Array, graph: Graph, scratch: Scratch) -> tuple[int, int]:
    """Return when the last group ends, and the ticks of all; `FAR` twice where some wait in a
    circle.  O(nodes + edges + members of nets).

    `places` is int64 of shape (b,).
    """
    k, count = len(graph.room), len(graph.block)
    load, ready, waits, queue = scratch.load, scratch.ready, scratch.waits, scratch.queue
    for g in range(k + count):
        load[g], ready[g], waits[g] = 0, 0, 0
    for place in range(k):
        # Marks of the last look might be of the same nets.
        scratch.mark[place], scratch.first[place] = 0, -1
    for b in range(len(places)):
        if places[b] >= 0:
            load[places[b]] += graph.time[places[b], b]
    for j in range(len(graph.cost)):
        low, high = graph.of_net_ptr[j], graph.of_net_ptr[j + 1]
        home, apart = places[graph.of_net[low]], False
        for at in range(low + 1, high):
            if places[graph.of_net[at]] != home:
                apart = True
                break
        if not apart:
            continue
        for at in range(low, high):
            place = places[graph.of_net[at]]
            # Marks of nets are below 0, those of moves above.
            if place >= 0 and scratch.mark[place] != -1 - j:
                scratch.mark[place] = -1 - j
                load[place] += graph.cost[j]
    groups = 0
    for v in range(count):
        place = places[graph.block[v]]
        if place < 0:
            load[k + v] = graph.cpu[v]
            groups += 1
        else:
            if scratch.first[place] < 0:
                groups += 1
            scratch.next[v] = scratch.first[place]
            scratch.first[place] = v
    for v in range(count):
        place = places[graph.block[v]]
        for at in range(graph.after_ptr[v], graph.after_ptr[v + 1]):
            w = graph.after[at]
            there = places[graph.block[w]]
            if there < 0:
                waits[k + w] += 1
            elif there != place:
                waits[there] += 1
    head, tail, last, total = 0, 0, 0, 0
    for g in range(k + count):
        there = scratch.first[g] >= 0 if g < k else places[graph.block[g - k]] < 0
        if there and waits[g] == 0:
            queue[tail] = g
            tail += 1
    while head < tail:
        g = queue[head]
        head += 1
        end = ready[g] + load[g]
        last = max(last, end)
        total += load[g]
        v = scratch.first[g] if g < k else g - k
        while v >= 0:
            for at in range(graph.after_ptr[v], graph.after_ptr[v + 1]):
                w = graph.after[at]
                place = places[graph.block[w]]
                h = place if place >= 0 else k + w
                if h != g:
                    ready[h] = max(ready[h], end)
                    waits[h] -= 1
                    if waits[h] == 0:
                        queue[tail] = h
                        tail += 1
            v = scratch.next[v] if g < k else -1
    return (last, total) if head == groups else (FAR, FAR)


@compiled
def worth(places: Array, graph: Graph, scratch: Scratch) -> int:
    """Return when the last group ends, `FAR` where a rule is broken.

    `places`, `graph` and `scratch` are those of :func:`ends`.
    """
    scratch.held[:] = 0
    for b in range(len(places)):
        place = places[b]
        if place < 0:
            if graph.slow[b] == 0:
                return FAR
            continue
        scratch.held[place] += graph.size[b]
        if graph.time[place, b] >= FAR or scratch.held[place] > graph.room[place]:
            return FAR
    return ends(places, graph, scratch)[0]


@step
def _put(b: int, place: int, places: Array, graph: Graph, scratch: Scratch) -> None:
    """Move a block."""
    if places[b] >= 0:
        scratch.held[places[b]] -= graph.size[b]
    if place >= 0:
        scratch.held[place] += graph.size[b]
    places[b] = place


@step
def _gather(b: int, side: int, places: Array, graph: Graph, stamp: int, scratch: Scratch) -> int:
    """Write to `moved` a block and, along the edges of one side, those of its place; return how
    many: `side` 1 for what reads it, -1 for what it reads, 0 for none.  Each block comes once.
    """
    scratch.moved[0], scratch.mark[b] = b, stamp
    size, at = 1, 0
    while at < size and side != 0:
        u = scratch.moved[at]
        at += 1
        for i in range(graph.near_ptr[u], graph.near_ptr[u + 1]):
            w = graph.near[i]
            if (w >= 0) != (side > 0):
                continue
            w = w if w >= 0 else -1 - w
            if places[w] == places[b] and scratch.mark[w] != stamp:
                scratch.mark[w] = stamp
                scratch.moved[size] = w
                size += 1
    return size


@compiled
def anneal(
    moves: int,
    heat: float,
    even_share: float,
    odds: int,
    random: Array,
    places: Array,
    best: Array,
    state: Array,
    graph: Graph,
    scratch: Scratch,
) -> None:
    """Try so many moves at one heat; keep the best places.

    A block goes to where a neighbour is, with what is after it there where it goes to a reader,
    with what is before it where it goes to what it reads; seldom to a CPU, or to any accelerator.
    O(nodes + edges + members of nets) a move.

    Parameters
    ----------
    moves : int
        How many.
    heat : float
        Ticks more that a move may cost with probability 1 / e.
    even_share, odds : float, int
        As :class:`.LatencyTuning` has them.
    random : ndarray of uint64, shape (1,)
        State of the generator.
    places, best : ndarray of int64, shape (b,)
        The places now, which keep all rules, and the best so far.
    state : ndarray of int64, shape (4,)
        `BEST`, `STEPS`, `VALUE`, `STAMP`.
    graph : Graph
    scratch : Scratch
    """
    k, blocks = len(graph.room), len(places)
    each = len(graph.block) + len(graph.after) + len(graph.of_net)
    state[STEPS] = 0
    scratch.mark[:] = 0
    scratch.held[:] = 0
    for b in range(blocks):
        if places[b] >= 0:
            scratch.held[places[b]] += graph.size[b]
    now, total = ends(places, graph, scratch)
    energy = now + total * even_share
    for _ in range(moves):
        b = draw(random, blocks)
        way = draw(random, odds)
        near = graph.near_ptr[b + 1] - graph.near_ptr[b]
        to, side = -1, 0
        if way == 0 and k > 0:
            to = draw(random, k)
            side = draw(random, 3) - 1
        elif way > 1 and near > 0:
            w = graph.near[graph.near_ptr[b] + draw(random, near)]
            side = 1 if w >= 0 else -1
            to = places[w if w >= 0 else -1 - w]
            if draw(random, odds) == 0:
                side = 0
        if to == places[b]:
            continue
        state[STAMP] += 1
        size = _gather(b, 0 if places[b] < 0 else side, places, graph, state[STAMP], scratch)
        fits, need = True, 0
        for at in range(size):
            u = scratch.moved[at]
            fits = fits and (graph.slow[u] != 0 if to < 0 else graph.time[to, u] < FAR)
            need += graph.size[u]
        state[STEPS] += 3 * size
        if not fits or (to >= 0 and scratch.held[to] + need > graph.room[to]):
            continue
        for at in range(size):
            scratch.origin[at] = places[scratch.moved[at]]
            _put(scratch.moved[at], to, places, graph, scratch)
        state[STEPS] += each
        last, total = ends(places, graph, scratch)
        worse = last + total * even_share - energy
        drawn = draw(random, 2**30) / 2.0**30
        if last >= FAR or (worse > 0 and drawn >= math.exp(-worse / heat)):
            for at in range(size):
                _put(scratch.moved[at], scratch.origin[at], places, graph, scratch)
            continue
        energy += worse
        state[VALUE] = last
        if last < state[BEST]:
            state[BEST] = last
            best[:] = places


class Order(NamedTuple):
    """Units in a topological order, and what stages of it cost; int64 arrays of n units."""

    time: Array  # (classes, n): ticks, `FAR` where a unit may not be
    cpu: Array  # (n,): ticks on a CPU, `FAR` where it may not be
    size: Array  # (n,): bytes
    net_ptr: Array  # (n + 1,): where the nets of each unit begin
    net: Array  # (members,): nets of the units
    first: Array  # (nets,): place in the order of the first unit of each net
    last: Array  # (nets,): of the last one
    cost: Array  # (nets,): ticks


@compiled
def cut(
    d: int,
    begin: int,
    end: int,
    kind: int,
    room: int,
    order: Order,
    best: Array,
    came: Array,
    mark: Array,
) -> None:
    """Lengthen what the first d - 1 devices hold by a stage of device d that begins at `begin` ..
    `end` - 1, or by units on CPUs.

    One after the other, for d from 0 (no device: CPUs alone) and parts from 0 to n.  O(members of
    nets) for each beginning.

    Parameters
    ----------
    d, begin, end : int64
    kind, room : int64
        Class and bytes of device d.
    order : Order
    best : ndarray of int64, shape (k + 1, n + 1)
        Written in row d: ticks of the first units on the first d devices, and CPUs, one after the
        other; `FAR` where they do not fit.
    came : ndarray of int64, shape (k + 1, n + 1)
        Written: where the last stage begins, -1 - that for a unit on a CPU, n + 1 for a device that
        stays empty.
    mark : ndarray of int64, shape (nets,)
        Scratch, -1 at first.
    """
    n = len(order.cpu)
    if begin == 0:
        for j in range(n + 1):
            best[d, j] = best[d - 1, j] if d > 0 else FAR
            came[d, j] = n + 1
        if d == 0:
            best[0, 0] = 0
    for i in range(begin, end if d > 0 else begin):
        if best[d - 1, i] >= FAR:
            continue
        load, held, crossing, look = 0, 0, 0, d * n + i
        for j in range(i, n):
            held += order.size[j]
            if order.time[kind, j] >= FAR or held > room:
                break
            load += order.time[kind, j]
            for at in range(order.net_ptr[j], order.net_ptr[j + 1]):
                net = order.net[at]
                if mark[net] != look:
                    mark[net] = look
                    if order.first[net] < i or order.last[net] > j:
                        crossing += order.cost[net]
                elif order.first[net] >= i and order.last[net] == j:
                    crossing -= order.cost[net]
            ticks = best[d - 1, i] + load + crossing
            if ticks < best[d, j + 1]:
                best[d, j + 1], came[d, j + 1] = ticks, i
    if end == n:
        for j in range(n):
            if best[d, j] < FAR and order.cpu[j] < FAR:
                ticks = best[d, j] + order.cpu[j]
                if ticks < best[d, j + 1]:
                    best[d, j + 1], came[d, j + 1] = ticks, -1 - j
