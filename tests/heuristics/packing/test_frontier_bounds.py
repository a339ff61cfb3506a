"""Bounds from full sections: above the load where these say so, never above the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import stagepack as sp
from stagepack.catalog.packing import evolved
from stagepack.heuristics.packing import effort, frontier_bounds
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing.blocks import Blocks
from tests.heuristics.packing.oracle import least_peak, random_instance


@pytest.mark.parametrize("seed", range(15))
def test_is_exact_where_all_sections_are_full(seed: int) -> None:
    instance = sp.load("packing/random/constant-load", buffers=14, seed=seed)
    blocks = Blocks.of(instance)
    load = int(blocks.load.max())
    assert (blocks.load == load).all()
    fits = sp.solve(instance, "exact").objective == load
    assert (frontier_bounds.bound(blocks, load) == load) == fits


def test_proves_most_evolved_packings_without_search() -> None:
    above = 0
    for seed in range(12):
        blocks = Blocks.of(sp.load("packing/random/evolved", buffers=40, seed=seed))
        bound = frontier_bounds.bound(blocks, int(blocks.load.max()))
        assert bound <= evolved.optimum(40, seed)
        above += bound > blocks.load.max()
    assert above == 12


@pytest.mark.parametrize("kind", ["plain", "twins", "aligned"])
def test_never_exceeds_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        instance = random_instance(rng, kind)
        blocks = Blocks.of(instance)
        if blocks.linear and blocks.rigid:
            best = least_peak(instance, int(instance.size.sum()))
            assert best is None or frontier_bounds.bound(blocks, int(blocks.load.max())) <= best


def test_too_many_frontiers_are_given_up() -> None:
    blocks = Blocks.of(sp.load("packing/random/evolved", buffers=40, seed=0))
    load = int(blocks.load.max())
    assert frontier_bounds.bound(blocks, load) > load
    assert frontier_bounds.bound(blocks, load, lambda: False) == load
    tuning = TUNING.changed({"windows": {"laid_limit": 3}})
    assert frontier_bounds.bound(blocks, load, tuning=tuning) == load


def test_looks_at_the_clock_within_a_component_and_counts_what_it_lays() -> None:
    """On buffers that are many it took a second, asked for nothing and counted a tenth of it."""
    blocks = Blocks.of(sp.load("packing/random/constant-load", buffers=200, seed=5))
    load = int(blocks.load.max())
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return True

    with effort.counting() as spent:
        frontier_bounds.bound(blocks, load, look)
    assert looks > 50
    assert (
        spent()
        > looks * TUNING.windows.laid_looks * TUNING.windows.laid * TUNING.windows.laid_alone / 2
    )
