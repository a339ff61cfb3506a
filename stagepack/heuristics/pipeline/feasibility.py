"""Why an instance has no solution, in words a person can act on."""

from __future__ import annotations

import msgspec

from stagepack.heuristics.pipeline.prober import Prober
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import InputError

MOST_DEVICES_TRIED = 64


def explain(costs: RangeCosts) -> str:
    """Return what makes an infeasible instance so, by how much, and what would mend it.

    Looks, in this order, at the cuts asked for, at the number of stages, at spans that fit no
    device, and then for the least additional capacity and the least number of devices that
    would do.  O(log(capacity)) probes.
    """
    return (
        _conflicting_cuts(costs)
        or _stage_count(costs)
        or _oversized_span(costs)
        or _capacity_short(costs)
    )


def _conflicting_cuts(costs: RangeCosts) -> str:
    instance = costs.instance
    for cut in instance.fixed_cuts:
        if not costs.allowed[cut]:
            causes = [v.name for v in instance.variables if v.first < cut <= v.last]
            why = f"variable {causes[0]!r} spans it" if causes else "it is also a forbidden cut"
            return f"the fixed cut at {cut} is impossible: {why}"
    return ""


def _stage_count(costs: RangeCosts) -> str:
    instance, spans = costs.instance, len(costs.atoms)
    if len(instance.fixed_cuts) + 1 > costs.k:
        return (
            f"{_count(len(instance.fixed_cuts), 'fixed cut')} make at least "
            f"{len(instance.fixed_cuts) + 1} stages but there is room for {costs.k}; "
            f"give {len(instance.fixed_cuts) + 1} devices or fix fewer cuts"
        )
    if not instance.fewer_stages and spans < costs.k:
        return (
            f"{costs.k} devices need {costs.k} stages but {_count(costs.n, 'layer')} can be cut "
            f"into {spans} at most; use {_count(spans, 'device')} or allow fewer stages"
        )
    return ""


def _oversized_span(costs: RangeCosts) -> str:
    """Name the span that may not be cut and exceeds every device by most."""
    instance = costs.instance
    capacities = [c for c in costs.capacity if c is not None]
    if len(capacities) < len(costs.capacity) or instance.memory_table is not None:
        return ""
    largest = max(capacities)
    stashes = 1 if instance.training else 0
    worst, excess = None, 0
    for span in costs.atoms:
        need = _memory(costs, *span, stashes)
        if need - largest > excess:
            worst, excess = span, need - largest
    if worst is None:
        return ""
    first, end = worst
    if end - first == 1:
        name = "" if instance.layer_names is None else f" ({instance.layer_name(first)})"
        what = f"layer {first}{name} needs"
    else:
        tied = [v.name for v in instance.variables if first <= v.first < v.last < end]
        by = f"variable {tied[0]!r}" if tied else "forbidden cuts"
        if len(tied) > 1:
            by = f"variables {tied[0]!r} and {len(tied) - 1} more"
        what = f"layers {first} to {end - 1}, kept together by {by}, need"
    return (
        f"{what} {largest + excess:,} bytes but the largest device has {largest:,}: "
        f"{excess:,} too many; give some device {largest + excess:,} bytes"
    )


def _capacity_short(costs: RangeCosts) -> str:
    instance = costs.instance
    need = _least_extra_capacity(instance)
    parts = []
    if need is not None:
        parts.append(
            f"it would with {need:,} more bytes on every device"
            + _new_capacity(costs.capacity, need)
        )
    enough = _enough_devices(instance)
    if enough is not None:
        parts.append(f"or with {enough} devices" if parts else f"it would with {enough} devices")
    remedy = "; " + ", ".join(parts) if parts else ""
    return f"no partition into {_count(costs.k, 'stage')} fits the devices' memory{remedy}"


def _new_capacity(capacities: list[int | None], extra: int) -> str:
    capacity = capacities[0]
    if len(capacities) > 1 or capacity is None:
        return ""
    return f" ({capacity + extra:,} instead of {capacity:,})"


def _least_extra_capacity(instance: PipelinePartition) -> int | None:
    """Return the least number of bytes that, added to every device, make it feasible."""

    def enough(extra: int) -> bool:
        devices = tuple(
            device
            if device.memory is None
            else msgspec.structs.replace(device, memory=device.memory + extra)
            for device in instance.cluster.devices
        )
        cluster = msgspec.structs.replace(instance.cluster, devices=devices)
        return Prober(RangeCosts(instance.replace(cluster=cluster))).probe() is not None

    low, high = 1, 1
    while not enough(high):
        low, high = high + 1, high * 4
        if high > 2**61:
            return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _enough_devices(instance: PipelinePartition) -> int | None:
    """Return the least number of devices, copies of the one kind there is, that would do."""
    cluster = instance.cluster
    if len({device.kind for device in cluster.devices}) > 1 or instance.n > 20_000:
        return None
    tables = (instance.recv_cycles, instance.send_cycles, instance.compute_table)
    if any(table is not None for table in (*tables, instance.memory_table)):
        return None
    for k in range(len(cluster) + 1, min(instance.n, len(cluster) + MOST_DEVICES_TRIED) + 1):
        more = msgspec.structs.replace(cluster, devices=cluster.devices[:1] * k)
        try:
            if Prober(RangeCosts(instance.replace(cluster=more))).probe() is not None:
                return k
        except InputError:
            return None
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _memory(costs: RangeCosts, first: int, end: int, stashes: int) -> int:
    """Return the bytes of the layers [first, end) with `stashes` microbatches in flight."""
    instance, layers, shared = costs.instance, slice(first, end), costs.instance.shared
    inside = (shared.layer >= first) & (shared.layer < end)
    columns = [*instance.exclusive.values()]
    return (
        sum(int(column[layers].sum()) for column in columns)
        + int(shared.nbytes[list(set(shared.key[inside].tolist()))].sum())
        + int((instance.temporary + instance.carry)[layers].max())
        + stashes * int(instance.stash[layers].sum())
    )
