"""A first solution when memory is tight: the greedy rule, without its dead ends.

First fit from the tail gives the earliest layer at which each stage may begin, such that it and the
following stages can hold the rest of the chain.  Then each device is filled to its share of the
work, but no stage begins before its earliest layer; this rarely fails.  If the order of devices is
free, several orders are tried.  If it fails nevertheless (spans that only some devices can hold),
probes find a partition, first within a quarter above the bound, then within larger distances:
probes near the bound are cheaper.

Cost: O(k (n + log n)) for each of a few orders of the devices; a probe as in :mod:`.kernels`.
Source: own work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.prober import UNLIMITED, Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress

Pause = Callable[[], object]


def greedy_within_reach(
    costs: RangeCosts, pause: Pause = lambda: None, tuning: PipelineTuning = TUNING
) -> PipelineSolution | None:
    """Return the best of the greedy rule in some orders of the devices; None where all fail.

    Only for costs that add up.  `pause` is called now and then.
    """
    instance = costs.instance
    kinds = costs.classes * (min(costs.k, instance.microbatches) if instance.training else 1)
    if costs.tabular or kinds * costs.n > tuning.repair_entries:
        return None
    tried = (_within_reach(costs, order, pause, tuning.stages_at_once) for order in _orders(costs))
    found = [solution for solution in tried if solution is not None]
    return min(found, key=costs.objective) if len(found) > 1 else next(iter(found), None)


def probed(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> PipelineSolution | None:
    """Return a partition that a few probes find; None: there is none."""
    prober, bound = Prober(costs, progress, tuning.probes), objective_bound(costs)
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        bound = costs.compute_bound()
    limits = [int(bound * most) for most in tuning.repair_limits if bound > 0]
    for limit in (*limits, UNLIMITED):
        if prober.probe(limit) is not None:
            return prober.partition()
    return None


def _orders(costs: RangeCosts) -> Iterator[Array]:
    """Yield orders of the devices: that of the cluster, and where it is free largest ones first."""
    order = np.arange(costs.k)
    yield order
    if costs.instance.free_order and costs.classes > 1:
        memory = np.array([UNLIMITED if c is None else c for c in costs.capacity])
        yield np.argsort(-memory[costs.device_class], kind="stable")
        yield np.argsort(memory[costs.device_class], kind="stable")


class _Reach:
    """How far stages reach, in numbers of allowed cuts, looked up once for each kind of them.

    One entry of a view of memory is read in a tenth of the time of one of an array.
    """

    def __init__(self, costs: RangeCosts, cuts: Array) -> None:
        self._costs, self._cuts = costs, cuts
        self._number = np.cumsum(costs.allowed) - 1
        self._rows: dict[tuple[int, int], tuple[memoryview, memoryview, memoryview]] = {}

    def row(self, device_class: int, stashes: int) -> tuple[memoryview, memoryview, memoryview]:
        """Return ends by beginning; the beginnings of any stage at all, and the ends of these."""
        kind = device_class, stashes
        if kind not in self._rows:
            ends = self._number[self._costs.reach(*kind)[self._cuts[:-1]]]
            begins = np.flatnonzero(ends > np.arange(len(ends)))
            self._rows[kind] = ends.data, begins.data, ends[begins].data
        return self._rows[kind]


def _within_reach(
    costs: RangeCosts, order: Array, pause: Pause, at_once: int
) -> PipelineSolution | None:
    """Fill devices in an order to their shares, as early as leaves no more than fits the others."""
    instance, cuts, k = costs.instance, np.flatnonzero(costs.allowed), costs.k
    idle, last, reach = instance.fewer_stages, len(cuts) - 1, _Reach(costs, cuts)
    classes = costs.device_class[order].tolist()
    # A device without a stage counts as if it had one: that stashes no less.
    held = [min(instance.microbatches, k - i) if instance.training else 0 for i in range(k)]
    needed = [last] * k  # where each stage ends at the earliest
    for i in range(k - 1, 0, -1):
        if not i % at_once:
            pause()
        _, begins, ends = reach.row(classes[i], held[i])
        at = bisect_left(ends, needed[i])
        first = begins[at] if at < len(begins) else last
        if first == last and not idle:
            return None
        needed[i - 1] = min(first, needed[i]) if idle else first
    prefix = costs.prefix[:, cuts]
    rows = [row.data for row in prefix]
    pace = 1.0 / np.maximum(prefix[classes, -1], 1)  # of each device, in the order
    shares = (pace / np.cumsum(pace[::-1])[::-1]).tolist()
    at, boundaries, devices = 0, [0], []
    for i, (c, share) in enumerate(zip(classes, shares, strict=True)):
        if not i % at_once:
            pause()
        low = max(needed[i], at + (not idle))
        high = at if at == last else reach.row(c, held[i])[0][at]
        high = min(high, last if idle else last - (k - 1 - i))
        if high < low:
            return None
        row = rows[c]
        wanted = row[at] + (row[-1] - row[at]) * share
        end = min(bisect_left(row, wanted, low, high + 1), high)
        if end > low and row[end] - wanted > wanted - row[end - 1]:
            end -= 1
        if end > at:
            boundaries.append(int(cuts[end]))
            devices.append(int(order[i]))
        at = end
    return PipelineSolution(tuple(boundaries), tuple(devices)) if at == last else None
