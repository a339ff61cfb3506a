"""Pipeline partitions of the catalog: real networks, and seeded generators.

The same seed gives the same instance.  Figures are made up, in the range of the *Auto Pipeline*
readme: devices at 1.85 GHz with links of 70 GB/s, layers of some million cycles and some megabytes.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np

from stagepack.catalog import networks
from stagepack.catalog.generator import Generator
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances import clusters
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.profile import Array, Cluster, Device, Link, ModelProfile

CLOCK = 1_850_000_000
NEAR = Link(GBps=70, idle=3_000)
SLOW = Link(GBps=50, idle=3_000)
HOST = Link(GBps=7, idle=50_000)
MIB = 2**20
MACHINE = dict.fromkeys(("devices", "bandwidth", "capacity", "speed", "utilisation"))
JOB = {
    "objective": "transfer-bounded",
    "host_transfer": True,
    "fewer_stages": False,
    "kv_bytes": None,
    "tokens": 0,
}
TRAINED = {
    "training": False,
    "microbatches": 16,
    "backward_transfers": None,
    "memory": None,
    **JOB,
    "free_order": False,
}


def parameters(name: str) -> JsonObject:
    """Return every parameter of a network's instance with its default."""
    recipe = networks.NETWORKS[name]
    machine = {"cluster": recipe.cluster, **MACHINE, "state_bytes": recipe.state_bytes}
    return {**recipe.shape, **TRAINED, **machine}


def of_network(name: str, **given: Any) -> PipelinePartition:
    """Return the instance of a network on a cluster, all its parameters `given`."""
    profile, cluster = profiled(name, given)
    tied = "together" if given.get("tied") is True else given.get("tied") or None
    options = {key: given[key] for key in TRAINED}
    return PipelinePartition.from_profile(profile, cluster, tied=tied, **options)


def profiled(name: str, given: JsonObject) -> tuple[ModelProfile, Cluster]:
    """Return the layers of a network as a cluster runs them, and the cluster.

    `given` are its shape, ``training``, ``state_bytes``, ``cluster`` and all of :data:`MACHINE`.
    """
    preset = clusters.preset(given["cluster"])
    cluster = clusters.changed(
        preset.cluster,
        **{fact: given[fact] for fact in ("devices", "capacity", "bandwidth", "speed")},
    )
    shape = tuple((key, given[key]) for key in networks.NETWORKS[name].shape)
    facts = ("bytes_per_value", "training", "state_bytes", "utilisation")
    return _profile(name, preset, shape, tuple((key, given[key]) for key in facts)), cluster


@lru_cache(maxsize=4)  # tuning asks for one on many numbers of devices and microbatches
def _profile(
    name: str, preset: clusters.Preset, shape: tuple[Any, ...], facts: tuple[Any, ...]
) -> ModelProfile:
    """Return the layers of a network of a `shape` as a machine runs them, with these `facts`."""
    said = dict(facts)
    made = networks.network(name, training=said["training"], **dict(shape))
    return made.profile(preset, **said)


