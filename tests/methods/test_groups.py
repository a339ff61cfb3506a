"""Methods of layer grouping."""

from __future__ import annotations

import pytest

import stagepack as sp
from tests.instances.groups.networks import block

METHODS = [method.name for method in sp.methods("groups")]


@pytest.mark.parametrize("method", METHODS)
def test_methods_solve_a_network(method: str) -> None:
    result = sp.solve(sp.load("groups/squeezenet", chip="cv184x"), method=method)
    assert result.solution is not None
    assert result.status is (sp.Status.OPTIMAL if method in ("auto", "dp") else sp.Status.FEASIBLE)


def test_who_does_not_fit_is_named() -> None:
    whole = block(standalone="needed", max_slices=1, timesteps="nearest")
    tight = whole.replace(chip=_with(whole, 400))
    result = sp.solve(tight)
    assert result.status is sp.Status.INFEASIBLE
    assert "a needs 416 bytes in each lane, whole: 16 more than there are" in result.reason
    assert sp.solve(tight.replace(standalone="any")).status is sp.Status.OPTIMAL


def _with(whole: sp.LayerGrouping, memory: int) -> sp.LaneChip:
    from msgspec.structs import replace

    return replace(whole.chip, memory=memory)


def test_free_timesteps_are_not_proved_by_the_rule() -> None:
    free = block()
    result = sp.solve(free, method="dp")
    assert result.status is sp.Status.FEASIBLE
    assert sp.solve(free.replace(timesteps="nearest"), method="dp").objective == result.objective


def test_a_plan_is_a_start() -> None:
    whole = sp.load("groups/squeezenet", chip="cv184x")
    first = sp.solve(whole, method="greedy-tail")
    again = sp.solve(whole, warm_start=first)
    assert again.objective is not None
    assert first.objective is not None
    assert again.objective <= first.objective
    assert again.trace.events[0].source == "warm start"


def test_there_is_a_plan_before_the_clock_is_asked() -> None:
    """Every operator may run from global memory: an answer, however little time there is."""
    result = sp.solve(sp.load("groups/resnet50", batch=16), time_limit=1e-6)
    assert result.status is sp.Status.FEASIBLE
    assert result.solution is not None
    assert result.trace.events[0].source == "global memory"
