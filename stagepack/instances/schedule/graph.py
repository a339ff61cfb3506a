"""Schedules of the stages of a graph partition, of which a device may have several.

Where stages need not be contiguous, a device waits for others between nodes of its own.  What it
can run in one go is a stage: nodes are taken in an order in which devices take turns, and each turn
runs all of a device that is ready.  The next turn is that of the device of which the least is left
that waits for others, so that contiguous partitions keep a stage a device.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject, Number
from stagepack.errors import InputError, shown
from stagepack.instances.base import require_instance
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.graph.chains.chain import require_plain, sums
from stagepack.instances.graph.check import loads, plain
from stagepack.instances.profile import Array
from stagepack.result import Result

log = logging.getLogger(__name__)

UNLIMITED = 2**62 - 1
ROUNDED = 0.05
"""Share by which rounding may lengthen a stage without a word."""
NEGLIGIBLE = Fraction(1, 10**9)
"""Cycles of a latency that count as none: clusters without links have bandwidths without end."""


def arguments(
    instance: GraphPartition,
    solution: GraphSolution | Result[GraphSolution],
    cycles: Number,
    microbatches: Any,
    split: bool,
    options: Mapping[str, Any],
) -> JsonObject:
    """Return what describes the stages of a partition, for ``from_arrays`` of schedules.

    F takes the time of the stage's forward nodes on its device, B (and W) that of its backward
    nodes, rounded up, one cycle at least.  There is an edge between stages that share tensors, over
    any distance; its latency is the larger of what goes forward and what comes back, at the
    bandwidth between the two devices, rounded up but for a 10^-9 of a cycle, and 0 on one device. F
    takes the stashes of the stage's nodes, B releases them, or B and W half each; the limit of a
    device is its memory less what its nodes hold all the time.

    Where every stage sends to the next one only, on links as fast both ways, `sp.chain` and
    :func:`.partition.arguments` lead to the same schedule but for memory: there F takes what the
    stage receives as well, as chains know it in bytes.  Here the partition's own rule holds, in
    which stashes are all that is kept.

    Takes `solution`, `cycles`, `microbatches`, `split` and `options`, and refuses, what
    :meth:`.PipelineSchedule.from_graph` does.
    """
    require_instance(instance, "graph-partition", "partition")
    found, rate = require_plain(instance, solution, cycles)
    device = found.assignment
    stage = _forward_stages(instance, device)
    count = int(stage.max(initial=-1)) + 1
    if not count:
        raise InputError(
            "has no forward nodes",
            field="backward",
            remedy="give forward nodes, too: schedules begin with them",
        )
    device_of = np.zeros(count, dtype=np.int64)
    device_of[stage[stage >= 0]] = device[stage >= 0]
    _add_backward(instance, device, device_of, stage)
    edges, latency = _edges(instance, stage, device_of, rate)
    used, place = np.unique(device_of, return_inverse=True)
    derived: JsonObject = {
        "forward": _cycles(instance, stage, device_of, False, rate, least=1),
        "devices": place.tolist(),
        "edges": edges,
        "latency": latency,
        "microbatches": instance.microbatches if microbatches is None else microbatches,
        "limit": _limits(instance, found, used.tolist()),
        "stage_names": _names(instance, device_of),
        "device_names": [instance.device_name(one) for one in used.tolist()],
        "name": instance.name,
        "source": instance.source,
    }
    if instance.backward.any():
        both = _cycles(instance, stage, device_of, True, rate, least=2 if split else 1)
        stash = sums(instance.stash, stage, count)
        derived["memory_forward"] = stash
        derived["memory_backward"] = -stash
        derived["backward"] = both
        if split:
            derived["backward"] = [amount - amount // 2 for amount in both]
            derived["weight"] = [amount // 2 for amount in both]
            derived["memory_backward"] = stash // 2 - stash
            derived["memory_weight"] = -(stash // 2)
    return {**derived, **options}


def _forward_stages(instance: GraphPartition, device: Array) -> Array:
    """Return the stage of each forward node, -1 of others; edges lead to the same or later ones."""
    forward = ~instance.backward
    u, v = instance.edges[forward[instance.edges].all(axis=1)].T
    waiting = np.bincount(v, minlength=instance.n).tolist()
    foreign = np.bincount(device[v[device[u] != device[v]]], minlength=instance.devices).tolist()
    after: dict[int, list[int]] = defaultdict(list)
    for source, target in zip(u.tolist(), v.tolist(), strict=True):
        after[source].append(target)
    ready: dict[int, list[int]] = defaultdict(list)
    place = device.tolist()
    for node in np.flatnonzero(forward).tolist():
        if not waiting[node]:
            ready[place[node]].append(node)
    stage = np.full(instance.n, -1, dtype=np.int64)
    turn = 0
    while ready:
        here = min(ready, key=lambda one: (foreign[one], one))
        nodes = ready.pop(here)
        for node in nodes:  # grows
            stage[node] = turn
            for other in after[node]:
                there = place[other]
                foreign[there] -= there != here
                waiting[other] -= 1
                if not waiting[other]:
                    (nodes if there == here else ready[there]).append(other)
        turn += 1
    return stage


def _add_backward(instance: GraphPartition, device: Array, device_of: Array, stage: Array) -> None:
    """Write the stages of backward nodes: not after those of what they wait for.

    Each has the latest one of its device that may be: of those with a forward node of its colour,
    if there are such.
    """
    if not instance.backward.any():
        return
    of_device: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(device_of.tolist()):
        of_device[one].append(at)
    colours = instance.colour.tolist()
    of_colour: dict[int, set[int]] = defaultdict(set)
    for node in np.flatnonzero(stage >= 0).tolist():
        if colours[node] >= 0:
            of_colour[colours[node]].add(int(stage[node]))
    latest = np.full(instance.n, len(device_of), dtype=np.int64)
    for node, others in _backward_order(instance):
        own = [at for at in of_device[int(device[node])] if at <= latest[node]]
        if not own:
            where = instance.device_name(int(device[node]))
            raise InputError(
                f"node {instance.node_name(node)} runs on {where}, whose stages all come after "
                "those that it waits for in the backward pass",
                field="assignment",
                remedy="give a partition whose backward pass mirrors the forward pass, or cut the "
                "graph as a chain: convert --solution FILE --as pipeline-partition",
            )
        stage[node] = max(of_colour[colours[node]].intersection(own), default=own[-1])
        latest[others] = np.minimum(latest[others], stage[node])


def _backward_order(instance: GraphPartition) -> list[tuple[int, list[int]]]:
    """Return backward nodes, each after those that it reads from, and who reads from it."""
    edges = instance.edges
    source, reader = instance.backward[edges].T
    if (source & ~reader).any():
        u, v = edges[np.argmax(source & ~reader)].tolist()
        raise InputError(
            f"node {instance.node_name(v)} of the forward pass reads from "
            f"{instance.node_name(u)} of the backward pass",
            field="backward",
            remedy="mark nodes that read from the backward pass as backward nodes",
        )
    u, v = edges[source & reader].T
    waiting = np.bincount(v, minlength=instance.n).tolist()
    after: dict[int, list[int]] = defaultdict(list)
    for one, other in zip(u.tolist(), v.tolist(), strict=True):
        after[one].append(other)
    order = [node for node in np.flatnonzero(instance.backward).tolist() if not waiting[node]]
    for node in order:  # grows
        for other in after[node]:
            waiting[other] -= 1
            if not waiting[other]:
                order.append(other)
    return [(node, after[node]) for node in order]


def _edges(
    instance: GraphPartition, stage: Array, device_of: Array, rate: Fraction
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs of stages that share tensors, rising, and their latencies."""
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    source, target = stage[instance.producer[tensor]], stage[instance.consumers]
    crossing = np.flatnonzero(source != target)
    crossings = np.column_stack((tensor, source, target))[crossing]
    amounts: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for which, a, b in np.unique(crossings, axis=0).tolist():
        amounts[a, b] += Fraction(instance.traffic[which].item())
    pairs = sorted({(min(pair), max(pair)) for pair in amounts})
    latency = []
    for a, b in pairs:
        times = [
            amounts[ends] / _pace(instance, *device_of[list(ends)].tolist())
            for ends in ((a, b), (b, a))
            if ends in amounts and device_of[a] != device_of[b]
        ]
        latency.append(math.ceil(max(times, default=Fraction(0)) * rate - NEGLIGIBLE))
    return pairs, latency


