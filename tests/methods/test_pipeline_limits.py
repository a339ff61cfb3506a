"""Runs of pipeline partitioning that are limited by work: they repeat, and they end."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.pipeline import prober
from stagepack.instances.pipeline import PipelinePartition
from stagepack.result import Status, Termination
from stagepack.solve import solve


def chain(n: int, devices: int) -> PipelinePartition:
    rng = np.random.default_rng(n)
    crossing = rng.integers(0, 10**9, n + 1)
    return PipelinePartition.from_arrays(
        rng.integers(0, 10**6, n),
        devices=devices,
        bandwidth=10,
        in_bytes=crossing,
        out_bytes=crossing,
        objective="transfer-bounded",
    )


def test_searches_limited_by_work_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = chain(3_000, 40)
    whole = solve(instance, "dp")
    assert whole.status is Status.OPTIMAL
    monkeypatch.setattr(prober, "CHUNK", 10_000)
    ends = []
    for limit in (0.001, 0.002, 0.004):
        once, again = (
            solve(instance, "dp", time_limit=limit, options={"deterministic": True})
            for _ in range(2)
        )
        assert once.termination is Termination.TIME_LIMIT
        assert (once.objective, once.bound) == (again.objective, again.bound)
        assert once.solution == again.solution
        assert once.bound is not None
        assert whole.objective is not None
        assert once.bound <= whole.objective
        ends.append((once.objective, once.bound))
    assert len(set(ends)) > 1  # more work, more known


@pytest.mark.parametrize("method", ["milp-interval", "cp-sat"])
def test_models_too_large_for_their_work_are_given_up(method: str) -> None:
    result = solve(chain(150_000, 200), method, time_limit=0.1, options={"deterministic": True})
    assert result.status is Status.FEASIBLE
    assert result.termination is Termination.TIME_LIMIT
    assert "ended by the clock" in result.reason


@pytest.mark.parametrize("method", ["equal-layers", "greedy"])
def test_rules_count_the_stages_that_they_place(method: str) -> None:
    options = {"deterministic": True}
    result = solve(chain(5_000, 4_000), method, time_limit=0.01, options=options)
    assert result.termination is Termination.TIME_LIMIT


def test_the_recurrence_counts_its_tables_as_work() -> None:
    instance = PipelinePartition.from_arrays(np.arange(600), devices=5)
    result = solve(instance, "dp-reference", time_limit=0.05, options={"deterministic": True})
    assert result.termination is Termination.TIME_LIMIT
    assert solve(instance, "dp-reference").status is Status.OPTIMAL
