"""Bounds on the time of a step, over all partitions of a graph and all their schedules.

The busiest device does at least its share of the work of all microbatches, and some device executes
the heaviest node for all of them.  The first microbatch takes at least the longest path of the
graph, on the fastest devices.  Traffic and memory are ignored.  O(n + edges).

If stages form a chain, consider the nodes of one path, together with those that must be on the same
devices.  Without all other nodes, no stage takes more time or memory, and the order of the stages
is that of the path.  Bounds on the step of this chain are therefore bounds for the graph.  Source:
own work.
"""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction

import numpy as np

from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.chains.chain import sums
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array, Cluster, Device

SLACK = 1e-9
"""Relative, for sums of floats and quotients of speeds."""
EXACT = 2**53
"""Whole numbers below it are whole as floats, too."""


def step_bound(instance: GraphPartition, microbatches: int, cycles: int = 1) -> int:
    """Return a lower bound on the cycles of a step of so many `microbatches`.

    A unit of time has so many `cycles`.
    """
    least = _least(instance)
    path = longest_path(instance.edges, least)
    total, heaviest, longest = map(float, (least.sum(), least.max(), least[path].sum()))
    if instance.whole and (instance.speeds == 1).all() and total * cycles < EXACT:
        whole = max(-(-int(total) * cycles // instance.devices), int(heaviest) * cycles)
        return max(microbatches * whole, int(longest) * cycles)
    share = microbatches * max(total / instance.devices, heaviest)
    return max(0, math.floor(max(share, longest) * cycles * (1 - SLACK)))


def longest_chain(instance: GraphPartition, cycles: int = 1) -> PipelinePartition | None:
    """Return the longest path of forward nodes as a chain whose steps are no longer.

    None where there are no forward nodes, or stages need not follow one another.  A unit of time
    has so many `cycles`.  A layer is a node with all nodes of its colour, or those alone that no
    node before it has taken.  Its times are those on the fastest device, rounded down; devices are
    all as large as the largest one, and may stay unused.  Of what crosses a cut only the tensors
    between its two nodes count, on the fastest link.  O(n + edges).
    """
    if not instance.contiguous or instance.backward.all():
        return None
    path = forward_path(instance)
    layer = _layers(instance, path)
    passes = []
    for which in (~instance.backward, instance.backward):
        total = [Fraction(0)] * len(path)
        for node in np.flatnonzero(which & (layer >= 0)).tolist():
            total[layer[node]] += _exactly(instance, node)
        passes.append([math.floor(time * cycles) for time in total])
    there = layer >= 0
    memory, stash = (
        sums(figures[there], layer[there], len(path))
        for figures in (instance.memory, instance.stash)
    )
    crossing = _crossing(instance, path, cycles)
    table = np.broadcast_to(crossing, (instance.devices, len(crossing)))
    return PipelinePartition.from_arrays(
        passes[0],
        backward=passes[1],
        cluster=_largest(instance),
        exclusive=memory,
        stash=stash,
        recv_cycles=table,
        send_cycles=table,
        training=bool(instance.backward.any()),
        microbatches=1,
        backward_transfers=False,
        objective="bottleneck",
        fewer_stages=True,
        name=instance.name,
    )


def forward_path(instance: GraphPartition) -> Array:
    """Return the forward nodes of the path that takes longest on the fastest devices."""
    forward = np.flatnonzero(~instance.backward)
    place = np.full(instance.n, -1, dtype=np.int64)
    place[forward] = np.arange(len(forward))
    inner = instance.edges[(~instance.backward)[instance.edges].all(axis=1)]
    return np.asarray(forward[longest_path(place[inner], _least(instance)[forward])])


def _layers(instance: GraphPartition, path: Array) -> Array:
    """Return at which place of a path each node is, -1: at none, shape (n,)."""
    layer = np.full(instance.n, -1, dtype=np.int64)
    owner: dict[int, int] = {}
    colours = instance.colour.tolist()
    for at, node in enumerate(path.tolist()):
        layer[node] = at
        owner.setdefault(colours[node], at)
    owner.pop(-1, None)
    for node, colour in enumerate(colours):
        if layer[node] < 0:
            layer[node] = owner.get(colour, -1)
    return layer


def _exactly(instance: GraphPartition, node: int) -> Fraction:
    """Return the least time of a node on any device, 0 for none."""
    times = []
    if instance.accelerator[node] and len(instance.speeds):
        fastest = Fraction(str(instance.speeds.max().item()))
        times.append(Fraction(instance.time[node].item()) / fastest)
    if instance.cpus and instance.cpu[node]:
        times.append(Fraction(instance.cpu_time[node].item()))
    return min(times, default=Fraction(0))


def _crossing(instance: GraphPartition, path: Array, cycles: int) -> list[int]:
    """Return the least cycles in which what neighbours of a path share goes across each cut."""
    next_one = np.full(instance.n, -1, dtype=np.int64)
    next_one[path[:-1]] = path[1:]
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    shared = next_one[instance.producer[tensor]] == instance.consumers
    amounts = dict.fromkeys(path.tolist(), Fraction(0))
    for which in np.unique(tensor[shared]).tolist():
        amounts[int(instance.producer[which])] += Fraction(instance.traffic[which].item())
    fastest = Fraction(str(np.max(instance.bandwidth).item()))
    return [0, *(math.floor(amounts[node] / fastest * cycles) for node in path.tolist()[:-1]), 0]


def _largest(instance: GraphPartition) -> Cluster:
    """Return devices that are all as large as the largest one."""
    known = None if instance.cpus or instance.capacity is None else int(instance.capacity.max())
    return Cluster(devices=(Device(memory=known),) * instance.devices, clock=1)


def _least(instance: GraphPartition) -> Array:
    """Return the least time of each node on any device, shape (n,)."""
    time = np.full(instance.n, np.inf)
    fastest = float(instance.speeds.max()) if len(instance.speeds) else 1.0
    np.copyto(time, instance.time / fastest, where=instance.accelerator)
    if instance.cpus:
        np.minimum(time, instance.cpu_time, out=time, where=instance.cpu)
    return np.where(np.isfinite(time), time, 0.0)


def longest_path(edges: Array, times: Array) -> Array:
    """Return the nodes of the path that takes longest.  O(n + edges).

    `edges`, int64 (edges, 2), are pairs of nodes without circles; `times`, shape (n,), those of
    nodes.
    """
    n = len(times)
    u, v = edges.T
    waiting = np.bincount(v, minlength=n)
    after: list[list[int]] = [[] for _ in range(n)]
    for source, target in zip(u.tolist(), v.tolist(), strict=True):
        after[source].append(target)
    before = [-1] * n
    begin = [0.0] * n
    ready = deque(np.flatnonzero(waiting == 0).tolist())
    left, lasting, end, last = waiting.tolist(), times.tolist(), -1.0, -1
    while ready:
        node = ready.popleft()
        done = begin[node] + lasting[node]
        if done >= end:
            end, last = done, node
        for other in after[node]:
            if done >= begin[other]:
                begin[other], before[other] = done, node
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    path = []
    while last >= 0:
        path.append(last)
        last = before[last]
    return np.array(path[::-1], dtype=np.int64)
