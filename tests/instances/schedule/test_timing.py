from __future__ import annotations

import numpy as np
import pytest

from stagepack.instances.schedule import (
    Objective,
    PipelineSchedule,
    ScheduleSolution,
    earliest,
    least_memory,
)
from stagepack.instances.schedule.reasons import reasons
from tests.random_schedules import Orders, best, by_list, least, optimum, orders_of, random_schedule


def orders_by_start(instance: PipelineSchedule, solution: ScheduleSolution) -> list[list[int]]:
    by_start = np.argsort(solution.start, kind="stable")
    device = instance.operations.device[by_start]
    return [by_start[device == d].tolist() for d in range(instance.d)]


@pytest.mark.parametrize("seed", range(40))
def test_earliest_is_valid_and_nothing_could_start_sooner(seed: int) -> None:
    instance = random_schedule(seed, limit=None)
    solution = earliest(instance, orders_by_start(instance, by_list(instance)))
    assert solution is not None
    assert instance.check(solution) == ()
    for v in range(len(solution.start)):
        sooner = solution.start.copy()
        sooner[v] -= 1
        assert instance.check(ScheduleSolution.of(instance, sooner))


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_earliest_agrees_with_the_enumeration(seed: int) -> None:
    instance = random_schedule(seed, objective=Objective.MAKESPAN, limit=None)
    operations = instance.operations
    drawn = np.random.default_rng(seed)
    every = [list(orders_of(instance, d)) for d in range(instance.d)]
    for _ in range(10):
        orders: Orders = tuple(each[drawn.integers(len(each))] for each in every)
        expected = least(instance, orders)
        found = earliest(instance, [[operations.op(*op) for op in order] for order in orders])
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert instance.evaluate(found) == expected[0]


def test_orders_that_wait_for_one_another() -> None:
    instance = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=2)
    fine = [[0, 1, 2, 3], [4, 6, 5, 7]]
    stuck = [[0, 2, 1, 3], [4, 5, 6, 7]]  # B0 of stage 0 first, but stage 1 wants F1
    assert earliest(instance, fine) is not None
    assert earliest(instance, stuck) is None


@pytest.mark.parametrize("seed", range(60))
def test_the_best_by_enumeration_is_what_it_says(seed: int) -> None:
    instance = random_schedule(seed)
    found = best(instance)
    if found is None:
        assert instance.limit is not None
        return
    value, solution = found
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == value
    assert reasons(instance) == ()
    if instance.limit is None:
        assert instance.evaluate(by_list(instance)) >= value


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_less_memory_than_the_least_is_infeasible(seed: int) -> None:
    """And in a single chain without branches the least is enough."""
    instance = random_schedule(seed)
    need = least_memory(instance)
    for device in range(instance.d):
        if need[device] > 0:
            limit = need + 5
            limit[device] = need[device] - 1
            tight = instance.replace(limit=limit)
            assert len(reasons(tight)) == 1
            assert optimum(tight) is None


def test_values_known_by_hand() -> None:
    instance = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=2)
    assert optimum(instance) == 6
    assert optimum(instance.replace(latency=1)) == 8
    assert optimum(instance.replace(objective="span")) == 6  # F0 F1 . B0 . B1 on device 0
    split = instance.replace(weight=[1, 1])
    assert optimum(split) == 7
    # B0 of stage 0 comes after three operations, and there are but two F to do before.
    assert optimum(split.replace(objective="span")) == 7
    assert optimum(split.replace(objective="span", microbatches=3)) == 9
    # One microbatch at a time: F0 and B0 of stage 1 in between.
    limited = split.replace(memory_forward=2, memory_backward=-1, memory_weight=-1, limit=2)
    assert optimum(limited) == 10
