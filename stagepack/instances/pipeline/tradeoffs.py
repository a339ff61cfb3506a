"""What can be traded in a pipeline partition: memory and devices against the objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from stagepack.instances.pipeline.check import stage_headroom
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.estimate import StageEstimate, estimate
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Device, Link
from stagepack.instances.tradeoffs import BESIDE, MORE, Axis, WhatIf, least, more
from stagepack.instances.words import LARGEST


def _within_memory(instance: PipelinePartition, limit: int) -> PipelinePartition:
    return _with_devices(instance, lambda device: _with(device, memory=least(device.memory, limit)))


def _memory(instance: PipelinePartition, solution: PipelineSolution) -> int:
    return max(one.memory for one in estimate(instance, solution).devices)


def _free_memory(instance: PipelinePartition) -> str:
    headroom = instance.objective is Objective.HEADROOM
    return (
        "headroom is what memory leaves free, so that the two are no trade-off" if headroom else ""
    )


def _within_devices(instance: PipelinePartition, limit: int) -> PipelinePartition:
    first = instance.cluster.devices[:limit]
    cluster = msgspec.structs.replace(instance.cluster, devices=first)
    held = instance.previous and [at if at < limit else -1 for at in instance.previous]
    return instance.replace(cluster=cluster, previous=held, fewer_stages=True)


def _unlike_devices(instance: PipelinePartition) -> str:
    if not isinstance(instance.placement, str):
        return "the table of the placement names the devices of all stages"
    if _tables(instance):
        return "tables say what each device costs, and nothing of fewer"
    if len({device.kind for device in instance.cluster.devices}) > 1:
        return "which of the unlike devices are left out is not said"
    return ""


def _used_devices(instance: PipelinePartition, solution: PipelineSolution) -> int:
    return len(set(solution.devices))


AXES = {
    "memory": Axis(
        unit="bytes",
        description="bytes of every device",
        within=_within_memory,
        used=_memory,
        lacking=_free_memory,
    ),
    "devices": Axis(
        unit="devices",
        description="devices, all alike",
        within=_within_devices,
        used=_used_devices,
        lacking=_unlike_devices,
    ),
}


def what_ifs(instance: PipelinePartition) -> Iterator[WhatIf]:
    """Yield more freedom, one more device, more memory, faster links, and none of their limits."""
    cluster, tables = instance.cluster, _tables(instance)
    unlike = tables or len({device.kind for device in cluster.devices}) > 1
    if unlike and not instance.free_order and not instance.placed:
        yield WhatIf("stages in any order", instance.replace(free_order=True), "--free-order")
    if instance.alternatives_per == "stage":
        each = instance.replace(alternatives_per="layer")
        yield WhatIf("alternatives layer by layer", each, "--alternatives-per layer")
    if not instance.fewer_stages and (unlike or instance.objective is not Objective.BOTTLENECK):
        freed = instance.replace(fewer_stages=True)
        yield WhatIf("devices that may stay unused", freed, "--fewer-stages")
    if instance.objective is Objective.SUM and instance.linked:
        beside = instance.replace(objective=Objective.OVERLAP)
        yield WhatIf(BESIDE, beside, f"--objective overlap, {BESIDE}")
    if _takes_rounds(instance):
        freed = instance.replace(stages_per_device=2, fewer_stages=True)
        option = "--stages-per-device 2" + ("" if instance.fewer_stages else " --fewer-stages")
        yield WhatIf("up to two stages on each device", freed, option)
    if not tables and isinstance(instance.placement, str):
        another = (*cluster.devices, cluster.devices[-1])
        grown = msgspec.structs.replace(cluster, devices=another)
        also = "" if instance.fewer_stages else ", and any may stay unused"
        yield WhatIf(f"one more device{also}", instance.replace(cluster=grown, fewer_stages=True))
    if any(device.memory is not None for device in cluster.devices):
        yield WhatIf(f"{MORE} % more memory", _with_devices(instance, _more_memory))
        if instance.objective is not Objective.HEADROOM:
            yield WhatIf(
                "no limit of memory",
                _with_devices(instance, lambda device: _with(device, memory=None)),
            )
    timed = instance.recv_cycles is None or instance.send_cycles is None
    linked = any(device.recv or device.send for device in cluster.devices)
    if timed and linked and instance.objective.counts_transfers:
        yield WhatIf("links twice as fast", _with_links(instance, _twice))
        yield WhatIf("links that take no time", _with_links(instance, lambda link: None))


def _takes_rounds(instance: PipelinePartition) -> bool:
    """Return whether devices may have several stages, and there are layers for them."""
    unknown = _tables(instance) or instance.compute_table is not None
    unknown |= instance.memory_table is not None or bool(instance.alternatives)
    plain = instance.objective is Objective.BOTTLENECK and not instance.free_order
    several = 1 < instance.k <= instance.n // 2
    return several and plain and not (instance.placed or unknown or instance.tokens)


def critical(instance: PipelinePartition, solution: PipelineSolution) -> Iterator[tuple[str, str]]:
    """Yield the stages that compute, transfer and hold the most, and the heaviest layer."""
    stages = estimate(instance, solution).devices
    slow = max(stages, key=lambda stage: stage.compute)
    yield "most compute", f"{_where(instance, slow)}: {slow.compute:,} cycles"
    moving = max(stages, key=lambda stage: stage.transfer)
    if moving.transfer:
        yield "most transfer", f"{_where(instance, moving)}: {moving.transfer:,} cycles"
    full = max(stages, key=lambda stage: stage.utilisation or 0)
    if full.utilisation:
        yield (
            "least room",
            f"{_where(instance, full)}: {full.memory:,} of {full.capacity:,} bytes "
            f"({full.utilisation:.0%})",
        )
    instance = settled(instance, solution)
    tokens, at = min(
        (stage_headroom(instance, *stage, len(stages) - at), at)
        for at, stage in enumerate(solution.stages)
    )
    if tokens < LARGEST and not instance.placed:  # a device of several stages has one room
        yield "fewest tokens", f"{_where(instance, stages[at])}: {tokens:,} tokens"
    if instance.compute_table is None:
        layer = int(instance.cycles.argmax())
        cycles = instance.cycles[layer].item()
        yield "heaviest layer", f"{instance.layer_name(layer)}: {cycles:,} cycles"


def _where(instance: PipelinePartition, stage: StageEstimate) -> str:
    if instance.placed:
        return stage.device_name
    layers = (
        f"layer {stage.first}"
        if stage.end == stage.first + 1
        else (f"layers {stage.first} to {stage.end - 1}")
    )
    return f"stage {stage.stage} ({layers}) on {stage.device_name}"


def _tables(instance: PipelinePartition) -> bool:
    """Return whether there are tables that say something of every device."""
    tables = (instance.compute_table, instance.memory_table)
    return (
        instance.recv_cycles is not None
        or instance.send_cycles is not None
        or any(table is not None and table.ndim == 3 for table in tables)
    )


def _more_memory(device: Device) -> Device:
    return device if device.memory is None else _with(device, memory=more(device.memory))


def _twice(link: Link) -> Link:
    return Link(GBps=2 * link.GBps, idle=link.idle)


def _with(device: Device, memory: int | None) -> Device:
    return msgspec.structs.replace(device, memory=memory)


def _with_devices(
    instance: PipelinePartition, change: Callable[[Device], Device]
) -> PipelinePartition:
    devices = tuple(map(change, instance.cluster.devices))
    return instance.replace(cluster=msgspec.structs.replace(instance.cluster, devices=devices))


def _with_links(
    instance: PipelinePartition, change: Callable[[Link], Link | None]
) -> PipelinePartition:
    def changed(device: Device) -> Device:
        recv, send = (None if link is None else change(link) for link in (device.recv, device.send))
        return msgspec.structs.replace(device, recv=recv, send=send)

    return _with_devices(instance, changed)
