"""Rows, cycles and lifetimes of groups, by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.operators import compute_cycles
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Spill, Timetable
from tests.instances.groups.networks import CHIP, add, block, conv, grouping, networks


def table(whole: LayerGrouping, **cut: int) -> Timetable:
    """Return the rows of all operators."""
    return Timetable(Regions(whole, range(whole.n), Cut(**cut)))


def lifetimes(found: Timetable) -> dict[str, tuple[int, int]]:
    return {buffer.name: (buffer.first, buffer.last) for buffer in found.buffers}


def test_a_group_in_one_slice() -> None:
    # Rows 0 to 2 are of stage 0 (loads), 3 to 5 of stage 1 (a, b, s), 6 to 8 of stage 2 (stores).
    found = table(block())
    assert lifetimes(found) == {
        "x": (2, 5),  # loaded before a, read by a and by s
        "a.w0": (2, 3),
        "b.w0": (3, 4),  # loaded while a runs
        "a": (3, 4),
        "b": (4, 5),
        "s": (5, 6),  # stored in the row after
    }
    assert found.period == 0
    assert [move.resident for move in found.moves] == [False] * 4


def test_weights_stay_where_there_are_slices() -> None:
    found = table(block(), h=2)
    assert found.period == 3
    assert {b.name for b in found.buffers if b.resident} == {"a.w0", "b.w0"}
    # x is alive for four rows of a turn of three: there are two at once, all the time.
    turns = {buffer.name: found.turns(buffer) for buffer in found.buffers}
    assert turns["x"] == (2, 0)
    assert turns["a.w0"] == (1, 0)
    assert turns["s"] == (0, 2)
    assert sum(copy.name.startswith("x#") for copy in copies(found)) == 2


def test_cycles_of_a_group_in_one_slice() -> None:
    found = table(block())
    # Two lanes' worth of channels (8 on 4), 9 taps, 2 * 4 input channels, 64 pixels by twos.
    assert found.compute == (3 + 2 * 9 * 2 * 32, 3 + 2 * 9 * 2 * 32, 3 + 2 * 4)
    assert [move.cycles for move in found.moves] == [
        10 + 8 * 64 // 4,  # x
        10 + 8 * 72 // 4,  # weights of a, 8 channels of 8 * 9 values
        10 + 8 * 72 // 4,
        12 + 8 * 64 // 2,  # s
    ]
    load, first, second, store = 138 + 154, 1155, 1155, 268
    # Weights of b hide beside a; the sum has its row to itself, loads and stores have theirs.
    assert found.cycles == load + first + second + 11 + store


def test_cycles_of_a_group_in_four_slices() -> None:
    found = table(block(), h=4)
    # Slices write 2 rows of s, 2 of b, 4 of a at most, and read 6 of x.
    assert found.compute == (3 + 2 * 9 * 2 * 16, 3 + 2 * 9 * 2 * 8, 3 + 2 * 1)
    x, weights, store = 10 + 8 * 6 * 8 // 4, 154, 12 + 8 * 2 * 8 // 2
    assert [move.cycles for move in found.moves] == [x, weights, weights, store]
    a, b, s = found.compute
    first = x + weights  # iteration 0 loads x of the first slice and the weights of a
    kernel = max(a, store) + b + max(s, x)
    # Iteration 1: stores nothing yet, the weights of b hide beside a.
    filling = [first, a + b + max(s, x), kernel]
    draining = [max(a, store) + b + s, store]
    assert found.cycles == sum(filling) + 1 * kernel + sum(draining)


@given(networks(most=4, max_slices=9), st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_the_formula_counts_iteration_by_iteration(whole: LayerGrouping, parts: int) -> None:
    found = table(whole, h=parts)
    if any(whole.tensors[t].shape[3] < parts for t in found.regions.stored):
        return
    total = 0
    for iteration in range(parts + 2):  # three stages, each with its slice
        running = [stage for stage in range(3) if 0 <= iteration - stage < parts]
        first = iteration if iteration in running and iteration < 3 else -1
        total += found.iteration(running, first=first)
    assert found.cycles == total


def test_cores_take_slices_by_turns() -> None:
    one = block()
    two = one.replace(chip=_with_cores(one, 2))
    assert table(two, h=4).rounds == 2
    assert table(two, h=4).cycles < table(one, h=4).cycles


# kind, fields, rate, sources, shape of the part -> cycles; the chip has 4 lanes, startup 3
RATES: list[tuple[str, dict[str, Any], float, list[int], tuple[int, ...], int]] = [
    # 8 channels on 4 lanes; 16 pixels of 9 taps on 6 channels are 864 a plane
    ("conv", {"kernel": (3, 3)}, 10, [6], (1, 8, 1, 4, 4), 3 + 2 * 87),
    ("conv", {"kernel": (3, 3), "dtype_bytes": 2}, 10, [6], (1, 8, 1, 4, 4), 3 + 2 * 173),
    ("conv", {"kernel": (3, 3), "groups": 8}, 10, [8], (1, 8, 1, 4, 4), 3 + 2 * 15),
    ("pool", {"kernel": (2, 2)}, 2.5, [8], (1, 8, 1, 2, 3), 3 + 2 * 10),
    ("rows", {"passes": 3}, 0.25, [8], (2, 4, 1, 1, 5), 3 + 2 * 60),
    ("global-pool", {}, 4, [8], (1, 8, 1, 1, 1), 3 + 2 * 25),  # 10 rows of 10 columns
    ("matmul", {}, 5, [1, 1], (1, 1, 1, 8, 7), 3 + 2 * 14),  # rows to lanes, 7 columns of 10
    ("elementwise", {"cycles": 80}, 1, [8], (1, 8, 1, 5, 5), 3 + 40),  # its own go first
]


@pytest.mark.parametrize(("kind", "fields", "rate", "sources", "part", "cycles"), RATES)
def test_a_table_of_rates_goes_before_the_model(
    kind: str,
    fields: dict[str, Any],
    rate: float,
    sources: list[int],
    part: tuple[int, int, int, int, int],
    cycles: int,
) -> None:
    made = Operator(name="y", kind=OperatorKind(kind), inputs=("x",), shape=(1, 8, 5, 10), **fields)
    read = tuple((1, channels, 1, 10, 10) for channels in sources)
    rated = msgspec.structs.replace(CHIP, rates={OperatorKind(kind): rate})
    assert compute_cycles(made, read, part, rated) == cycles
    others = msgspec.structs.replace(CHIP, rates={OperatorKind.DECONV: rate})
    assert compute_cycles(made, read, part, others) == compute_cycles(made, read, part, CHIP)


def _with_cores(whole: LayerGrouping, cores: int) -> object:
    from msgspec.structs import replace

    return replace(whole.chip, cores=cores)


def test_a_sum_takes_the_place_of_what_dies_with_it() -> None:
    found = table(block())
    names = [copy.name for copy in copies(found)]
    assert [(names[one], names[other]) for one, other in in_place(found)] == [("b", "s")]


def test_nothing_is_written_over_what_is_read_again() -> None:
    # A value of the first input is read for a whole plane, or has fewer bytes than what is written.
    spread = Operator(name="g", kind=OperatorKind.GLOBAL_POOL, inputs=("x",), shape=(1, 8, 1, 1))
    wide = add("s", "g", "x", channels=8, rows=4)
    assert in_place(table(grouping([spread, wide], rows=4))) == ()
    first = msgspec.structs.replace(conv("a", "x", 8, 2), dtype_bytes=1)
    longer = msgspec.structs.replace(add("s", "a", channels=8, rows=2), dtype_bytes=2)
    assert in_place(table(grouping([first, longer], rows=2))) == ()


@pytest.mark.parametrize("h", [1, 4])
def test_what_is_spilled_lives_twice(h: int) -> None:
    regions = Regions(block(), (0, 1, 2), Cut(h=h))
    found = Timetable(regions, spills=[Spill(tensor=3, store=3, load=4)])
    assert {name: span for name, span in lifetimes(found).items() if name[0] == "x"} == {
        "x": (2, 3),
        "x'": (4, 5),
    }
    plain = Timetable(regions)
    x, back = next(m.cycles for m in plain.moves if m.name == "x"), found.transfers
    assert back[4] - plain.transfers[4] == x
    assert back[3] > plain.transfers[3]
