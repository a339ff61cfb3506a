"""Prices of groups by kernels against those of the definitions."""

from __future__ import annotations

from hypothesis import given, settings

from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.regions import Regions
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing.blocks import Blocks
from tests.instances.groups.networks import networks


def best(whole: LayerGrouping, a: int, b: int, oracle: Oracle) -> int:
    """Return the least cycles of [a, b) over all cuts, from the definitions."""
    found = NONE
    for cut in oracle.cuts:
        regions = Regions(whole, range(a, b), cut)
        if any(
            whole.tensors[t].shape[axis] < cut.along(axis)
            for t in regions.stored
            for axis in range(5)
        ):
            continue
        table = Timetable(regions)
        if not regions.refusals() and load(table) <= whole.chip.memory:
            found = min(found, table.cycles)
    return found


def load(table: Timetable) -> int:
    """Return the most bytes that are alive in a row."""
    return int(Blocks.of(packing(table)).load.max())


@given(networks(most=4, max_slices=4, standalone="needed"))
@settings(max_examples=30, deadline=None)
def test_prices_are_those_of_the_definitions(whole: LayerGrouping) -> None:
    oracle = Oracle(whole)
    for b in range(1, whole.n + 1):
        ends = oracle.ends(b)
        for at, cycles in enumerate(ends.cycles):
            assert cycles == best(whole, ends.low + at, b, oracle)
