"""Hostile but legal instances: the largest, smallest and strangest of every kind.

A family is a function that takes a share of its full size and returns an instance: 1 for the soak
of limits (:mod:`benchmarks.soak_limits`), less for warming up on all of the same features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagepack.instances.packing import Banks, LmemPacking
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.schedule import PipelineSchedule

Family = Callable[[float], Any]
FAMILIES: dict[str, dict[str, Family]] = {}


def family(make: Family) -> Family:
    """Enter a function into :data:`FAMILIES`, by the kind that its instances have."""
    kind = make(0.001).kind
    FAMILIES.setdefault(kind, {})[make.__name__.strip("_").replace("_", "-")] = make
    return make


def _count(share: float, most: int, least: int = 4) -> int:
    return max(least, int(share * most))


def _random(n: int) -> np.random.Generator:
    return np.random.default_rng(n)


def _primes(count: int, least: int) -> list[int]:
    """Return the first primes from `least` on."""
    found: list[int] = []
    number = least | 1
    while len(found) < count:
        if all(number % divisor for divisor in range(3, int(number**0.5) + 1, 2)):
            found.append(number)
        number += 2
    return found


# ---------------------------------------------------------------------- packing


@family
def coprime_alignments(_: float) -> LmemPacking:
    """Three buffers whose alignments have a product of 10**18."""
    return LmemPacking.from_arrays(
        [3, 5, 7], [0] * 3, [2] * 3, alignment=[1000003, 1000033, 1000037]
    )


@family
def coprime_alignments_overlapping(_: float) -> LmemPacking:
    """Eight buffers, large and small alignments, partly alive together, some twice alike."""
    return LmemPacking.from_arrays(
        [9, 1, 7, 1000000, 3, 3, 11, 5],
        [0, 0, 1, 1, 2, 3, 3, 4],
        [3, 5, 3, 4, 5, 6, 6, 6],
        alignment=[1000003, 1, 10007, 64, 1000033, 1000033, 6, 997],
    )


@family
def coprime_alignments_circular(_: float) -> LmemPacking:
    """Seven buffers around a circle with odd alignments."""
    return LmemPacking.from_arrays(
        [3, 5, 7, 11, 13, 2, 2],
        [0, 2, 4, 6, 8, 5, 1],
        [5, 7, 9, 11, 13, 15, 4],
        period=10,
        alignment=[1000003, 1000033, 1000037, 3, 1, 99991, 7],
    )


@family
def coprime_alignments_gaps(_: float) -> LmemPacking:
    """Five buffers that pause or shrink, with coprime alignments."""
    return LmemPacking.from_arrays(
        [30, 50, 70, 20, 9],
        [0] * 5,
        [9] * 5,
        alignment=[1000003, 1000033, 1000037, 5, 1],
        gaps=[(0, 2, 4), (1, 3, 6, 10, 20), (3, 1, 8, 0, 7)],
    )


@family
def coprime_alignments_fixed(_: float) -> LmemPacking:
    """Coprime alignments around fixed buffers, ranges and reserved addresses."""
    return LmemPacking.from_arrays(
        [3, 5, 7, 40, 8],
        [0] * 5,
        [2] * 5,
        alignment=[1000003, 1000033, 1000037, 1, 3],
        fixed=[-1, -1, -1, 1000001, -1],
        allowed=[(4, 3, 10**7), (4, 2 * 10**7, 10**9)],
        reserved=[(7, 1000), (2000000, 2000100)],
    )


@family
def coprime_alignments_banks(_: float) -> LmemPacking:
    """Coprime alignments with banks."""
    pairs = np.array([(0, 1), (1, 2), (0, 3)])
    return LmemPacking.from_arrays(
        [3, 5, 7, 40],
        [0] * 4,
        [2] * 4,
        alignment=[1000003, 1000033, 1000037, 1],
        banks=Banks(64, 10**6, pairs),
        objective="bank-conflicts",
    )


@family
def coprime_alignments_capacity(_: float) -> LmemPacking:
    """Coprime alignments that miss the capacity by one byte."""
    return LmemPacking.from_arrays(
        [3, 5, 7], [0] * 3, [2] * 3, alignment=[1000003, 1000033, 1000037], capacity=1000039
    )


@family
def prime_alignments_dense(share: float) -> LmemPacking:
    """Buffers alive together, each with a prime alignment of its own."""
    n = _count(share, 300)
    return LmemPacking.from_arrays(
        _random(n).integers(1, 5000, n), [0] * n, [1] * n, alignment=_primes(n, 1000)
    )


@family
def all_alive(share: float) -> LmemPacking:
    """Everything alive at once."""
    n = _count(share, 100_000)
    random = _random(n)
    return LmemPacking.from_arrays(
        random.integers(1, 10**6, n), random.integers(0, 99, n), random.integers(100, 200, n)
    )


@family
def all_alive_alike(share: float) -> LmemPacking:
    """Like buffers, alive at once."""
    n = _count(share, 20_000)
    return LmemPacking.from_arrays([64] * n, [0] * n, [9] * n)


@family
def a_million(share: float) -> LmemPacking:
    """A million buffers with short lives."""
    n = _count(share, 1_000_000)
    random = _random(n)
    start = random.integers(0, n, n)
    return LmemPacking.from_arrays(
        random.integers(1, 2**20, n), start, start + random.integers(1, 60, n)
    )


@family
def one_buffer(_: float) -> LmemPacking:
    """One buffer."""
    return LmemPacking.from_arrays([1], [0], [1])


@family
def huge_sizes(share: float) -> LmemPacking:
    """Sizes whose sum comes close to 2**62, at times near 2**61."""
    n = _count(share, 60)
    random = _random(n)
    start = random.integers(0, 2**60, n)
    return LmemPacking.from_arrays(
        random.integers(2**54, 2**55, n), start, start + random.integers(1, 2**60, n)
    )


@family
def staircase(share: float) -> LmemPacking:
    """Each buffer overlaps the next tenth of all others."""
    n = _count(share, 5_000)
    return LmemPacking.from_arrays(
        _random(n).integers(1, 1000, n), np.arange(n), np.arange(n) + max(2, n // 10)
    )


@family
def nested(share: float) -> LmemPacking:
    """Lifetimes like the shells of an onion."""
    n = _count(share, 20_000)
    at = np.arange(n)
    return LmemPacking.from_arrays(_random(n).integers(1, 1000, n), at, 2 * n - at)


@family
def around_the_circle(share: float) -> LmemPacking:
    """Lifetimes up to a whole turn of the circle."""
    n = _count(share, 3_000)
    random = _random(n)
    start = random.integers(0, 1000, n)
    end = start + random.integers(1, 1001, n)
    return LmemPacking.from_arrays(random.integers(1, 1000, n), start, end, period=1000)


@family
def circle_of_many(share: float) -> LmemPacking:
    """A long circle of many short lives."""
    n = _count(share, 200_000)
    random = _random(n)
    start = random.integers(0, n, n)
    return LmemPacking.from_arrays(
        random.integers(1, 1000, n), start, start + random.integers(1, 40, n), period=n
    )


@family
def gaps_of_many(share: float) -> LmemPacking:
    """Many buffers with many gaps, in which they die or shrink."""
    n, each = _count(share, 1_000), 40
    start = _random(n).integers(0, 1000, n)
    gaps = [
        (i, int(start[i]) + 10 * g + 1, int(start[i]) + 10 * g + 5, *((0, 5) if g % 2 else ()))
        for i in range(n)
        for g in range(each)
    ]
    return LmemPacking.from_arrays([100] * n, start, start + 10 * each, gaps=gaps)


@family
def gaps_of_one(share: float) -> LmemPacking:
    """One buffer with very many gaps, among others that fit into them."""
    n = _count(share, 20_000)
    at = np.arange(n)
    return LmemPacking.from_arrays(
        [100] + [50] * n,
        np.concatenate([[0], 10 * at + 2]),
        np.concatenate([[10 * n], 10 * at + 5]),
        gaps=[(0, 10 * g + 1, 10 * g + 6) for g in range(n)],
    )


@family
def fixed_full(share: float) -> LmemPacking:
    """Fixed buffers fill the memory, and one more byte is asked for."""
    n = _count(share, 20_000)
    return LmemPacking.from_arrays(
        [8] * n + [1],
        [0] * (n + 1),
        [2] * (n + 1),
        fixed=[*range(0, 8 * n, 8), -1],
        capacity=8 * n,
    )


@family
def fixed_with_holes(share: float) -> LmemPacking:
    """Fixed buffers with holes in which the others just fit."""
    n = _count(share, 3_000)
    return LmemPacking.from_arrays(
        [8] * n + [4] * n,
        [0] * (2 * n),
        [2] * (2 * n),
        fixed=[*range(0, 12 * n, 12), *([-1] * n)],
        capacity=12 * n,
    )


@family
def conflicts_complete(share: float) -> LmemPacking:
    """A conflict graph in which all conflict."""
    n = _count(share, 1_000)
    return LmemPacking.from_arrays(
        _random(n).integers(1, 999, n), conflicts=np.stack(np.triu_indices(n, 1), axis=1)
    )


@family
def conflicts_random(share: float) -> LmemPacking:
    """A sparse random conflict graph."""
    n = _count(share, 20_000)
    random = _random(n)
    pairs = np.sort(random.integers(0, n, (10 * n, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    return LmemPacking.from_arrays(random.integers(1, 999, n), conflicts=pairs)


@family
def conflicts_odd_cycle(_: float) -> LmemPacking:
    """A cycle of five with coprime alignments."""
    return LmemPacking.from_arrays(
        [3, 5, 7, 9, 11],
        conflicts=[(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
        alignment=[1000003, 1000033, 1000037, 99991, 7],
    )


@family
def colocated_of_many(share: float) -> LmemPacking:
    """Buffers in groups of one offset each, one group of a third of all."""
    n = _count(share, 9_000, 12)
    random = _random(n)
    start = random.integers(0, n, n)
    third = n // 3
    groups = [list(range(third))] + [[i, i + 1, i + 2] for i in range(third, n - 2, 3)]
    return LmemPacking.from_arrays(
        random.integers(1, 999, n), start, start + random.integers(1, 60, n), colocated=groups
    )


@family
def in_place_chain(share: float) -> LmemPacking:
    """Every output may overwrite its input."""
    n = _count(share, 5_000)
    at = np.arange(n)
    return LmemPacking.from_arrays(
        _random(n).integers(1, 999, n),
        at,
        at + 3,
        in_place=[(i, i + 1) for i in range(n - 1)],
    )


@family
def ranges_of_many(share: float) -> LmemPacking:
    """Each buffer has many ranges of addresses to choose from."""
    n, each = _count(share, 400), 100
    allowed = [(i, 1000 * g + i, 1000 * g + i + 40) for i in range(n) for g in range(each)]
    return LmemPacking.from_arrays([30] * n, [0] * n, [1] * n, allowed=allowed)


@family
def reserved_of_many(share: float) -> LmemPacking:
    """Reserved addresses leave many small holes."""
    n = _count(share, 2_000)
    return LmemPacking.from_arrays(
        _random(n).integers(1, 9, n),
        [0] * n,
        [1] * n,
        reserved=[(10 * g, 10 * g + 2) for g in range(n)],
    )


@family
def banks_of_many(share: float) -> LmemPacking:
    """Very many pairs that should not share a bank."""
    n = _count(share, 2_000)
    random = _random(n)
    start = random.integers(0, n, n)
    pairs = np.sort(random.integers(0, n, (40 * n, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    return LmemPacking.from_arrays(
        random.integers(1, 999, n),
        start,
        start + random.integers(1, 60, n),
        banks=Banks(64, 2**14, pairs),
        objective="bank-conflicts",
    )


@family
def memories_of_many(share: float) -> LmemPacking:
    """Many memories to spill to."""
    n = _count(share, 5_000)
    random = _random(n)
    start = random.integers(0, n, n)
    memories = [(f"m{at}", 2000, at) for at in range(40)] + [("far", None, 1000)]
    return LmemPacking.from_arrays(
        random.integers(1, 999, n),
        start,
        start + random.integers(1, 200, n),
        memories=memories,
        accesses=random.integers(0, 2**20, n),
    )


@family
def moves_of_many(share: float) -> LmemPacking:
    """Everything had an offset, and hardly any fits there now."""
    n = _count(share, 3_000)
    random = _random(n)
    start = random.integers(0, n, n)
    end = start + random.integers(1, 60, n)
    size = random.integers(1, 999, n)
    return LmemPacking.from_arrays(
        size,
        start,
        end,
        previous=random.integers(0, 10_000, n),
        capacity=60_000,
        objective="moves",
    )


@family
def just_too_small(share: float) -> LmemPacking:
    """Odd sizes that fill a capacity by load, though nothing may fit."""
    n = _count(share, 400)
    random = _random(n)
    start = random.integers(0, 60, n)
    end = start + random.integers(1, 30, n)
    size = random.integers(1, 50, n) * 7 + random.integers(0, 2, n)
    load = np.zeros(100, dtype=np.int64)
    for nbytes, begin, stop in zip(size, start, end, strict=True):
        load[begin:stop] += nbytes
    return LmemPacking.from_arrays(size, start, end, capacity=int(load.max()))


# ---------------------------------------------------------------------- pipeline partitioning


def _layers(n: int, most: int = 10**6) -> Any:
    return _random(n).integers(0, most, n)


@family
def one_layer(_: float) -> PipelinePartition:
    """One layer on one device."""
    return PipelinePartition.from_arrays([1], devices=1)


@family
def zero_cycles(share: float) -> PipelinePartition:
    """Layers that cost nothing."""
    n = _count(share, 100_000)
    return PipelinePartition.from_arrays([0] * n, devices=_count(share, 100, 2))


@family
def million_layers(share: float) -> PipelinePartition:
    """A million layers on a thousand devices."""
    return PipelinePartition.from_arrays(
        _layers(_count(share, 1_000_000)), devices=_count(share, 1_000, 2)
    )


@family
def layer_a_device(share: float) -> PipelinePartition:
    """40,000 devices for as many layers and one more."""
    k = _count(share, 40_000)
    return PipelinePartition.from_arrays(_layers(k + 1), devices=k, capacity=10**9)


@family
def many_unlike_devices(share: float) -> PipelinePartition:
    """40,000 devices with speeds and memories of their own."""
    k = _count(share, 40_000)
    random = _random(k)
    return PipelinePartition.from_arrays(
        _layers(50_000 if share == 1 else k + 9),
        devices=k,
        speed=(random.integers(1, 1000, k) / 100).tolist(),
        capacity=random.integers(50, 100, k).tolist(),
        exclusive=np.ones(50_000 if share == 1 else k + 9, dtype=np.int64),
    )


def _transferring(n: int, k: int, objective: str, **more: Any) -> PipelinePartition:
    random = _random(n)
    crossing = random.integers(0, 10**9, n + 1)
    options: dict[str, Any] = {"bandwidth": 10.0, "in_bytes": crossing, "out_bytes": crossing}
    return PipelinePartition.from_arrays(
        _layers(n), devices=k, objective=objective, **{**options, **more}
    )


@family
def transfer_bounded_long(share: float) -> PipelinePartition:
    """100,000 layers on 16 devices, compute and transfer at different limits."""
    return _transferring(_count(share, 100_000, 20), 16, "transfer-bounded", host_transfer=True)


@family
def transfers_alone(share: float) -> PipelinePartition:
    """A million layers on 1,000 devices: one of them computes, the others only transfer."""
    n = _count(share, 1_000_000)
    cycles = np.zeros(n, dtype=np.int64)
    cycles[n // 2] = 10**12
    crossing = _random(n).integers(0, 10**9, n + 1)
    return PipelinePartition.from_arrays(
        cycles,
        devices=_count(share, 1_000, 2),
        bandwidth=10.0,
        in_bytes=crossing,
        out_bytes=crossing,
        objective="transfer-bounded",
    )


@family
def layers_for_slots(share: float) -> PipelinePartition:
    """Two layers more than devices, compute and transfer at different limits."""
    k = _count(share, 20_000)
    return _transferring(k + 2, k, "transfer-bounded")


@family
def overlap_long(share: float) -> PipelinePartition:
    """100,000 layers on 64 devices."""
    return _transferring(_count(share, 100_000, 70), 64, "overlap")


@family
def sum_with_memory(share: float) -> PipelinePartition:
    """20,000 layers on 64 devices with memory, keys, variables and stashes in training."""
    n = _count(share, 20_000, 80)
    random = _random(n)
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
    n = _count(share, 5_000, 20)
    random = _random(n)
    keys = {f"k{at}": (1000, random.integers(0, n, 50).tolist()) for at in range(n)}
    return PipelinePartition.from_arrays(_layers(n), devices=8, shared=keys, capacity=1000 * n - 1)


@family
def huge_cycles(share: float) -> PipelinePartition:
    """Cycles whose sum comes close to 2**62, with speeds that have no small multiple."""
    n = _count(share, 2_000, 20)
    return PipelinePartition.from_arrays(
        _random(n).integers(2**49, 2**50, n), devices=8, speed=[1, 3, 7, 11, 13, 17, 0.19, 2.3]
    )


@family
def fractions_of_cycles(share: float) -> PipelinePartition:
    """Floats of very different size."""
    n = _count(share, 20_000, 20)
    return PipelinePartition.from_arrays(
        10.0 ** _random(n).uniform(-9, 9, n), devices=16, in_bytes=_layers(n + 1), bandwidth=0.001
    )


@family
def free_order(share: float) -> PipelinePartition:
    """Unlike devices in any order, any of them unused."""
    n = _count(share, 2_000, 20)
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
    return _transferring(30, _count(share, 2_000, 32), "sum", fewer_stages=True)


@family
def no_cut_allowed(share: float) -> PipelinePartition:
    """Two devices, and one variable spans all layers."""
    n = _count(share, 100_000)
    return PipelinePartition.from_arrays(
        _layers(n), devices=2, variables=[("all", 0, n - 1)], objective="sum"
    )


@family
def too_little_memory(share: float) -> PipelinePartition:
    """No partition fits by a byte."""
    n = _count(share, 20_000, 20)
    return PipelinePartition.from_arrays(
        _layers(n), devices=10, exclusive=[10] * n, capacity=n - 1 + n % 10
    )


@family
def tables(share: float) -> PipelinePartition:
    """Tables of cycles and bytes for every range, one a device."""
    n, k = _count(share, 300, 12), 8
    random = _random(n)
    cycles = np.cumsum(np.cumsum(random.integers(0, 99, (k, n + 1, n + 1)), axis=2), axis=1)
    nbytes = np.cumsum(random.integers(0, 99, (k, n + 1, n + 1)), axis=2)
    return PipelinePartition.from_arrays(
        None, devices=k, compute_table=cycles, memory_table=nbytes, capacity=10**6
    )


# ---------------------------------------------------------------------- pipeline schedules


@family
def one_operation(_: float) -> PipelineSchedule:
    """One stage, one microbatch, one cycle."""
    return PipelineSchedule.from_arrays([1], microbatches=1)


@family
def stages_of_many(share: float) -> PipelineSchedule:
    """10,000 stages and one microbatch."""
    p = _count(share, 10_000)
    return PipelineSchedule.from_arrays(
        _random(p).integers(1, 99, p), [5] * p, [3] * p, microbatches=1, latency=7
    )


@family
def devices_of_many(share: float) -> PipelineSchedule:
    """As many stages as there may be, on as many devices, two microbatches."""
    p = _count(share, 16_384)
    return PipelineSchedule.from_arrays([1] * p, [2] * p, microbatches=2, memory_forward=1, limit=9)


@family
def microbatches_of_many(share: float) -> PipelineSchedule:
    """Two stages and a million microbatches."""
    return PipelineSchedule.from_arrays(
        [3, 5],
        [4, 7],
        [2, 1],
        microbatches=_count(share, 1_000_000),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=7,
    )


@family
def microbatches_of_one_stage(share: float) -> PipelineSchedule:
    """One stage and a million microbatches, forward only."""
    return PipelineSchedule.from_arrays([3], microbatches=_count(share, 1_000_000))


@family
def operations_of_many(share: float) -> PipelineSchedule:
    """Two stages and about as many operations as there may be."""
    return PipelineSchedule.from_arrays(
        [3, 5], [4, 7], [2, 1], microbatches=_count(share, 1_398_000), latency=2, objective="span"
    )


@family
def stages_and_microbatches(share: float) -> PipelineSchedule:
    """As many stages as there may be, and as many microbatches."""
    p = _count(share, 16_384)
    random = _random(p)
    return PipelineSchedule.from_arrays(
        *(random.integers(1, 99, p) for _ in range(3)),
        microbatches=170,
        latency=7,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=200,
    )


@family
def devices_of_several(share: float) -> PipelineSchedule:
    """4,096 stages in rounds over 64 devices with memory for a part of them."""
    p = 64 * _count(share, 64, 2)
    return PipelineSchedule.from_arrays(
        [2] * p,
        [4] * p,
        [3] * p,
        microbatches=_count(share, 40, 2),
        devices=np.arange(p) % 64,
        latency=1,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=p // 64 * 6,
    )


@family
def square(share: float) -> PipelineSchedule:
    """64 unlike stages, 256 microbatches, tight memory."""
    p = _count(share, 64)
    random = _random(p)
    return PipelineSchedule.from_arrays(
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        random.integers(1, 99, p),
        microbatches=_count(share, 256),
        latency=random.integers(0, 50, p - 1),
        memory_forward=5,
        memory_backward=-3,
        memory_weight=-2,
        limit=max(5, p // 2 * 5),
    )


@family
def interleaved(share: float) -> PipelineSchedule:
    """512 stages around 8 devices."""
    p = 8 * _count(share, 64, 2)
    return PipelineSchedule.from_arrays(
        [2] * p,
        [3] * p,
        [1] * p,
        microbatches=_count(share, 64, 8),
        devices=np.arange(p) % 8,
        latency=1,
        memory_forward=1,
        memory_weight=-1,
        limit=3 * p,
    )


@family
def stages_on_one_device(share: float) -> PipelineSchedule:
    """1,000 stages on one device with a little memory."""
    p = _count(share, 1_000)
    return PipelineSchedule.from_arrays(
        _random(p).integers(1, 99, p),
        [9] * p,
        microbatches=_count(share, 32),
        devices=[0] * p,
        memory_forward=1,
        memory_backward=-1,
        limit=p + 1,
    )


@family
def every_edge(share: float) -> PipelineSchedule:
    """Stages that all feed all later ones."""
    p = _count(share, 300)
    i, j = np.triu_indices(p, 1)
    return PipelineSchedule.from_arrays(
        [3] * p,
        [5] * p,
        microbatches=4,
        edges=list(zip(i.tolist(), j.tolist(), strict=True)),
        latency=2,
    )


@family
def no_edges(share: float) -> PipelineSchedule:
    """Stages without edges, each with a number of microbatches of its own, on few devices."""
    p = _count(share, 3_000, 8)
    random = _random(p)
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
    p, m = _count(share, 16), _count(share, 60)
    random = _random(p)
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
    p = _count(share, 24)
    random = _random(p)
    held = random.integers(10**6, 2 * 10**6, p)
    given = held // 3
    return PipelineSchedule.from_arrays(
        random.integers(1, 9, p),
        random.integers(1, 9, p),
        random.integers(1, 9, p),
        microbatches=_count(share, 100),
        memory_forward=held,
        memory_backward=-given,
        memory_weight=given - held,
        limit=2 * 10**6,
        post_validation=True,
        optimizer=5,
    )


# ---------------------------------------------------------------------- phase scheduling


def _phases(n: int, **more: Any) -> PhaseSchedule:
    random = _random(n)
    options: dict[str, Any] = {
        "memory": 60_000,
        "tiles": 64,
        "io_tiles": (0, 16),
        "remote_bandwidth": 3.7,
        "host_bandwidth": 0.9,
        "tile_bandwidth": 0.3,
    }
    return PhaseSchedule.from_arrays(
        random.integers(1, 9_999, n),
        random.integers(1, 9_999, n),
        random.integers(1, 999, n + 1),
        **{**options, **more},
    )


def _training(n: int, **more: Any) -> PhaseSchedule:
    random = _random(n + 1)
    options: dict[str, Any] = {
        "backward": random.integers(1, 9_999, n),
        "state": random.integers(1, 9_999, n),
        "update": random.integers(1, 99, n),
        "tape": random.integers(1, 99, n),
        "temporary": random.integers(1, 99, n),
        "training": True,
        "steps": 4,
        "policies": ("stash", "keep", "recompute"),
    }
    return _phases(n, **{**options, **more})


@family
def one_layer_phases(_: float) -> PhaseSchedule:
    """One layer."""
    return _phases(1)


@family
def zero_phases(share: float) -> PhaseSchedule:
    """Layers without bytes or cycles."""
    n = _count(share, 2_000)
    return PhaseSchedule.from_arrays([0] * n, [0] * n, [0] * (n + 1), memory=0, tiles=2)


@family
def layers_of_many(share: float) -> PhaseSchedule:
    """20,000 layers, inference."""
    return _phases(_count(share, 20_000), steps=8)


@family
def layers_that_all_fit(share: float) -> PhaseSchedule:
    """3,000 layers and no limit of memory: every range is a group."""
    return _phases(_count(share, 3_000), steps=8, memory=2**50)


@family
def tiles_of_many(share: float) -> PhaseSchedule:
    """A million tiles, any number of which may be for I/O."""
    tiles = _count(share, 1_000_000)
    return _phases(20, tiles=tiles, io_tiles=(0, tiles - 1), steps=8)


@family
def microbatches_free(share: float) -> PhaseSchedule:
    """A global batch with more than a thousand divisors."""
    whole = 735_134_400 if share == 1 else 12
    return _phases(
        30, memory=2**40, global_batch=whole, forward_fixed=[7] * 30, temporary_fixed=[3] * 30
    )


@family
def training_long(share: float) -> PhaseSchedule:
    """300 layers in training, every policy."""
    return _training(_count(share, 300))


@family
def training_prefetch(share: float) -> PhaseSchedule:
    """100 layers in training with prefetch, sharding and few graphs."""
    n = _count(share, 100)
    return _training(
        n,
        prefetch=True,
        sharding=[4] * n,
        data_parallel=4,
        gather_bandwidth=0.7,
        layer_class=np.arange(n) % 3,
        graphs=8,
        recomputations=3,
    )


@family
def training_one_group(share: float) -> PhaseSchedule:
    """60 layers in one group: what to keep and what to compute again."""
    n = _count(share, 60)
    return _training(n, fixed_boundaries=[0, n], memory=600_000, recomputations=2)


@family
def skips_everywhere(share: float) -> PhaseSchedule:
    """Every layer reads the outputs of all before it, in training."""
    n = _count(share, 60)
    skips = [(u, v) for u in range(-1, n) for v in range(u + 2, n)]
    return _training(n, skips=skips, memory=200_000)


@family
def skips_long(share: float) -> PhaseSchedule:
    """A U-net of 600 layers."""
    n = _count(share, 600)
    return _training(n, skips=[(u, n - 1 - u) for u in range(n // 2 - 1)], memory=200_000)


@family
def remote_memory_tight(share: float) -> PhaseSchedule:
    """Remote memory that suffices for a part of the stashes only."""
    n = _count(share, 60)
    return _training(n, remote_memory=25_000 * n)


@family
def nothing_fits(share: float) -> PhaseSchedule:
    """A layer that is larger than the chip, at the end of 5,000."""
    n = _count(share, 5_000)
    return _phases(n, temporary=[0] * (n - 1) + [10**6], steps=8)


@family
def huge_phases(share: float) -> PhaseSchedule:
    """Figures whose sums come close to 2**62."""
    n = _count(share, 40)
    random = _random(n)
    return PhaseSchedule.from_arrays(
        random.integers(2**44, 2**45, n),
        random.integers(2**44, 2**45, n),
        random.integers(2**40, 2**41, n + 1),
        memory=2**47,
        tiles=3,
        io_tiles=(0, 2),
        remote_bandwidth=0.7,
        steps=8,
    )
