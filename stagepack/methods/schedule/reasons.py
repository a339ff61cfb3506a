"""Why no schedule keeps within the memory: what needs it, and what limits would do."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule import (
    PipelineSchedule,
    ScheduleSolution,
    least_memory,
    reasons,
)
from stagepack.result import CheckError, Progress

NAMED = 4
"""Devices, and different amounts, that a reason names; more are counted."""


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
    limit, enough = instance.limit, sufficient_memory(instance)
    assert limit is not None
    if len(found) > 1:  # one device in full, the others in a line
        least = least_memory(instance)
        others = np.flatnonzero(least > limit)[1:]
        found[1:] = [f"likewise needed are {_named(instance, least, others)}"]
    if not found:
        found.append(
            f"{source}: every device could keep within its limit alone, but no order of all "
            "operations does for all devices at once"
        )
    wanted = np.flatnonzero(enough > limit)
    if len(wanted):
        found.append(
            f"limits of {_named(instance, enough, wanted)} would do, one microbatch after the other"
        )
    progress.prove_infeasible("; ".join(found))


def _named(instance: PipelineSchedule, memory: Array, devices: Array) -> str:
    """Return what some devices need, least first: ``2 on device 0, device 1 and 6 more``.

    At most `NAMED` devices of each amount, and as many amounts, are named.
    """
    amounts = np.unique(memory[devices]).tolist()
    said = []
    for amount in amounts[:NAMED]:
        who = devices[memory[devices] == amount].tolist()
        names = ", ".join(instance.device_name(d) for d in who[:NAMED])
        more = f" and {len(who) - NAMED:,} more" if len(who) > NAMED else ""
        said.append(f"{amount:,} on {names}{more}")
    if len(amounts) > NAMED:
        said.append(f"up to {amounts[-1]:,} on others")
    return "; ".join(said)
