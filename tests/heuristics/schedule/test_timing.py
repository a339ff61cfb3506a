from __future__ import annotations

import itertools

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.heuristics.schedule import timing
from stagepack.heuristics.schedule.lower_bounds import bounds
from stagepack.instances.schedule import (
    PipelineSchedule,
    ScheduleSolution,
    earliest,
    measure,
)
from tests.random_schedules import best, least, lone_microbatches, orders_of, random_schedule


def some_orders(instance: PipelineSchedule, draw: np.random.Generator) -> list[list[int]]:
    every = [list(itertools.islice(orders_of(instance, d), 200)) for d in range(instance.d)]
    chosen = [rows[int(draw.integers(len(rows)))] for rows in every]
    return [[instance.operations.op(*op) for op in row] for row in chosen]


@pytest.mark.parametrize("seed", range(40))
def test_earliest_agrees_with_the_plain_longest_path(seed: int) -> None:
    instance = random_schedule(seed).replace(limit=None)
    orders = some_orders(instance, np.random.default_rng(seed))
    timed = timing.Timing(instance)
    start = timed.earliest(np.array([v for row in orders for v in row]))
    expected = earliest(instance, orders)
    assert (start is None) == (expected is None)
    if start is not None:
        assert ScheduleSolution.of(instance, start) == expected


@pytest.mark.parametrize("seed", range(60))
def test_orders_get_their_least_objective(seed: int) -> None:
    instance = random_schedule(seed).replace(limit=None)
    orders = some_orders(instance, np.random.default_rng(seed))
    operations = instance.operations
    expected = least(
        instance,
        tuple(
            tuple(
                (int(operations.stage[v]), int(operations.kind[v]), int(operations.microbatch[v]))
                for v in order
            )
            for order in orders
        ),
    )
    timed = timing.Timing(instance)
    start = timed.best(np.array([v for row in orders for v in row]))
    assert (start is None) == (expected is None)
    if start is not None and expected is not None:
        solution = ScheduleSolution.of(instance, start)
        assert instance.check(solution) == ()
        assert instance.evaluate(solution) == expected[0]


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_tighten_never_worsens(seed: int) -> None:
    instance = random_schedule(seed)
    found = best(instance)
    if found is None:
        return
    value, solution = found
    late = ScheduleSolution.of(instance, 3 * solution.start)
    assert instance.evaluate(timing.tighten(instance, late)) == value


def test_first_operations_wait_where_spans_count() -> None:
    instance = PipelineSchedule.from_arrays([5, 1], microbatches=2, objective="span")
    early = earliest(instance, [[0, 1], [2, 3]])
    assert early is not None
    assert [device.span for device in measure(instance, early).devices] == [10, 6]
    late = timing.tighten(instance, early)
    assert [device.span for device in measure(instance, late).devices] == [10, 2]


def test_devices_that_wait_for_each_other_share_the_wait() -> None:
    # One after the other, each device would take 4; a lag of 1 both ways makes 6 for device 0,
    # and only a later end of device 1 could not help it.
    instance = PipelineSchedule.from_arrays(
        [1, 1], [1, 1], microbatches=1, latency=1, objective="span", optimizer=[0, 5]
    )
    solution = earliest(instance, [[0, 1], [2, 3]])
    assert solution is not None
    assert instance.evaluate(timing.tighten(instance, solution)) == 7


def test_memory_peaks_count_takes_at_starts_and_gifts_at_ends() -> None:
    instance = PipelineSchedule.from_arrays(
        [1], [1], microbatches=2, memory_forward=3, memory_backward=-3, limit=3
    )
    timed = timing.Timing(instance)
    operations = instance.operations
    f, b = (operations.op(0, 0, i) for i in (0, 1)), (operations.op(0, 1, i) for i in (0, 1))
    (f0, f1), (b0, b1) = f, b
    assert timed.peaks(np.array([f0, b0, f1, b1])).tolist() == [3]
    assert timed.fits(np.array([f0, b0, f1, b1]))
    assert timed.peaks(np.array([f0, f1, b0, b1])).tolist() == [6]
    assert not timed.fits(np.array([f0, f1, b0, b1]))


