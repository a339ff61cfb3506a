"""What the checker plays by itself is what plans are written with."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.execution.replay import Replay
from stagepack.instances.groups.execution.simulate import play
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.operators import AXES
from tests.instances.groups.networks import CHIP, networks


@st.composite
def groups(draw: Any) -> tuple[LayerGrouping, GroupingSolution]:
    """Return a network as one group, cut along any axes, its transfers where they may be."""
    chip = msgspec.structs.replace(CHIP, cores=draw(st.integers(1, 3)), overlap=0.75)
    whole = draw(networks(most=5, chip=chip))
    parts = [draw(st.integers(1, most)) for most in (2, 3, 6, 4)]
    given = [whole.tensors[at].shape for at in range(whole.n) if not whole.tensors[at].readers]
    cut = tuple(
        min(count, *(shape[AXES.index(letter)] for shape in given))
        for letter, count in zip("nchw", parts, strict=True)
    )
    plan = GroupingSolution((0, whole.n), (cut,))
    if draw(st.booleans()):
        return whole, plan
    table, last = plan.timetable(whole, 0), 3 * whole.n - 1
    rows = [
        st.integers(0, table.rows + move.operator - 1)
        if move.load
        else st.integers(table.rows + move.operator + 1, last)
        for move in table.moves
    ]
    leave = draw(st.sampled_from(table.operators))
    early = draw(st.integers(whole.n + leave + 1, last))
    spills = ((leave, early, draw(st.integers(early + 1, last))),) if early < last else ()
    return whole, plan.with_group(0, tuple(map(draw, rows)), spills, ())


@given(groups())
@settings(max_examples=200, deadline=None)
def test_a_replay_is_what_is_written(drawn: tuple[LayerGrouping, GroupingSolution]) -> None:
    whole, plan = drawn
    played, table = Replay(whole, plan, 0), plan.timetable(whole, 0)
    for axis in range(len(AXES)):
        held = table.regions.along(axis)
        assert played.ranges[axis] == {
            tensor: [(start, start + length) for start, length in parts]
            for tensor, parts in held.items()
        }
    assert [(m.name, m.load, m.cycles, m.position, m.once) for m in played.transfers] == [
        (move.name, move.load, move.cycles, position, move.resident)
        for move, position in zip(table.moves, table.positions, strict=True)
    ]
    assert played.moved == len(table.moves)
    assert played.period == table.period
    assert [tuple(place) for place in played.places] == [
        (copy.name, copy.buffer.lane_bytes, copy.start, copy.rows) for copy in copies(table)
    ]
    assert played.overwritten == set(in_place(table))
    assert played.cycles == table.cycles == play(table)[1]
