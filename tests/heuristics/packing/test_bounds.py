"""Bounds without search are never above the least peak that trying everything finds."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing import bounds
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.packing_cases import FEATURES, brute_force, random_packing


@pytest.mark.parametrize("feature", sorted({*FEATURES} - {"alignment", "banks", "fixed"}))
def test_what_is_rounded_up_is_no_more_than_the_least_peak(feature: str) -> None:
    rng = np.random.default_rng(FEATURES.index(feature))
    raised = 0
    for turn in range(30):
        instance = random_packing(rng, features=(feature,), n=4).replace(alignment=2 + turn % 2)
        blocks = Blocks.of(instance)
        best = brute_force(instance, 24)
        bound = bounds.load_bound(blocks)
        assert best is None or bound <= instance.evaluate(best)
        raised += bound > max(blocks.load.max(), blocks.size.max())
    assert raised


def test_one_pair_that_shares_leaves_the_others_rounded_up() -> None:
    # Three scalars lie between large buffers: each but the one on top takes as much as 64 bytes.
    instance = LmemPacking.from_arrays(
        [128, 4, 8, 4, 64, 64],
        [0, 0, 0, 0, 0, 2],
        [2, 2, 2, 2, 2, 4],
        alignment=64,
        in_place=[(4, 5)],
    )
    blocks = Blocks.of(instance)
    assert blocks.load.max() == 208
    assert bounds.load_bound(blocks) == 128 + 64 + 2 * 64 + 4