def test_orders_that_wait_for_one_another_have_no_times() -> None:
    instance = PipelineSchedule.from_arrays([1], [1], microbatches=1)
    f, b = instance.operations.op(0, 0, 0), instance.operations.op(0, 1, 0)
    timed = timing.Timing(instance)
    stuck = np.array([b, f])
    assert timed.earliest(stuck) is None
    assert timed.shortest_spans(stuck) is None
    assert timed.value(stuck) is None


def test_the_longest_times_allowed_do_not_overflow() -> None:
    cycles = 2**54
    instance = PipelineSchedule.from_arrays(
        [cycles] * 8, [cycles] * 8, microbatches=1, objective="span"
    )
    orders = timing.Timing(instance).order_of(instance.operations.kind)
    found = timing.Timing(instance).shortest_spans(orders)
    assert found is not None
    assert found[0] == 16 * cycles
    with pytest.raises(InputError, match="for every device and one more, exceed"):
        instance.replace(forward=[2**56] * 8, backward=[2**56] * 8)


def test_optimizers_count_as_they_do_in_the_objective() -> None:
    instance = PipelineSchedule.from_arrays([1, 1], microbatches=2, optimizer=[5, 1])
    for post_validation, rest in ((False, [5, 5]), (True, [5, 1])):
        timed = timing.Timing(
            instance.replace(post_validation=post_validation, objective="makespan")
        )
        assert timed.graph.rest.tolist() == rest


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_the_same_as_the_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_schedule(seed).replace(objective="span")
    order = timing.Timing(instance).order_of(lone_microbatches(instance).start)
    whole = timing.Timing(instance).shortest_spans(order)
    bound = bounds.bound(instance)
    monkeypatch.setattr(timing, "PART", 1)
    monkeypatch.setattr(bounds, "PART", 1)
    looked: list[int] = []
    parts = timing.Timing(instance, looked.append).shortest_spans(order)
    assert whole is not None
    assert parts is not None
    assert whole[0] == parts[0]
    assert (whole[1] == parts[1]).all()
    assert len(looked) >= len(order)
    assert bounds.bound(instance) == bound


def test_spans_and_sorting_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = PipelineSchedule.from_arrays([1, 2], [2, 3], microbatches=50, objective="span")
    looked: list[int] = []
    timed = timing.Timing(instance, looked.append)
    looked.clear()
    order = timed.order_of(lone_microbatches(instance).start)
    assert looked == [1000, 500, 500]  # all by their devices, then each device
    monkeypatch.setattr(timing, "PART", 30)
    looked.clear()
    timed.earliest(order)
    passes, parts = len(looked), [30, 30, 30, 30, 30, 30, 20]
    assert looked[:7] == parts
    looked.clear()
    timed.shortest_spans(order)
    assert looked[passes : passes + 7] == parts  # no paths yet to anything
    assert len(looked) == passes + 2 * 14 + 7


@pytest.mark.parametrize("seed", range(20))
def test_spans_of_many_devices_are_short_if_not_shortest(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = random_schedule(seed).replace(objective="span")
    exact = timing.Timing(instance)
    order = exact.order_of(lone_microbatches(instance).start)
    least = exact.value(order)
    monkeypatch.setattr(timing, "PATHS", 0)
    assert not exact.exact
    start = exact.best(order)
    assert start is not None
    solution = ScheduleSolution.of(instance, start)
    assert instance.replace(limit=None).check(solution) == ()
    assert least is not None
    assert least <= instance.evaluate(solution)


@pytest.mark.parametrize(("passes", "wanted"), [(0, "earliest"), (2, "good"), (4, "best")])
def test_times_are_as_good_as_time_allows(passes: int, wanted: str) -> None:
    instance = PipelineSchedule.from_arrays(
        [3, 1], [1, 5], microbatches=4, latency=2, objective="span"
    )
    timed = timing.Timing(instance)
    once = timed.n + timed.graph.arcs
    order = timed.order_of(lone_microbatches(instance).start)
    expected = getattr(timed, wanted)(order)
    found = timed.timely(order, lambda steps: steps <= passes * once)
    assert found is not None
    assert np.array_equal(found, expected)
    quick, good = timed.timely(order, lambda _: True, quick=True), timed.good(order)
    assert quick is not None
    assert good is not None
    assert quick.tolist() == good.tolist()
