from __future__ import annotations

import pytest

from stagepack.heuristics.schedule.bounds import (
    Ramps,
    bound,
    ramp_bound,
    window_bound,
    work_bound,
)
from stagepack.instances.schedule import PipelineSchedule
from tests.heuristics.schedule.cases import EIGHT, FOUR, PUBLISHED, vee, zero_bubble
from tests.random_schedules import optimum, random_schedule


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_bound_exceeds_the_optimum(first: int) -> None:
    met = 0
    for seed in range(first, first + 20):
        instance = random_schedule(seed)
        value = optimum(instance)
        if value is None:
            met += 1
            continue
        for lower in (work_bound, window_bound, ramp_bound):
            assert lower(instance) <= value, f"{lower.__name__} of seed {seed}"
        assert bound(instance)[0] <= value
        met += bound(instance)[0] == value
    assert met >= 18, "of 20 small instances nearly all have tight bounds"


@pytest.mark.parametrize("first", range(1000, 1060, 20))
def test_no_bound_exceeds_the_optimum_of_a_split_chain(first: int) -> None:
    for seed in range(first, first + 20):
        drawn = random_schedule(seed)
        if not drawn.split or drawn.d < drawn.p:
            continue
        for objective in ("span", "makespan"):
            instance = drawn.replace(objective=objective)
            value = optimum(instance)
            assert value is None or bound(instance)[0] <= value


def test_one_microbatch_in_flight_on_every_stage() -> None:
    # One microbatch after another: 3 * (3 + 6).
    instance = PipelineSchedule.from_arrays(
        [1] * 3, [2] * 3, microbatches=3, memory_forward=1, memory_backward=-1, limit=1
    )
    assert bound(instance)[0] == 27


@pytest.mark.parametrize("instance", [FOUR, FOUR.replace(objective="makespan")])
def test_bounds_of_fewer_devices_where_time_is_short(instance: PipelineSchedule) -> None:
    asked: list[bool] = []

    def going(_: int) -> bool:
        asked.append(len(asked) < 12)
        return asked[-1]

    assert 0 < window_bound(instance, going) <= window_bound(instance)
    assert window_bound(instance, lambda _: False) == 0
    assert work_bound(instance) <= bound(instance, lambda _: False)[0] <= bound(instance)[0]


def test_measured_cases_of_zero_bubble() -> None:
    # Ends of 4 stages: 1082 idle cycles; starts of 8 stages: 3 * 849.
    assert bound(FOUR) == (177816 + 1082, "ramp bound")
    assert bound(EIGHT) == (2511520 + 2547, "ramp bound")
    warm_up = Ramps(EIGHT).warm_up(2514067)
    assert warm_up == [16, 14, 12, 10, 7, 5, 3, 1]
    assert Ramps(EIGHT).warm_up(2514066) is None


def test_idling_before_the_last_backward_operation_counts() -> None:
    # Two microbatches fit: stage 0 waits before the first B, and again before the last.
    instance = zero_bubble(2, 3, 7, 6, 4, 4).replace(latency=1)
    value, source = bound(instance)
    assert source == "ramp bound"
    assert window_bound(instance) < value == optimum(instance)


@pytest.mark.parametrize(
    ("instance", "value"),
    [
        *PUBLISHED,
        (zero_bubble(8, 32, 1, 1, 1, 16), 103),
        (zero_bubble(8, 32, 1, 1, 1, 32), 96),
        (vee(4, 8), 48),
    ],
)
def test_published_optima_are_bounds(instance: PipelineSchedule, value: int) -> None:
    assert bound(instance)[0] == value


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 8), (8, 3), (2, 1)])
def test_1f1b_is_optimal_on_equal_stages(p: int, m: int) -> None:
    for objective in ("makespan", "span"):
        instance = PipelineSchedule.from_arrays(
            [1] * p, [2] * p, microbatches=m, objective=objective
        )
        assert bound(instance)[0] == 3 * (m + p - 1)


def test_the_optimizer_counts() -> None:
    # All wait for the last operation, then for the longest optimizer; or each for its own.
    instance = PipelineSchedule.from_arrays([1, 1], microbatches=2, optimizer=[5, 1])
    assert bound(instance)[0] == 3 + 5 == optimum(instance)
    alone = instance.replace(post_validation=True)
    assert bound(alone)[0] == 7 == optimum(alone)
