"""Every rule of plans, broken by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import (
    GroupingSolution,
    LayerGrouping,
    Operator,
    OperatorKind,
    lmem,
    regions,
)
from stagepack.instances.groups.check import _overlaps
from stagepack.instances.groups.execution.replay import Place
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.operators import H, reads
from stagepack.instances.groups.timesteps import Buffer, Timetable
from tests.instances.groups.networks import CHIP, add, block, conv, grouping, stacked


@pytest.fixture
def whole() -> LayerGrouping:
    return block(chip=sp.LaneChip(**{**_fields(), "memory": 4096}))


def _fields() -> dict[str, Any]:
    return {name: getattr(CHIP, name) for name in CHIP.__struct_fields__}


@pytest.fixture
def plan(whole: LayerGrouping) -> GroupingSolution:
    return stacked(whole, GroupingSolution((0, 3), ((1, 1, 2, 1),)))


def test_a_right_plan_breaks_nothing(whole: LayerGrouping, plan: GroupingSolution) -> None:
    assert whole.check(plan) == ()
    alone = GroupingSolution((0, 1, 2, 3), ((), (), ()), offsets=((), (), ()))
    assert whole.check(alone) == ()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("boundaries", {"boundaries": (0, 2)}, "must rise from 0 to 3"),
    ("boundaries", {"boundaries": (0, 2, 2, 3)}, "must rise"),
    ("slices", {"slices": ()}, "0 entries for 1 groups"),
    ("slices", {"slices": ((1, 1, 2),)}, "give four counts"),
    ("slices", {"slices": ((1, 1, 0, 1),)}, "at least 1"),
    ("slices", {"slices": ((1, 1, 9, 1),)}, "s has 8 values along H, too few for 9 ranges"),
    ("slices", {"slices": ((1, 1, 8, 8),)}, "64 slices, of 16"),
    ("alone", {"slices": ((),)}, "a cannot run from global memory"),
    ("order", {"order": (0, 1)}, "must name each of the 3 operators once"),
    ("order", {"order": (1, 0, 2)}, "b runs before a, which it reads"),
    ("positions", {"positions": ((2, 2, 3),)}, "give 4 positions below 9"),
    ("positions", {"positions": ((2, 2, 3, 9),)}, "positions below 9"),
    ("positions", {"positions": ((3, 2, 3, 6),)}, "x is loaded in row 3, read in 3"),
    ("positions", {"positions": ((2, 2, 3, 5),)}, "s is stored in row 5, written in 5"),
    ("spills", {"spills": (((7, 3, 4),),)}, "names no tensor or row of it"),
    ("spills", {"spills": (((3, 3, 5),),)}, "x is read while it is away"),
    ("spills", {"spills": (((3, 2, 4),),)}, "is there from row 2, stored in 2, loaded in 4"),
    ("offsets", {"offsets": ((), ())}, "2 entries for 1 groups"),
    ("memory", {"offsets": ()}, "0 offsets for"),
]


@pytest.mark.parametrize(("rule", "changes", "words"), WRONG)
def test_each_rule_is_broken_by_itself(
    plan: GroupingSolution, rule: str, changes: dict[str, Any], words: str
) -> None:
    whole = block(max_slices=16)
    changed = replace(plan, **changes)
    broken = whole.check(changed)
    found = [violation for violation in broken if violation.rule == rule]
    assert found
    assert words in found[0].detail


def test_addresses(whole: LayerGrouping, plan: GroupingSolution) -> None:
    (offsets,) = plan.offsets
    for changed, rule, words in (
        ((offsets[1], *offsets[1:]), "collision", "overlap in row"),
        ((offsets[0] + 8, *offsets[1:]), "memory", "not aligned"),
        ((-16, *offsets[1:]), "memory", "below 0"),
        ((4096, *offsets[1:]), "memory", "bytes in a lane: "),
    ):
        broken = whole.check(replace(plan, offsets=(changed,)))
        assert any(found.rule == rule and words in found.detail for found in broken)


def test_a_sum_may_lie_over_what_dies_with_it(whole: LayerGrouping) -> None:
    plan = stacked(whole, GroupingSolution((0, 3), ((1, 1, 1, 1),)))
    table = plan.timetable(whole, 0)
    names = [copy.name for copy in copies(table)]
    (offsets,) = plan.offsets
    over = list(offsets)
    over[names.index("s")] = offsets[names.index("b")]
    assert whole.check(replace(plan, offsets=(tuple(over),))) == ()
    over[names.index("s")] += CHIP.eu_bytes
    assert {v.rule for v in whole.check(replace(plan, offsets=(tuple(over),)))} == {"collision"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"positions": ((1, 2, 3, 6),)}, "group 0: x moves in row 1, by the rule in 2"),
        ({"spills": (((3, 3, 4),),)}, "group 0: by the rule no tensor leaves"),
    ],
)
def test_timesteps_by_the_rule(plan: GroupingSolution, changes: dict[str, Any], words: str) -> None:
    free = block()
    changed = stacked(free, replace(plan, slices=((1, 1, 1, 1),), **changes))
    assert free.check(changed) == ()
    assert words in str(free.replace(timesteps="nearest").check(changed))


def test_a_result_is_there_when_it_is_stored() -> None:
    whole = block(outputs=("a",))
    plan = GroupingSolution((0, 3), ((1, 1, 1, 1),), spills=(((0, 4, 6),),))
    names = [move.name for move in plan.timetable(whole, 0).moves]
    assert names == ["x", "a.w0", "b.w0", "a", "s"]
    for row, fine in ((4, True), (5, False), (6, False), (7, True)):
        moved = stacked(whole, replace(plan, positions=((2, 2, 3, row, 6),)))
        assert (whole.check(moved) == ()) == fine
    assert "a is stored for others while it is away" in str(
        whole.check(stacked(whole, replace(plan, positions=((2, 2, 3, 5, 6),))))
    )


def test_what_is_spilled_is_not_written_over() -> None:
    whole = block()
    spilled = GroupingSolution((0, 3), ((1, 1, 1, 1),), spills=(((1, 5, 6),),))
    assert in_place(spilled.timetable(whole, 0)) == ()
    assert len(in_place(replace(spilled, spills=()).timetable(whole, 0))) == 1


def test_a_tensor_that_leaves_before_it_is_there() -> None:
    whole = block()
    plan = GroupingSolution((0, 3), ((1, 1, 1, 1),), spills=(((2, 0, 7),),))
    assert "s is there from row 5, stored in 0" in str(whole.check(stacked(whole, plan)))


def test_what_may_not_be_cut() -> None:
    soft = Operator(name="y", kind=OperatorKind.ROWS, inputs=("x",), shape=(1, 8, 8, 8), whole="w")
    whole = grouping([soft])
    plan = GroupingSolution((0, 1), ((1, 1, 1, 2),))
    assert "y cannot be cut along W" in str(whole.check(stacked(whole, plan)))
    strict = whole.replace(slicing="n-then-h")
    assert "only N and H may be cut" in str(strict.check(stacked(strict, plan)))
    lone = grouping(
        [Operator(name="t", kind=OperatorKind.OTHER, inputs=("x",), shape=(1, 8, 8, 8))]
    )
    assert "t can only run from global memory" in str(
        lone.check(GroupingSolution((0, 1), ((1, 1, 1, 1),), offsets=((),)))
    )


def _short_of_a_row(*given: Any) -> tuple[int, int]:
    start, length = reads(*given)
    return start, length - (given[2] == H and length > 4)


def _half(size: int, parts: int) -> list[tuple[int, int]]:
    return [(0, size // parts // 2)] * parts


def _forgotten(table: Timetable) -> tuple[Buffer, ...]:
    """Return buffers that nobody needs once the last operator has begun."""
    last = 2 * table.rows - 2
    return tuple(replace(b, last=max(b.first, min(b.last, last))) for b in LIVES.func(table))


LIVES = Timetable.__dict__["buffers"]
WRITERS: list[tuple[Any, str, Any]] = [
    (regions, "reads", _short_of_a_row),
    (regions, "dealt", _half),
    (Timetable, "buffers", property(_forgotten)),
    (lmem, "in_place", lambda table: tuple(combinations(range(len(copies(table))), 2))),
]
"""What plans are written with, and something in its place that is wrong."""


@pytest.mark.parametrize(("where", "name", "wrong"), WRITERS)
def test_what_plans_are_written_with_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, whole: LayerGrouping, where: Any, name: str, wrong: Any
) -> None:
    plan = GroupingSolution((0, 3), ((1, 1, 2, 1),))

    def written() -> GroupingSolution:
        status, offsets = place(plan.timetable(whole, 0), lambda: True)
        assert status is sp.Status.FEASIBLE
        return replace(plan, offsets=(offsets,))

    assert whole.check(written()) == ()
    cycles = whole.evaluate(plan)
    monkeypatch.setattr(where, name, wrong)
    broken = whole.check(written())
    assert broken
    assert {violation.rule for violation in broken} <= {"memory", "collision"}
    assert whole.evaluate(plan) == cycles


def test_h_is_cut_only_where_n_is_one() -> None:
    batch = LayerGrouping.from_arrays(
        [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=(4, 8, 8, 8))],
        [sp.Source(name="x", shape=(4, 8, 8, 8))],
        chip=CHIP,
    )
    found = batch.check(stacked(batch, GroupingSolution((0, 1), ((2, 1, 2, 1),))))
    assert "H is cut before N is down to one" in str(found)
    assert batch.check(stacked(batch, GroupingSolution((0, 1), ((4, 1, 2, 1),)))) == ()


def test_groups_may_be_sets_in_any_order() -> None:
    whole = grouping(
        [conv("a", "x", 8, 8), conv("b", "x", 8, 8), add("s", "a", "b", channels=8, rows=8)]
    )
    plan = GroupingSolution((0, 1, 3), ((1, 1, 1, 1), (1, 1, 1, 1)), order=(1, 0, 2))
    free, inside = whole.replace(order="free"), replace(plan, boundaries=(0, 2, 3))
    assert free.check(stacked(free, plan)) == ()
    found = whole.check(stacked(whole, plan))
    assert "b runs before a, given after it; order: free?" in str(found)
    assert "group 0: b runs before a, given after it" in str(free.check(stacked(free, inside)))


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ([], "no operators"),
        ([conv("a", "z", 8, 8)], "nobody writes 'z'"),
        ([conv("a", "x", 8, 8), conv("a", "x", 8, 8)], "'a' comes twice"),
        ([conv("x", "x", 8, 8)], "'x' comes twice"),
        ([conv("a", "b", 8, 8), conv("b", "a", 8, 8)], "in a circle: "),
        ([conv("a", "x", 8, 9)], "does not follow from"),
        ([conv("a", "x", 8, 8, groups=3)], "3 groups do not divide"),
        ([add("s", "x", channels=8, rows=9)], "do not make"),
    ],
)
def test_networks_that_are_none(operators: list[Operator], words: str) -> None:
    with pytest.raises(InputError, match=words):
        grouping(operators)


def test_operators_are_sorted() -> None:
    whole = grouping([conv("b", "a", 8, 8), conv("a", "x", 8, 8)])
    assert [operator.name for operator in whole.operators] == ["a", "b"]


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("boundaries", (0, "3")),
        ("boundaries", [0, 3]),
        ("slices", (1, 1, 1, 1)),
        ("slices", ((1, 1, 2.5, 1),)),
        ("order", (0, None, 2)),
        ("positions", ((0, "1"),)),
        ("spills", ((1, 2, 3),)),
        ("spills", (((1, 2, "3"),),)),
        ("offsets", ((0, None),)),
        ("offsets", ({0: 1},)),
    ],
)
def test_what_holds_anything_but_integers_is_named(
    whole: LayerGrouping, plan: GroupingSolution, field: str, odd: Any
) -> None:
    broken = replace(plan, **{field: odd})
    for ask in (whole.check, whole.evaluate):
        with pytest.raises(InputError, match=rf"^solution\.{field}: "):
            ask(broken)


def test_a_spill_of_two_numbers_and_slices_beyond_all_limits(
    whole: LayerGrouping, plan: GroupingSolution
) -> None:
    """Named, in no time and with no more memory than any other plan."""
    spills: Any = (((1, 2),),)
    short = replace(plan, spills=spills)
    assert [violation.rule for violation in whole.check(short)] == ["spills"]
    many = replace(plan, slices=((1, 1, 2**60, 1),) * plan.groups)
    assert [violation.rule for violation in whole.check(many)] == ["slices"]


@st.composite
def places(draw: Any) -> tuple[list[Place], list[int], int]:
    """Return places in a circle or on a line, at any addresses."""
    period = draw(st.sampled_from([0, 5]))
    found = []
    for at in range(draw(st.integers(0, 7))):
        start = draw(st.integers(0, 4))
        rows = draw(st.integers(1, period or 6))
        found.append(Place(f"b{at}", draw(st.integers(0, 4)), start, rows))
    return found, draw(st.lists(st.integers(0, 9), min_size=7, max_size=7)), period


@given(places())
def test_what_lies_over_one_another_is_what_a_look_at_every_row_finds(
    drawn: tuple[list[Place], list[int], int],
) -> None:
    taken, offsets, period = drawn

    def alive(place: Place, row: int) -> bool:
        return (row - place.start) % (period or 99) < place.rows

    seen: dict[tuple[int, int], int] = {}
    for row in range(period or 11):
        for pair in combinations(range(len(taken)), 2):
            one, other = (taken[at] for at in pair)
            low, high = (offsets[at] for at in pair)
            filled = one.nbytes and other.nbytes
            apart = low >= high + other.nbytes or high >= low + one.nbytes
            if alive(one, row) and alive(other, row) and filled and not apart:
                seen.setdefault(pair, row)
    found: dict[tuple[int, int], int] = {}
    for at, beside, row in _overlaps(taken, offsets, period):
        found.setdefault((min(at, beside), max(at, beside)), row)
    assert found == seen
