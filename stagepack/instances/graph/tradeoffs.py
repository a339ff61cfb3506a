"""Trade-offs of graph partitions: memory of the accelerators against the largest load."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.instances.graph.check import loads, plain
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.tradeoffs import BESIDE, MORE, Axis, WhatIf, more


def _within(instance: GraphPartition, limit: int) -> GraphPartition:
    own = instance.capacity
    capacity = np.full(instance.accelerators, limit) if own is None else np.minimum(own, limit)
    return instance.replace(capacity=capacity)


def _used(instance: GraphPartition, solution: GraphSolution) -> int:
    held = (
        load.memory for load in loads(instance, solution) if load.device < instance.accelerators
    )
    return max(held, default=0)


def _no_memory(instance: GraphPartition) -> str:
    return "" if instance.memory.any() or instance.stash.any() else "its nodes hold no bytes"


AXES = {
    "memory": Axis(
        unit="bytes",
        description="bytes of every accelerator",
        within=_within,
        used=_used,
        lacking=_no_memory,
    )
}


def what_ifs(instance: GraphPartition) -> Iterator[WhatIf]:
    """Yield more freedom, one more accelerator, more memory or no limit of it, faster links."""
    if instance.device_order is not DeviceOrder.ANY:
        freed = instance.replace(device_order=DeviceOrder.ANY)
        yield WhatIf("devices in any order", freed, "--set device_order=any")
    if not instance.empty_devices:
        freed = instance.replace(empty_devices=True)
        yield WhatIf("devices that may stay unused", freed, "--set empty_devices=true")
    if instance.objective is Objective.SUM and instance.traffic.any():
        beside = instance.replace(objective=Objective.OVERLAP)
        yield WhatIf(BESIDE, beside, f"--objective overlap, {BESIDE}")
    if instance.objective is Objective.OVERLAP and _replicates(instance):
        several = instance.replace(objective=Objective.REPLICATED)
        yield WhatIf("stages on several devices", several, "--objective replicated")
    if instance.uniform and instance.empty_devices and instance.accelerators and _alike(instance):
        grown = instance.replace(accelerators=instance.accelerators + 1)
        yield WhatIf("one more accelerator", grown)
    if instance.capacity is not None:
        limits = [more(limit) for limit in instance.capacity.tolist()]
        yield WhatIf(f"{MORE} % more memory", instance.replace(capacity=limits))
        yield WhatIf("no limit of memory", instance.replace(capacity=None))
    if instance.traffic.any():
        faster = instance.replace(bandwidth=2 * instance.bandwidth)
        yield WhatIf("links twice as fast", faster)


def critical(instance: GraphPartition, solution: GraphSolution) -> Iterator[tuple[str, str]]:
    """Yield the devices that compute, communicate and hold the most, and the heaviest node."""
    found = loads(instance, solution)
    slow = max(found, key=lambda load: load.time)
    yield "most compute", f"{instance.device_name(slow.device)}: {plain(slow.time):,}"
    moving = max(found, key=lambda load: load.received + load.sent)
    yield (
        "most transfer",
        f"{instance.device_name(moving.device)}: {plain(moving.received + moving.sent):,}",
    )
    full = max(found, key=lambda load: load.memory)
    if full.memory:
        yield "most memory", f"{instance.device_name(full.device)}: {full.memory:,} bytes"
    node = int(np.where(instance.accelerator, instance.time, -1).argmax())
    yield "heaviest node", f"{instance.node_name(node)}: {instance.time[node].item():,}"


def _replicates(instance: GraphPartition) -> bool:
    """Return whether stages may run on several devices: all of these are alike."""
    return instance.uniform and not instance.cpus and instance.devices > 1 and _alike(instance)


def _alike(instance: GraphPartition) -> bool:
    limits = () if instance.capacity is None else instance.capacity
    return len(set(instance.speeds)) <= 1 and len(set(limits)) <= 1
