"""Why no schedule keeps within the memory: what needs it, and what limits would do."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, reasons
from stagepack.result import CheckError, Progress


def lone_microbatches(instance: PipelineSchedule) -> ScheduleSolution:
    """Return the schedule that runs one operation at a time, microbatch after microbatch.

    All F of a microbatch, then all its B, then all its W.  O(operations + edges * microbatches).
    """
    operations = instance.operations
    most = int(instance.microbatches.max())
    start = np.zeros(len(operations), dtype=np.int64)
    wait = int(instance.lag.max(initial=0))
    now = 0
    for i in range(most):
        for kind in range(len(instance.kinds)):
            for s in instance.order if kind == 0 else reversed(instance.order):
                if i < instance.microbatches[s]:
                    v = operations.op(s, kind, i)
                    start[v] = now
                    now += int(operations.duration[v]) + wait
    return ScheduleSolution.of(instance, start)


def sufficient_memory(instance: PipelineSchedule) -> Array:
    """Return limits, int64, shape (d,), within which one microbatch after the other fits."""
    operations = instance.operations
    start = lone_microbatches(instance).start
    need = np.zeros(instance.d, dtype=np.int64)
    for device in range(instance.d):
        row = np.flatnonzero(operations.device == device)
        delta = operations.delta[row[np.argsort(start[row])]]
        after = np.cumsum(delta)
        need[device] = max(0, int((after + np.maximum(0, -delta)).max()))
    return need


def conclude_infeasible(
    instance: PipelineSchedule, progress: Progress[ScheduleSolution], source: str
) -> None:
    """Report that no schedule keeps within the memory: who needs how much, and what would do."""
    if progress.solution is not None:
        raise CheckError(f"{source} calls an instance infeasible that has a valid schedule")
    found = list(reasons(instance))
    if not found:
        found.append(
            f"{source}: every device could keep within its limit alone, but no order of all "
            "operations does for all devices at once"
        )
    limit, enough = instance.limit, sufficient_memory(instance)
    assert limit is not None
    wanted = [
        f"{int(enough[d]):,} on {instance.device_name(d)}"
        for d in np.flatnonzero(enough > limit).tolist()
    ]
    if wanted:
        found.append(f"limits of {', '.join(wanted)} would do, one microbatch after the other")
    progress.prove_infeasible("; ".join(found))
