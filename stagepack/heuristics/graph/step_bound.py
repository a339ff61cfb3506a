"""A bound on the time of a step over all partitions of a graph, and all their schedules.

The device with most to do does at least its share of the work of all microbatches, and some device
does all of the heaviest node.  The first microbatch passes along the longest path of the graph, on
the fastest devices.  Traffic and memory are left out.  O(n + edges).
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from stagepack.instances.graph import GraphPartition
from stagepack.instances.profile import Array

SLACK = 1e-9
"""Relative, for sums of floats and quotients of speeds."""


def step_bound(instance: GraphPartition, microbatches: int, cycles: int = 1) -> int:
    """Return a lower bound on the cycles of a step.

    Parameters
    ----------
    instance : GraphPartition
    microbatches : int
    cycles : int
        Of a unit of time.
    """
    least = _least(instance)
    share = microbatches * max(float(least.sum()) / instance.devices, float(least.max()))
    longest = max(share, _longest_path(instance, least))
    return max(0, math.floor(longest * cycles * (1 - SLACK)))


def _least(instance: GraphPartition) -> Array:
    """Return the least time of each node on any device, shape (n,)."""
    time = np.full(instance.n, np.inf)
    fastest = float(instance.speeds.max()) if len(instance.speeds) else 1.0
    np.copyto(time, instance.time / fastest, where=instance.accelerator)
    if instance.cpus:
        np.minimum(time, instance.cpu_time, out=time, where=instance.cpu)
    return np.where(np.isfinite(time), time, 0.0)


def _longest_path(instance: GraphPartition, least: Array) -> float:
    """Return the time of the longest path."""
    u, v = instance.edges.T
    waiting = np.bincount(v, minlength=instance.n)
    after: list[list[int]] = [[] for _ in range(instance.n)]
    for source, target in zip(u.tolist(), v.tolist(), strict=True):
        after[source].append(target)
    begin = [0.0] * instance.n
    ready = deque(np.flatnonzero(waiting == 0).tolist())
    left, times, end = waiting.tolist(), least.tolist(), 0.0
    while ready:
        node = ready.popleft()
        done = begin[node] + times[node]
        end = max(end, done)
        for other in after[node]:
            begin[other] = max(begin[other], done)
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return end
