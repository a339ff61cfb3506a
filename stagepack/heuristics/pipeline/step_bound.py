"""Bounds on the time of a training or inference step, over all partitions and all schedules.

Let w_s be the work of one microbatch on stage s; its device works m w_s in all.  Before it can
begin, the first microbatch has passed the stages before s.  At its end, the last microbatch
continues through the stages behind s (inference), or returns through those before s (training),
unless W is split off and may come last.  Let P_s be the work of a microbatch on the stages before s
(of its forward pass alone if W is split off), and R_s that on the stages behind s.  A step takes at
least

    P_s + m w_s (training),    P_s + m w_s + R_s (inference).

Transfers across the cuts before stage s are added, on the way there and, as gradients, on the way
back (only there if W is split off): at least those of the s cheapest cuts of all.  In inference the
first microbatch crosses every cut.

Where every device waits for the exchange with the host, each F takes so much longer.

The minimum, over all partitions into at most k stages, of the largest of these values is a bound on
every plan with one stage per device.  For a limit T each stage in turn takes as many layers as it
can.  This never leaves less for the later stages, since the total of their bounds rises with the
work done before.  Bisection on T takes O(k log n log(sum)).  If every device has a stage, the last
of k comes after k - 1 cuts.  Memory and the order of unlike devices are ignored, and all devices
are as fast as the fastest.
Source: own work.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array
from stagepack.instances.schedule.partition import least_latencies, waiting

SLACK = 1e-9
"""Relative, for sums of floats and quotients of speeds."""


def step_bound(instance: PipelinePartition, microbatches: int, *, split: bool = False) -> int:
    """Return a lower bound on the cycles of a step, of any partition and any schedule.

    A step has so many `microbatches`; `split`: the backward pass is split into B and W.  A table of
    cycles gives no bound but 0.
    """
    if instance.compute_table is not None:
        return 0
    cuts = np.flatnonzero(instance.allowed_cuts)
    work = _before(instance.cycles)[cuts].tolist()
    ahead = _before(instance.forward)[cuts].tolist() if split else work
    total, m, k = work[-1], microbatches, instance.k
    exact = instance.cycles.dtype.kind == "i"
    speeds = {device.speed for device in instance.cluster.devices}
    fastest = max(speeds)
    crossing = _cheapest(instance, cuts)
    # In cycles of a device of speed 1, as work is.
    lags = crossing if fastest == 1 else [lag * float(fastest) for lag in crossing]
    host = waiting(instance) if fastest == 1 else waiting(instance) * float(fastest)
    trips = 1 + (instance.training and not split)
    last = len(lags) - 1

    def share(room: Number, times: int) -> Number:
        return room // times if exact else room / times

    def fits(limit: int) -> bool:
        at = 0
        if not instance.fewer_stages and limit < ahead[-1] + trips * lags[last] + k * host:
            return False
        for stage in range(k):
            lag = trips * lags[min(stage, last)]
            if instance.training:
                width = share(limit - ahead[at] - lag - (stage + m) * host, m)
            elif m > 1:
                width = share(limit - total - everywhere - (m - 1) * host, m - 1)
            else:
                width = total if limit >= total + everywhere else 0
            at = max(at, bisect_right(work, work[at] + width) - 1)
        return at == len(work) - 1

    everywhere = host if instance.fewer_stages else lags[last] + k * host
    low, high = 0, math.ceil((m + 1) * total + trips * lags[last] + (m + k) * host)
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    if exact and speeds == {1}:
        return low
    return math.floor((low - 1) / float(fastest) * (1 - SLACK))


def _cheapest(instance: PipelinePartition, cuts: Array) -> list[int]:
    """Return the least latency of 0, 1, ... cuts together, up to as many as there can be."""
    inner = least_latencies(instance)[cuts[1:-1]]
    most = min(instance.k - 1, len(inner))
    found: list[int] = np.concatenate(([0], np.cumsum(np.sort(inner)[:most]))).tolist()
    return found


def _before(cycles: Array) -> Array:
    """Return the cycles before each cut."""
    return np.concatenate([np.zeros(1, cycles.dtype), np.cumsum(cycles)])
