"""Bounds and reachable cuts against the enumeration of all solutions."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.pipeline import CpSat, MilpAssignment, MilpInterval
from stagepack.formulations.pipeline.frame import (
    UNLIMITED,
    Slot,
    StageLimits,
    common,
    ends_after,
    furthest_ends,
    least_compute,
    least_transfer,
    min_over_covering,
    slot_cuts,
    span,
    starts_before,
    union,
)
from stagepack.instances.pipeline import Objective, PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from tests.random_pipelines import random_instance, solutions


def test_sweeps_follow_the_ends() -> None:
    places = np.array([0, 1, 3, 4, 5])
    ends = np.array([2, 3, 4, 5, 5, 5])
    cuts = np.array([3])
    assert starts_before(cuts, ends, places).tolist() == [1]
    assert ends_after(cuts, ends, places).tolist() == [4, 5]
    assert ends_after(cuts[:0], ends, places).tolist() == []


def test_windows_hold_every_solution_and_bounds_none_too_high() -> None:
    seen = 0
    for seed in range(200):
        instance = random_instance(seed)
        if instance.k > instance.n:
            continue
        instance = instance.replace(fewer_stages=False, free_order=False)
        costs, k = RangeCosts(instance), instance.k
        stashes = instance.microbatches if instance.training else 0
        slots = [Slot(((int(costs.device_class[i]), min(stashes, k - i)),)) for i in range(k)]
        cuts = slot_cuts(costs, slots, UNLIMITED)
        transfer = least_transfer(costs, slots, cuts)
        for solution in solutions(instance):
            seen += 1
            assert all(cut in cuts[j] for j, cut in enumerate(solution.boundaries))
            stages = [
                (first, end, int(costs.device_class[device]))
                for first, end, device in solution.stages
            ]
            assert max(costs.compute(*stage) for stage in stages) >= least_compute(costs)
            assert max(costs.transfer(*stage) for stage in stages) - costs.host >= transfer
    assert seen > 200


@pytest.mark.parametrize("formulation", [CpSat, MilpAssignment, MilpInterval])
def test_models_are_as_large_as_their_windows(formulation: Any) -> None:
    n, k = 39_990, 400
    costs = RangeCosts(PipelinePartition.from_arrays([7] * n, devices=k, capacity=n))
    tracemalloc.start()
    try:
        model = formulation(costs, upper=costs.compute_bound())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not model.infeasible
    assert peak < 2 * n * k  # bytes


def test_rows_of_cuts_are_sets() -> None:
    draw = np.random.default_rng(3)
    for _ in range(200):
        a, b, c = (np.flatnonzero(draw.random(12) < draw.random()) for _ in range(3))
        assert union([a, b, c]).tolist() == sorted({*a, *b, *c})
        assert common(a, b).tolist() == sorted({*a} & {*b})
        first, last = draw.integers(-1, 14, 2).tolist()
        assert span(a, first, last).tolist() == [cut for cut in a if first <= cut <= last]


def test_too_many_cuts_are_refused_before_any_is_looked_at() -> None:
    costs = RangeCosts(PipelinePartition.from_arrays([0] * 100_000, devices=100))
    with pytest.raises(InputError, match="99 cuts are more than 5,000,000 together"):
        CpSat(costs)


def test_limits_of_every_objective() -> None:
    def limits(objective: Objective) -> StageLimits:
        instance = PipelinePartition.from_arrays(
            [4, 4],
            devices=2,
            bandwidth=1,
            clock=2**30,
            in_bytes=[3, 1, 0],
            out_bytes=[0, 1, 2],
            host_transfer=True,
            objective=objective,
        )
        return StageLimits.of(RangeCosts(instance), 100, 10, 7)

    assert limits(Objective.BOTTLENECK) == StageLimits(100, UNLIMITED)
    assert limits(Objective.TRANSFER_BOUNDED) == StageLimits(100 - 5 - 7, 100 - 5 - 10)
    assert limits(Objective.SUM) == StageLimits(95, 95)
    assert limits(Objective.OVERLAP) == StageLimits(100, UNLIMITED)


def test_a_layer_pays_at_least_its_cheapest_stage() -> None:
    cheapest = np.full((3, 3), UNLIMITED)
    cheapest[0, 1], cheapest[1, 2], cheapest[0, 2] = 3, 8, 5
    assert min_over_covering(cheapest) == 5
    cheapest[0, 2] = UNLIMITED
    assert min_over_covering(cheapest) == 8


def test_ends_shrink_with_the_limit() -> None:
    costs = RangeCosts(PipelinePartition.from_arrays([5, 1, 1, 5], devices=2))
    assert furthest_ends(costs, 0, 0, 6).tolist() == [2, 3, 4, 4, 4]
    assert furthest_ends(costs, 0, 0, -1).tolist() == [0, 1, 2, 3, 4]
