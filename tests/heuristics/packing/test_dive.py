"""The dive and packings built from a core."""

import numpy as np
import pytest

from stagepack.heuristics.packing import dive
from stagepack.heuristics.packing.rules import Measures
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.test_greedy import random_plain
from tests.packing_cases import tight


def skyline(blocks: Blocks, order: Array) -> list[int]:
    """Place the block that can go lowest, of several the first in the order: the definition."""
    height = np.zeros(blocks.sections, dtype=np.int64)
    offsets = [-1] * blocks.b
    left = order.tolist()
    while left:
        reach = [int(height[blocks.first[i] : blocks.end[i]].max()) for i in left]
        at = reach.index(min(reach))
        i = left.pop(at)
        offsets[i] = reach[at]
        height[blocks.first[i] : blocks.end[i]] = reach[at] + blocks.size[i]
    return offsets


@pytest.mark.parametrize("name", dive.ORDERS)
def test_dive_does_what_the_definition_says(name: str) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 17, 120):
        instance = random_plain(rng, n, longest=60)
        blocks = Blocks.of(instance)
        order = np.lexsort(dive.ORDERS[name](Measures(blocks))[::-1])
        offsets = dive.place(blocks, order)
        assert offsets is not None
        assert instance.check(PackingSolution(offsets)) == ()
        assert offsets.tolist() == skyline(blocks, order)


def test_dive_returns_none_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dive, "STEPS", 10)
    blocks = Blocks.of(random_plain(np.random.default_rng(2), 100))
    assert dive.place(blocks, np.arange(blocks.b), keep_going=lambda: False) is None


@pytest.mark.parametrize("large", [10, 60_000])
def test_best_is_valid_repeats_and_reports(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(dive, "LARGE", large)
    monkeypatch.setattr(dive, "ROUNDS", 3)
    instance = random_plain(np.random.default_rng(3), 600, longest=100)
    blocks = Blocks.of(instance)
    peaks: list[int] = []
    offsets = dive.best(
        blocks, on_solution=lambda found, _: peaks.append(int((found + blocks.size).max()))
    )
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (offsets + blocks.size).max() >= blocks.load.max()
    again = dive.best(blocks)
    assert again is not None
    assert np.array_equal(offsets, again)


def test_best_reaches_the_optimum_of_a_tight_instance() -> None:
    blocks = Blocks.of(tight())
    offsets = dive.best(blocks, target=17)
    assert offsets is not None
    assert (offsets + blocks.size).max() == 17


def test_best_stops_when_told() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(4), 300, longest=100))
    assert dive.best(blocks, keep_going=lambda: False) is None


def test_unsupported_names_what_is_in_the_way() -> None:
    plain = LmemPacking.from_arrays([2, 3], [0, 1], [2, 3])
    assert dive.unsupported(Blocks.of(plain)) == ""
    assert "circular" in dive.unsupported(
        Blocks.of(LmemPacking.from_arrays([2, 3], [0, 1], [2, 4], period=3))
    )
