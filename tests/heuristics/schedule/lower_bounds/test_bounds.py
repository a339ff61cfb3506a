from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.schedule import effort
from stagepack.heuristics.schedule.effort import Looks
from stagepack.heuristics.schedule.lower_bounds import bounds_kernels
from stagepack.heuristics.schedule.lower_bounds.bounds import (
    Network,
    bound,
    one_machine,
    window_bound,
    work_bound,
)
from stagepack.heuristics.schedule.lower_bounds.ramps import Ramps, ramp_bound
from stagepack.instances.schedule import PipelineSchedule, memory_arcs
from stagepack.progress import Stopped
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
        asked.append(len(asked) < 25)
        return asked[-1]

    assert 0 < window_bound(instance, going) <= window_bound(instance)
    assert window_bound(instance, lambda _: False) == 0
    assert work_bound(instance) <= bound(instance, lambda _: False)[0] <= bound(instance)[0]


def test_measured_cases_of_zero_bubble() -> None:
    # Ends of 4 stages: 1082 idle cycles; starts of 8 stages: 3 * 849.
    assert bound(FOUR) == (177816 + 1082, "ramp bound")
    assert bound(EIGHT) == (2511520 + 2547, "ramp bound")
    warm_up = Ramps(EIGHT).warm_up(2514067)
    assert warm_up is not None
    assert warm_up.tolist() == [16, 14, 12, 10, 7, 5, 3, 1]
    assert Ramps(EIGHT).warm_up(2514066) is None


def test_ramps_of_many_stages_are_not_gone_through_one_by_one() -> None:
    """16,384 stages took two seconds; every one of them asked for itself."""
    p = 3_000
    instance = PipelineSchedule.from_arrays(
        [1] * p, [2] * p, microbatches=2, memory_forward=1, memory_backward=-1, limit=2
    )
    asked: list[int] = []

    def going(steps: int) -> bool:
        asked.append(steps)
        return True

    assert ramp_bound(instance, 0, going) > 3 * p
    assert len(asked) < 300  # three for each of about twenty values


def preempted(jobs: list[tuple[int, int, int]]) -> int:
    """Return the least makespan of jobs (head, duration, tail) on one machine, cycle by cycle."""
    rest, now, latest = [duration for _, duration, _ in jobs], 0, 0
    while any(rest):
        there = [v for v, (head, _, _) in enumerate(jobs) if rest[v] and head <= now]
        now += 1
        if there:
            v = max(there, key=lambda v: jobs[v][2])
            rest[v] -= 1
            if not rest[v]:
                latest = max(latest, now + jobs[v][2])
    return latest


@pytest.mark.parametrize("seed", range(10))
def test_machines_do_their_jobs_one_cycle_at_a_time(seed: int) -> None:
    draw = np.random.default_rng(seed)
    machines = [
        [tuple(draw.integers((0, 1, 0), (20, 6, 20)).tolist()) for _ in range(count)]
        for count in draw.integers(1, 9, 4).tolist()
    ]
    first = np.cumsum([0, *map(len, machines)])
    head, duration, tail = np.array([job for jobs in machines for job in jobs]).T.copy()
    expected = [preempted(jobs) for jobs in machines]
    assert one_machine(head, duration, tail, first=first) == max(expected)
    one = slice(first[1], first[2])
    assert one_machine(head[one], duration[one], tail[one]) == expected[1]


def test_devices_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 devices, each for itself, took most of a second."""
    calls: list[object] = []
    kernel = bounds_kernels.machines

    def machines(*arguments: Any) -> bool:
        calls.append(arguments)
        return bool(kernel(*arguments))

    monkeypatch.setattr(bounds_kernels, "machines", machines)
    window_bound(PipelineSchedule.from_arrays([1] * 50, [1] * 50, microbatches=2))
    assert len(calls) == 1


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


def test_arcs_of_memory_are_counted_and_sorted_part_by_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All were counted in one call, 0.3 s in silence at eight million."""
    instance = PipelineSchedule.from_arrays(
        [1, 2], [2, 3], microbatches=20, memory_forward=1, memory_backward=-1, limit=[3, 2]
    )
    before, after = memory_arcs(instance)
    monkeypatch.setattr(effort, "PART", 1)
    looked: list[int] = []

    def going(steps: int) -> bool:
        looked.append(steps)
        return True

    network = Network.of(instance, Looks(going))
    assert looked.count(1) >= 2 * len(before) > 0
    found = [
        (v, int(w))
        for v in range(len(instance.operations))
        for w in network.after[network.first[v] : network.first[v + 1]]
    ]
    assert sorted(found) == sorted(zip(before.tolist(), after.tolist(), strict=True))


def test_the_clock_is_asked_between_sorting_jobs_and_running_them() -> None:
    jobs, asked = np.arange(3), []

    def going(steps: int) -> bool:
        asked.append(steps)
        return False

    with pytest.raises(Stopped):
        one_machine(jobs, jobs + 1, jobs, Looks(going))
    assert asked == [12]


def test_jobs_that_wait_together_take_more_steps() -> None:
    """Each passes many levels of a heap, which took five times as long as was counted."""
    n, taken = 2_000, []
    for head in (np.arange(n), np.zeros(n, dtype=np.int64)):
        asked: list[int] = []

        def going(steps: int, asked: list[int] = asked) -> bool:
            asked.append(steps)
            return True

        assert one_machine(head, np.ones_like(head), np.arange(n), Looks(going)) > 0
        taken.append(sum(asked))
    assert taken[1] > 2 * taken[0]
