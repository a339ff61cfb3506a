"""What can be traded in a pipeline schedule: memory of the devices against time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.check import measure
from stagepack.instances.schedule.data import ScheduleSolution
from stagepack.instances.schedule.instance import PipelineSchedule
from stagepack.instances.tradeoffs import MORE, Axis, WhatIf, more, percent


def _within(instance: PipelineSchedule, limit: int) -> PipelineSchedule:
    """Return the instance with devices of at most so much memory."""
    own = np.full(instance.d, limit) if instance.limit is None else instance.limit
    return instance.replace(limit=np.minimum(own, limit))


def _used(instance: PipelineSchedule, solution: ScheduleSolution) -> int:
    """Return the most bytes that any device holds."""
    return max(device.peak_memory for device in measure(instance, solution).devices)


def _no_memory(instance: PipelineSchedule) -> str:
    """Return why memory is no axis of the instance, or ''."""
    return "" if instance.memory_forward.any() else "its operations take no memory"


AXES = {
    "memory": Axis(
        unit="bytes",
        description="bytes of every device for what microbatches in flight keep",
        within=_within,
        used=_used,
        lacking=_no_memory,
    )
}


def what_ifs(instance: PipelineSchedule) -> Iterator[WhatIf]:
    """Yield more memory, faster links, none of their limits, and a faster slowest device."""
    if instance.limit is not None:
        grown = [more(limit) for limit in instance.limit.tolist()]
        yield WhatIf(f"{MORE} % more memory", instance.replace(limit=grown))
        yield WhatIf("no limit of memory", instance.replace(limit=None))
    if instance.lag.any():
        yield WhatIf("links twice as fast", instance.replace(latency=instance.latency // 2))
        none = np.zeros_like(instance.latency)
        yield WhatIf("links that take no time", instance.replace(latency=none))
    busiest = int(instance.work.argmax())
    here = instance.devices == busiest

    def quicker(column: Array | None) -> Array | None:
        return None if column is None else np.where(here, -(-column * 100 // (100 + MORE)), column)

    faster = instance.replace(
        forward=quicker(instance.forward),
        backward=quicker(instance.backward),
        weight=quicker(instance.weight),
    )
    yield WhatIf(f"{instance.device_name(busiest)} {MORE} % faster", faster)


def critical(instance: PipelineSchedule, solution: ScheduleSolution) -> Iterator[tuple[str, str]]:
    """Yield the device with the most work, the one that is taken longest, and the fullest one."""
    found = measure(instance, solution)
    busiest = max(range(instance.d), key=lambda device: found.devices[device].busy)
    busy = found.devices[busiest].busy
    yield (
        "most work",
        f"{instance.device_name(busiest)}: {busy:,} cycles, "
        f"{percent(busy, found.makespan)} of the makespan",
    )
    longest = max(range(instance.d), key=lambda device: found.devices[device].span)
    span = found.devices[longest].span
    yield "longest span", f"{instance.device_name(longest)}: {span:,} cycles"
    if instance.limit is not None:
        used = [device.peak_memory for device in found.devices]
        limits = instance.limit.tolist()
        full = max(range(instance.d), key=lambda device: used[device] / max(1, limits[device]))
        yield (
            "least room",
            f"{instance.device_name(full)}: {used[full]:,} of {limits[full]:,} bytes",
        )
