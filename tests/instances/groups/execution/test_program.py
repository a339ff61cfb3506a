"""A program of groups that lacks anything, or mixes anything up, is found out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.groups import (
    GroupingSolution,
    LayerGrouping,
    Operator,
    OperatorKind,
    Weight,
)
from stagepack.instances.groups.chip import aligned
from stagepack.instances.groups.execution.execute import check_group_program, tiled
from stagepack.instances.groups.execution.program import group_program
from stagepack.instances.groups.lmem import copies
from tests.instances.groups.networks import CHIP, add, block, conv, grouping, networks, stacked

ROOM = msgspec.structs.replace(CHIP, memory=2**20)


def sliced() -> tuple[LayerGrouping, GroupingSolution]:
    """Return a block in four slices, whose input leaves local memory for a while."""
    whole = block(rows=16, chip=ROOM)
    plan = GroupingSolution(
        (0, 3), ((1, 1, 4, 1),), positions=((1, 2, 3, 8),), spills=(((3, 3, 4),),)
    )
    return whole, stacked(whole, plan)


def mixed() -> tuple[LayerGrouping, GroupingSolution]:
    """Return three groups on two cores: in slices, from global memory, in one slice."""
    operators = [
        conv("a", "x", 8, 8),
        Operator(name="t", kind=OperatorKind.OTHER, inputs=("a",), shape=(1, 8, 8, 8)),
        conv("b", "t", 8, 8, buffer=64),
        add("s", "b", "a", channels=8, rows=8),
    ]
    whole = grouping(operators, chip=msgspec.structs.replace(ROOM, cores=2), outputs=["b"])
    plan = GroupingSolution((0, 1, 2, 4), ((1, 1, 3, 1), (), (1, 1, 1, 1)))
    return whole, stacked(whole, plan)


PLANS = [sliced, mixed]


def broken(whole: LayerGrouping, program: JsonObject) -> set[str]:
    """Return the names of the rules that a program breaks."""
    return {violation.rule for violation in check_group_program(whole, program)[0]}


@pytest.mark.parametrize("made", PLANS)
def test_programs_are_json_and_run(made: Callable[[], Any]) -> None:
    whole, plan = made()
    program = json.loads(json.dumps(group_program(whole, plan)))
    assert check_group_program(whole, program) == ((), whole.evaluate(plan))


def test_a_program_by_hand() -> None:
    whole = block(rows=8, chip=ROOM)
    program = group_program(whole, stacked(whole, GroupingSolution((0, 3), ((1, 1, 2, 1),))))
    assert program["groups"] == [{"operators": ["a", "b", "s"], "slices": [1, 1, 2, 1]}]
    first, second = ([op for op in program["instructions"] if op["slice"] == at] for at in (0, 1))
    told = [
        (op["iteration"], op["row"], op["op"], op.get("tensor") or op["operator"]) for op in first
    ]
    assert told == [
        (0, 2, "load", "x"),
        (0, 2, "load", "a"),  # its weight
        (1, 0, "load", "b"),
        (1, 0, "compute", "a"),
        (1, 1, "compute", "b"),
        (1, 2, "compute", "s"),
        (2, 0, "store", "s"),
    ]
    rows = {op.get("tensor") or op["operator"]: op["ranges"][3] for op in first if "ranges" in op}
    assert rows == {"x": [0, 6], "a": [0, 5], "b": [0, 4], "s": [0, 4]}
    assert not any("weight" in op for op in second)  # they are there
    # x is alive for longer than a turn of three rows: each slice has its own place for it, of two
    # planes of 48 bytes.
    assert [op["address"] for op in (first[0], second[0])] == [0, 96]


def change(op: JsonObject, **fields: Any) -> JsonObject:
    """Return an instruction that says something else."""
    return {**op, **fields}


def shorter(op: JsonObject) -> JsonObject:
    """Return an instruction with one row less."""
    n, c, d, (first, end), w = op["ranges"]
    return change(op, ranges=[n, c, d, [first, end - 1], w])


@pytest.mark.parametrize("made", PLANS)
def test_every_instruction_matters(made: Callable[[], Any]) -> None:
    whole, plan = made()
    program = group_program(whole, plan)
    for at, op in enumerate(program["instructions"]):
        before, after = program["instructions"][:at], program["instructions"][at + 1 :]
        wrong = [[], [change(op, cycles=op["cycles"] - 1)]]
        if op["op"] != "spill":  # to the same place, with time to spare
            wrong.append([op, op])
        if "address" in op:
            wrong += [[change(op, address=op["address"] + CHIP.eu_bytes)]]
            wrong += [[change(op, address=2**20)], [change(op, address=op["address"] + 1)]]
            # A load a turn later, anything else a turn earlier: it comes too late, or too early.
            turn = 1 if op["op"] in ("load", "reload") else -1
            wrong.append([change(op, iteration=op["iteration"] + turn)])
        if "ranges" in op:
            wrong.append([shorter(op)])
        if "buffer" in op:
            wrong.append([change(op, buffer=op["address"])])
        for ops in wrong:
            assert broken(whole, {**program, "instructions": [*before, *ops, *after]}), ops


def moved(
    program: JsonObject, what: str, name: str, which: int | None = 0, **fields: Any
) -> JsonObject:
    """Return a program in which one instruction of a slice says something else."""
    changed = copy.deepcopy(program)
    for op in changed["instructions"]:
        told = op.get("tensor") or op["operator"]
        if (op["op"], told, op.get("slice")) == (what, name, which):
            op.update(fields)
            return changed
    raise AssertionError(f"no {what} of {name}")


def test_each_rule_is_broken_by_itself() -> None:
    whole, plan = sliced()
    program = group_program(whole, plan)
    address = {
        (op["op"], op.get("tensor") or op["operator"], op["slice"]): op["address"]
        for op in program["instructions"]
    }
    full = [[0, 1], [0, 8], [0, 1]]
    for rules, wrong in (
        # x of slice 1 over the weight of b, which stays for all slices
        ({"read"}, moved(program, "load", "x", 1, address=address["load", "b", 0])),
        # one row of the halo is not there
        ({"halo"}, moved(program, "load", "x", 1, ranges=[*full, [3, 10], [0, 16]])),
        # read in the row in which it is loaded
        ({"read"}, moved(program, "load", "x", 0, iteration=1, row=0)),
        # loaded before it is read, onto what is being read
        ({"collision", "read"}, moved(program, "load", "b", 0, address=address["load", "a", 0])),
        ({"output"}, moved(program, "store", "s", 2, ranges=[*full, [8, 11], [0, 16]])),
        ({"global"}, moved(program, "spill", "x", 1, ranges=[*full, [3, 10], [0, 16]])),
        ({"memory"}, moved(program, "load", "x", 0, address=-CHIP.eu_bytes)),
        ({"cycles"}, moved(program, "compute", "a", 3, cycles=1)),
    ):
        assert rules <= broken(whole, wrong), rules
    assert "in use" in str(
        check_group_program(whole, moved(program, "load", "b", 0, address=address["load", "a", 0]))
    )


def test_groups_in_another_order_are_found() -> None:
    whole, plan = mixed()
    program = group_program(whole, plan)
    assert {"global"} <= broken(whole, moved(program, "call", "t", None, group=3))
    swapped = copy.deepcopy(program)
    for op in swapped["instructions"]:
        op["group"] = 2 - op["group"]
    assert {"global"} <= broken(whole, swapped)
    crowded = copy.deepcopy(program)
    crowded["instructions"] += [change(op, core=2) for op in program["instructions"][:2]]
    assert {"memory"} <= broken(whole, crowded)


@pytest.mark.parametrize(
    "program",
    [
        {"program": "phases", "version": 1},
        {"program": "groups", "version": 2, "instructions": []},
        {"program": "groups", "version": 1},
        {"program": "groups", "version": 1, "instructions": [{"group": 0, "op": "finish"}]},
        {"program": "groups", "version": 1, "instructions": [{"group": 0, "op": "call"}]},
        {"program": "groups", "version": 1, "instructions": 5},
        {"program": "groups", "version": 1, "instructions": [{"group": 0.5, "op": "call"}]},
    ],
)
def test_what_is_no_program(program: JsonObject) -> None:
    with pytest.raises(InputError, match="program"):
        check_group_program(block(), program)


def test_programs_of_others_are_told() -> None:
    whole, plan = sliced()
    program = group_program(whole, plan)
    with pytest.raises(InputError, match="version 2 of programs"):
        check_group_program(whole, {**program, "version": 2})
    with pytest.raises(InputError, match="is missing, in the program or in") as caught:
        check_group_program(sp.load("groups/alexnet"), program)
    assert "of this instance" in caught.value.remedy


WRONG: list[Any] = [None, "?", 0.5, []]


@pytest.mark.parametrize("value", WRONG)
def test_fields_of_another_type_are_refused_or_found(value: Any) -> None:
    whole, plan = mixed()
    program = group_program(whole, plan)
    told = {(op["op"], "weight" in op): at for at, op in enumerate(program["instructions"])}
    for at in told.values():  # one of each
        op = program["instructions"][at]
        before, after = program["instructions"][:at], program["instructions"][at + 1 :]
        for key in set(op) - {"slice", "weights"}:
            changed = {**program, "instructions": [*before, {**op, key: value}, *after]}
            try:
                assert broken(whole, changed), (op, key)
            except InputError:
                continue


def test_weights_may_take_no_room() -> None:
    """What has no bytes in local memory lies where others lie, and minds nobody."""
    light = msgspec.structs.replace(
        conv("a", "x", 8, 8), weights=(Weight(channels=8, lane_bytes=0),)
    )
    whole = grouping([light, conv("b", "a", 8, 8)], chip=ROOM)
    plan = stacked(whole, GroupingSolution((0, 2), ((1, 1, 2, 1),)))
    assert len(set(plan.offsets[0])) < len(plan.offsets[0])
    assert whole.check(plan) == ()
    assert broken(whole, group_program(whole, plan)) == set()
    names = [copy.buffer.name for copy in copies(plan.timetable(whole, 0))]
    inside = list(plan.offsets[0])
    inside[names.index("a.w0")] = inside[names.index("x")] + CHIP.eu_bytes
    assert broken(whole, group_program(whole, replace(plan, offsets=(tuple(inside),)))) == set()


def test_a_program_needs_a_valid_plan() -> None:
    whole, plan = sliced()
    with pytest.raises(InputError, match="0 offsets for"):
        group_program(whole, replace(plan, offsets=()))


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([], (False, False)),
        ([((0, 4), (0, 3))], (True, False)),
        ([((0, 2), (0, 3)), ((2, 4), (0, 3))], (True, False)),
        ([((0, 2), (0, 3)), ((2, 4), (0, 2))], (False, False)),
        ([((0, 3), (0, 3)), ((2, 4), (0, 3))], (True, True)),
        ([((0, 3), (0, 1)), ((3, 4), (0, 2)), ((1, 4), (2, 3)), ((0, 1), (1, 3))], (False, False)),
    ],
)
def test_what_is_stored_is_all_and_nothing_twice(boxes: Any, expected: tuple[bool, bool]) -> None:
    assert tiled(boxes, (4, 3)) == expected


def tight(whole: LayerGrouping, plan: GroupingSolution) -> GroupingSolution:
    """Return a plan with every buffer at the lowest address that is free while it lives."""
    offsets = []
    for _, table in plan.timetables(whole):
        placed: list[tuple[int, int, frozenset[int]]] = []
        for lives in copies(table) if table is not None else ():
            assert table is not None
            rows = range(table.period or 3 * table.rows)
            when = frozenset(row for row in rows if lives.alive(row, table.period))
            at, size = 0, aligned(lives.buffer.lane_bytes, whole.chip.eu_bytes)
            for start, end, others in sorted(placed):
                if others & when and start < at + size and at < end:
                    at = end
            placed.append((at, at + size, when))
        offsets.append(tuple(start for start, _, _ in placed))
    return replace(plan, offsets=tuple(offsets))


@st.composite
def plans(draw: Any) -> tuple[LayerGrouping, GroupingSolution]:
    """Return a random network and a random plan of it, right or wrong, with tight addresses."""
    whole = draw(
        networks(most=4, chip=msgspec.structs.replace(ROOM, cores=draw(st.integers(1, 2))))
    )
    cuts = draw(st.sets(st.integers(1, whole.n), max_size=1))
    bounds = tuple(sorted({0, whole.n, *cuts}))
    slices = draw(
        st.sampled_from([(1, 1, 1, 1), (1, 1, 2, 1), (1, 1, 4, 1), (1, 1, 1, 3), (1, 1, 2, 2)])
    )
    plan = GroupingSolution(bounds, (slices,) * (len(bounds) - 1))
    if whole.rules.shape(whole, plan):
        return whole, plan
    positions, spills = [], []
    for _, table in plan.timetables(whole):
        assert table is not None
        place = st.integers(0, 3 * table.rows - 1)
        positions.append(
            tuple(
                draw(
                    st.integers(0, table.rows + move.operator - 1)
                    if move.load
                    else st.integers(table.rows + move.operator + 1, 3 * table.rows - 1)
                )
                for move in table.moves
            )
        )
        known = st.sampled_from([*table.operators, *table.regions.loaded])
        spills.append(tuple(draw(st.lists(st.tuples(known, place, place), max_size=1))))
    return whole, tight(whole, replace(plan, positions=tuple(positions), spills=tuple(spills)))


@given(plans())
@settings(max_examples=300, deadline=None)
def test_programs_of_random_plans_run(made: tuple[LayerGrouping, GroupingSolution]) -> None:
    whole, plan = made
    if whole.check(plan):
        return
    program = group_program(whole, plan)
    assert check_group_program(whole, program) == ((), whole.evaluate(plan))


@given(networks(most=6))
@settings(max_examples=40, deadline=None)
def test_programs_of_optimal_plans_run(whole: LayerGrouping) -> None:
    whole = whole.replace(chip=msgspec.structs.replace(CHIP, memory=1024))
    result = sp.solve(whole, method="dp")
    if result.solution is None:
        return
    program = group_program(whole, result)
    assert check_group_program(whole, program) == ((), result.objective)
