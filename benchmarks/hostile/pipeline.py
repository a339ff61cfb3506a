"""Hostile chains of layers: the largest, smallest and strangest instances of partitioning."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hostile.families import count, family, random_of
from stagepack.instances.pipeline import PipelinePartition


def _layers(n: int, most: int = 10**6) -> Any:
    return random_of(n).integers(0, most, n)


@family
def one_layer(_: float) -> PipelinePartition:
    """One layer on one device."""
    return PipelinePartition.from_arrays([1], devices=1)


@family
def zero_cycles(share: float) -> PipelinePartition:
    """Layers that cost nothing."""
    n = count(share, 100_000)
    return PipelinePartition.from_arrays([0] * n, devices=count(share, 100, 2))


@family
def million_layers(share: float) -> PipelinePartition:
    """A million layers on a thousand devices."""
    return PipelinePartition.from_arrays(
        _layers(count(share, 1_000_000)), devices=count(share, 1_000, 2)
    )


@family
def layer_a_device(share: float) -> PipelinePartition:
    """40,000 devices for as many layers and one more."""
    k = count(share, 40_000)
    return PipelinePartition.from_arrays(_layers(k + 1), devices=k, capacity=10**9)


@family
def many_unlike_devices(share: float) -> PipelinePartition:
    """40,000 devices with speeds and memories of their own."""
    k = count(share, 40_000)
    random = random_of(k)
    return PipelinePartition.from_arrays(
        _layers(50_000 if share == 1 else k + 9),
        devices=k,
        speed=(random.integers(1, 1000, k) / 100).tolist(),
        capacity=random.integers(50, 100, k).tolist(),
        exclusive=np.ones(50_000 if share == 1 else k + 9, dtype=np.int64),
    )


def _transferring(n: int, k: int, objective: str, **more: Any) -> PipelinePartition:
    random = random_of(n)
    crossing = random.integers(0, 10**9, n + 1)
    options: dict[str, Any] = {"bandwidth": 10.0, "in_bytes": crossing, "out_bytes": crossing}
    return PipelinePartition.from_arrays(
        _layers(n), devices=k, objective=objective, **{**options, **more}
    )


@family
def transfer_bounded_long(share: float) -> PipelinePartition:
    """100,000 layers on 16 devices, compute and transfer at different limits."""
    return _transferring(count(share, 100_000, 20), 16, "transfer-bounded", host_transfer=True)


@family
def transfers_alone(share: float) -> PipelinePartition:
    """A million layers on 1,000 devices: one of them computes, the others only transfer."""
    n = count(share, 1_000_000)
    cycles = np.zeros(n, dtype=np.int64)
    cycles[n // 2] = 10**12
    crossing = random_of(n).integers(0, 10**9, n + 1)
    return PipelinePartition.from_arrays(
        cycles,
        devices=count(share, 1_000, 2),
        bandwidth=10.0,
        in_bytes=crossing,
        out_bytes=crossing,
        objective="transfer-bounded",
    )


@family
def layers_for_slots(share: float) -> PipelinePartition:
    """Two layers more than devices, compute and transfer at different limits."""
    k = count(share, 20_000)
    return _transferring(k + 2, k, "transfer-bounded")


@family
def overlap_long(share: float) -> PipelinePartition:
    """100,000 layers on 64 devices."""
    return _transferring(count(share, 100_000, 70), 64, "overlap")


@family
def sum_with_memory(share: float) -> PipelinePartition:
    """20,000 layers on 64 devices with memory, keys, variables and stashes in training."""
    n = count(share, 20_000, 80)
    random = random_of(n)
    keys = {f"k{at}": (1000, random.integers(0, n, 20).tolist()) for at in range(n // 10)}
    return _transferring(
        n,
        64,
        "sum",
        training=True,
        microbatches=2**14,
        backward=_layers(n),
        shared=keys,
        exclusive=random.integers(0, 999, n),
        temporary=random.integers(0, 999, n),
        stash=random.integers(0, 9, n),
        variables=[(f"v{at}", at, at + 1) for at in range(0, n - 1, 7)],
        capacity=10**8,
    )


@family
def shared_keys_everywhere(share: float) -> PipelinePartition:
    """Keys that are shared by layers all over the chain, and tight memory."""
    n = count(share, 5_000, 20)
    random = random_of(n)
    keys = {f"k{at}": (1000, random.integers(0, n, 50).tolist()) for at in range(n)}
    return PipelinePartition.from_arrays(_layers(n), devices=8, shared=keys, capacity=1000 * n - 1)


@family
def huge_cycles(share: float) -> PipelinePartition:
    """Cycles whose sum comes close to 2**62, with speeds that have no small multiple."""
    n = count(share, 2_000, 20)
    return PipelinePartition.from_arrays(
        random_of(n).integers(2**49, 2**50, n), devices=8, speed=[1, 3, 7, 11, 13, 17, 0.19, 2.3]
    )


@family
def fractions_of_cycles(share: float) -> PipelinePartition:
    """Floats of very different size."""
    n = count(share, 20_000, 20)
    return PipelinePartition.from_arrays(
        10.0 ** random_of(n).uniform(-9, 9, n),
        devices=16,
        in_bytes=_layers(n + 1),
        bandwidth=0.001,
        objective="bottleneck",
    )


@family
def free_order(share: float) -> PipelinePartition:
    """Unlike devices in any order, any of them unused."""
    n = count(share, 2_000, 20)
    return _transferring(
        n,
        10,
        "transfer-bounded",
        free_order=True,
        fewer_stages=True,
        speed=[1, 1, 1, 2, 2, 3, 3, 5, 7, 11],
    )


@family
def fewer_stages(share: float) -> PipelinePartition:
    """Many more devices than layers."""
    return _transferring(30, count(share, 2_000, 32), "sum", fewer_stages=True)


@family
def no_cut_allowed(share: float) -> PipelinePartition:
    """Two devices, and one variable spans all layers."""
    n = count(share, 100_000)
    return PipelinePartition.from_arrays(
        _layers(n), devices=2, variables=[("all", 0, n - 1)], objective="sum"
    )


@family
def too_little_memory(share: float) -> PipelinePartition:
    """No partition fits by a byte."""
    n = count(share, 20_000, 20)
    return PipelinePartition.from_arrays(
        _layers(n), devices=10, exclusive=[10] * n, capacity=n - 1 + n % 10
    )


@family
def tables(share: float) -> PipelinePartition:
    """Tables of cycles and bytes for every range, one a device."""
    n, k = count(share, 300, 12), 8
    random = random_of(n)
    cycles = np.cumsum(np.cumsum(random.integers(0, 99, (k, n + 1, n + 1)), axis=2), axis=1)
    nbytes = np.cumsum(random.integers(0, 99, (k, n + 1, n + 1)), axis=2)
    return PipelinePartition.from_arrays(
        None, devices=k, compute_table=cycles, memory_table=nbytes, capacity=10**6
    )


@family
def few_cuts(share: float) -> PipelinePartition:
    """100,000 layers that variables tie to runs of a thousand, for 64 devices with transfers."""
    n = count(share, 100_000, 2_000)
    run = max(2, n // 100)
    tied = [(f"v{at}", at, min(n, at + run) - 1) for at in range(0, n, run)]
    return _transferring(n, 64, "overlap", variables=tied)


@family
def one_heavy_layer(share: float) -> PipelinePartition:
    """A layer with 2^50 cycles among 50,000 of one, on unlike devices with memory for a few."""
    n = count(share, 50_000, 64)
    cycles = np.ones(n, dtype=np.int64)
    cycles[n // 3] = 2**50
    crossing = random_of(n).integers(0, 10**9, n + 1)
    return PipelinePartition.from_arrays(
        cycles,
        devices=32,
        speed=[1 + at % 3 for at in range(32)],
        exclusive=[1] * n,
        capacity=n // 16,
        objective="transfer-bounded",
        bandwidth=3.0,
        in_bytes=crossing,
        out_bytes=crossing,
    )
