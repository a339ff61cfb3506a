"""Addresses by the seed's rule beside those of the exact search."""

from __future__ import annotations

import stagepack as sp
from stagepack.heuristics.groups.placement import RULE, place_apart, place_by_rule
from stagepack.heuristics.packing.constructive import greedy
from stagepack.instances.groups.banks import group_conflicts
from stagepack.instances.groups.lmem import copies, packing
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing.blocks import Blocks


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
    for group, table in plan.timetables(whole):
        if table is not None:
            apart = place_apart(table, yes)
            assert apart is not None
            assert peak(table, apart) <= whole.chip.memory
            assert 4 * group_conflicts(table, apart) <= group_conflicts(table, plan.offsets[group])


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
