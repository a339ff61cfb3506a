"""Keeping old places: what stays, what gives way, and that nothing ever overlaps."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing import relocation
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution, measure
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.constructive.test_greedy import random_plain


def packed(blocks: Blocks, rule: str) -> Array:
    offsets = greedy.place(blocks, RULES[rule])
    assert offsets is not None
    return offsets


def peak_of(blocks: Blocks, offsets: Array) -> int:
    return int((offsets + blocks.size).max())


def test_an_old_placement_that_still_fits_is_kept_whole() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(1), 200, longest=60))
    old = packed(blocks, "first-fit-start")
    found = relocation.around(blocks, old, peak_of(blocks, old))
    assert found is not None
    assert np.array_equal(found, old)
    lower = packed(blocks, "best-fit-lifetime")
    assert peak_of(blocks, lower) <= peak_of(blocks, old)
    above = old.copy()
    above[np.argmax(old + blocks.size)] = 10**9  # everything may go back but this
    assert (relocation.returned(blocks, old, above) == old).all()


def test_pauses_change_nothing() -> None:
    random = np.random.default_rng(2)
    for n in (1, 2, 5, 30):
        blocks = Blocks.of(random_plain(random, n))
        events = relocation._events(blocks, np.arange(n), tuning=TUNING)
        for spread in (1, 50, 500):
            low = random.integers(0, spread, n)
            found = []
            for budget in (10**6, *range(1, 6), 60, 200):
                tuning = TUNING.changed({"relocation": {"budget": budget}})
                dropped = relocation._clashing(
                    events, low, blocks.size, blocks.size * 1.0, None, tuning=tuning
                )
                assert dropped is not None
                found.append(dropped.tolist())
            assert found == found[:1] * len(found)


def test_new_buffers_go_around_the_old_ones() -> None:
    instance = random_plain(np.random.default_rng(2), 300, longest=60)
    blocks = Blocks.of(instance)
    old = packed(blocks, "best-fit-lifetime")
    old[::5] = -1
    found = relocation.around(blocks, old, 2 * int(blocks.load.max()))
    assert found is not None
    assert instance.check(PackingSolution(found)) == ()
    assert np.array_equal(found[old >= 0], old[old >= 0])


def test_kept_blocks_are_given_up_where_the_rest_ends_too_high() -> None:
    # The old place of buffer 0 splits the memory: 1 does not fit beside it.
    old = np.array([4, -1, 2])
    instance = LmemPacking.from_arrays([2, 8, 3], [0, 1, 0], [2, 3, 1])
    blocks = Blocks.of(instance)
    found = relocation.around(blocks, old, 10)
    assert found is not None
    assert instance.check(PackingSolution(found)) == ()
    assert peak_of(blocks, found) == 10
    assert found[2] == 2
    assert relocation.around(blocks, old, 9) is None


@pytest.mark.parametrize("seed", range(20))
def test_going_back_is_valid_and_never_higher(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_plain(rng, 120, longest=40)
    blocks = Blocks.of(instance)
    offsets, old = packed(blocks, "classes"), packed(blocks, "first-fit-size")
    old[rng.random(blocks.b) < 0.3] += 1  # some old places clash
    found = relocation.returned(blocks, offsets, old)
    assert instance.check(PackingSolution(found)) == ()
    assert peak_of(blocks, found) <= peak_of(blocks, offsets)
    assert set(np.flatnonzero(offsets == old)) <= set(np.flatnonzero(found == old))


def test_of_two_that_clash_the_larger_stays() -> None:
    blocks = Blocks.of(LmemPacking.from_arrays([3, 5, 4], [0, 1, 2], [2, 4, 4]))
    found = relocation.around(blocks, np.array([0, 2, 7]), 12)
    assert found is not None
    assert found[1:].tolist() == [2, 7]
    assert found[0] == 7


def test_old_offset_of_a_block_is_that_of_its_largest_buffer() -> None:
    instance = LmemPacking.from_arrays(
        [4, 8, 2], [0, 1, 2], [2, 3, 3], colocated=[(0, 1)], previous=[4, 16, -1]
    )
    assert relocation.previous(instance, Blocks.of(instance)).tolist() == [16, -1]


def test_unsupported_is_told() -> None:
    fixed = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], fixed=[4, -1])
    assert "fixed offsets" in relocation.unsupported(Blocks.of(fixed))
    assert (
        relocation.unsupported(Blocks.of(random_plain(np.random.default_rng(3), 5, longest=3)))
        == ""
    )


def test_many_blocks_with_a_few_new_ones() -> None:
    rng = np.random.default_rng(4)
    n = 30_000
    start = rng.integers(0, n, n)
    instance = LmemPacking.from_arrays(
        rng.integers(1, 2000, n), start, start + rng.integers(1, 300, n)
    )
    blocks = Blocks.of(instance)
    old = packed(blocks, "best-fit-lifetime")
    ceiling = peak_of(blocks, old)
    old[rng.permutation(n)[:300]] = -1
    found = relocation.around(blocks, old, ceiling)
    assert found is not None
    solution = PackingSolution(found)
    assert instance.check(solution) == ()
    moved = measure(instance.replace(previous=old), solution).moved_bytes
    assert moved is not None
    assert moved <= instance.size.sum() // 100