def _bert_like(layers: int, devices: int, seed: int, **job: Any) -> PipelinePartition:
    """Alternate attention-like and feed-forward-like layers: few distinct transfers.

    The seed draws the two kinds' cycles and bytes; an attention mask crosses some cuts.
    """
    rng = np.random.default_rng(seed)
    n = _checked(layers, devices)
    kinds = np.arange(n) % 2
    cycles = rng.integers(1_000_000, 3_000_000, 2)[kinds]
    weights = rng.integers(8 * MIB, 18 * MIB, 2)[kinds]
    cycles[0], cycles[-1] = 900_000, 500_000
    weights[0], weights[-1] = 60 * MIB, 4 * MIB
    stream = 128 * 1024 * 2 * 16
    crossing = np.full(n + 1, stream, dtype=np.int64)
    crossing[1:-1:3] += 128 * 128 * 2 * 16
    crossing[0], crossing[n] = 16 * 128 * 4, 16 * 2 * 2
    return _instance(
        f"bert-like-{n}x{devices}",
        cycles,
        _pod(devices, int(weights.sum() * 2 // devices + weights.max())),
        exclusive={"parameters": weights},
        temporary=np.full(n, 2 * stream, dtype=np.int64),
        stash=np.full(n, stream, dtype=np.int64),
        shared={
            "code of attention": (11 * MIB, range(1, n - 1, 2)),
            "code of feed-forward": (11 * MIB, range(2, n - 1, 2)),
        },
        crossing=crossing,
        **job,
    )


def _heterogeneous(layers: int, devices: int, seed: int, **job: Any) -> PipelinePartition:
    """Draw every layer and every cut anew, links of 70 and 50 GB/s by turns.

    Nearly all of the O(k n^2) transfers differ.
    """
    rng = np.random.default_rng(seed)
    n = _checked(layers, devices)
    cycles = rng.integers(10_000, 3_000_000, n)
    memory = rng.integers(10_000, 20_000_000, n)
    crossing = rng.integers(10_000, 4_000_000, n + 1)
    capacity = int(memory.sum() * 3 // (2 * devices) + memory.max())
    links = [NEAR if i % 2 == 0 else SLOW for i in range(devices + 1)]
    cluster = Cluster(
        devices=tuple(
            Device(memory=capacity, recv=links[i - 1], send=links[i]) for i in range(devices)
        ),
        clock=CLOCK,
        host_recv=HOST,
        host_send=HOST,
    )
    return _instance(
        f"heterogeneous-{n}x{devices}",
        cycles,
        cluster,
        exclusive={"parameters": memory},
        crossing=crossing,
        **job,
    )


def _adversarial(layers: int, devices: int, seed: int, **job: Any) -> PipelinePartition:
    """Trade compute against transfer at a constant sum: about n / k non-dominated partitions.

    Equal layers; at the balanced cuts the transfer is largest, and every step away from them
    costs as much compute as it saves transfer, but for noise of a few per cent.  A sweep of
    thresholds can neither skip a step nor stop early.  Sending a byte takes a cycle, receiving
    nothing.
    """
    rng = np.random.default_rng(seed)
    n = _checked(layers, devices)
    period, unit = max(1, n // devices), 40_000
    cycles = np.full(n, unit, dtype=np.int64)
    cycles[-1] += unit // 2  # a step to the left costs half a unit more than one to the right
    cuts = np.arange(n + 1)
    right, left = cuts % period, -cuts % period
    rank = np.where(right <= left, 2 * right, 2 * left + 1)
    crossing = unit + (period - np.minimum(rank, period)) * unit // 2
    crossing += rng.integers(0, unit // 20, n + 1)
    cluster = Cluster(devices=(Device(send=Link(GBps=1)),) * devices, clock=2**30)
    return _instance(f"adversarial-{n}x{devices}", cycles, cluster, crossing=crossing, **job)


def _shared_variables(layers: int, devices: int, seed: int, **job: Any) -> PipelinePartition:
    """Tie random spans of two to four layers together, leaving enough cuts for the devices."""
    rng = np.random.default_rng(seed)
    n = _checked(layers, devices)
    allowed = np.ones(n + 1, dtype=bool)
    spans = []
    for number in range(n // 3):
        first = int(rng.integers(0, max(1, n - 1)))
        last = min(n - 1, first + int(rng.integers(1, 4)))
        after = allowed.copy()
        after[first + 1 : last + 1] = False
        if last > first and after.sum() - 2 >= min(n - 1, 2 * (devices - 1)):
            allowed = after
            spans.append((f"variable {number}", first, last))
    return _instance(
        f"shared-variables-{n}x{devices}",
        rng.integers(100_000, 2_000_000, n),
        _pod(devices, None),
        exclusive={"parameters": rng.integers(1, 8 * MIB, n)},
        crossing=rng.integers(10_000, 4_000_000, n + 1),
        variables=spans,
        **job,
    )


def _tight_memory(
    layers: int, devices: int, seed: int, slack: float, **job: Any
) -> PipelinePartition:
    """Give each device `slack` times more than the least capacity with which a partition exists.

    Compute and memory of a layer are drawn independently, so that balancing one unbalances the
    other.
    """
    instance = _memory_bound(f"tight-memory-{layers}x{devices}", layers, devices, seed, job)
    least = least_capacity(instance, [1] * devices)
    return _with_capacity(instance, [int(least * (1 + slack))] * devices)


def _infeasible(layers: int, devices: int, seed: int, **job: Any) -> PipelinePartition:
    """Give each device one byte less than the least capacity with which a partition exists."""
    instance = _memory_bound(f"infeasible-{layers}x{devices}", layers, devices, seed, job)
    least = least_capacity(instance, [1] * devices)
    return _with_capacity(instance, [least - 1] * devices)


def _unlike_devices(
    layers: int, devices: int, seed: int, slack: float, free_order: bool, **job: Any
) -> PipelinePartition:
    """Draw speeds (half to twice) and memories (one to three parts) of the devices."""
    rng = np.random.default_rng(seed)
    speeds = rng.choice([0.5, 1, 1.5, 2], devices).tolist()
    parts = rng.integers(1, 4, devices).tolist()
    instance = _memory_bound(f"unlike-devices-{layers}x{devices}", layers, devices, seed, job)
    least = least_capacity(instance, parts)
    instance = _with_capacity(instance, [int(least * part * (1 + slack)) for part in parts])
    faster = tuple(
        msgspec.structs.replace(
            device, speed=int(speed) if speed >= 1 and speed % 1 == 0 else speed
        )
        for device, speed in zip(instance.cluster.devices, speeds, strict=True)
    )
    return instance.replace(
        cluster=msgspec.structs.replace(instance.cluster, devices=faster), free_order=free_order
    )


def _interleaved(
    layers: int,
    devices: int,
    seed: int,
    stages_per_device: int,
    placement: str,
    spread: float,
    fewer_stages: bool,
) -> PipelinePartition:
    """Put equal layers between an embedding and a head, several stages on each device.

    The seed draws measured layers around these, with `spread` of their cycles as the deviation.
    """
    cycles = np.full(_checked(layers, 1), 100_000.0)
    cycles[0], cycles[-1] = 30_000, 250_000
    cycles *= 1 + spread * np.random.default_rng(seed).standard_normal(layers)
    return PipelinePartition.from_arrays(
        np.rint(cycles.clip(1)).astype(np.int64),
        devices=devices,
        stages_per_device=stages_per_device,
        placement=placement,
        fewer_stages=fewer_stages,
        name=f"interleaved-{layers}x{devices}x{stages_per_device}",
    )


def least_capacity(instance: PipelinePartition, parts: list[int]) -> int:
    """Return the least C such that the layers fit devices of C * parts[0], C * parts[1], ... bytes.

    Only for memory that follows from `exclusive`, `temporary` and `carry`.  Each device in turn
    takes as many layers as fit; bisection on C.
    """
    total = np.zeros(instance.n, dtype=np.int64)
    for column in instance.exclusive.values():
        total += column
    exclusive, peak = total.tolist(), (instance.temporary + instance.carry).tolist()

    def fits(capacity: int) -> bool:
        at = 0
        for part in parts:
            used, highest, start = 0, 0, at
            while at < len(exclusive):
                if used + exclusive[at] + max(highest, peak[at]) > capacity * part:
                    break
                used += exclusive[at]
                highest = max(highest, peak[at])
                at += 1
            if at == start and at < len(exclusive):
                return False
        return at == len(exclusive)

    # Every layer must fit the smallest device, lest a stage stay empty.
    largest = max(bytes_ + top for bytes_, top in zip(exclusive, peak, strict=True))
    low: int = -(-largest // min(parts))
    high: int = max(low, sum(exclusive) + max(peak))
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _memory_bound(
    name: str, layers: int, devices: int, seed: int, job: JsonObject
) -> PipelinePartition:
    rng = np.random.default_rng(seed)
    n = _checked(layers, devices)
    return _instance(
        name,
        rng.integers(100_000, 2_000_000, n),
        _pod(devices, None),
        exclusive={"parameters": rng.integers(1 * MIB, 32 * MIB, n)},
        temporary=rng.integers(1 * MIB, 16 * MIB, n),
        carry=rng.integers(0, 2 * MIB, n),
        crossing=rng.integers(10_000, 4_000_000, n + 1),
        **job,
    )


def _with_capacity(instance: PipelinePartition, capacities: list[int]) -> PipelinePartition:
    devices = tuple(
        msgspec.structs.replace(device, memory=capacity)
        for device, capacity in zip(instance.cluster.devices, capacities, strict=True)
    )
    return instance.replace(cluster=msgspec.structs.replace(instance.cluster, devices=devices))


def _instance(
    name: str, cycles: Array, cluster: Cluster, *, crossing: Array, **columns: Any
) -> PipelinePartition:
    return PipelinePartition.from_arrays(
        cycles, cluster=cluster, in_bytes=crossing, out_bytes=crossing, name=name, **columns
    )


def _pod(devices: int, memory: int | None) -> Cluster:
    return Cluster.uniform(devices, memory=memory, link=NEAR, host=HOST, clock=CLOCK)


def _checked(layers: int, devices: int) -> int:
    if layers < devices:
        raise InputError(
            f"{layers:,} layers for {devices:,} devices",
            field="layers",
            remedy="give at least one layer a device",
        )
    return layers


GENERATORS: dict[str, Generator] = {
    **{
        name: Generator(partial(of_network, name), parameters(name), recipe.description)
        for name, recipe in networks.NETWORKS.items()
    },
    "random/bert-like": Generator(
        _bert_like,
        {"layers": 50, "devices": 8, "seed": 0, **JOB},
        "two kinds of layers by turns: a repeating substructure, few distinct transfers",
    ),
    "random/heterogeneous": Generator(
        _heterogeneous,
        {"layers": 60, "devices": 8, "seed": 0, **JOB},
        "all layers, cuts and links unlike: many distinct transfers",
    ),
    "random/adversarial": Generator(
        _adversarial,
        {"layers": 64, "devices": 4, "seed": 0, **JOB, "host_transfer": False},
        "compute traded against transfer at a constant sum: about layers / devices steps",
    ),
    "random/shared-variables": Generator(
        _shared_variables,
        {"layers": 40, "devices": 4, "seed": 0, **JOB},
        "random spans of layers use one variable and stay together",
    ),
    "random/tight-memory": Generator(
        _tight_memory,
        {"layers": 40, "devices": 6, "seed": 0, "slack": 0.05, **JOB},
        "capacity just above the least that is feasible",
    ),
    "random/infeasible": Generator(
        _infeasible,
        {"layers": 40, "devices": 6, "seed": 0, **JOB},
        "no solution: the capacity is one byte less than any partition needs",
    ),
    "random/unlike-devices": Generator(
        _unlike_devices,
        {"layers": 40, "devices": 6, "seed": 0, "slack": 0.25, "free_order": False, **JOB},
        "speeds and memories differ from device to device",
    ),
    "interleaved": Generator(
        _interleaved,
        {
            "layers": 48,
            "devices": 16,
            "seed": 0,
            "stages_per_device": 2,
            "placement": "v",
            "spread": 0.0,
            "fewer_stages": True,
        },
        "layers as of Megatron-LM, several stages on each device",
    ),
}

SUITE: tuple[tuple[str, JsonObject], ...] = (
    # inference
    ("bert-base", {"granularity": "matmul"}),
    ("vit-l-16", {"cluster": "ipu-pod8", "objective": "sum"}),
    ("resnet-50", {"granularity": "matmul", "cluster": "ipu-pod8"}),
    # training
    ("bert-large", {"training": True, "batch": 1, "cluster": "ipu-pod8", "objective": "sum"}),
    ("gpt2-small", {"training": True, "batch": 1, "objective": "bottleneck"}),
    ("vgg-16", {"training": True, "batch": 4, "objective": "overlap"}),
    # generated
    ("random/heterogeneous", {"objective": "latency"}),
    ("random/unlike-devices", {}),
    ("random/bert-like", {"objective": "headroom", "kv_bytes": 4096}),
    ("random/infeasible", {}),
)

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "resnet-50",
    {"cluster": "ipu-pod8"},
    ("greedy", "dp", "milp-interval", "cp-sat"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
