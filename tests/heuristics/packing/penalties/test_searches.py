"""Pairs of blocks, bounds from cliques, and annealing over placements, against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stagepack.heuristics.packing.penalties import cliques, placing, placing_kernels
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks


def slots(count: int, room: int) -> LmemPacking:
    """Return equal buffers alive one after the other, each two of which cost 1, in few slots."""
    return LmemPacking.from_arrays(
        [8] * count,
        range(count),
        range(1, count + 1),
        capacity=8 * room,
        penalties=[(i, j, 1) for i in range(count) for j in range(i)],
    )


def pairs_of(instance: LmemPacking) -> Pairs:
    return Pairs.of(instance, Blocks.of(instance))


def test_pairs_of_one_block_cost_in_any_case_and_sizes_are_those_of_the_buffers() -> None:
    instance = LmemPacking.from_arrays(
        [4, 8, 4, 0],
        [0, 0, 5, 0],
        [2, 2, 9, 2],
        colocated=[(0, 1)],
        penalties=[(0, 1, 5), (0, 2, 3), (1, 2, 2), (2, 3, 7)],
        capacity=16,
    )
    pairs = pairs_of(instance)
    assert pairs.certain == 5
    assert pairs.worth(np.array([0, 2, 0])) == 5 + 3 + 2
    assert pairs.worth(np.array([0, 4, 0])) == 5 + 2
    assert pairs.worth(np.array([0, 8, 0])) == 5
    apart = pairs.separated(np.ones(len(pairs), dtype=bool))
    assert apart.sections == pairs.blocks.sections + len(pairs)
    assert not apart.linear


@pytest.mark.parametrize(("count", "room"), [(4, 2), (9, 3), (16, 5)])
def test_cliques_bound_what_slots_cost(count: int, room: int) -> None:
    shares = [len(range(at, count, room)) for at in range(room)]
    least = sum(share * (share - 1) // 2 for share in shares)
    pairs = pairs_of(slots(count, room))
    bound = cliques.bound(pairs, 8 * room, keep_going=lambda: True)
    assert least / 2 < bound <= least
    found: list[int] = []
    placing.improve(
        pairs,
        8 * room,
        floor=least,
        keep_going=lambda: True,
        on_solution=lambda offsets: found.append(pairs.worth(offsets)),
    )
    assert found[-1] == least
    assert found == sorted(found, reverse=True)


def test_the_annealing_counts_as_plain_python_does() -> None:
    rng = np.random.default_rng(1)
    start = rng.integers(0, 20, 12)
    instance = LmemPacking.from_arrays(
        rng.integers(1, 9, 12),
        start,
        start + rng.integers(1, 9, 12),
        capacity=24,
        alignment=rng.choice([1, 2], 12),
        penalties=[(i, j, 1 + (i * j) % 4) for i, j in itertools.combinations(range(12), 2)],
    )
    pairs = pairs_of(instance)
    search = placing._search(pairs, 24, 0, lambda: True, tuning=TUNING)
    search.weight[:] = np.where(search.cost > 0, search.cost, 5.0)
    placing_kernels.count(search)
    for _ in range(20):
        placing_kernels.anneal(search, 4.0, 0.5, 0.1, -1, 2_000)
        at, size = search.offsets, instance.size
        meet = [
            (i, j)
            for i, j in itertools.combinations(range(12), 2)
            if at[i] < at[j] + size[j] and at[j] < at[i] + size[i]
        ]
        alive = [start[i] < instance.end[j] and start[j] < instance.end[i] for i, j in meet]
        paid = [1 + (i * j) % 4 for i, j in meet]
        soft = {tuple(sorted(pair)) for pair in pairs.member.tolist()}
        assert all(pair in soft for pair in meet)
        assert search.state[placing_kernels.COST] == sum(paid)
        assert search.state[placing_kernels.CLASHES] == sum(alive)
        assert (at % instance.alignment == 0).all()
        assert (at + size <= 24).all()
    twin = search.twin
    assert (twin[twin] == np.arange(len(twin))).all()
    assert (search.low[twin] == -search.high).all()
