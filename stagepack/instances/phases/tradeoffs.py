"""Trade-offs of phase schedules: remote memory, or on-chip memory, against time."""

from __future__ import annotations

from collections.abc import Iterator

from stagepack.instances.phases.data import PhaseSolution
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.plan import PhasePlan, plan
from stagepack.instances.phases.rows import remote_bytes
from stagepack.instances.tradeoffs import MORE, Axis, WhatIf, least, more, percent


def _within(instance: PhaseSchedule, limit: int) -> PhaseSchedule:
    return instance.replace(remote_memory=least(instance.remote_memory, limit))


AXES = {
    "remote-memory": Axis(
        unit="bytes",
        description="bytes of remote memory",
        within=_within,
        used=remote_bytes,
    )
}


def what_ifs(instance: PhaseSchedule) -> Iterator[WhatIf]:
    """Yield more memory of either kind, a faster link, no startup, and prefetching."""
    chip = instance.chip
    if chip.memory is not None:
        yield WhatIf(f"{MORE} % more memory", instance.replace(memory=more(chip.memory)))
        yield WhatIf("no limit of memory", instance.replace(memory=None))
    if instance.remote_memory is not None:
        grown = more(instance.remote_memory)
        yield WhatIf(f"{MORE} % more remote memory", instance.replace(remote_memory=grown))
    if chip.remote_bandwidth is not None:
        faster = 2 * chip.remote_bandwidth
        yield WhatIf("remote memory twice as fast", instance.replace(remote_bandwidth=faster))
    if not instance.prefetch:
        yield WhatIf("prefetching", instance.replace(prefetch=True))


def critical(instance: PhaseSchedule, solution: PhaseSolution) -> Iterator[tuple[str, str]]:
    """Yield the phases that take longest and fill the chip most, and what transfers take."""
    found = plan(instance, solution)
    slow = max(found.phases, key=lambda phase: phase.time)
    yield "longest phase", f"{_where(slow)}: {slow.time:,} cycles"
    computing = sum(phase.cycles.compute * found.steps for phase in found.phases)
    yield "compute", f"{computing:,} of {found.time:,} cycles ({percent(computing, found.time)})"
    full = max(found.phases, key=lambda phase: phase.peak)
    if full.capacity is not None:
        yield "least room", f"{_where(full)}: {full.peak:,} of {full.capacity:,} bytes"


def _where(phase: PhasePlan) -> str:
    return f"{phase.phase.name} (layers {phase.phase.first} to {phase.phase.end - 1})"
