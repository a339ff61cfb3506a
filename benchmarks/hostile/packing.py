"""Hostile buffers: the largest, smallest and strangest instances of packing."""

from __future__ import annotations

import numpy as np

from benchmarks.hostile.families import count, family, random_of
from stagepack.instances.packing import Banks, LmemPacking


def _primes(count: int, least: int) -> list[int]:
    """Return the first primes from `least` on."""
    found: list[int] = []
    number = least | 1
    while len(found) < count:
        if all(number % divisor for divisor in range(3, int(number**0.5) + 1, 2)):
            found.append(number)
        number += 2
    return found


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
    n = count(share, 300)
    return LmemPacking.from_arrays(
        random_of(n).integers(1, 5000, n), [0] * n, [1] * n, alignment=_primes(n, 1000)
    )


@family
def all_alive(share: float) -> LmemPacking:
    """Everything alive at once."""
    n = count(share, 100_000)
    random = random_of(n)
    return LmemPacking.from_arrays(
        random.integers(1, 10**6, n), random.integers(0, 99, n), random.integers(100, 200, n)
    )


@family
def all_alive_alike(share: float) -> LmemPacking:
    """Like buffers, alive at once."""
    n = count(share, 20_000)
    return LmemPacking.from_arrays([64] * n, [0] * n, [9] * n)


@family
def a_million(share: float) -> LmemPacking:
    """A million buffers with short lives."""
    n = count(share, 1_000_000)
    random = random_of(n)
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
    n = count(share, 60)
    random = random_of(n)
    start = random.integers(0, 2**60, n)
    return LmemPacking.from_arrays(
        random.integers(2**54, 2**55, n), start, start + random.integers(1, 2**60, n)
    )


