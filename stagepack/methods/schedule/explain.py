"""Why no schedule fits into memory: which operations need it, and which limits would suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stagepack.evidence import SEARCHED, Evidence
from stagepack.instances.profile import Array
from stagepack.instances.schedule import (
    PipelineSchedule,
    ScheduleSolution,
    least_memory,
)
from stagepack.progress import Progress

NAMED = 4
"""Devices, and different amounts, that a reason names; more are counted."""


def sufficient_memory(
    instance: PipelineSchedule, keep_going: Callable[[], bool] | None = None
) -> Array | None:
    """Return limits, int64, shape (d,), within which one microbatch after the other fits.

    Each runs F of all stages, then B and W of each, the last stages first.  What is left of those
    before never is less than nothing, so that a device holds most in the last microbatch of some
    stage.  O(stages) for each number of microbatches that a stage has; None once `keep_going`
    says no.
    """
    kinds, devices, m = len(instance.kinds), instance.devices, instance.microbatches
    columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    taken = np.stack(columns[:kinds], axis=1)
    turn = np.repeat(np.argsort(instance.order), kinds)
    stage, kind = np.divmod(np.arange(taken.size), kinds)
    by = np.lexsort((kind, np.where(kind == 0, turn, -turn), kind > 0, devices[stage]))
    stage, delta = stage[by], taken.ravel()[by]
    first = np.searchsorted(devices[stage], np.arange(instance.d))
    lengths = np.diff(np.append(first, len(stage)))
    enough = np.zeros(instance.d, dtype=np.int64)
    for count in np.unique(m).tolist():
        if keep_going is not None and not keep_going():
            return None
        runs = np.where(m[stage] >= count, delta, 0)
        held = np.cumsum(runs)
        held -= np.repeat(held[first] - runs[first], lengths)
        peak = np.maximum.reduceat(held + np.maximum(0, -runs), first)
        np.add.at(peak, devices, np.minimum(m, count - 1) * taken.sum(axis=1))
        enough = np.maximum(enough, peak)
    return enough


def conclude_infeasible(
    instance: PipelineSchedule,
    progress: Progress[ScheduleSolution],
    source: str,
    found: Sequence[str] = (),
    evidence: Evidence = SEARCHED,
) -> None:
    """Report that no schedule keeps within the memory: who needs how much, and what would do.

    `source` says so, because of `found`, :func:`.reasons.reasons` if there are any, and `evidence`
    shows it.  Once the time of `progress` is over, no more is looked for.  Raises `CheckError` when
    there is a schedule.
    """
    limit = instance.limit
    assert limit is not None
    said = list(found[:1])
    if len(found) > 1:  # one device in full, the others in a line
        least = least_memory(instance, progress.keep_going)
        others = np.flatnonzero(least > limit)[1:]
        if len(others):
            said.append(f"likewise needed are {_named(instance, least, others)}")
        else:
            said.append(f"{len(found) - 1:,} other devices lack memory, too")
    if not found:
        said.append(
            f"{source}: every device could keep within its limit alone, but no order of all "
            "operations does for all devices at once"
        )
    enough = sufficient_memory(instance, progress.keep_going)
    if enough is not None and (enough > limit).any():
        said.append(
            f"limits of {_named(instance, enough, np.flatnonzero(enough > limit))} would do, "
            "one microbatch after the other"
        )
    progress.prove_infeasible("; ".join(said), evidence)


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
