"""Infeasible subsets: they do not fit, and without any one of them the others do."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.packing import iis
from stagepack.heuristics.packing.effort import pausing
from stagepack.heuristics.packing.exact_search.components import Packing
from stagepack.heuristics.packing.exact_search.exact import decide_packing
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.result import Status
from tests.heuristics.packing.oracle import (
    ABOVE_LOAD,
    KINDS,
    above_load,
    least_peak,
    random_instance,
)


def fits(blocks: Blocks, which: object, capacity: int, first: int = 0, end: int = -1) -> bool:
    packing = Packing(blocks, np.array(which, dtype=np.int64), first, end)
    return decide_packing(packing, capacity).status is Status.FEASIBLE


def assert_irreducible(blocks: Blocks, capacity: int, found: iis.InfeasibleBlocks | None) -> None:
    assert found is not None
    assert found.irreducible
    assert not fits(blocks, found.blocks, capacity)
    for block in found.blocks:
        assert fits(blocks, found.blocks[found.blocks != block], capacity)


@pytest.mark.parametrize("rows", ABOVE_LOAD)
def test_irreducible_above_the_load(rows: str) -> None:
    blocks = Blocks.of(above_load(rows))
    load = int(blocks.load.max())
    found = iis.find(blocks, load)
    assert_irreducible(blocks, load, found)
    assert found is not None
    assert not fits(blocks, found.blocks, load, found.first, found.end)
    assert len(found.blocks) >= 8
    assert iis.find(blocks, load + 1) is None


@pytest.mark.parametrize("kind", KINDS)
def test_irreducible_for_every_kind(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(5):
        instance = random_instance(rng, kind)
        blocks = Blocks.of(instance)
        best = least_peak(instance, 40)
        capacity = 40 if best is None else best - 1
        assert_irreducible(blocks, capacity, iis.find(blocks, capacity))


def test_an_overloaded_section_needs_no_search() -> None:
    instance = LmemPacking.from_arrays([1, 9, 8, 7, 1], [0, 0, 2, 2, 8], [9, 9, 5, 9, 9])
    found = iis.find(Blocks.of(instance), 20)
    assert found is not None
    assert found.blocks.tolist() == [1, 2, 3]
    assert (found.irreducible, found.nodes) == (True, 0)


def test_buffers_that_share_a_place_are_not_counted_twice() -> None:
    # All four need 17 bytes, as 0 and 1 may share theirs: the sizes of 0, 1 and 2 prove nothing.
    instance = LmemPacking.from_arrays([8, 8, 3, 6], [0] * 4, [1] * 4, in_place=[(0, 1)])
    blocks = Blocks.of(instance)
    assert blocks.load.max() == 17
    assert iis._overloaded(blocks, 16, pausing(None), tuning=TUNING) is None
    apart = Blocks.of(instance.replace(in_place=()))
    assert iis._overloaded(apart, 16, pausing(None), tuning=TUNING) is not None


def test_stops_within_its_limits() -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    assert iis.find(blocks, 16, keep_going=lambda: False, node_limit=0) is None
