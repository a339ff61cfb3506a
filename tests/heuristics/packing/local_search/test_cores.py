"""Packings built from a core: valid, repeatable, and low."""

import numpy as np
import pytest

from stagepack.heuristics.packing.local_search import cores
from stagepack.instances.packing import PackingSolution
from stagepack.instances.packing.blocks import Blocks
from tests.heuristics.packing.constructive.test_greedy import random_plain
from tests.packing_cases import tight


@pytest.mark.parametrize("large", [10, 60_000])
def test_best_is_valid_repeats_and_reports(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(cores, "LARGE", large)
    monkeypatch.setattr(cores, "ROUNDS", 3)
    instance = random_plain(np.random.default_rng(3), 600, longest=100)
    blocks = Blocks.of(instance)
    peaks: list[int] = []
    offsets = cores.best(
        blocks, on_solution=lambda found, _: peaks.append(int((found + blocks.size).max()))
    )
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (offsets + blocks.size).max() >= blocks.load.max()
    again = cores.best(blocks)
    assert again is not None
    assert np.array_equal(offsets, again)


def test_best_reaches_the_optimum_of_a_tight_instance() -> None:
    blocks = Blocks.of(tight())
    offsets = cores.best(blocks, target=17)
    assert offsets is not None
    assert (offsets + blocks.size).max() == 17


def test_best_stops_when_told() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(4), 300, longest=100))
    assert cores.best(blocks, keep_going=lambda: False) is None
