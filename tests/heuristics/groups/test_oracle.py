"""Prices of groups by kernels against those of the definitions."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings

from stagepack.heuristics.groups import oracle
from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source
from stagepack.instances.groups.chip import GENERIC
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.regions import Regions
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing.blocks import Blocks
from tests.instances.groups.networks import networks


def best(whole: LayerGrouping, a: int, b: int, known: Oracle) -> int:
    """Return the least cycles of [a, b) over all cuts, from the definitions."""
    found = NONE
    for cut in known.cuts:
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
    known = Oracle(whole)
    for b in range(1, whole.n + 1):
        ends = known.ends(b)
        for at, cycles in enumerate(ends.cycles):
            assert cycles == best(whole, ends.low + at, b, known)


@given(networks(most=5, max_slices=12))
@settings(max_examples=20, deadline=None)
def test_prices_do_not_depend_on_how_many_cuts_are_known_at_a_time(whole: LayerGrouping) -> None:
    """Nor on how often the kernel comes back to ask."""
    asked = []
    with pytest.MonkeyPatch.context() as patched:
        many = Oracle(whole)
        patched.setattr(oracle, "RANGES", 40)
        patched.setattr(oracle, "STEPS", 100)
        few = Oracle(whole, ask=lambda: asked.append(1))
        for b in range(1, whole.n + 1):
            for eager in (False, True):
                one, other = many.ends(b, eager=eager), few.ends(b, eager=eager)
                assert one.cycles.tolist() == other.cycles.tolist()
                assert one.chosen.tolist() == other.chosen.tolist()
    assert len(asked) > 2 * whole.n


def test_memory_does_not_grow_with_the_square_of_slices() -> None:
    """Ranges of 1,024 slices of a hundred tensors took 2 GB."""
    shape = (1, 4, 1024, 1)
    names = ["x", *(f"y{at}" for at in range(64))]
    whole = LayerGrouping.from_arrays(
        [
            Operator(name=own, kind=OperatorKind.ELEMENTWISE, inputs=(read,), shape=shape)
            for read, own in pairwise(names)
        ],
        [Source(name="x", shape=shape)],
        chip=GENERIC,
        max_slices=1024,
    )
    tracemalloc.start()
    Oracle(whole)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
