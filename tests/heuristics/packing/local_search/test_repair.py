"""Repair by windows: never worse, valid, and better where there is something to gain."""

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.local_search import repair
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from tests.heuristics.packing.constructive.test_greedy import random_plain


class Turns:
    """Says yes a number of times."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def __call__(self) -> bool:
        self.turns -= 1
        return self.turns >= 0


@pytest.mark.parametrize("window", [200, 4000])
def test_repair_lowers_the_peak(window: int) -> None:
    tuning = TUNING.changed(
        {"annealing": {"budget": 100_000}, "repair": {"movable_blocks": window}}
    )
    instance = random_plain(np.random.default_rng(1), 500, longest=40)
    blocks = Blocks.of(instance)
    start = greedy.place(blocks, RULES["first-fit-start"], tuning=tuning)
    assert start is not None
    before = start.copy()
    bound = int(blocks.load.max())
    peaks: list[int] = []
    offsets = repair.improve(
        blocks,
        start,
        target=bound,
        keep_going=Turns(400),
        on_solution=lambda found: peaks.append(int((found + blocks.size).max())),
        tuning=tuning,
    )
    assert np.array_equal(start, before)
    assert instance.check(PackingSolution(offsets)) == ()
    assert bound <= (offsets + blocks.size).max() < (start + blocks.size).max()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (offsets + blocks.size).max()


def test_nothing_to_do_at_the_target() -> None:
    blocks = Blocks.of(LmemPacking.from_arrays([2, 3], [0, 1], [2, 3]))
    offsets = repair.improve(blocks, np.array([0, 2]), target=5)
    assert offsets.tolist() == [0, 2]


def test_unsupported_names_what_is_in_the_way() -> None:
    ranged = LmemPacking.from_arrays([2, 3], [0, 1], [2, 3], reserved=((4, 5),))
    assert "ranges" in repair.unsupported(Blocks.of(ranged))
    assert repair.unsupported(Blocks.of(ranged.replace(reserved=()))) == ""
