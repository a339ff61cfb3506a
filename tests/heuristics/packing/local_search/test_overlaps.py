"""Overlap minimisation: places that cost least, and packings that are valid, repeatable and low."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from stagepack import catalog
from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.local_search import overlaps
from stagepack.heuristics.packing.local_search.overlaps_kernels import begin, separate
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.structured import structured
from tests.packing_cases import tight


def some(n: int, seed: int) -> LmemPacking:
    random = np.random.default_rng(seed)
    start = random.integers(0, n // 3, n)
    return LmemPacking.from_arrays(
        random.integers(1, 9, n), start, start + random.integers(1, 12, n)
    )


def looks(many: int) -> Callable[[], bool]:
    return map(many.__gt__, itertools.count()).__next__


def cost(blocks: Blocks, offsets: Array, meet: Array, i: int, at: int) -> int:
    ends = np.minimum(at + blocks.size[i], offsets[meet] + blocks.size[meet])
    return int(np.maximum(0, ends - np.maximum(at, offsets[meet])).sum())


@pytest.mark.parametrize("seed", range(10))
def test_a_block_goes_where_it_costs_least(seed: int) -> None:
    ceiling, blocks = 25, Blocks.of(some(24, seed))
    search = overlaps._search(blocks, 1, seed, lambda: True, tuning=TUNING)
    before = np.random.default_rng(seed).integers(0, ceiling - blocks.size + 1)
    search.offsets[:], search.weight[:] = before, 1.0
    begin(search)
    separate(ceiling, 1, search)
    (moved,) = np.flatnonzero(search.offsets != before).tolist()
    meet = search.other[search.ptr[moved] : search.ptr[moved + 1]]
    costs = [
        cost(blocks, before, meet, moved, at) for at in range(ceiling - int(blocks.size[moved]) + 1)
    ]
    assert costs[search.offsets[moved]] == min(costs)


def test_counts_and_list_stay_true() -> None:
    blocks = Blocks.of(some(60, 1))
    search = overlaps._search(blocks, 1, 0, lambda: True, tuning=TUNING)
    search.offsets[:], search.weight[:] = 0, 1.0
    begin(search)
    for _ in range(200):
        separate(int(blocks.load.max()), 1, search)
    listed, count = search.listed[: search.many[0]].copy(), search.clashes.copy()
    begin(search)
    assert np.array_equal(count, search.clashes)
    assert sorted(listed) == np.flatnonzero(count).tolist()
    assert (search.weight > 1).any()


def test_pauses_change_nothing() -> None:
    for instance in structured().values():
        blocks = Blocks.of(instance)
        if overlaps.unsupported(blocks):
            continue
        ceiling, states = int(blocks.load.max()), []
        for steps in (3_000, *range(1, 20)):
            search = overlaps._search(blocks, 1, 0, lambda: True, tuning=TUNING)
            search.offsets[:], search.weight[:] = 0, 1.0
            begin(search)
            left = 3_000
            while left > 0 and search.many[0] > 0:
                left -= min(steps, left) - separate(ceiling, min(steps, left), search)
            states.append((left, search.offsets.tolist(), search.weight.tolist()))
        assert states == states[:1] * len(states)


def test_packings_get_lower_and_repeat() -> None:
    instance = catalog.load("packing/random/constant-load", buffers=60, seed=1)
    assert isinstance(instance, LmemPacking)
    blocks = Blocks.of(instance)
    start = greedy.portfolio(blocks)
    assert start is not None

    def run() -> tuple[Array, list[int]]:
        peaks: list[int] = []
        with effort.counting():
            found = overlaps.improve(
                blocks,
                start,
                target=int(blocks.load.max()),
                keep_going=looks(20),
                on_solution=lambda found: peaks.append(int((found + blocks.size).max())),
            )
        return found, peaks

    (found, peaks), (again, _) = run(), run()
    assert np.array_equal(found, again)
    assert instance.check(PackingSolution(found)) == ()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (found + blocks.size).max() < (start + blocks.size).max()


def test_the_target_ends_it() -> None:
    blocks = Blocks.of(tight())
    high = np.concatenate([[0], np.cumsum(blocks.size)[:-1]])
    with effort.counting():
        found = overlaps.improve(blocks, high, target=17, keep_going=lambda: True)
    assert (found + blocks.size).max() == 17


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"fixed": [0, -1]}, "may lie anywhere"),
        ({"alignment": [2, 1]}, "multiples of all alignments"),
        ({"in_place": [(0, 1)]}, "full height"),
    ],
)
def test_what_it_does_not_apply_to(rule: dict[str, object], reason: str) -> None:
    plain = LmemPacking.from_arrays([3, 5], [0, 1], [2, 3])
    assert not overlaps.unsupported(Blocks.of(plain))
    assert reason in overlaps.unsupported(Blocks.of(plain.replace(**rule)))
