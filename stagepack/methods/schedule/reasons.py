"""Why no schedule keeps within the memory: what needs it, and what limits would do."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, reasons
from stagepack.result import CheckError, Progress


def lone_microbatches(instance: PipelineSchedule) -> ScheduleSolution:
    """Return the schedule that runs one operation at a time, microbatch after microbatch.

    All F of a microbatch, then all its B, then all its W.  O(operations).
    """
    operations = instance.operations
    turn = np.empty(instance.p, dtype=np.int64)
    turn[list(instance.order)] = np.arange(instance.p)
    # Within a microbatch, B and W of stages that come last are first.
    place = np.where(operations.kind == 0, turn[operations.stage], -turn[operations.stage])
    order = np.lexsort((place, operations.kind, operations.microbatch))
    start = np.zeros(len(order), dtype=np.int64)
    wait = int(instance.lag.max(initial=0))
    start[order[1:]] = np.cumsum(operations.duration[order[:-1]] + wait)
    return ScheduleSolution.of(instance, start)


def sufficient_memory(instance: PipelineSchedule) -> Array:
    """Return limits, int64, shape (d,), within which one microbatch after the other fits."""
    operations = instance.operations
    by = np.lexsort((lone_microbatches(instance).start, operations.device))
    delta = operations.delta[by]
    after = np.cumsum(delta)
    first = np.searchsorted(operations.device[by], np.arange(instance.d))
    after -= np.repeat(after[first] - delta[first], np.diff(np.append(first, len(by))))
    return np.asarray(np.maximum(0, np.maximum.reduceat(after + np.maximum(0, -delta), first)))


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
