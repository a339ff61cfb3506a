from __future__ import annotations

import dataclasses
import itertools

import pytest

import stagepack as sp
from stagepack.heuristics.pipeline.even import evened
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from tests import placed_pipelines, random_pipelines
from tests.placed_pipelines import random_placed


def loads(instance: PipelinePartition, solution: PipelineSolution | None) -> list[int]:
    assert solution is not None
    return [int(instance.cycles[a:b].sum()) for a, b, _ in solution.stages]


@pytest.mark.parametrize("method", ["auto", "dp", "bisect", "dp-reference"])
def test_no_device_idles_where_it_could_work(method: str) -> None:
    instance = sp.PipelinePartition.from_arrays([0] + 42 * [10] + [0, 0], devices=16)
    result = sp.solve(instance, method)
    assert result.status == "OPTIMAL"
    assert sorted(loads(instance, result.solution)) == 6 * [20] + 10 * [30]


@pytest.mark.parametrize("method", ["auto", "dp", "bisect", "dp-reference", "milp-interval"])
def test_what_is_proved_at_once_is_made_even_as_well(method: str) -> None:
    instance = sp.PipelinePartition.from_arrays([10, 10, 5, 5, 20, 10, 20, 10], devices=4)
    result = sp.solve(instance, method)
    assert sorted(loads(instance, result.solution)) == [10, 25, 25, 30]


def test_the_most_even_of_all_that_are_as_good() -> None:
    seen = set[str]()
    for seed in range(400):
        instance = random_pipelines.random_instance(seed)
        if instance.compute_table is not None or instance.memory_table is not None:
            continue
        best = random_pipelines.optimum(instance)
        if best is None:
            continue
        value, solution = best
        found = next(evened(RangeCosts.of(instance), solution), None)
        if found is None:
            continue
        assert not instance.check(found), seed
        assert instance.evaluate(found) <= value, seed
        seen.add(str(instance.objective))
        least = min(
            instance.secondary(other)
            for other in random_pipelines.solutions(instance)
            if other.devices == found.devices
            and not instance.check(other)
            and instance.evaluate(other) == value
        )
        assert instance.secondary(found) == least, seed
    assert seen == {"bottleneck", "transfer-bounded", "sum", "overlap"}


def test_long_chains_take_their_shares() -> None:
    costs = list(itertools.islice(itertools.cycle([3, 1, 4, 1, 5, 9, 2, 6]), 20_000))
    costs[7_000] = 10_000
    instance = sp.PipelinePartition.from_arrays(costs, devices=12)
    uneven = sp.solve(instance, options={"tuning": {"even": False}}).solution
    result = sp.solve(instance)
    assert result.objective == 10_000
    assert uneven is not None
    assert result.solution is not None
    assert instance.secondary(result.solution) < instance.secondary(uneven)


def test_limits_of_looks_and_layers() -> None:
    instance = sp.PipelinePartition.from_arrays([4, 1, 1, 1, 1, 4, 2, 2, 9], devices=4)
    solution = PipelineSolution.in_order([0, 6, 7, 8, 9])
    instance = instance.replace(cluster=sp.Cluster.uniform(4))
    costs = RangeCosts.of(instance)
    whole = next(evened(costs, solution))
    shared = next(evened(costs, solution, dataclasses.replace(TUNING, even_steps=0)))
    for found in (whole, shared):
        assert instance.evaluate(found) <= instance.evaluate(solution)


def test_many_devices_take_little_time_and_ask_whether_to_go_on() -> None:
    instance = sp.PipelinePartition.from_arrays([1, 2, 3, 4] * 10_000, devices=8_000)
    solution = sp.solve(instance, options={"tuning": {"even": False}}).solution
    assert solution is not None
    asked = [0]

    def pause() -> None:
        asked[0] += 1

    found = list(evened(RangeCosts.of(instance), solution, TUNING, pause))
    assert all(instance.evaluate(one) <= instance.evaluate(solution) for one in found)
    assert asked[0] >= 100


# ---------------------------------------------------------------------- several stages a device


@pytest.mark.parametrize("placement", ["v", "loop"])
def test_devices_of_several_stages_are_even_as_well(placement: str) -> None:
    instance = sp.PipelinePartition.from_arrays(
        [0] + 42 * [10] + [0, 0], devices=16, stages_per_device=2, placement=placement
    )
    result = sp.solve(instance)
    assert result.status == "OPTIMAL"
    assert instance.secondary(result.solution)[0] == 10 * [30] + 6 * [20]


def test_moving_cuts_comes_near_the_most_even() -> None:
    best = tried = 0
    for seed in range(150):
        instance = random_placed(seed)
        value = placed_pipelines.optimum(instance)
        if value is None:
            continue
        every = [
            one for one in placed_pipelines.solutions(instance) if instance.evaluate(one) == value
        ]
        worst = max(every, key=lambda one: instance.secondary(one)[0])
        (found,) = [*evened(RangeCosts.of(instance), worst)] or [worst]
        assert not instance.check(found), seed
        assert instance.evaluate(found) == value, seed
        assert instance.secondary(found) <= instance.secondary(worst), seed
        tried += 1
        best += instance.secondary(found)[0] == min(instance.secondary(one)[0] for one in every)
    assert best >= 0.95 * tried > 90
