"""Spilling: what the load leaves room for is the same wherever the kernel pauses."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import spill
from stagepack.instances.packing.blocks import Blocks
from tests.heuristics.packing.structured import structured


def test_pauses_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for instance in structured().values():
        blocks, found = Blocks.of(instance), []
        capacity = int(blocks.load.max()) * 2 // 3
        for looked_at in (spill.LOOKED_AT, *range(1, 6)):
            monkeypatch.setattr(spill, "LOOKED_AT", looked_at)
            within = spill._within(blocks, np.arange(blocks.b), capacity, lambda: True)
            found.append(within.tolist())
        assert found == found[:1] * len(found)
