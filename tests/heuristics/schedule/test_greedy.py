from __future__ import annotations

import itertools

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.schedule import annealing, greedy
from stagepack.heuristics.schedule.policies import policies
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.methods.schedule import searches
from stagepack.progress import Stopped
from stagepack.result import Status
from tests.heuristics.schedule.cases import FOUR, PUBLISHED, looped, run, vee, zero_bubble
from tests.random_schedules import lone_microbatches, optimum, random_schedule

SEARCH = searches.RUNS["greedy"]


@pytest.mark.parametrize(
    ("instance", "value"),
    [
        *PUBLISHED,
        (vee(4, 8, limit=16), 48),
        (looped(4, 2, 8), 57),
    ],
)
def test_published_cases_are_solved_and_proved(instance: PipelineSchedule, value: int) -> None:
    progress = run(SEARCH, instance, deterministic=True)
    assert progress.objective == value
    assert progress.outcome()[0] is Status.OPTIMAL


def test_no_lists_by_policies_are_made_where_annealing_suffices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their kernels take two seconds at first use."""
    monkeypatch.delattr(greedy, "policies")
    result = sp.solve(sp.load("schedule/zero-bubble/small"), "auto")
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("limit", range(16, 33, 2))
def test_every_limit_between_h1_and_h2_is_proved(limit: int) -> None:
    progress = run(SEARCH, zero_bubble(8, 32, 1, 1, 1, limit), deterministic=True)
    assert progress.objective == progress.bound == 96 + max(0, 15 - limit // 2)


@pytest.mark.parametrize("seed", range(30))
def test_any_policy_gives_a_schedule_within_memory(seed: int) -> None:
    instance = random_schedule(seed)
    value = optimum(instance)
    lists = greedy.Lists(instance)
    for policy in itertools.islice(policies(instance), 0, 200, 7):
        order = lists.order(policy)
        if order is None:
            continue
        start = lists.timing.best(order)
        assert start is not None
        solution = ScheduleSolution.of(instance, start)
        assert instance.check(solution) == ()
        assert value is not None
        assert instance.evaluate(solution) >= value


@pytest.mark.parametrize("limit", [6, 8, 10, 14, 20])
@pytest.mark.parametrize("shape", ["v", "rounds"])
def test_no_policy_runs_into_a_deadlock(limit: int, shape: str) -> None:
    d = 3
    devices = [*range(d), *(reversed(range(d)) if shape == "v" else range(d))]
    instance = vee(d, 7, limit).replace(devices=devices, forward=[3, 1, 2, 2, 1, 3])
    lists = greedy.Lists(instance)
    for policy in policies(instance):
        order = lists.order(policy)
        assert order is not None
        assert lists.timing.fits(order)


def test_memory_that_finished_microbatches_keep_is_risked() -> None:
    # W takes one unit for good, so F's must all come before W's.
    instance = PipelineSchedule.from_arrays(
        [6], [5], [8], microbatches=4, memory_forward=3, memory_backward=-3, memory_weight=1,
        limit=4,
    )  # fmt: skip
    assert run(SEARCH, instance).objective == 4 * 19


@pytest.mark.parametrize(("m", "value"), [(16, 265866), (64, 969882)])
def test_little_memory_is_used_to_the_bound(m: int, value: int) -> None:
    instance = zero_bubble(8, m, 5478, 5806, 3534, 24).replace(latency=200)
    progress = run(SEARCH, instance, deterministic=True, time_limit=2.0)
    assert progress.bound == value
    assert progress.objective is not None
    assert progress.objective <= 1.02 * value


def test_the_optimum_of_small_instances_is_mostly_found() -> None:
    found = total = 0
    for seed in range(30):
        instance = random_schedule(seed)
        value = optimum(instance)
        progress = run(SEARCH, instance, deterministic=True, time_limit=0.1)
        if value is None:
            assert progress.objective is None
            assert progress.reason or progress.infeasible_reason
            continue
        total += 1
        found += progress.objective == value
    assert found >= total - 2


def test_runs_limited_by_work_repeat() -> None:
    instance = vee(3, 4, limit=8).replace(forward=[5, 3, 7, 4, 6, 5], latency=2)
    runs = [run(SEARCH, instance, seed=4, deterministic=True, time_limit=1.0) for _ in range(2)]
    assert runs[0].objective == runs[1].objective
    assert runs[0].solution == runs[1].solution


def test_annealing_improves_a_bad_order_and_keeps_to_memory() -> None:
    instance = zero_bubble(3, 5, 4, 5, 3, 8)
    timing = Timing(instance)
    operations = instance.operations
    # One microbatch after another.
    order = np.lexsort((operations.kind, operations.microbatch, operations.device))
    met: list[int] = []

    def value(order: np.ndarray) -> int:
        start = timing.best(order)
        assert start is not None
        assert timing.fits(order)
        solution = ScheduleSolution.of(instance, start)
        assert instance.check(solution) == ()
        return int(instance.evaluate(solution))

    better = annealing.improve(
        timing, order, seed=1, on_order=lambda found: met.append(value(found))
    )
    assert value(better) <= min(met) < value(order)


def test_annealing_stops_when_told() -> None:
    timing = Timing(FOUR)
    operations = FOUR.operations
    order = np.lexsort((operations.kind, operations.microbatch, operations.device))
    assert (annealing.improve(timing, order, keep_going=lambda _: False) == order).all()


def test_annealing_never_returns_worse_orders() -> None:
    """Hot from the start, so that first moves lead uphill."""
    instance = zero_bubble(3, 5, 4, 5, 3, 8)
    progress = run(SEARCH, instance, deterministic=True, time_limit=2.0)
    assert progress.solution is not None
    timing = Timing(instance)

    def value(order: np.ndarray) -> int:
        found = timing.value(order)
        assert found is not None
        return found

    for start in (progress.solution, lone_microbatches(instance)):
        order = timing.order_of(start.start)
        for seed in range(20):
            met = [order]
            hot = annealing.Cooling(heat=2.0, weight=4.0, moves=300)
            better = annealing.improve(timing, order, seed=seed, settings=hot, on_order=met.append)
            assert value(better) == value(met[-1])
            assert all(value(one) > value(then) for one, then in itertools.pairwise(met))


def test_annealing_needs_orders_that_do_not_contradict_one_another() -> None:
    timing = Timing(PipelineSchedule.from_arrays([1], [1], microbatches=1))
    with pytest.raises(ValueError, match="contradict"):
        annealing.improve(timing, np.array([1, 0]))


def test_a_search_goes_on_from_a_better_solution() -> None:
    instance = zero_bubble(3, 5, 4, 5, 3, 8)
    poor = lone_microbatches(instance)
    progress = run(lambda *_: None, instance)
    search = greedy.OrderSearch(instance, progress, 0)
    search.adopt(poor)
    search.anneal()
    assert progress.objective is not None
    assert progress.objective < instance.evaluate(poor)
    found = progress.solution
    assert found is not None
    search.adopt(poor)  # worse by now
    search.anneal()
    assert progress.objective <= instance.evaluate(found)


def test_without_time_only_the_first_policy_is_tried() -> None:
    instance = zero_bubble(3, 5, 4, 5, 3, 8)
    progress = run(SEARCH, instance, time_limit=0.0)
    assert len(progress.trace.incumbents) == 1
    stuck = PipelineSchedule.from_arrays(
        [6], [5], [8], microbatches=4, memory_forward=3, memory_backward=-3, memory_weight=1,
        limit=4,
    )  # fmt: skip
    progress = run(SEARCH, stuck, time_limit=0.0)
    assert progress.objective is None
    assert "in time" in progress.reason  # time, not memory, was short


def test_an_interrupted_search_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "PART", 1)
    instance = zero_bubble(3, 5, 4, 5, 3, 8)
    progress = run(lambda *_: None, instance)
    search = greedy.OrderSearch(instance, progress, 0)
    progress.interrupt()
    with pytest.raises(Stopped):
        search.first_round()
    assert progress.objective is None


def test_lists_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = vee(3, 7, 8)
    chosen = list(itertools.islice(policies(instance), 0, 200, 20))
    whole = [greedy.Lists(instance).order(policy) for policy in chosen]
    monkeypatch.setattr(greedy, "PART", 1)
    parts = greedy.Lists(instance)
    for policy, expected in zip(chosen, whole, strict=True):
        assert expected is not None
        found = parts.order(policy)
        assert found is not None
        assert (found == expected).all()
    asked = iter([True, True, False])
    assert parts.order(chosen[0], lambda _: next(asked)) is None
    assert next(asked, None) is None


def test_devices_think_again_only_once_nothing_else_is_lacking() -> None:
    """With edges between all stages every placing woke all devices, which looked at all edges."""
    p, steps = 200, []

    def going(more: int) -> bool:
        steps.append(more)
        return True

    edges = np.argwhere(np.triu(np.ones((p, p), dtype=bool), 1))
    instance = PipelineSchedule.from_arrays([1] * p, [2] * p, microbatches=1, edges=edges)
    lists = greedy.Lists(instance)
    order = lists.order(next(policies(instance, 1)), going)
    assert order is not None
    assert sum(steps) < 5 * len(edges) + 300 * p
