"""The model of a group against trying every position and every spill."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagepack.formulations.groups import CpSat
from stagepack.formulations.groups.frame import Frame
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import GroupingSolution, LayerGrouping, Operator, OperatorKind
from stagepack.result import Status
from tests.formulations.engines import solve
from tests.formulations.groups.definitions import tried, yes
from tests.instances.groups.networks import add, grouping, networks


@given(networks(most=2), st.integers(1, 4), st.integers(10, 120), st.sampled_from([1.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_agrees_with_trying_everything(
    network: LayerGrouping, parts: int, units: int, overlap: float
) -> None:
    whole = network.replace(
        chip=replace(network.chip, memory=16 * units, overlap=overlap), max_slices=4
    )
    plan = GroupingSolution((0, whole.n), ((1, 1, parts, 1),))
    assume({violation.rule for violation in whole.check(plan)} == {"memory"})
    best = tried(whole, plan)
    model = CpSat(whole, plan, 0)
    answer = None if model.infeasible else solve(model)
    if best is None or answer is None:
        assert best is None
        assert answer is None or answer.values is None
        return
    assert answer.values is not None
    found = model.decode(answer.values)
    assert whole.check(found) == ()
    assert whole.evaluate(found) == best == model.lower_bound(answer.bound)


@given(networks(most=3), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_a_plan_is_a_point_of_the_model(network: LayerGrouping, parts: int) -> None:
    plan = GroupingSolution((0, network.n), ((1, 1, parts, 1),))
    assume({violation.rule for violation in network.check(plan)} == {"memory"})
    status, offsets = place(plan.timetable(network, 0), yes)
    assume(status is Status.FEASIBLE)
    by_rule = plan.with_group(0, (), (), offsets)
    model = CpSat(network, by_rule, 0)
    fixed = solve(model, fixed=model.hint(by_rule))
    assert fixed.values is not None
    assert network.evaluate(model.decode(fixed.values)) == network.evaluate(by_rule)
    answer = solve(model)
    assert answer.values is not None
    best = model.decode(answer.values)
    again = solve(model, fixed=model.hint(best))
    assert again.values is not None
    assert network.evaluate(model.decode(again.values)) == network.evaluate(best)


def test_nothing_is_written_over_what_has_other_values() -> None:
    """Equal bytes of a lane are not enough: one value for all is read for each that is written."""
    few = Operator(name="p", kind=OperatorKind.GLOBAL_POOL, inputs=("x",), shape=(1, 8, 1, 1))
    gate = add("s", "p", "x", channels=8, rows=2)
    table = GroupingSolution((0, 2), ((1, 1, 1, 1),)).timetable(grouping([few, gate], rows=2), 0)
    assert len({buffer.lane_bytes for buffer in table.buffers}) == 1
    assert Frame(table).over() == []
    after = add("t", "s", channels=8, rows=2)
    whole = grouping([few, gate, after], rows=2)
    table = GroupingSolution((0, 3), ((1, 1, 1, 1),)).timetable(whole, 0)
    assert [(frame.lives[a].tensor, frame.lives[b].tensor) for frame in [Frame(table)]
            for a, b in frame.over()] == [(1, 2)]  # fmt: skip


def test_an_overlap_is_the_fraction_that_answers_are_reckoned_with() -> None:
    """A third of many digits is a third, or else 3 cycles would hide none."""
    plan = GroupingSolution((0, 1), ((1, 1, 1, 1),))
    whole = grouping([add("a", "x", channels=8, rows=8)])
    models = []
    for third in (1 / 3, 0.3333333333):
        network = whole.replace(chip=replace(whole.chip, overlap=third))
        models.append(CpSat(network, plan, 0).model.proto)
    assert str(models[0]) == str(models[1])