@family
def staircase(share: float) -> LmemPacking:
    """Each buffer overlaps the next tenth of all others."""
    n = count(share, 5_000)
    return LmemPacking.from_arrays(
        random_of(n).integers(1, 1000, n), np.arange(n), np.arange(n) + max(2, n // 10)
    )


@family
def nested(share: float) -> LmemPacking:
    """Lifetimes like the shells of an onion."""
    n = count(share, 20_000)
    at = np.arange(n)
    return LmemPacking.from_arrays(random_of(n).integers(1, 1000, n), at, 2 * n - at)


@family
def around_the_circle(share: float) -> LmemPacking:
    """Lifetimes up to a whole turn of the circle."""
    n = count(share, 3_000)
    random = random_of(n)
    start = random.integers(0, 1000, n)
    end = start + random.integers(1, 1001, n)
    return LmemPacking.from_arrays(random.integers(1, 1000, n), start, end, period=1000)


@family
def circle_of_many(share: float) -> LmemPacking:
    """A long circle of many short lives."""
    n = count(share, 200_000)
    random = random_of(n)
    start = random.integers(0, n, n)
    return LmemPacking.from_arrays(
        random.integers(1, 1000, n), start, start + random.integers(1, 40, n), period=n
    )


@family
def gaps_of_many(share: float) -> LmemPacking:
    """Many buffers with many gaps, in which they die or shrink."""
    n, each = count(share, 1_000), 40
    start = random_of(n).integers(0, 1000, n)
    gaps = [
        (i, int(start[i]) + 10 * g + 1, int(start[i]) + 10 * g + 5, *((0, 5) if g % 2 else ()))
        for i in range(n)
        for g in range(each)
    ]
    return LmemPacking.from_arrays([100] * n, start, start + 10 * each, gaps=gaps)


@family
def gaps_of_one(share: float) -> LmemPacking:
    """One buffer with very many gaps, among others that fit into them."""
    n = count(share, 20_000)
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
    n = count(share, 20_000)
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
    n = count(share, 3_000)
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
    n = count(share, 1_000)
    return LmemPacking.from_arrays(
        random_of(n).integers(1, 999, n), conflicts=np.stack(np.triu_indices(n, 1), axis=1)
    )


@family
def conflicts_random(share: float) -> LmemPacking:
    """A sparse random conflict graph."""
    n = count(share, 20_000)
    random = random_of(n)
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
    n = count(share, 9_000, 12)
    random = random_of(n)
    start = random.integers(0, n, n)
    third = n // 3
    groups = [list(range(third))] + [[i, i + 1, i + 2] for i in range(third, n - 2, 3)]
    return LmemPacking.from_arrays(
        random.integers(1, 999, n), start, start + random.integers(1, 60, n), colocated=groups
    )


@family
def in_place_chain(share: float) -> LmemPacking:
    """Every output may overwrite its input."""
    n = count(share, 5_000)
    at = np.arange(n)
    return LmemPacking.from_arrays(
        random_of(n).integers(1, 999, n),
        at,
        at + 3,
        in_place=[(i, i + 1) for i in range(n - 1)],
    )


@family
def ranges_of_many(share: float) -> LmemPacking:
    """Each buffer has many ranges of addresses to choose from."""
    n, each = count(share, 400), 100
    allowed = [(i, 1000 * g + i, 1000 * g + i + 40) for i in range(n) for g in range(each)]
    return LmemPacking.from_arrays([30] * n, [0] * n, [1] * n, allowed=allowed)


@family
def reserved_of_many(share: float) -> LmemPacking:
    """Reserved addresses leave many small holes."""
    n = count(share, 2_000)
    return LmemPacking.from_arrays(
        random_of(n).integers(1, 9, n),
        [0] * n,
        [1] * n,
        reserved=[(10 * g, 10 * g + 2) for g in range(n)],
    )


@family
def banks_of_many(share: float) -> LmemPacking:
    """Very many pairs that should not share a bank."""
    n = count(share, 2_000)
    random = random_of(n)
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


def spilling(buffers: int, memories: int) -> LmemPacking:
    """Return buffers, of which most have to go from small memories to one far away."""
    random = random_of(buffers)
    start = random.integers(0, buffers, buffers)
    near = [(f"m{at}", 2000, at) for at in range(memories)]
    return LmemPacking.from_arrays(
        random.integers(1, 999, buffers),
        start,
        start + random.integers(1, 200, buffers),
        memories=[*near, ("far", None, 1000)],
        accesses=random.integers(0, 2**20, buffers),
    )


@family
def memories_of_many(share: float) -> LmemPacking:
    """Many memories to spill to."""
    return spilling(count(share, 5_000), 40)


@family
def moves_of_many(share: float) -> LmemPacking:
    """Everything had an offset, and hardly any fits there now."""
    n = count(share, 3_000)
    random = random_of(n)
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
def moves_all_alive(share: float) -> LmemPacking:
    """All alive together, each with an old offset at which it meets others."""
    n = count(share, 100_000)
    random = random_of(n)
    size = random.integers(1, 100, n)
    old = random.integers(0, int(size.sum()), n)
    return LmemPacking.from_arrays(
        size, random.integers(0, n, n), random.integers(n, 2 * n, n), previous=old
    )


@family
def just_too_small(share: float) -> LmemPacking:
    """Odd sizes that fill a capacity by load, though nothing may fit."""
    n = count(share, 400)
    random = random_of(n)
    start = random.integers(0, 60, n)
    end = start + random.integers(1, 30, n)
    size = random.integers(1, 50, n) * 7 + random.integers(0, 2, n)
    load = np.zeros(100, dtype=np.int64)
    for nbytes, begin, stop in zip(size, start, end, strict=True):
        load[begin:stop] += nbytes
    return LmemPacking.from_arrays(size, start, end, capacity=int(load.max()))


@family
def aligned_to_their_sizes(share: float) -> LmemPacking:
    """Powers of two, each aligned to itself, within a capacity next to the load."""
    n = count(share, 20_000)
    random = random_of(n)
    size = 1 << random.integers(0, 16, n)
    start = random.integers(0, n, n)
    end = start + random.integers(1, 80, n)
    load = np.zeros(2 * n + 80, dtype=np.int64)
    np.add.at(load, start, size)
    np.subtract.at(load, end, size)
    return LmemPacking.from_arrays(
        size, start, end, alignment=size, capacity=int(np.cumsum(load).max()) + 2**16
    )


@family
def conflicts_in_cliques(share: float) -> LmemPacking:
    """200 cliques of 100 buffers, of which each shares a buffer with the next one."""
    cliques, width = count(share, 200), 100
    i, j = np.triu_indices(width, 1)
    first = (width - 1) * np.arange(cliques)[:, None]
    pairs = np.column_stack(((first + i).ravel(), (first + j).ravel()))
    n = (width - 1) * cliques + 1
    return LmemPacking.from_arrays(random_of(n).integers(1, 999, n), conflicts=pairs)


@family
def circle_of_everything(share: float) -> LmemPacking:
    """Around a circle: old offsets, reserved ranges, groups, pairs in place and gaps at once."""
    n = count(share, 4_000, 80)
    random = random_of(n)
    start = random.integers(0, n, n)
    at = np.arange(0, n, 4)
    return LmemPacking.from_arrays(
        random.integers(8, 999, n),
        start,
        start + random.integers(4, 60, n),
        period=n,
        alignment=1 << random.integers(0, 5, n),
        reserved=[(5000 * turn, 5000 * turn + 7) for turn in range(1, 20)],
        colocated=[[i, i + 1] for i in at.tolist()],
        gaps=[(int(i) + 2, int(start[i + 2]) + 1, int(start[i + 2]) + 3) for i in at],
        in_place=[(int(i) + 2, int(i) + 3) for i in at],
    )
