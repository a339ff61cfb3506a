"""What a group takes at least, against random timetables."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagepack.heuristics.groups.bounds import least_cycles
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import STAGES, Spill, Timetable
from tests.instances.groups.networks import block, networks


@given(networks(most=5), st.integers(1, 5), st.sampled_from([1.0, 0.5]), st.data())
@settings(max_examples=80, deadline=None)
def test_no_timetable_takes_less(
    network: LayerGrouping, parts: int, overlap: float, data: st.DataObject
) -> None:
    whole = network.replace(chip=replace(network.chip, overlap=overlap))
    regions = Regions(whole, range(whole.n), Cut(h=parts))
    assume(all(whole.tensors[t].shape[3] >= parts for t in regions.stored))
    base = Timetable(regions)
    rows = base.rows
    positions = [
        data.draw(
            st.integers(0, rows + move.operator - 1)
            if move.load
            else st.integers(rows + move.operator + 1, STAGES * rows - 1)
        )
        for move in base.moves
    ]
    spills = [Spill(0, rows, rows + 1)] if data.draw(st.booleans()) else []
    assert least_cycles(base) <= Timetable(regions, positions, spills).cycles


def test_by_hand() -> None:
    """In one slice: x and the weights of a come before all compute, s is stored after it."""
    base = Timetable(Regions(block(), (0, 1, 2), Cut()))
    x, first, second, store = (move.cycles for move in base.moves)
    assert second < base.compute[0]  # the weights of b can hide
    assert least_cycles(base) == x + first + sum(base.compute) + store == base.cycles
