"""Bounds on the time of a training or inference step, over all partitions and all schedules.

A device that runs stage s works m times on what a microbatch takes there, w_s.  Before it begins,
the first microbatch has passed the stages before s; afterwards the last one goes on through those
behind it (inference), or returns through those before it (training), unless W is split off and may
come last.  With P_s the work of a microbatch on the stages before s, of its forward pass alone if
W is split off, and R_s that on those behind it, a step takes at least

    P_s + m w_s (training),    P_s + m w_s + R_s (inference).

The least largest value of that over all partitions into at most k stages is a bound on every plan
with a stage a device.  For a limit T each stage in turn takes as many layers as it can: that never
leaves less for the stages behind, since what they take in all rises with the work done before.
Bisection on T, O(k log n log(sum)).  Memory, transfers and the order of unlike devices are left
out; all devices are as fast as the fastest.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array

SLACK = 1e-9
"""Relative, for sums of floats and quotients of speeds."""


def step_bound(instance: PipelinePartition, microbatches: int, *, split: bool = False) -> int:
    """Return a lower bound on the cycles of a step, of any partition and any schedule.

    Parameters
    ----------
    instance : PipelinePartition
        One whose layers say their cycles; a table gives no bound but 0.
    microbatches : int
    split : bool
        Whether the backward pass is split into B and W.
    """
    if instance.compute_table is not None:
        return 0
    cuts = np.flatnonzero(instance.allowed_cuts)
    work = _before(instance.cycles)[cuts].tolist()
    ahead = _before(instance.forward)[cuts].tolist() if split else work
    total, m = work[-1], microbatches
    exact = instance.cycles.dtype.kind == "i"

    def share(room: Number, times: int) -> Number:
        return room // times if exact else room / times

    def fits(limit: int) -> bool:
        at = 0
        for _ in range(instance.k):
            if instance.training:
                width = share(limit - ahead[at], m)
            elif m > 1:
                width = share(limit - total, m - 1)
            else:
                width = total if limit >= total else 0
            at = max(at, bisect_right(work, work[at] + width) - 1)
        return at == len(work) - 1

    low, high = 0, math.ceil((m + 1) * total)
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    speeds = {device.speed for device in instance.cluster.devices}
    if exact and speeds == {1}:
        return low
    return math.floor((low - 1) / float(max(speeds)) * (1 - SLACK))


def _before(cycles: Array) -> Array:
    """Return the cycles before each cut."""
    return np.concatenate([np.zeros(1, cycles.dtype), np.cumsum(cycles)])
