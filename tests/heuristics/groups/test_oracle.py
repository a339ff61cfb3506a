"""Prices of groups by kernels against those of the definitions."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.groups.dag import steps
from stagepack.heuristics.groups.network import cuts
from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.heuristics.groups.tuning import TUNING
from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source
from stagepack.instances.groups.chip import GENERIC
from stagepack.instances.groups.regions import Cut
from stagepack.instances.groups.timesteps import alone_cycles
from tests.heuristics.groups.definitions import cheapest, loaded
from tests.instances.groups.networks import RATED, networks


@given(networks(most=4, max_slices=4, standalone="needed"), st.booleans())
@settings(max_examples=40, deadline=None)
def test_prices_are_those_of_the_definitions(whole: LayerGrouping, rated: bool) -> None:
    whole = whole.replace(chip=RATED) if rated else whole
    known = Oracle(whole)
    for b in range(1, whole.n + 1):
        ends = known.ends(b)
        for at, cycles in enumerate(ends.cycles):
            assert cycles == cheapest(whole, range(ends.low + at, b), loaded)


@given(networks(most=5, max_slices=12))
@settings(max_examples=20, deadline=None)
def test_prices_do_not_depend_on_how_many_cuts_are_known_at_a_time(whole: LayerGrouping) -> None:
    """Nor on how often the kernel comes back to ask."""
    asked = []
    often = {"numbers": 80, "first_cuts": 1, "many_cuts": 6, "steps_at_once": 100}
    tuning = TUNING.changed({"oracle": often})
    many = Oracle(whole)
    few = Oracle(whole, pause=lambda: asked.append(1), tuning=tuning)
    for b in range(1, whole.n + 1):
        for eager in (False, True):
            one, other = many.ends(b, eager=eager), few.ends(b, eager=eager)
            assert one.cycles.tolist() == other.cycles.tolist()
            assert one.chosen.tolist() == other.chosen.tolist()
    assert len(asked) > 2 * whole.n


def test_the_first_cut_that_fits_is_found_without_the_others() -> None:
    """Of 5,000 rows in as many slices, whose ranges are 12 million."""
    shape = (1, 1, 5_000, 1)
    whole = LayerGrouping.from_arrays(
        [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=shape)],
        [Source(name="x", shape=shape)],
        chip=GENERIC,
        max_slices=5_000,
        overlap_limit=None,
        standalone="needed",
    )
    asked: list[int] = []
    known = Oracle(whole, pause=lambda: asked.append(1))
    asked.clear()
    first = known.ends(1, eager=True)
    assert (first.chosen.tolist(), len(asked)) == ([0], 1)
    known.ends(1)
    assert len(asked) > 2


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


@given(networks(most=5, max_slices=4, standalone="needed"), st.data())
@settings(max_examples=30, deadline=None)
def test_groups_grow_and_shrink(whole: LayerGrouping, data: st.DataObject) -> None:
    """What was let go has left nothing behind, and sets need be neither convex nor connected."""
    every = st.sets(st.integers(1, 2**whole.n - 1), min_size=1, max_size=6)
    groups = sorted(data.draw(every))
    way = steps(groups)
    asked = np.flatnonzero(way[:, 3])
    known = Oracle(whole, branching=True)
    expected = [
        cheapest(whole, [at for at in range(whole.n) if group >> at & 1], loaded)
        for group in groups
    ]
    for most in (NONE, max(expected), min(expected)):
        below = np.full(len(way), most)
        cycles, _ = known.price(way, [()] * len(way), below=below)
        assert cycles[asked].tolist() == [min(most, cycles) for cycles in expected]


def test_steps_share_what_comes_last() -> None:
    assert steps([0b0011, 0b1000, 0b1010, 0b1011]).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 1],
        [3, 0, 0, 1],
        [1, 1, 0, 1],
        [0, 2, 0, 1],
    ]
    assert steps([0b1001, 0b1010])[:, 2].tolist() == [0, 1, 0]
    # What comes last may change in between.
    assert steps([0b0101, 0b0110, 0b1000])[:, 2].tolist() == [0, 1, 0, 0]


def test_prices_do_not_depend_on_what_is_asked_before() -> None:
    """Groups that ended elsewhere made those before forget what to go back to."""
    whole = sp.load("groups/inception-v1", chip="cv184x", order="free")
    assert isinstance(whole, LayerGrouping)
    groups = [(22, 27, 30, 31), (26, 30, 31), (25, 26, 31, 32), (28, 33), (29, 32, 33)]
    masks = sorted(sum(1 << at for at in group) for group in groups)
    way = steps(masks)
    cycles, _ = Oracle(whole, branching=True).price(way, [()] * len(way))
    alone = Oracle(whole)
    assert cycles[way[:, 3] > 0].tolist() == [
        alone.again(tuple(at for at in range(whole.n) if mask >> at & 1))[0] for mask in masks
    ]


def test_operators_that_stand_alone_are_work_and_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    names, shape = ["x", "a", "b", "c"], (1, 2, 2, 2)
    whole = LayerGrouping.from_arrays(
        [
            Operator(name=own, kind=OperatorKind.OTHER, inputs=(read,), shape=shape)
            for read, own in pairwise(names)
        ],
        [Source(name="x", shape=shape)],
        chip=GENERIC,
    )
    with effort.counting():
        known = Oracle(whole)
        parted = effort.spent()
        monkeypatch.setattr(known, "price", None)  # as groups are, by kernels
        for b in range(1, 4):
            ends = known.ends(b)
            assert (ends.low, ends.cycles.tolist()) == (b - 1, [alone_cycles(whole, b - 1)])
        assert effort.spent() - parted == pytest.approx(3 * TUNING.oracle.alone_price)


@given(networks(most=3, max_slices=9, slicing="free"))
@settings(max_examples=20, deadline=None)
def test_cuts_are_all_ways_and_those_of_few_slices_come_first(whole: LayerGrouping) -> None:
    sizes = (max(t.shape[axis] for t in whole.tensors) for axis in (0, 1, 3, 4))
    every = [
        Cut(*parts)
        for parts in itertools.product(*(range(1, size + 1) for size in sizes))
        if math.prod(parts) <= whole.max_slices
    ]
    by = sorted(every, key=lambda cut: (cut.slices, cut.w, cut.c, cut.h))
    assert cuts(whole) == by


def test_cuts_that_are_settled_count_as_work_though_the_first_one_does() -> None:
    many, shape = 1_000, (1_000, 1, 1, 1)
    whole = LayerGrouping.from_arrays(
        [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=shape)],
        [Source(name="x", shape=shape)],
        chip=GENERIC,
        max_slices=many,
        standalone="needed",
    )
    known = Oracle(whole)
    with effort.counting():
        known.ends(1, eager=True)
        tuning = TUNING.oracle
        assert effort.spent() > 20 * tuning.step_price * many + tuning.call_price
