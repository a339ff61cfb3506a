"""Greedy probes on chains too long for anything quadratic."""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.pipeline import bisect, dp
from stagepack.instances.pipeline import PipelinePartition
from stagepack.result import Status
from tests.heuristics.pipeline.test_exact import run


def test_long_chain_agrees_with_dp() -> None:
    rng = np.random.default_rng(1)
    instance = PipelinePartition.from_arrays(
        rng.integers(1, 10**6, 200_000),
        devices=64,
        exclusive=rng.integers(0, 100, 200_000),
        capacity=170_000,
    )
    found = run(bisect.solve, instance)
    assert found.outcome()[0] is Status.OPTIMAL
    assert found.objective == run(dp.solve, instance).objective
