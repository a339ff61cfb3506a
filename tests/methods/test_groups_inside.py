"""What cp-sat makes of the groups of a plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.check import group_cycles
from stagepack.solvers.cp_sat import CpSatEngine
from tests.instances.groups.networks import block, networks


@given(networks(most=5, max_slices=4))
@settings(max_examples=10, deadline=None)
def test_it_is_never_worse_than_the_rule(whole: LayerGrouping) -> None:
    by_rule = sp.solve(whole, method="dp", time_limit=None)
    result = sp.solve(whole, method="cp-sat", time_limit=None)
    assert result.solution is not None
    assert result.objective is not None
    assert by_rule.objective is not None
    assert result.objective <= by_rule.objective
    assert result.bound is None or result.bound <= result.objective


@pytest.fixture(scope="module")
def free() -> LayerGrouping:
    whole = sp.load("groups/squeezenet", chip="cv184x", timesteps="free")
    assert isinstance(whole, LayerGrouping)
    return whole


@pytest.mark.parametrize("method", ["cp-sat", "auto"])
def test_it_ends_where_every_group_is_as_good_as_it_can_be(
    free: LayerGrouping, method: str
) -> None:
    by_rule = sp.solve(free, method="dp")
    results = [sp.solve(free, method=method, time_limit=None) for _ in range(2)]
    first, again = results
    assert first.solution == again.solution
    assert first.solution is not None
    assert first.objective is not None
    assert by_rule.objective is not None
    assert first.objective < by_rule.objective
    assert f"takes less than {first.objective:,} cycles" in first.reason
    assert first.termination is sp.Termination.FINISHED
    changed = group_cycles(free, first.solution), group_cycles(free, by_rule.solution)
    assert all(one <= other for one, other in zip(*changed, strict=True))


def test_without_a_plan_by_the_rule_there_is_nothing_to_improve() -> None:
    whole = block(standalone="needed", max_slices=1)
    tight = whole.replace(chip=replace(whole.chip, memory=400))
    result = sp.solve(tight, method="cp-sat")
    assert result.status is sp.Status.UNKNOWN
    assert "no plan by the rule to begin with: a needs 416 bytes in each lane" in result.reason


@given(networks(most=4, max_slices=4))
@settings(max_examples=10, deadline=None)
def test_what_it_found_is_a_start(whole: LayerGrouping) -> None:
    first = sp.solve(whole, method="cp-sat", time_limit=None)
    again = sp.solve(whole, method="cp-sat", time_limit=None, warm_start=first)
    assert again.objective == first.objective
    assert again.trace.events[0].kind == "bound"
    assert "warm start" in {event.source for event in again.trace.events}


def test_groups_that_are_alike_do_alike() -> None:
    whole = sp.load("groups/vgg19", chip="cv184x", timesteps="free")
    result = sp.solve(whole, method="cp-sat", time_limit=None)
    assert result.solution is not None
    assert "alike" not in result.trace.events[0].source
    assert whole.check(result.solution) == ()


def test_it_says_where_it_does_not_apply(
    free: LayerGrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled = free.replace(timesteps="nearest")
    (info,) = [method for method in sp.methods(ruled) if method.name == "cp-sat"]
    assert (info.available, info.reason[:20]) == (False, "loads and stores kee")
    with pytest.raises(InputError, match="timesteps: free"):
        sp.solve(ruled, method="cp-sat")
    monkeypatch.setattr(CpSatEngine, "unavailable", lambda _: "OR-Tools is not installed")
    with pytest.raises(InputError, match="OR-Tools is not installed"):
        sp.solve(free, method="cp-sat")


def test_runs_that_are_limited_by_work_repeat() -> None:
    whole = sp.load("groups/shufflenet", chip="cv184x", timesteps="free")
    first, again = (
        sp.solve(whole, method="cp-sat", time_limit=3, options={"deterministic": True})
        for _ in range(2)
    )
    assert first.solution == again.solution
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
