"""Addresses by the seed's rule beside those of the exact search."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

import stagepack as sp
from stagepack.heuristics.groups.placement import RULE, place, place_apart, place_by_rule
from stagepack.heuristics.groups.seed_order import place_in_order
from stagepack.heuristics.packing.constructive import greedy
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.banks import bank_pairs, group_conflicts, group_crossings
from stagepack.instances.groups.lmem import copies, packing
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from tests.instances.groups.networks import CHIP, block, networks


def yes() -> bool:
    return True


def peak(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return the bytes of a lane that are in use."""
    tops = zip(copies(table), offsets, strict=True)
    return max(offset + copy.buffer.lane_bytes for copy, offset in tops)


def test_the_rule_takes_more_room_than_it_must() -> None:
    """Longest first, then largest (TPU-MLIR): never below the optimum, above it in some groups."""
    whole = sp.load("groups/inception-v1", chip="cv184x")
    plan = sp.solve(whole, method="dp", time_limit=None).solution
    assert plan is not None
    wasted = []
    for _, table in plan.timetables(whole):
        if table is None:
            continue
        offsets = place_by_rule(table, yes)
        assert offsets is not None
        least = sp.solve(packing(table).replace(objective="peak", capacity=None), method="exact")
        assert least.status is sp.Status.OPTIMAL
        assert least.objective is not None
        wasted.append(peak(table, offsets) - least.objective)
    assert min(wasted) == 0
    assert max(wasted) > 0


def test_minding_banks_keeps_most_pairs_apart() -> None:
    whole = sp.load("groups/resnet50", chip="bm1688")
    plan = sp.solve(whole, method="greedy-tail").solution
    assert plan is not None
    for _, table in plan.timetables(whole):
        if table is not None:
            apart, near = place_apart(table, bank_pairs(table), yes), place_by_rule(table, yes)
            assert apart is not None
            assert near is not None
            assert peak(table, apart) <= whole.chip.memory
            assert 4 * group_conflicts(table, apart) <= group_conflicts(table, near)


def test_groups_of_one_slice_are_placed_without_kernels_of_their_own() -> None:
    """Blocks of one piece that may lie anywhere go by the kernel that takes those of any shape."""
    whole = sp.load("groups/zfnet512", chip="generic", max_slices=1)
    plan = sp.solve(whole, method="dp", time_limit=None).solution
    assert plan is not None
    tables = [table for _, table in plan.timetables(whole) if table is not None]
    assert any(not table.period and greedy.whole(Blocks.of(packing(table))) for table in tables)
    for table in tables:
        blocks = Blocks.of(packing(table))
        expected = greedy.place(blocks, RULE, ceiling=whole.chip.memory)
        assert expected is not None
        assert place_by_rule(table, yes) == tuple(blocks.expand(expected).tolist())


def test_the_seed_order_by_hand() -> None:
    """Longest first, then largest, each within a bank of 256 bytes where it fits in one."""
    chip = structs.replace(CHIP, memory=1024, banks=4)
    table = GroupingSolution((0, 3), ((1, 1, 1, 1),)).timetable(block(chip=chip), 0)
    sizes = {copy.name: (copy.rows, copy.buffer.lane_bytes) for copy in copies(table)}
    assert sizes == {
        "x": (4, 128), "a.w0": (2, 160), "b.w0": (2, 160), "a": (2, 128), "b": (2, 128),
        "s": (2, 128),
    }  # fmt: skip
    status, offsets = place_in_order(table, yes)
    assert status is Status.FEASIBLE
    assert dict(zip(sizes, offsets, strict=True)) == {
        "x": 0,
        "a.w0": 256,  # at 128 it would cross a bank
        "b.w0": 512,
        "a": 128,
        "b": 256,  # the weights of a are gone
        "s": 128,  # nothing is written over b, which it reads
    }
    assert group_crossings(table, offsets) == 0
    assert group_crossings(table, (0, 128, 512, 128, 256, 128)) == 1


def test_the_seed_order_asks_at_every_buffer() -> None:
    whole = block()
    table = GroupingSolution((0, whole.n), ((1, 1, 1, 1),)).timetable(whole, 0)
    asked = iter([True, True, False])
    assert place_in_order(table, lambda: next(asked)) == (Status.UNKNOWN, ())


@given(networks(max_slices=4), st.integers(1, 4), st.integers(8, 60))
@settings(max_examples=60, deadline=None)
def test_what_the_seed_order_places_is_right(whole: LayerGrouping, parts: int, units: int) -> None:
    whole = whole.replace(chip=structs.replace(whole.chip, memory=64 * units))
    plan = GroupingSolution((0, whole.n), ((1, 1, parts, 1),))
    assume({broken.rule for broken in whole.check(plan)} == {"memory"})
    status, offsets = place_in_order(plan.timetable(whole, 0), yes)
    if status is Status.FEASIBLE:
        assert whole.check(replace(plan, offsets=(offsets,))) == ()
        assert place(plan.timetable(whole, 0), yes)[0] is Status.FEASIBLE
