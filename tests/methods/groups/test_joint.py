"""Groups, cuts, timesteps, spills and addresses together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.groups.oracle import NONE
from stagepack.instances.groups import LayerGrouping, Weight
from stagepack.solvers.cp_sat import CpSatEngine
from tests.formulations.groups.definitions import Inner, least, modelled, tried
from tests.instances.groups.networks import block, conv, grouping, networks


def prove(whole: LayerGrouping, inner: Inner) -> None:
    """Compare the answer with the least over all groups, cuts, timetables and addresses."""
    best = least(whole, inner)
    result = sp.solve(whole, method="cp-sat", time_limit=None)
    if best == NONE:
        assert result.status is sp.Status.INFEASIBLE
        return
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == result.bound == best


@given(networks(most=2, max_slices=2), st.integers(10, 120), st.sampled_from(["any", "needed"]))
@settings(max_examples=5, deadline=None)
def test_agrees_with_trying_everything(network: LayerGrouping, units: int, standalone: str) -> None:
    chip = replace(network.chip, memory=16 * units)
    prove(network.replace(chip=chip, standalone=standalone), tried)


@given(
    networks(most=4, max_slices=3, slicing="n-then-h"),
    st.integers(10, 200),
    st.sampled_from(["any", "needed"]),
    st.sampled_from(["given", "free"]),
)
@settings(max_examples=15, deadline=None)
def test_agrees_with_the_model_of_every_group(
    network: LayerGrouping, units: int, standalone: str, order: str
) -> None:
    chip = replace(network.chip, memory=16 * units)
    prove(network.replace(chip=chip, standalone=standalone, order=order), modelled)


def test_cuts_that_are_alike_are_proved_together() -> None:
    """Along H and W: what is found of one holds for the other, which alone is open in the end."""
    window = conv("a", "x", 6, 2, kernel=4, stride=(3, 3), dilation=(2, 2), padding=(1,) * 4)
    few = replace(window, weights=(Weight(channels=6, values=4),))
    whole = grouping([few], channels=6, max_slices=4, standalone="needed")
    prove(whole.replace(chip=replace(whole.chip, memory=2048)), modelled)


@pytest.fixture(scope="module")
def free() -> LayerGrouping:
    whole = sp.load("groups/squeezenet", chip="cv184x", timesteps="free")
    assert isinstance(whole, LayerGrouping)
    return whole


@pytest.mark.parametrize("method", ["cp-sat", "auto"])
def test_networks_are_proved(free: LayerGrouping, method: str) -> None:
    """With groups cut otherwise than the best plan by the rule cuts them."""
    first, again = (sp.solve(free, method=method, time_limit=None) for _ in range(2))
    assert first.solution == again.solution
    assert (first.status, first.objective) == (sp.Status.OPTIMAL, 1_024_439)
    by_rule = sp.solve(free, method="dp")
    assert isinstance(first.solution, sp.GroupingSolution)
    assert isinstance(by_rule.solution, sp.GroupingSolution)
    assert first.solution.slices != by_rule.solution.slices


def test_who_does_not_fit_is_named() -> None:
    whole = block(standalone="needed", max_slices=1)
    tight = whole.replace(chip=replace(whole.chip, memory=400))
    result = sp.solve(tight, method="cp-sat")
    assert result.status is sp.Status.INFEASIBLE
    assert "a by itself needs 416 bytes in each lane" in result.reason


def test_where_too_much_may_be_better_the_plan_by_the_rule_stays(free: LayerGrouping) -> None:
    few = {"tuning": {"paths": {"most_choices": 100}}}
    result = sp.solve(free, method="cp-sat", options=few)
    assert result.objective == sp.solve(free, method="dp").objective
    assert result.status is sp.Status.FEASIBLE
    assert "more than 100 groups in cuts" in result.reason


@given(networks(most=4, max_slices=4))
@settings(max_examples=10, deadline=None)
def test_what_it_found_is_a_start(whole: LayerGrouping) -> None:
    first = sp.solve(whole, method="cp-sat", time_limit=None)
    again = sp.solve(whole, method="cp-sat", time_limit=None, warm_start=first)
    assert again.objective == first.objective
    assert "warm start" in {event.source for event in again.trace.events}


def test_the_engine_is_loaded_for_groups_that_need_it_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading it takes longer than all that a small network asks for."""
    loads: list[object] = []
    monkeypatch.setattr(CpSatEngine, "load", loads.append)
    alone = grouping([conv("a", "x", 8, 8)])
    result = sp.solve(alone, method="cp-sat", time_limit=None)
    assert (result.status, "CP-SAT" in str(result.bound_source)) == (sp.Status.OPTIMAL, False)
    assert not loads


def test_it_says_where_it_does_not_apply(
    free: LayerGrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled = free.replace(timesteps="nearest")
    (info,) = [method for method in sp.methods(ruled) if method.name == "cp-sat"]
    assert (info.available, info.reason[:20]) == (False, "the model is for loa")
    with pytest.raises(InputError, match="set timesteps to free"):
        sp.solve(ruled, method="cp-sat")
    monkeypatch.setattr(CpSatEngine, "unavailable", lambda _: "OR-Tools is not installed")
    with pytest.raises(InputError, match="OR-Tools is not installed"):
        sp.solve(free, method="cp-sat")


def test_runs_that_are_limited_by_work_repeat() -> None:
    whole = sp.load("groups/shufflenet", chip="cv184x", timesteps="free")
    first, again = (
        sp.solve(whole, method="cp-sat", time_limit=1, options={"deterministic": True})
        for _ in range(2)
    )
    assert first.solution == again.solution
    assert first.bound == again.bound
    assert first.termination is again.termination


def test_a_limit_is_kept_while_a_model_is_built() -> None:
    whole = sp.load("groups/densenet121", chip="bm1684x", timesteps="free")
    result = sp.solve(whole, method="cp-sat", time_limit=1e-6)
    assert result.status is sp.Status.FEASIBLE
    assert result.solution is not None


def test_of_equal_plans_the_one_with_fewer_shared_banks_is_kept() -> None:
    whole = sp.load("groups/squeezenet", chip="bm1684x")
    first = sp.solve(whole, method="greedy-tail")
    result = sp.solve(whole, method="dp", warm_start=first)
    assert result.solution is not None
    assert whole.secondary(result.solution) == 0
    assert result.status is sp.Status.OPTIMAL
