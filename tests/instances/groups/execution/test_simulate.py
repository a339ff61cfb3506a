"""Plans played slice by slice take what the closed formula says."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.groups import GroupingSolution, LayerGrouping, Operator, OperatorKind
from stagepack.instances.groups.execution.simulate import COMPUTE, DMA, Event, play, simulate, steps
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Spill, Timetable
from tests.instances.groups.networks import CHIP, block, conv, grouping, networks

ROUNDS = [1, 2, 3, 4, 7]


@pytest.mark.parametrize("slices", ROUNDS)
def test_a_group_takes_what_the_formula_says(slices: int) -> None:
    table = Timetable(Regions(block(rows=14), (0, 1, 2), Cut(h=slices)))
    events, end = play(table)
    assert end == table.cycles
    counts = Counter((event.what, event.name) for event in events)
    # What all slices share is loaded once, everything else with every slice.
    assert counts == {
        ("load", "x"): slices,
        ("load", "a.w0"): 1,
        ("load", "b.w0"): 1,
        ("compute", "a"): slices,
        ("compute", "b"): slices,
        ("compute", "s"): slices,
        ("store", "s"): slices,
    }


def test_rows_of_two_slices_by_hand() -> None:
    table = Timetable(Regions(block(rows=8), (0, 1, 2), Cut(h=2)))
    found = [(s.iteration, s.row, s.slice, s.task.what, s.task.name) for s in steps(table)]
    assert found == [
        (0, 2, 0, "load", "x"),
        (0, 2, 0, "load", "a.w0"),
        (1, 0, 0, "load", "b.w0"),
        (1, 0, 0, "compute", "a"),
        (1, 1, 0, "compute", "b"),
        (1, 2, 1, "load", "x"),
        (1, 2, 0, "compute", "s"),
        (2, 0, 1, "compute", "a"),
        (2, 0, 0, "store", "s"),
        (2, 1, 1, "compute", "b"),
        (2, 2, 1, "compute", "s"),
        (3, 0, 1, "store", "s"),
    ]
    events, end = play(table, at=100)
    load, weights = (move.cycles for move in table.moves[:2])
    first = load + weights  # nothing else runs in the first row
    assert [(event.start - 100, event.end - 100) for event in events[:4]] == [
        (0, load),
        (load, first),
        (first, first + weights),  # beside a
        (first, first + table.compute[0]),
    ]
    assert end == 100 + table.cycles


@given(
    networks(most=4),
    st.sampled_from(ROUNDS),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_random_groups_take_what_the_formula_says(
    whole: LayerGrouping, parts: int, cores: int, overlap: float, data: Any
) -> None:
    whole = whole.replace(chip=msgspec.structs.replace(CHIP, cores=cores, overlap=overlap))
    regions = Regions(whole, range(whole.n), Cut(h=parts))
    if any(whole.tensors[t].shape[3] < parts for t in regions.stored):
        return
    plain = Timetable(regions)
    positions = [
        data.draw(
            st.integers(0, plain.rows + move.operator - 1)
            if move.load
            else st.integers(plain.rows + move.operator + 1, 3 * plain.rows - 1)
        )
        for move in plain.moves
    ]
    spills = data.draw(st.lists(st.builds(Spill, *_places(plain)), max_size=2))
    table = Timetable(regions, positions, spills)
    events, end = play(table)
    assert end == table.cycles
    _apart(events)


def _places(table: Timetable) -> tuple[Any, ...]:
    position = st.integers(0, 3 * table.rows - 1)
    return st.sampled_from(table.operators), position, position


def _apart(events: list[Event]) -> None:
    """See that no engine does two things at once."""
    for core, engine in {(event.core, event.engine) for event in events}:
        own = sorted((e.start, e.end) for e in events if (e.core, e.engine) == (core, engine))
        assert all(one[1] <= other[0] for one, other in pairwise(own))
        assert engine in (COMPUTE, DMA)


@pytest.mark.parametrize("overlap", [0.5, 1.0])
def test_plans_take_what_they_are_worth(overlap: float) -> None:
    operators = [
        conv("a", "x", 8, 8),
        Operator(name="t", kind=OperatorKind.OTHER, inputs=("a",), shape=(1, 8, 8, 8)),
        conv("b", "t", 8, 8),
    ]
    whole = grouping(operators, chip=msgspec.structs.replace(CHIP, overlap=overlap))
    plan = GroupingSolution((0, 1, 2, 3), ((1, 1, 4, 1), (), (1, 1, 1, 1)))
    events, end = simulate(whole, plan)
    assert end == whole.evaluate(plan)
    for group in range(3):
        own = [event for event in events if event.group == group]
        assert {event.core for event in own} == {0}
    assert [(e.what, e.name) for e in events if e.group == 1] == [
        ("compute", "t"),
        ("load", "a"),
        ("store", "t"),
    ]
