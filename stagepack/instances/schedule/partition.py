"""Schedules of the stages of a pipeline partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.base import require_instance, valid_solution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import (
    device_memory,
    host_cycles,
    stage_compute,
    stage_memory,
)
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.profile import Array, Link
from stagepack.result import Result


def arguments(
    partition: PipelinePartition,
    solution: PipelineSolution | Result[PipelineSolution],
    microbatches: Any,
    split: bool,
    options: JsonObject,
) -> JsonObject:
    """Return what describes the stages that `solution` makes, for ``from_arrays`` of schedules.

    F takes the forward cycles of the stage's layers on its device, rounded up, and those of the
    exchange with the host where every device waits for it (:func:`waiting`).  The backward cycles,
    rounded up too, are B; where `split`, half of them (rounded down) are W.  The latency of an edge
    is the time in which the tensors of its cut leave one device and enter the next, the slower of
    the two, rounded up.  F takes the stashes of the stage's layers and the tensors it receives,
    nothing where these do not count; B releases them, or B and W half each where split.  The limit
    of a device is its memory less what its stages hold all the time; where `options`, which replace
    what is derived, say `devices`, its stages' least memory less what they all hold.  Stages are on
    the devices that the partition places them on.

    Refuses a partition that is invalid or says only forward and backward together, stages that take
    no cycles, and devices too small for what their stages hold all the time.  `microbatches` are
    those of the partition if None.
    """
    require_instance(partition, "pipeline-partition", "partition")
    solution = valid_solution(partition, solution, "partition")
    partition = settled(partition, solution)  # recomputation is counted as it was chosen
    training = partition.training
    if partition.compute_table is not None and training:
        raise InputError(
            "says forward and backward cycles only together",
            field="compute_table",
            remedy="give forward and backward cycles of the layers",
        )
    stages = solution.stages
    forward = _work(partition, "forward", stages)
    derived: JsonObject = {
        "forward": [cycles + waiting(partition) for cycles in forward],
        "microbatches": partition.microbatches if microbatches is None else microbatches,
        "latency": [
            max(
                _transfer(partition, "send", stages[j][2], stages[j][1]),
                _transfer(partition, "recv", stages[j + 1][2], stages[j + 1][0]),
            )
            for j in range(len(stages) - 1)
        ],
        "stage_names": [_name(partition, first, end) for first, end, _ in stages],
        "name": partition.name,
        "source": partition.source,
    }
    if "devices" not in options:
        used = sorted(set(solution.devices)) if partition.placed else solution.devices
        derived["device_names"] = [partition.device_name(device) for device in used]
        if partition.placed:
            derived["devices"] = [used.index(device) for device in solution.devices]
    if training:
        derived |= _backward(partition, stages, split)
    derived |= options
    if "limit" not in options:
        devices = derived.get("devices")
        derived["limit"] = _limits(
            partition, stages, np.arange(len(stages)) if devices is None else np.asarray(devices)
        )
    return derived


def _backward(
    partition: PipelinePartition, stages: Sequence[tuple[int, int, int]], split: bool
) -> dict[str, list[int]]:
    """Return cycles of B (and W) of the stages, and the bytes that F takes and they release."""
    backward = _work(partition, "backward", stages)
    if split and min(backward) == 1:
        raise InputError(
            f"the backward pass of stage {backward.index(1)} takes 1 cycle",
            field="split",
            remedy="choose a finer unit, or do not split",
        )
    kept = partition.kept_bytes
    stash = [int(partition.stash[first:end].sum()) + int(kept[first]) for first, end, _ in stages]
    if not split:
        return {
            "backward": backward,
            "memory_forward": stash,
            "memory_backward": [-nbytes for nbytes in stash],
        }
    return {
        "backward": [cycles - cycles // 2 for cycles in backward],
        "weight": [cycles // 2 for cycles in backward],
        "memory_forward": stash,
        "memory_backward": [nbytes // 2 - nbytes for nbytes in stash],
        "memory_weight": [-(nbytes // 2) for nbytes in stash],
    }


def _work(
    partition: PipelinePartition, column: str, stages: Sequence[tuple[int, int, int]]
) -> list[int]:
    """Return the cycles of the stages; one that takes none has no place in a schedule."""
    cycles = [_cycles(partition, getattr(partition, column), *stage) for stage in stages]
    if 0 in cycles:
        idle = cycles.index(0)
        first, end, _ = stages[idle]
        raise InputError(
            f"stage {idle} ({_name(partition, first, end)}) takes no {column} cycles",
            field="layers",
            remedy="give its layers cycles, or allow fewer stages",
        )
    return cycles


def waiting(partition: PipelinePartition) -> int:
    """Return the cycles that every device waits for the host with each microbatch, rounded up."""
    return math.ceil(host_cycles(partition))


def _cycles(partition: PipelinePartition, column: Array, first: int, end: int, device: int) -> int:
    """Return the cycles of the layers [first, end) on `device`, rounded up."""
    if partition.compute_table is not None:
        table = partition.compute_table
        total = Fraction((table if table.ndim == 2 else table[device])[first, end].item())
    else:
        total = sum(map(Fraction, column[first:end].tolist()), Fraction(0))
    return math.ceil(total / Fraction(str(partition.cluster.devices[device].speed)))


def _transfer(partition: PipelinePartition, end: str, device: int, cut: int) -> int:
    """Return the cycles in which a device sends or receives the tensors of `cut`, rounded up."""
    table = getattr(partition, f"{end}_cycles")
    if table is not None:
        cycles: float = table[device, cut].item()
        return math.ceil(cycles)
    link: Link | None = getattr(partition.cluster.devices[device], end)
    if link is None:
        return 0
    nbytes = int((partition.in_bytes if end == "recv" else partition.out_bytes)[cut])
    return math.ceil(link.idle + nbytes / (link.GBps * 2**30 / partition.cluster.clock))


def least_latencies(partition: PipelinePartition) -> Array:
    """Return the least latency of an edge across each cut, whichever devices are around it.

    Integers of shape (n + 1,), as :func:`arguments` counts them.
    """
    devices = list(range(partition.k))
    if all(getattr(partition, name) is None for name in ("send_cycles", "recv_cycles")):
        known = {(one.recv, one.send): at for at, one in enumerate(partition.cluster.devices)}
        devices = list(known.values())
    send, recv = (
        np.minimum.reduce([transfers(partition, end, at) for at in devices])
        for end in ("send", "recv")
    )
    return np.asarray(np.maximum(send, recv))


def transfers(partition: PipelinePartition, end: str, device: int) -> Array:
    """Return the cycles in which a `device` sends or receives the tensors of each cut, rounded up.

    Integers of shape (n + 1,), as :func:`arguments` counts them; `end` is "send" or "recv".
    """
    table = getattr(partition, f"{end}_cycles")
    if table is not None:
        return np.asarray(np.ceil(table[device]), dtype=np.int64)
    link: Link | None = getattr(partition.cluster.devices[device], end)
    if link is None:
        return np.zeros(partition.n + 1, dtype=np.int64)
    nbytes = partition.in_bytes if end == "recv" else partition.out_bytes
    cycles = np.ceil(link.idle + nbytes / (link.GBps * 2**30 / partition.cluster.clock))
    return np.asarray(cycles, dtype=np.int64)


def _limits(
    partition: PipelinePartition, stages: list[tuple[int, int, int]], devices: Array
) -> list[int] | None:
    """Return what each device has left beside what its stages hold all the time."""
    if len(devices) != len(stages):  # refused by name later
        return None
    memories = [partition.cluster.devices[device].memory for _, _, device in stages]
    if all(memory is None for memory in memories):
        return None
    limits = []
    for device in range(int(devices.max(initial=-1)) + 1):
        here = np.flatnonzero(devices == device).tolist()
        if partition.placed and len({stages[s][2] for s in here}) == 1:
            parts = [(*stages[s][:2], 0) for s in here]
            held = device_memory(partition, parts, stages[here[0]][2])
        else:
            held = sum(stage_memory(partition, *stages[s], 0) for s in here)
        known = [memory for s in here if (memory := memories[s]) is not None]
        left = min(known) - held if known else 2**62 - 1
        if left < 0:
            raise InputError(
                f"device {device} holds {held:,} bytes all the time, {-left:,} more than it has",
                field="devices",
                remedy="give fewer stages to it",
            )
        limits.append(left)
    return limits


def _name(partition: PipelinePartition, first: int, end: int) -> str:
    if end == first + 1:
        return partition.layer_name(first)
    return f"{partition.layer_name(first)} to {partition.layer_name(end - 1)}"


def balanced(partition: PipelinePartition) -> PipelineSolution:
    """Return the partition of the least bottleneck, a stage a device in order.

    Bisection on the bottleneck; for each, every stage takes as many layers as it can.  That is
    exact where a stage's cycles and bytes only grow with its layers.  Refuses layers that do not
    fit the devices, or are too few.
    """
    most = int(np.count_nonzero(partition.allowed_cuts)) - 1
    if most < partition.k:
        raise InputError(
            f"{partition.k} devices, but the layers are cut into {most} at most",
            field="devices",
            remedy="give fewer devices; layers that share variables stay in one stage",
        )
    low, high = 0, int(partition.cycles.sum()) + 1
    best = None
    while low < high:
        middle = (low + high) // 2
        found = _filled(partition, middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    best = best or _filled(partition, high)
    if best is None:
        raise InputError(
            f"the layers do not fit {partition.k} devices",
            field="devices",
            remedy="give more devices, a larger cluster, a smaller batch or more capacity",
        )
    return PipelineSolution.in_order(best)


def _filled(partition: PipelinePartition, bottleneck: int) -> tuple[int, ...] | None:
    """Return boundaries of stages within `bottleneck`, each as long as can be."""
    cuts = np.flatnonzero(partition.allowed_cuts).tolist()
    k, at = partition.k, 0
    boundaries = [0]
    for device in range(k):
        left = k - device - 1
        longest = at
        # Every later stage needs a layer of its own.
        for index in range(at + 1, len(cuts) - left):
            stage = (cuts[at], cuts[index], device)
            speed = partition.cluster.devices[device]
            if stage_compute(partition, *stage) > bottleneck:
                break
            if speed.memory is not None and stage_memory(partition, *stage, k - device) > (
                speed.memory
            ):
                break
            longest = index
        if longest == at:
            return None
        at = longest
        boundaries.append(cuts[at])
    return tuple(boundaries) if boundaries[-1] == partition.n else None
