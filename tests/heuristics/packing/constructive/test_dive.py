"""The dive."""

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import dive
from stagepack.heuristics.packing.constructive.rules import Measures
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.constructive.test_greedy import random_plain
from tests.heuristics.packing.structured import structured


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


def test_pauses_change_nothing() -> None:
    for instance in structured().values():
        blocks = Blocks.of(instance)
        if dive.unsupported(blocks):
            continue
        found = []
        for steps in (TUNING.dive.budget, *range(1, 8)):
            tuning = TUNING.changed({"dive": {"budget": steps}})
            offsets = dive.place(blocks, np.arange(blocks.b), tuning=tuning)
            assert offsets is not None
            found.append(offsets.tolist())
        assert found == found[:1] * len(found)


def test_dive_returns_none_when_time_is_over() -> None:
    tuning = TUNING.changed({"dive": {"budget": 10}})
    blocks = Blocks.of(random_plain(np.random.default_rng(2), 100))
    assert dive.place(blocks, np.arange(blocks.b), keep_going=lambda: False, tuning=tuning) is None


def test_unsupported_names_what_is_in_the_way() -> None:
    plain = LmemPacking.from_arrays([2, 3], [0, 1], [2, 3])
    assert dive.unsupported(Blocks.of(plain)) == ""
    assert "circular" in dive.unsupported(
        Blocks.of(LmemPacking.from_arrays([2, 3], [0, 1], [2, 4], period=3))
    )
