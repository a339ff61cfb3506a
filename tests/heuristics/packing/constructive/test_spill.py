"""Spilling: what the load leaves room for is the same wherever the kernel pauses."""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing.constructive import spill
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.structured import structured


def test_pauses_change_nothing() -> None:
    for instance in structured().values():
        blocks, found = Blocks.of(instance), []
        capacity = int(blocks.load.max()) * 2 // 3
        for looked_at in (TUNING.spill.budget, *range(1, 6)):
            tuning = TUNING.changed({"spill": {"budget": looked_at}})
            within = spill._within(
                blocks, np.arange(blocks.b), capacity, lambda: True, tuning=tuning
            )
            found.append(within.tolist())
        assert found == found[:1] * len(found)
