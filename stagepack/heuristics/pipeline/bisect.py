"""Plain bottleneck: bisection over the bottleneck with greedy probes, for very long chains.

A probe extends each stage as far as the limit and the memory allow, which is optimal because a
part of a stage that fits also fits; O(k log n).  After one O(n) pass for prefix sums and memory,
O(k log n log(sum of cycles)).  Source: Iqbal 1991; Pinar and Aykanat 2004 (chains-on-chains).
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.feasibility import explain
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import Progress


def unsupported(instance: PipelinePartition) -> str:
    """Return why greedy probes would not be exact for `instance`, or ''."""
    if instance.objective is not Objective.BOTTLENECK:
        return "greedy probes know compute only; use dp"
    if instance.compute_table is not None or instance.memory_table is not None:
        return "greedy probes need costs that add up, not tables; use dp"
    limited = any(device.memory is not None for device in instance.cluster.devices)
    if limited and instance.training and instance.stash.any():
        return "greedy probes need memory limits that are the same for all stages; use dp"
    alike = len({device.kind for device in instance.cluster.devices}) == 1
    if not alike and (instance.free_order or not instance.fewer_stages):
        return "greedy probes need like devices; use dp"
    return ""


def solve(costs: RangeCosts, progress: Progress[PipelineSolution]) -> None:
    """Find and prove a partition of least bottleneck, or that there is none.

    Raises
    ------
    Stopped
        When the time is over.
    """
    cuts = np.flatnonzero(costs.allowed)
    spans = len(cuts) - 1
    # The last allowed cut up to each layer, and the memory's furthest end in those terms.
    prefix = costs.prefix[:, cuts]
    reach = [
        np.searchsorted(cuts, costs.reach(c, 0)[cuts[:-1]], side="right") - 1
        for c in range(costs.classes)
    ]
    classes = costs.device_class.tolist()
    fewer = costs.instance.fewer_stages
    ends: list[int] = []
    devices: list[int] = []

    def within(limit: int) -> int | None:
        ends[:], devices[:], most = [0], [], 0
        for device, c in enumerate(classes):
            at = ends[-1]
            if at == spans:
                break
            furthest = prefix[c, at] + limit
            end = int(np.searchsorted(prefix[c], furthest, side="right")) - 1
            end = min(end, int(reach[c][at]))
            if not fewer:
                end = min(end, spans - (costs.k - 1 - device))
            if end > at:
                most = max(most, int(prefix[c, end] - prefix[c, at]))
                ends.append(end)
                devices.append(device)
            elif not fewer:
                return None
        done = ends[-1] == spans and (fewer or len(devices) == costs.k)
        return most if done else None

    def solution() -> PipelineSolution:
        return PipelineSolution(tuple(cuts[ends].tolist()), tuple(devices))

    floor = objective_bound(costs)
    first = within(int(costs.prefix[:, -1].max()))
    if first is None:
        progress.prove_infeasible(explain(costs, progress))
        return
    low, high = floor, first
    while low < high:
        if progress.stale:
            within(high)
            progress.offer(solution(), "bisect")
        progress.require_time()
        middle = (low + high) // 2
        value = within(middle)
        low, high = (middle + 1, high) if value is None else (low, max(low, value))
        progress.raise_bound(costs.bound(low), "exhausted search")
    within(high)
    progress.offer(solution(), "bisect")
    progress.raise_bound(costs.bound(high), "exhausted search")