def _pace(instance: GraphPartition, source: int, target: int) -> Fraction:
    """Return the bandwidth from a device to another."""
    table = instance.bandwidth
    return Fraction(str(table[source, target].item() if isinstance(table, np.ndarray) else table))


def _cycles(
    instance: GraphPartition,
    stage: Array,
    device_of: Array,
    backward: bool,
    rate: Fraction,
    least: int,
) -> list[int]:
    """Return the cycles of one pass of each stage; warn where whole ones say much else."""
    total = [Fraction(0)] * len(device_of)
    for node in np.flatnonzero(instance.backward == backward).tolist():
        at = int(stage[node])
        device = int(device_of[at])
        if device >= instance.accelerators:
            total[at] += Fraction(instance.cpu_time[node].item())
        else:
            speed = Fraction(str(instance.speeds[device].item()))
            total[at] += Fraction(instance.time[node].item()) / speed
    found = [max(least, math.ceil(plain(time * rate))) for time in total]
    more = max((whole / (time * rate) for whole, time in zip(found, total, strict=True) if time),
               default=1) - 1  # fmt: skip
    if more > ROUNDED:
        log.warning(
            "a stage of %s takes %.0f %% longer in whole cycles: more of them to a unit of time "
            "say it better (cycles=1000; --cycles 1000)",
            shown(instance.name),
            100 * more,
        )
    return found


def _limits(instance: GraphPartition, found: GraphSolution, used: list[int]) -> list[int] | None:
    """Return what each device has left beside what its nodes hold all the time."""
    if instance.capacity is None:
        return None
    held = sums(instance.memory, found.assignment, instance.devices)
    if not instance.backward.any():  # which would free stashes
        for load in loads(instance, found):
            held[load.device] = load.memory
    return [
        int(instance.capacity[one] - held[one]) if one < instance.accelerators else UNLIMITED
        for one in used
    ]


def _names(instance: GraphPartition, device_of: Array) -> list[str]:
    """Return names of stages: those of their devices, with a number where one has several."""
    names, seen = [], defaultdict[int, int](int)
    several = np.bincount(device_of) > 1
    for one in device_of.tolist():
        seen[one] += 1
        number = f" part {seen[one]}" if several[one] else ""
        names.append(f"{instance.device_name(one)}{number}")
    return names
