"""Exact method for plain bottleneck: bisection with greedy probes, for very long chains.

A probe extends each stage as far as the limit and the memory allow.  This is optimal, because a
part of a stage that fits also fits; O(k log n).  After one O(n) pass for prefix sums and memory,
O(k log n log(sum of cycles)).  Source: Iqbal 1991; Pinar and Aykanat 2004 (chains-on-chains).
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.pipeline.bounds import filled, objective_bound
from stagepack.heuristics.pipeline.fill_kernels import fill, fill_many
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress


def unsupported(instance: PipelinePartition) -> str:
    """Return why greedy probes would not be exact for `instance`, or ''."""
    if instance.objective is not Objective.BOTTLENECK:
        return "greedy probes count compute only; use dp"
    if instance.compute_table is not None or instance.memory_table is not None:
        return "greedy probes need costs that add up, not tables; use dp"
    limited = any(device.memory is not None for device in instance.cluster.devices)
    if limited and instance.training and instance.stash.any():
        return "greedy probes need memory limits that are the same for all stages; use dp"
    alike = len({device.kind for device in instance.cluster.devices}) == 1
    if not alike and (instance.free_order or not instance.fewer_stages):
        return "greedy probes need like devices; use dp"
    return ""


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> bool:
    """Find and prove a partition of least bottleneck; return False when there is none."""
    cuts = np.flatnonzero(costs.allowed)
    probe = _Probe(costs, cuts, progress, tuning)

    def within(limit: int) -> int | None:
        most = probe(limit)
        return None if most < 0 else most

    def solution() -> PipelineSolution:
        boundaries = (0, *cuts[probe.ends].tolist())
        return PipelineSolution(boundaries, tuple(probe.devices.tolist()))

    floor, evidence = objective_bound(costs), filled(costs)
    first = within(int(costs.prefix[:, -1].max()))
    if first is None:
        return False
    low, high = floor, first
    try:
        while low < high:
            if progress.stale:
                within(high)
                progress.offer(solution(), "bisect")
            progress.require_time()
            middle = (low + high) // 2
            value = within(middle)
            low, high = (middle + 1, high) if value is None else (low, max(low, value))
            progress.raise_bound(costs.bound(low), "exhausted search", evidence)
    finally:
        within(high)
        progress.offer(solution(), "bisect")
    progress.raise_bound(costs.bound(high), "exhausted search", evidence)
    return True


class _Probe:
    """Fills the devices one after the other, each as far as a limit and its memory allow.

    Compiled where there are many devices, plain Python where there are few: that is sooner done
    than loading the compiler.
    """

    def __init__(
        self,
        costs: RangeCosts,
        cuts: Array,
        progress: Progress[PipelineSolution],
        tuning: PipelineTuning,
    ) -> None:
        # In terms of allowed cuts: running sums, and the memory's furthest end.
        last_cut = np.cumsum(costs.allowed) - 1
        whole = len(cuts) == costs.n + 1
        progress.require_time()
        self._prefix = costs.prefix if whole else costs.prefix[:, cuts]
        self._reach = np.empty((costs.classes, len(cuts) - 1), dtype=np.int64)
        for c in range(costs.classes):
            progress.require_time()
            reach = costs.reach(c, 0)
            self._reach[c] = reach if whole else last_cut[reach[cuts[:-1]]]
        self._classes, self._fewer = costs.device_class, costs.instance.fewer_stages
        self._found = np.empty((2, costs.k), dtype=np.int64)
        self._fill = fill_many if costs.k > tuning.compiled_devices else fill
        self._stages = 0
        self._progress, self._seconds = progress, tuning.fill_seconds * costs.k

    def __call__(self, limit: int) -> int:
        """Return the largest compute of a partition within `limit`; -1 when there is none."""
        spend(self._seconds)
        most, self._stages = self._fill(
            limit, self._prefix, self._reach, self._classes, self._fewer, self._found
        )
        return int(most)

    @property
    def ends(self) -> Array:
        """Ends of the stages of the last probe, as numbers of allowed cuts."""
        return np.asarray(self._found[0, : self._stages])

    @property
    def devices(self) -> Array:
        """Devices of the stages of the last probe."""
        return np.asarray(self._found[1, : self._stages])
