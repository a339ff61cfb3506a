"""Bounds from windows: above the load, never above the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing import window_bounds
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.oracle import (
    ABOVE_LOAD,
    KINDS,
    above_load,
    least_peak,
    random_instance,
)


@pytest.mark.parametrize("rows", ABOVE_LOAD)
def test_finds_what_is_too_full(rows: str) -> None:
    blocks = Blocks.of(above_load(rows))
    found = list(window_bounds.windows(blocks))
    assert [window.bound for window in found] == [int(blocks.load.max()) + 1]
    assert 0 <= found[0].first < found[0].end <= blocks.sections


def test_a_narrow_window_in_a_long_instance() -> None:
    small = above_load(ABOVE_LOAD[0])
    quiet = np.arange(100)
    instance = LmemPacking.from_arrays(
        np.concatenate([small.size, np.full(100, 3)]),
        np.concatenate([small.start + 50, np.where(quiet < 50, quiet, quiet + 10)]),
        np.concatenate([small.end + 50, np.where(quiet < 50, quiet, quiet + 10) + 1]),
    )
    found = list(window_bounds.windows(Blocks.of(instance)))
    assert found[-1].bound == 17
    assert found[-1].end - found[-1].first <= 8


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("circular", "graph")])
def test_never_above_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(5):
        instance = random_instance(rng, kind)
        best = least_peak(instance, 40)
        for window in window_bounds.windows(Blocks.of(instance), passes=2):
            assert best is None or window.bound <= best
            if window.bound > 40:
                break


def test_stops_when_told() -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    assert len(list(window_bounds.windows(blocks, keep_going=lambda: False))) <= 1


def test_needs_a_line_of_time() -> None:
    instance = random_instance(np.random.default_rng(0), "circular")
    assert "circular" in window_bounds.unsupported(Blocks.of(instance))
