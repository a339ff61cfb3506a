"""Compiled annealing over the orders of devices: one operation moves at a time.

What it minimises is the objective and a little of its mean over devices.  Cost: O(n + arcs) a move.
Source: see :mod:`.annealing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.random_kernels import draw
from stagepack.heuristics.schedule.timing_kernels import Graph, backward, forward
from stagepack.instances.compiled import compiled, inner
from stagepack.instances.profile import Array


class Walk(NamedTuple):
    """An annealing under way; int64 arrays unless stated otherwise.

    Attributes
    ----------
    order, ptr, position : ndarray, shape (n,), (d + 1,), (n,)
        What each device runs, and where each operation is in `order`.
    stage, kind, microbatch : ndarray, shape (n,)
    follower, visit, waits : ndarray of int32, shape (n,)
    early, late : ndarray, shape (n,)
        Scratch of the longest paths.
    ends, best : ndarray, shape (d,), (n,)
        The ends of devices; the best orders met.
    energy : ndarray of float64, shape (2,)
        Energy of `order` and of `best`; negative: to be found.
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
    follower: Array
    visit: Array
    waits: Array
    early: Array
    late: Array
    ends: Array
    best: Array
    energy: Array
    random: Array
    spans: int
    work: Array


@inner
def _energy(graph: Graph, walk: Walk) -> float:
    """Return the objective of the orders and a little of its mean over devices; -1: deadlock.

    Spans are those of the earliest ends with the latest first starts, which is no less than what
    the orders allow.
    """
    devices = len(walk.ptr) - 1
    walk.work[0] += (1 + walk.spans) * (len(walk.order) + graph.arcs)
    fine = forward(graph, walk.order, walk.follower, walk.early, walk.visit, walk.waits)
    if not fine:
        return -1.0
    for d in range(devices):
        last = walk.order[walk.ptr[d + 1] - 1]
        walk.ends[d] = walk.early[last] + graph.duration[graph.row[last]]
    most, total = 0, 0.0
    if walk.spans == 1:
        backward(graph, walk.follower, walk.visit, walk.ends, walk.late, 0, len(walk.visit))
    for d in range(devices):
        value = walk.ends[d] + graph.rest[d]
        if walk.spans == 1:
            value -= walk.late[walk.order[walk.ptr[d]]]
        most = max(most, value)
        total += value
    return most + 0.25 * total / devices


@inner
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


@inner
def _fits(graph: Graph, order: Array, low: int, high: int, limit: int) -> bool:
    """Whether the device that runs order[low:high] keeps within its memory."""
    held = 0
    for at in range(low, high):
        held += graph.delta[graph.row[order[at]]]
        if held > limit:
            return False
    return True


@compiled
def anneal(graph: Graph, walk: Walk, heat: float, moves: int) -> None:
    """Try random moves at one temperature.

    A move takes one operation to another place on its device, without passing one of the same
    stage that is of the same kind or the same microbatch.  O(moves * (n + arcs)).

    Parameters
    ----------
    graph : Graph
    walk : Walk
        Orders, energies and generator, which go on from call to call.
    heat : float
        Cycles: what is worse by as much is accepted with probability 1 / e.
    moves : int
    """
    n = len(walk.order)
    if walk.energy[0] < 0:
        walk.energy[0] = walk.energy[1] = _energy(graph, walk)
    for _ in range(moves):
        source = draw(walk.random, n)
        v = walk.order[source]
        d = graph.device[graph.row[v]]
        walk.work[0] += 20
        step = 1 if draw(walk.random, 2) == 1 else -1
        reach = 1 + draw(walk.random, 6)
        if draw(walk.random, 4) == 0:
            reach = 1 + draw(walk.random, walk.ptr[d + 1] - walk.ptr[d])
        target = source
        while reach > 0 and walk.ptr[d] <= target + step < walk.ptr[d + 1]:
            other = walk.order[target + step]
            if walk.stage[other] == walk.stage[v] and (
                walk.kind[other] == walk.kind[v] or walk.microbatch[other] == walk.microbatch[v]
            ):
                break
            target += step
            reach -= 1
        if target == source:
            continue
        _shift(walk.order, walk.position, source, target)
        walk.work[0] += (walk.ptr[d + 1] - walk.ptr[d]) // 4
        energy = -1.0
        if _fits(graph, walk.order, walk.ptr[d], walk.ptr[d + 1], graph.limit[d]):
            energy = _energy(graph, walk)
        if energy >= 0:
            worse = energy - walk.energy[0]
            chance = 1.0 if worse <= 0 else np.exp(-worse / heat)
            if chance >= 1.0 or draw(walk.random, 1 << 30) < chance * (1 << 30):
                walk.energy[0] = energy
                if energy < walk.energy[1]:
                    walk.energy[1] = energy
                    for at in range(n):  # a slice takes two seconds to compile
                        walk.best[at] = walk.order[at]
                continue
        _shift(walk.order, walk.position, target, source)
