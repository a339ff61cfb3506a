"""Transfers that move to rows where they hide."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import stagepack as sp
from stagepack.heuristics.groups.moving import hidden, settled
from stagepack.heuristics.groups.network import cuts
from stagepack.heuristics.groups.placement import place_by_rule
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Timetable
from tests.instances.groups.networks import CHIP, block, networks


def yes() -> bool:
    return True


@given(
    networks(most=6, max_slices=6),
    st.integers(10, 300),
    st.sampled_from([1.0, 0.5, 0.0]),
    st.sampled_from([1, 2]),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_what_is_settled_is_a_plan_and_no_slower_than_the_rule(
    network: LayerGrouping, units: int, overlap: float, cores: int, data: st.DataObject
) -> None:
    chip = replace(network.chip, memory=16 * units, overlap=overlap, cores=cores)
    whole = network.replace(chip=chip, timesteps="free")
    cut = data.draw(st.sampled_from(list(cuts(whole))))
    plan = GroupingSolution((0, whole.n), (tuple(cut),))
    if {violation.rule for violation in whole.check(plan)} != {"memory"}:
        return
    table = Timetable(Regions(whole, range(whole.n), cut))
    found = settled(table, yes)
    if found is None:
        assert place_by_rule(table, yes) is None
        return
    best, offsets = found
    assert whole.check(plan.with_group(0, best.positions, (), offsets)) == ()
    if place_by_rule(table, yes) is not None:
        assert best.cycles <= table.cycles


@given(networks(most=6, max_slices=6), st.integers(0, 100), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_that_are_full_get_no_fuller(
    network: LayerGrouping, percent: int, data: st.DataObject
) -> None:
    """But where operators write over what they read: those bytes count once."""
    plain = [replace(operator, in_place=False) for operator in network.operators]
    whole = network.replace(operators=plain, timesteps="free")
    cut = data.draw(st.sampled_from(list(cuts(whole))))
    if whole.check(GroupingSolution((0, whole.n), (tuple(cut),)))[0].rule != "memory":
        return
    table = Timetable(Regions(whole, range(whole.n), cut))
    before = table.load_bytes()
    capacity = max(before) * percent // 100
    after = Timetable(table.regions, hidden(table, capacity, yes)).load_bytes()
    assert all(new <= max(old, capacity) for old, new in zip(before, after, strict=True))


def test_what_is_written_over_is_found_behind_buffers_that_are_there_twice() -> None:
    table = Timetable(Regions(block(), range(3), Cut(h=4)))
    assert len(copies(table)) > len(table.buffers)
    assert max(after for _, after in in_place(table)) >= len(table.buffers)
    assert len(hidden(table, CHIP.memory, yes)) == len(table.moves)


def test_transfers_of_squeezenet_hide_as_far_as_they_can() -> None:
    """As one group on the BM1684X; CP-SAT takes seconds to find as good rows and proves them."""
    whole = sp.load("groups/squeezenet", chip="bm1684x", timesteps="free")
    assert isinstance(whole, LayerGrouping)
    plan = sp.solve(whole, method="dp").solution
    assert isinstance(plan, GroupingSolution)
    ((_, table),) = [pair for pair in plan.timetables(whole) if pair[1] is not None]
    assert table is not None
    found = settled(table, yes)
    assert found is not None
    assert (table.cycles, found[0].cycles) == (100_438, 71_959)
