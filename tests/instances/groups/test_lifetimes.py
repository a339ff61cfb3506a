"""The seed's example, two convolutions and a sum: who is alive in which timesteps.

Of its picture the text keeps this: a convolution runs at T2; the weight w4 of what runs at T5 is
alive in [T5, T5] at first, and in [T2, T5] once it is loaded beside that convolution; something is
alive in [T2, T7], which is what the first convolution writes if the sum runs at T7.  There
transfers have timesteps of their own, here they stand beside compute: T2, T5 and T7 are the three
rows of compute, 3, 4 and 5.
"""

from __future__ import annotations

import msgspec
import pytest

from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.execution.program import group_program
from stagepack.instances.groups.lmem import copies
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Timetable
from tests.instances.groups.networks import CHIP, add, conv, grouping, stacked

ROOM = msgspec.structs.replace(CHIP, memory=2**20)
SEED = {3: 2, 4: 5, 5: 7}
"""Rows of compute here, and in the seed."""


def example() -> LayerGrouping:
    """Return the seed's operators: w2 is a weight of the first convolution, w4 of the second."""
    operators = [
        conv("a", "x", 8, 8, buffer=64),
        conv("b", "a", 8, 8),
        add("s", "b", "a", channels=8, rows=8),
    ]
    return grouping(operators, chip=ROOM)


def lifetimes(table: Timetable) -> dict[str, tuple[int, int]]:
    """Return the first and the last position of every buffer."""
    return {buffer.name: (buffer.first, buffer.last) for buffer in table.buffers}


def test_unsliced() -> None:
    whole = example()
    found = lifetimes(Timetable(Regions(whole, range(3), Cut())))
    assert found == {
        "x": (2, 3),  # freed after its last reader
        "a.w0": (2, 3),  # freed after use
        "a.buffer": (3, 3),  # for the operation alone
        "a": (3, 5),
        "b.w0": (3, 4),
        "b": (4, 5),
        "s": (5, 6),  # until it is stored
    }
    told = {name: tuple(SEED.get(row) for row in span) for name, span in found.items()}
    assert told["a"] == (2, 7)
    assert told["b.w0"] == (2, 5)  # w4, corrected: its load runs beside the first convolution
    assert told["a.buffer"] == (2, 2)


def test_a_weight_cannot_be_loaded_in_the_row_of_its_convolution() -> None:
    # [T5, T5]: both would have to run one after the other within a row.
    whole = example()
    plan = stacked(whole, GroupingSolution((0, 3), ((1, 1, 1, 1),), positions=((2, 2, 4, 6),)))
    assert "b.w0 is loaded in row 4, read in 4" in str(whole.check(plan))


def test_a_load_that_moves_earlier_lives_longer() -> None:
    operators = [
        conv("a", "x", 8, 8),
        add("s", "a", "x", channels=8, rows=8),
        conv("b", "s", 8, 8),
    ]
    regions = Regions(grouping(operators, chip=ROOM), range(3), Cut())
    late, early = Timetable(regions), Timetable(regions, positions=(2, 2, 2, 6))
    beside = Timetable(regions, positions=(2, 2, 3, 6))
    weight = late.moves[2]
    assert weight.name == "b.w0"
    # The convolution is at T5 here, too; as a weight's own period is [T5, T5] before its load, it
    # begins a row before by the rule, and where its load is, wherever that moves.
    assert [lifetimes(each)["b.w0"] for each in (late, beside, early)] == [(4, 5), (3, 5), (2, 5)]
    # Beside the short sum it is not hidden, beside the convolution it is, before it it is not.
    assert late.compute[1] < weight.cycles < late.compute[0]
    assert beside.cycles == late.cycles - (weight.cycles - late.compute[1])
    assert early.cycles == beside.cycles + weight.cycles


@pytest.mark.parametrize("slices", [2, 4])
def test_sliced(slices: int) -> None:
    whole = example()
    plain = Timetable(Regions(whole, range(3), Cut()))
    table = Timetable(Regions(whole, range(3), Cut(h=slices)))
    weights = {"a.w0", "b.w0"}
    assert {buffer.name for buffer in table.buffers if buffer.resident} == weights
    assert lifetimes(table) == lifetimes(plain)  # of a slice; a turn has three rows
    for copy in copies(table):
        alive = {row for row in range(3) if copy.alive(row, 3)}
        first, last = lifetimes(table)[copy.buffer.name]
        if copy.buffer.name in weights:
            assert alive == {0, 1, 2}  # to the end: no slice loads them again
        else:
            assert alive == {row % 3 for row in range(first, last + 1)}


@pytest.mark.parametrize("slices", [1, 2, 4])
def test_programs_use_what_is_alive(slices: int) -> None:
    """Blocks of every slice are written and read last when their lifetimes say."""
    whole = example()
    plan = stacked(whole, GroupingSolution((0, 3), ((1, 1, slices, 1),)))
    table = plan.timetable(whole, 0)
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    for op in group_program(whole, plan)["instructions"]:
        which = op["slice"]
        now = 3 * (op["iteration"] - which) + op["row"]
        held = op.get("tensor") or op["operator"] + (".w0" if "weight" in op else "")
        if op["op"] != "store":
            first[held, which] = now
        for name in (*op.get("reads", ()), *([held] if op["op"] == "store" else [])):
            last[name, which] = now
        if op.get("weights"):
            last[f"{held}.w0", which] = now
    known = lifetimes(table)
    for which in range(slices):
        own = {name: (first[name, which], last[name, which]) for name in ("x", "a", "b", "s")}
        assert own == {name: known[name] for name in own}
    for name in ("a.w0", "b.w0"):
        assert (first[name, 0], last[name, 0]) == known[name]
        assert [which for held, which in first if held == name] == [0]
        assert last[name, slices - 1] == known[name][1]
