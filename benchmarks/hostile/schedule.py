"""Hostile pipelines: the largest, smallest and strangest instances of scheduling."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hostile.families import count, family, random_of
from stagepack.instances.schedule import PipelineSchedule


@family
def one_operation(_: float) -> PipelineSchedule:
    """One stage, one microbatch, one cycle."""
    return PipelineSchedule.from_arrays([1], microbatches=1)


@family
def stages_of_many(share: float) -> PipelineSchedule:
    """10,000 stages and one microbatch."""
    p = count(share, 10_000)
    return PipelineSchedule.from_arrays(
        random_of(p).integers(1, 99, p), [5] * p, [3] * p, microbatches=1, latency=7
    )


@family
def devices_of_many(share: float) -> PipelineSchedule:
    """As many stages as there may be, on as many devices, two microbatches."""
    p = count(share, 16_384)
    return PipelineSchedule.from_arrays([1] * p, [2] * p, microbatches=2, memory_forward=1, limit=9)


@family
def microbatches_of_many(share: float) -> PipelineSchedule:
    """Two stages and a million microbatches."""
    return PipelineSchedule.from_arrays(
        [3, 5],
        [4, 7],
        [2, 1],
        microbatches=count(share, 1_000_000),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=7,
    )


@family
def microbatches_of_one_stage(share: float) -> PipelineSchedule:
    """One stage and a million microbatches, forward only."""
    return PipelineSchedule.from_arrays([3], microbatches=count(share, 1_000_000))


@family
def operations_of_many(share: float) -> PipelineSchedule:
    """Two stages and about as many operations as there may be."""
    return PipelineSchedule.from_arrays(
        [3, 5], [4, 7], [2, 1], microbatches=count(share, 1_398_000), latency=2, objective="span"
    )


@family
def stages_and_microbatches(share: float) -> PipelineSchedule:
    """As many stages as there may be, and as many microbatches."""
    p = count(share, 16_384)
    random = random_of(p)
    return PipelineSchedule.from_arrays(
        *(random.integers(1, 99, p) for _ in range(3)),
        microbatches=170,
        latency=7,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=200,
    )


def _in_rounds(
    devices: int, rounds: int, durations: tuple[int, int, int], **others: Any
) -> PipelineSchedule:
    """Return stages that go around the devices so many times."""
    p = devices * rounds
    return PipelineSchedule.from_arrays(
        *([duration] * p for duration in durations),
        devices=np.arange(p) % devices,
        latency=1,
        memory_weight=-1,
        **others,
    )


@family
def devices_of_several(share: float) -> PipelineSchedule:
    """4,096 stages in rounds over 64 devices with memory for a part of them."""
    rounds = count(share, 64, 2)
    return _in_rounds(
        64,
        rounds,
        (2, 4, 3),
        microbatches=count(share, 40, 2),
        memory_forward=2,
        memory_backward=-1,
        limit=6 * rounds,
    )


@family
def square(share: float) -> PipelineSchedule:
    """64 unlike stages, 256 microbatches, tight memory."""
    p = count(share, 64)
    random = random_of(p)
    return PipelineSchedule.from_arrays(
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        microbatches=count(share, 256),
        latency=random.integers(0, 50, p - 1),
        memory_forward=5,
        memory_backward=-3,
        memory_weight=-2,
        limit=max(5, p // 2 * 5),
    )


@family
def interleaved(share: float) -> PipelineSchedule:
    """512 stages around 8 devices."""
    rounds = count(share, 64, 2)
    return _in_rounds(
        8,
        rounds,
        (2, 3, 1),
        microbatches=count(share, 64, 8),
        memory_forward=1,
        limit=24 * rounds,
    )


@family
def stages_on_one_device(share: float) -> PipelineSchedule:
    """1,000 stages on one device with a little memory."""
    p = count(share, 1_000)
    return PipelineSchedule.from_arrays(
        random_of(p).integers(1, 99, p),
        [9] * p,
        microbatches=count(share, 32),
        devices=[0] * p,
        memory_forward=1,
        memory_backward=-1,
        limit=p + 1,
    )


@family
def every_edge(share: float) -> PipelineSchedule:
    """Stages that all feed all later ones."""
    p = count(share, 300)
    i, j = np.triu_indices(p, 1)
    return PipelineSchedule.from_arrays(
        [3] * p,
        [5] * p,
        microbatches=4,
        edges=list(zip(i.tolist(), j.tolist(), strict=True)),
        latency=2,
    )


@family
def edges_of_many(share: float) -> PipelineSchedule:
    """Stages that all feed all later ones, 3 million edges for one microbatch."""
    p = count(share, 2_500)
    return PipelineSchedule.from_arrays(
        [3] * p,
        [5] * p,
        microbatches=1,
        edges=np.stack(np.triu_indices(p, 1), axis=1),
        devices=np.arange(p) // 2,
        memory_forward=1,
        memory_backward=-1,
        limit=2,
    )


@family
def no_edges(share: float) -> PipelineSchedule:
    """Stages without edges, each with a number of microbatches of its own, on few devices."""
    p = count(share, 3_000, 8)
    random = random_of(p)
    return PipelineSchedule.from_arrays(
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        microbatches=random.integers(1, 20, p),
        edges=[],
        devices=np.arange(p) % 8,
    )


@family
def huge_durations(share: float) -> PipelineSchedule:
    """Cycles whose sums, over all devices and one more, come close to 2**62."""
    p, m = count(share, 16), count(share, 60)
    random = random_of(p)
    most = 2**62 // ((p + 1) * (4 * p * m + 2))  # F and B, twice the latency, twice the optimizer
    return PipelineSchedule.from_arrays(
        random.integers(most // 2, most, p),
        random.integers(most // 2, most, p),
        microbatches=m,
        latency=most,
        optimizer=most,
        memory_forward=1,
        memory_backward=-1,
        limit=5,
    )


@family
def odd_memory(share: float) -> PipelineSchedule:
    """Memory in odd pieces that hardly suffices."""
    p = count(share, 24)
    random = random_of(p)
    held = random.integers(10**6, 2 * 10**6, p)
    given = held // 3
    return PipelineSchedule.from_arrays(
        random.integers(1, 9, p),
        random.integers(1, 9, p),
        random.integers(1, 9, p),
        microbatches=count(share, 100),
        memory_forward=held,
        memory_backward=-given,
        memory_weight=given - held,
        limit=2 * 10**6,
        post_validation=True,
        optimizer=5,
    )


@family
def one_slow_stage(share: float) -> PipelineSchedule:
    """One stage of 64 takes a million times as long as the others, and memory is tight."""
    p = count(share, 64)
    slow = [10**6 if s == p // 2 else 1 for s in range(p)]
    return PipelineSchedule.from_arrays(
        slow,
        slow,
        slow,
        microbatches=count(share, 300),
        memory_forward=1,
        memory_weight=-1,
        limit=p // 2 + 1,
    )


@family
def tree_of_stages(share: float) -> PipelineSchedule:
    """A tree of 1,023 stages, two of which feed each, on as many devices as a half of them."""
    p = 2 ** (count(share, 1_023).bit_length()) - 1
    random = random_of(p)
    return PipelineSchedule.from_arrays(
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        microbatches=16,
        edges=[(s, p - 1 - (p - 2 - s) // 2) for s in range(p - 1)],
        devices=np.arange(p) // 2,
        latency=5,
        objective="span",
    )
