"""Recomputation within one group: labels along the layers prove it, checkpoints are a baseline."""

from __future__ import annotations

import functools

import pytest

import stagepack as sp
from stagepack.heuristics.phases import baselines
from stagepack.methods.phases import retention
from stagepack.result import Status

CHAIN, SKIPS = "phases/random/chain-remat", "phases/random/skip-remat"


@pytest.mark.parametrize("name", [CHAIN, SKIPS])
@pytest.mark.parametrize("layers", [14, 40])
def test_labels_prove_their_plan(name: str, layers: int) -> None:
    instance = sp.load(name, layers=layers)
    result = sp.solve(instance, method="dp", time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.bound == result.objective
    assert result.trace.bounds[-1].source == "labels along the layers"
    if layers == 14:
        other = sp.solve(instance, method="milp-remat", time_limit=60, warm_start=None)
        assert other.status is Status.OPTIMAL
        assert other.objective == result.objective


def test_what_labels_do_not_cover() -> None:
    instance = sp.load(SKIPS, layers=8)
    assert retention.unsupported(instance) == ""
    assert "once at most" in retention.unsupported(sp.load(SKIPS, layers=8, recomputations=2))
    paging = instance.replace(policies=["keep", "recompute", "stash"])
    assert "policy stash" in retention.unsupported(paging)
    assert "one group" in retention.unsupported(instance.replace(fixed_boundaries=None))


def test_a_gap_is_left_to_models() -> None:
    """Where retained outputs matter labels may be a little off, on the safe side."""
    instance = sp.load(SKIPS, layers=12)
    labels, whole = (sp.solve(instance, method=name, time_limit=60) for name in ("dp", "auto"))
    assert whole.status is Status.OPTIMAL
    assert labels.bound is not None
    assert whole.objective is not None
    assert labels.objective is not None
    assert labels.bound <= whole.objective <= labels.objective


def test_no_plan_is_proved() -> None:
    instance = sp.load(CHAIN, layers=12)
    values = []
    for memory in range(instance.chip.memory, 0, -60):
        small = instance.replace(memory=memory)
        result = sp.solve(small, method="dp", time_limit=60)
        if result.status is Status.INFEASIBLE:
            break
        assert result.status is Status.OPTIMAL
        assert result.objective is not None
        values.append(result.objective)
    assert result.status is Status.INFEASIBLE
    assert len(values) > 1
    assert values == sorted(values)
    other = sp.solve(small, method="milp-remat", time_limit=60, warm_start=None)
    assert other.status is Status.INFEASIBLE


@pytest.mark.parametrize("name", [CHAIN, SKIPS])
def test_checkpoints_try_other_lengths(name: str) -> None:
    for layers in (40, 80):
        result = sp.solve(sp.load(name, layers=layers), method="sqrt-checkpoint", time_limit=60)
        assert result.status is Status.FEASIBLE


def test_attempts() -> None:
    assert list(baselines.attempts(baselines.keep, 9)) == [baselines.keep]
    first, *others = baselines.attempts(baselines.checkpoints, 9)
    assert first is baselines.checkpoints
    changes = [
        attempt.keywords["change"] for attempt in others if isinstance(attempt, functools.partial)
    ]
    assert changes == [-1, 1, -2, 2, -3, 3, -4, 4]
