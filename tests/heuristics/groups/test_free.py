"""What cuts take at least with free timesteps, against the model of a group."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagepack.formulations.groups import CpSat
from stagepack.heuristics.groups.free import FreeOracle
from stagepack.heuristics.groups.oracle import NONE
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import STAGES, Spill, Timetable
from tests.formulations.engines import solve
from tests.instances.groups.networks import block, networks


def floors(whole: LayerGrouping, members: range) -> list[int]:
    """Return what some operators take at least, in every cut."""
    oracle = FreeOracle(whole)
    steps = np.zeros((len(members), 4), np.int64)
    steps[:, 0], steps[:, 1], steps[-1, 3] = members[::-1], np.arange(len(members)), 1
    found = oracle.floors(steps, np.full(len(members), NONE))[-1]
    return [int(cycles) for cycles in found]


@given(
    networks(most=3, max_slices=4),
    st.integers(10, 120),
    st.sampled_from([1.0, 0.5]),
    st.sampled_from([1, 2]),
)
@settings(max_examples=12, deadline=None)
def test_the_model_of_a_group_never_takes_less(
    network: LayerGrouping, units: int, overlap: float, cores: int
) -> None:
    chip = replace(network.chip, memory=16 * units, overlap=overlap, cores=cores)
    whole = network.replace(chip=chip)
    for cut, least in zip(FreeOracle(whole).cuts, floors(whole, range(whole.n)), strict=True):
        plan = GroupingSolution((0, whole.n), (tuple(cut),))
        if {violation.rule for violation in whole.check(plan)} != {"memory"}:
            assert least == NONE
            continue
        model = CpSat(whole, plan, 0)
        answer = None if model.infeasible else solve(model)
        if answer is not None and answer.values is not None:
            assert least <= whole.evaluate(model.decode(answer.values))


@given(networks(most=5, max_slices=5), st.sampled_from([1.0, 0.5]), st.data())
@settings(max_examples=40, deadline=None)
def test_no_timetable_takes_less(
    network: LayerGrouping, overlap: float, data: st.DataObject
) -> None:
    whole = network.replace(chip=replace(network.chip, overlap=overlap, memory=2**20))
    oracle = FreeOracle(whole)
    which = data.draw(st.sampled_from(range(len(oracle.cuts))))
    least = floors(whole, range(whole.n))[which]
    regions = Regions(whole, range(whole.n), Cut(*oracle.cuts[which]))
    assume(least < NONE)
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
    assert least <= Timetable(regions, positions, spills).cycles


def test_by_hand() -> None:
    """In one slice: x and the weights of a come before all compute, s is stored after it."""
    whole = block()
    base = Timetable(Regions(whole, (0, 1, 2), Cut()))
    x, first, second, store = (move.cycles for move in base.moves)
    assert second < base.compute[0]  # the weights of b can hide
    assert floors(whole, range(3))[0] == x + first + sum(base.compute) + store == base.cycles
