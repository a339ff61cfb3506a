"""Compiled annealing over the orders of devices: one critical operation moves at a time.

What it minimises is the objective and a little of how much is critical.  Cost: O(n + arcs) a move.
Source: see :mod:`.annealing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.random_kernels import draw
from stagepack.heuristics.schedule.timing_kernels import Graph, backward, forward
from stagepack.instances.compiled import compiled, step
from stagepack.instances.profile import Array

DRAWN, TRIED = 60, 20
"""Operations drawn until one is critical, and critical ones tried until one can move."""


class Walk(NamedTuple):
    """An annealing under way; int64 arrays unless stated otherwise.

    Attributes
    ----------
    order, ptr, position : ndarray, shape (n,), (d + 1,), (n,)
        What each device runs, and where each operation is in `order`.
    stage, kind, microbatch : ndarray, shape (n,)
    into_first, into_row, into_lag : ndarray, shape (rows + 1,), (arcs,), (arcs,)
        What the operations of row r wait for, beside those of the row: into_first[r] .. .
    follower, visit, waits : ndarray of int32, shape (n,)
        Scratch of the longest paths.
    early, late : ndarray, shape (2, n)
        Earliest starts, and latest ones of the same ends: in row side[0] those of `order`, in the
        other those of the orders that are tried.
    ends, span : ndarray, shape (d,), (2, d)
        The ends of devices; what counts from each in the objective.
    side : ndarray, shape (1,)
    best : ndarray, shape (n,)
        The orders of least value met.
    value : ndarray, shape (2,)
        Objective value of `order` and of `best`; negative: to be found.
    energy : ndarray of float64, shape (1,)
    random : ndarray of uint64, shape (1,)
        State of the generator.
    spans : int
        1: the objective is the longest span, 0: the makespan.
    work : ndarray, shape (1,)
        Steps of all loops so far.
    """

    order: Array
    ptr: Array
    position: Array
    stage: Array
    kind: Array
    microbatch: Array
    into_first: Array
    into_row: Array
    into_lag: Array
    follower: Array
    visit: Array
    waits: Array
    early: Array
    late: Array
    ends: Array
    span: Array
    side: Array
    best: Array
    value: Array
    energy: Array
    random: Array
    spans: int
    work: Array


@step
def _value(graph: Graph, walk: Walk, side: int) -> int:
    """Return the objective value of the orders, -1 in a deadlock; find times and spans of `side`.

    Spans are those of the earliest ends with the latest first starts, which is no less than what
    the orders allow.
    """
    devices = len(walk.ptr) - 1
    early, late, span = walk.early[side], walk.late[side], walk.span[side]
    walk.work[0] += 4 * (len(walk.order) + graph.arcs) // 3
    if not forward(graph, walk.order, walk.follower, early, walk.visit, walk.waits):
        return -1
    most = 0
    for d in range(devices):
        last = walk.order[walk.ptr[d + 1] - 1]
        walk.ends[d] = early[last] + graph.duration[graph.row[last]]
        most = max(most, walk.ends[d] + graph.rest[d])
    if walk.spans == 0:
        for d in range(devices):
            span[d] = most
            walk.ends[d] = most - graph.rest[d]
    backward(graph, walk.follower, walk.visit, walk.ends, late, 0, len(walk.visit))
    if walk.spans == 1:
        most = 0
        for d in range(devices):
            span[d] = walk.ends[d] + graph.rest[d] - late[walk.order[walk.ptr[d]]]
            most = max(most, span[d])
    return most


@step
def _excess(graph: Graph, walk: Walk, side: int, least: int) -> float:
    """Return by how much longest paths through operations exceed `least`, in the mean."""
    early, late, span = walk.early[side], walk.late[side], walk.span[side]
    total = 0.0
    for v in range(len(early)):
        total += max(0, span[graph.device[graph.row[v]]] + early[v] - late[v] - least)
    return total / len(early)


@step
def _shift(order: Array, position: Array, source: int, target: int) -> None:
    """Move the operation at place `source` to place `target`; those between make room."""
    v = order[source]
    step = 1 if target > source else -1
    at = source
    while at != target:
        order[at] = order[at + step]
        position[order[at]] = at
        at += step
    order[target] = v
    position[v] = target


@step
def _fits(graph: Graph, order: Array, low: int, high: int, limit: int) -> bool:
    """Whether the device that runs order[low:high] keeps within its memory."""
    held = 0
    for at in range(low, high):
        held += graph.delta[graph.row[order[at]]]
        if held > limit:
            return False
    return True


@step
def _critical(graph: Graph, walk: Walk, threshold: int) -> int:
    """Return an operation on a path of at least `threshold`; -1 when none was drawn."""
    side = walk.side[0]
    early, late, span = walk.early[side], walk.late[side], walk.span[side]
    if walk.spans == 1 and draw(walk.random, 2) == 0:
        return draw(walk.random, len(walk.order))
    for _ in range(DRAWN):
        v = draw(walk.random, len(walk.order))
        if span[graph.device[graph.row[v]]] + early[v] - late[v] >= threshold:
            return v
    return -1


@step
def _arrival(graph: Graph, walk: Walk, v: int) -> int:
    """Return when all is there that operation v waits for beside its device."""
    early, row = walk.early[walk.side[0]], graph.row[v]
    found = 0
    for arc in range(walk.into_first[row], walk.into_first[row + 1]):
        before = walk.into_row[arc]
        u = graph.origin[before] + v - graph.origin[row]
        found = max(found, early[u] + graph.duration[before] + walk.into_lag[arc])
    return found


@step
def _due(graph: Graph, walk: Walk, v: int) -> int:
    """Return when operation v must have ended for what waits for it beside its device."""
    late, row = walk.late[walk.side[0]], graph.row[v]
    found = 1 << 62
    for arc in range(graph.first[row], graph.first[row + 1]):
        after = graph.after[arc]
        if after != row:
            u = graph.origin[after] + v - graph.origin[row]
            found = min(found, late[u] - graph.lag[arc])
    return found


@step
def _place(graph: Graph, walk: Walk, v: int) -> int:
    """Return the place that operation v may move to, its own when there is none.

    It does not pass one of its stage of the same kind or microbatch.  For makespans it moves only
    where no gap is, and does not pass what it could not start before, or what could not start
    before its end; for spans, whose devices may start later, times say less.
    """
    early, late = walk.early[walk.side[0]], walk.late[walk.side[0]]
    source: int = walk.position[v]
    device = graph.device[graph.row[v]]
    low, high = walk.ptr[device], walk.ptr[device + 1]
    left = draw(walk.random, 2) == 1
    reach = 1 + draw(walk.random, 4)
    if draw(walk.random, 4) == 0:
        reach = 1 + draw(walk.random, high - low)
    step = -1 if left else 1
    if not low <= source + step < high:
        return source
    beside = walk.order[source + step]
    limit = 0 if left else 1 << 62
    if walk.spans == 0:
        first, second = (beside, v) if left else (v, beside)
        if early[first] + graph.duration[graph.row[first]] < early[second]:
            return source
        limit = _arrival(graph, walk, v) if left else _due(graph, walk, v)
    target = source
    while reach > 0 and low <= target + step < high:
        other = walk.order[target + step]
        if walk.stage[other] == walk.stage[v] and (
            walk.kind[other] == walk.kind[v] or walk.microbatch[other] == walk.microbatch[v]
        ):
            break
        if left and limit >= early[other] + graph.duration[graph.row[other]]:
            break
        if not left and limit <= late[other]:
            break
        target += step
        reach -= 1
    return target


@step
def _move(graph: Graph, walk: Walk, threshold: int) -> tuple[int, int]:
    """Move a critical operation within memory; return from where to where, the same: none."""
    for _ in range(TRIED):
        v = _critical(graph, walk, threshold)
        if v < 0:
            break
        source, target = walk.position[v], _place(graph, walk, v)
        walk.work[0] += 20
        if target == source:
            continue
        _shift(walk.order, walk.position, source, target)
        d = graph.device[graph.row[v]]
        walk.work[0] += (walk.ptr[d + 1] - walk.ptr[d]) // 4
        if _fits(graph, walk.order, walk.ptr[d], walk.ptr[d + 1], graph.limit[d]):
            return source, target
        _shift(walk.order, walk.position, target, source)
    return 0, 0


@compiled
def anneal(
    graph: Graph, walk: Walk, heat: float, ratio: float, weight: float, least: int, moves: int
) -> None:
    """Try random moves while it gets colder; end where no path exceeds `least`.

    O(moves * (n + arcs)).

    Parameters
    ----------
    graph : Graph
    walk : Walk
        Orders, values and generator, which go on from call to call.
    heat, ratio : float
        Cycles: what is worse by as much is accepted with probability 1 / e; and what it is
        multiplied by after every move.
    weight : float
        What mean excess counts beside the objective.
    least : int
        A bound on the objective: paths that are no longer need not be shorter.
    moves : int
    """
    n = len(walk.order)
    if walk.value[0] < 0:
        walk.value[0] = walk.value[1] = _value(graph, walk, walk.side[0])
        walk.energy[0] = walk.value[0] + weight * _excess(graph, walk, walk.side[0], least)
    for _ in range(moves):
        heat *= ratio
        if walk.value[1] <= least:
            return
        threshold = walk.value[0] - draw(walk.random, (walk.value[0] - least) // 2 + 1)
        source, target = _move(graph, walk, threshold)
        if target == source:
            continue
        side = 1 - walk.side[0]
        value = _value(graph, walk, side)
        chance = (1 + draw(walk.random, 1 << 30)) / float(1 << 30)
        allowed = walk.energy[0] - heat * np.log(chance)
        if 0 <= value <= allowed:
            energy = value + weight * _excess(graph, walk, side, least)
            if energy <= allowed:
                walk.energy[0], walk.value[0], walk.side[0] = energy, value, side
                if value < walk.value[1]:
                    walk.value[1] = value
                    for at in range(n):  # a slice takes two seconds to compile
                        walk.best[at] = walk.order[at]
                continue
        _shift(walk.order, walk.position, target, source)
