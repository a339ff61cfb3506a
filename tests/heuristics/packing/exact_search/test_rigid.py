"""Blocks made rigid: their packings are packings of what they came from."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.exact_search import exact, exact_general
from stagepack.heuristics.packing.exact_search.rigid import made_rigid
from stagepack.instances.packing import Gap, LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from tests.heuristics.packing.exact_search.test_exact_general import RULES
from tests.packing_cases import random_packing


def test_whole_buffers_are_left_alone() -> None:
    assert not list(made_rigid(Blocks.of(LmemPacking.from_arrays([4, 4], [0, 1], [2, 3]))))


def test_pauses_are_filled_where_time_is_a_line() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 2], [9, 4], gaps=[Gap(0, 2, 4, 0, 0)])
    (rigid,) = made_rigid(Blocks.of(instance))
    assert (rigid.rigid, rigid.load.max()) == (True, 8)
    assert np.diff(rigid.piece_ptr).tolist() == [1, 1]


def test_groups_are_as_large_as_their_largest_member_while_one_is_alive() -> None:
    instance = LmemPacking.from_arrays([4, 9, 1], [0, 6, 3], [2, 8, 4], colocated=[(0, 1)])
    hull, union = made_rigid(Blocks.of(instance))
    assert (hull.load.max(), union.load.max()) == (10, 9)
    assert (hull.high == hull.size[[0, 1]]).all()


@pytest.mark.parametrize("rules", RULES, ids="+".join)
def test_packings_are_valid_for_the_blocks_themselves(rules: tuple[str, ...]) -> None:
    rng = np.random.default_rng(5)
    packed = 0
    for _ in range(25):
        instance = random_packing(rng, features=rules)
        blocks = Blocks.of(instance)
        for rigid in made_rigid(blocks):
            assert rigid.rigid
            assert (rigid.load >= blocks.load).all()
            least = greedy.portfolio(rigid)  # may exceed the capacity
            found = [] if least is None else [least]
            status = exact.minimise(rigid, upper=least, on_solution=found.append)
            assert status in (Status.OPTIMAL, Status.INFEASIBLE)
            for offsets in found:
                solution = PackingSolution.of(instance, blocks.expand(offsets))
                assert not instance.replace(capacity=None).check(solution)
                packed += 1
    assert packed > 5


def test_distances_take_room_for_the_pieces_that_meet_only() -> None:
    # As many pieces each as would need 3 GB for all pairs of them.
    count = 10_000
    gaps = [
        Gap(i, 4 * k + 2 * i + 1, 4 * k + 2 * i + 2, 0, 1) for k in range(count) for i in (0, 1)
    ]
    blocks = Blocks.of(LmemPacking.from_arrays([3, 3], [0, 0], [4 * count + 4] * 2, gaps=gaps))
    assert len(blocks.first) > 4 * count
    assert not exact.unsupported(blocks)
    owner = np.repeat([0, 1], np.diff(blocks.piece_ptr))
    pieces = np.stack([blocks.first, blocks.end, blocks.low, blocks.high], axis=1)
    near = np.array([0, 1, 2]), np.array([1, 0])
    none = np.zeros(3, dtype=np.int64), np.zeros(0, dtype=np.int64)
    ptr, runs = exact_general.forbidden(*near, blocks.piece_ptr, pieces, *none)
    assert len(owner) == len(pieces)
    assert ptr.tolist() == [0, 1, 2]
    assert [(int(r["low"]), int(r["high"])) for r in runs] == [(-2, 2), (-2, 2)]
