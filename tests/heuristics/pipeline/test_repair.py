from __future__ import annotations

from typing import Any

import pytest

import stagepack as sp
from stagepack.heuristics.pipeline import baselines, repair
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import Status
from tests.random_pipelines import random_instance

# Work says to cut in the middle, but only the last device can hold layers 1 to 4.
TIGHT: dict[str, Any] = {"exclusive": [9, 2, 2, 2, 2, 1], "capacity": [9, 9]}


def valid(instance: PipelinePartition, rule: Any) -> bool:
    found = rule(RangeCosts(instance))
    return found is not None and instance.check(found) == ()


def test_goes_on_only_where_the_rest_still_fits() -> None:
    instance = PipelinePartition.from_arrays([1, 1, 1, 5, 1, 1], devices=2, **TIGHT)
    assert not valid(instance, baselines.equal_layers)
    late = PipelinePartition.from_arrays(
        [2, 2, 5, 1, 1], devices=3, exclusive=[1, 1, 8, 3, 4], capacity=[9, 9, 5]
    )
    assert not valid(late, baselines.greedy)
    found = repair.greedy_within_reach(RangeCosts(late))
    assert found is None  # layers 3 and 4 do not fit the last device, layer 2 no other with them
    roomy = late.replace(exclusive={"memory": [1, 1, 6, 3, 4]})
    assert not valid(roomy, baselines.greedy)
    assert not valid(roomy, baselines.equal_layers)
    found = repair.greedy_within_reach(RangeCosts(roomy))
    assert found is not None
    assert found.boundaries == (0, 2, 4, 5)


@pytest.mark.parametrize("block", range(6))
def test_finds_a_partition_exactly_where_there_is_one(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        instance = random_instance(seed, largest_n=7, largest_k=4)
        within = repair.greedy_within_reach(RangeCosts(instance))
        assert within is None or instance.check(within) == ()
        exact = sp.solve(instance, "dp", warm_start=None)
        found = sp.solve(instance, "greedy-repair")
        assert (found.status is Status.INFEASIBLE) == (exact.status is Status.INFEASIBLE)
        assert (found.solution is None) == (exact.solution is None)


def test_engines_start_from_it() -> None:
    """Neither greedy nor equal layers fit; the start is within a third of the optimum."""
    instance = sp.load("pipeline/random/tight-memory", layers=60, devices=8, slack=0.02, seed=4)
    costs = RangeCosts(instance)
    assert not valid(instance, baselines.greedy)
    assert not valid(instance, baselines.equal_layers)
    first = sp.solve(instance, "greedy-repair").objective
    optimum = sp.solve(instance, "dp").objective
    assert first is not None
    assert optimum is not None
    assert costs.rounding == 0
    assert first <= 1.33 * optimum
    for method in ("cp-sat", "milp-interval"):
        result = sp.solve(instance, method, target=first)
        assert result.objective is not None
        assert result.objective <= first
        assert result.trace.incumbents[0].source == "greedy-repair"


def test_is_never_worse_than_the_greedy_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = PipelinePartition.from_arrays([3, 1, 4, 1, 5, 9, 2, 6], devices=3)
    greedy = sp.solve(instance, "greedy")
    monkeypatch.setattr(repair, "greedy_within_reach", lambda *_: None)
    assert sp.solve(instance, "greedy-repair").objective == greedy.objective


def test_asks_now_and_then_not_for_every_device() -> None:
    asked: list[None] = []
    instance = PipelinePartition.from_arrays([1, 2] * 2_000, devices=2_000)
    assert repair.greedy_within_reach(RangeCosts(instance), lambda: asked.append(None))
    assert 10 < len(asked) < 100  # each time is counted as the work of many devices


def test_few_microbatches_are_few_kinds_of_stages() -> None:
    n = 100
    training: dict[str, Any] = {"training": True, "backward": [1] * n, "microbatches": 2}
    costs = RangeCosts(PipelinePartition.from_arrays([1] * n, devices=50, **training))
    tuning = TUNING.changed({"repair_entries": 3 * n})
    assert repair.greedy_within_reach(costs, tuning=tuning) is not None
