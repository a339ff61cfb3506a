from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, measure, rows
from stagepack.instances.schedule.check import LISTED
from tests.random_schedules import best, by_list, lone_microbatches, random_schedule

check = importlib.import_module("stagepack.instances.schedule.check")  # not its function


def unit(p: int, m: int, *, b: int = 2, w: int = 0, **fields: Any) -> PipelineSchedule:
    return PipelineSchedule.from_arrays(
        np.full(p, 1), np.full(p, b), np.full(p, w) if w else None, microbatches=m, **fields
    )


def rules(instance: PipelineSchedule, start: Any) -> set[str]:
    return {v.rule for v in instance.check(ScheduleSolution.of(instance, start))}


# Two stages, one microbatch: F0 [0, 1), F1 [3, 4), B1 [4, 6), B0 [8, 10).
LINKED = {"latency": 2, "memory_forward": 2, "memory_backward": -2}
VALID = [0, 8, 3, 4]


def test_each_rule_is_named() -> None:
    instance = unit(2, 1, **LINKED, limit=2)
    assert rules(instance, VALID) == set()
    assert rules(instance, [-1, 8, 3, 4]) == {"start"}
    assert rules(instance, [0, 2**62, 3, 4]) == {"start"}
    assert rules(instance, [0, 8, 0, 4]) == {"forward-dependency"}
    assert rules(instance, [0, 8, 2, 4]) == {"link"}
    assert rules(instance, [0, 5, 3, 4]) == {"backward-dependency"}
    assert rules(instance, [0, 7, 3, 4]) == {"link"}
    assert rules(instance, [0, 8, 3, 3]) == {"backward-dependency", "overlap"}
    assert rules(instance.replace(limit=1), VALID) == {"memory"}
    weighted = unit(1, 1, w=3)
    assert rules(weighted, [0, 1, 3]) == set()
    assert rules(weighted, [0, 4, 1]) == {"weight-dependency"}
    two = unit(1, 2)
    assert rules(two, [0, 1, 2, 4]) == set()
    assert rules(two, [1, 0, 2, 4]) == {"order"}
    assert rules(two, [0, 0, 2, 4]) == {"overlap"}
    assert rules(two, [0, 4, 1, 3]) == {"overlap", "backward-dependency"}


def test_what_is_said_of_a_violation() -> None:
    instance = unit(2, 1, **LINKED, limit=2, stage_names=["one", "two"])
    (found,) = check.check(instance, ScheduleSolution.of(instance, [0, 7, 3, 4]))
    assert found.detail == (
        "B of one for microbatch 0 starts at 7, 1 before the result of B of two for microbatch 0 "
        "arrives at 8"
    )
    tight = instance.replace(limit=[1, 2])
    (found,) = check.check(tight, ScheduleSolution.of(tight, VALID))
    assert found.detail == (
        "device 0 holds 2 of 1 at 0, 1 too much, and too much first at 0, with F of one for "
        "microbatch 0"
    )
    (found,) = check.check(unit(1, 2), ScheduleSolution.of(unit(1, 2), [0, 1, 2, 3]))
    assert found.detail == (
        "on device 0 B of stage 0 for microbatch 1 starts at 3, 1 before the end of B of stage 0 "
        "for microbatch 0"
    )


def test_other_shapes() -> None:
    instance = unit(2, 1)
    for other in (unit(2, 2), unit(3, 1), unit(2, 1, w=1)):
        assert [v.rule for v in instance.check(by_list(other))] == ["shape"]
    odd = ScheduleSolution(np.zeros(4), 2, (1, 1))
    assert [v.rule for v in instance.check(odd)] == ["shape"]
    short = ScheduleSolution(np.zeros(3, dtype=np.int64), 2, (1, 1))
    assert [v.rule for v in instance.check(short)] == ["shape"]


def test_an_overlap_with_a_long_operation_behind_short_ones() -> None:
    instance = PipelineSchedule.from_arrays([9, 1], microbatches=2, devices=[0, 0], edges=[])
    # [0, 9), [20, 29) of stage 0; [3, 4), [5, 6) of stage 1.
    found = instance.check(ScheduleSolution.of(instance, [0, 20, 3, 5]))
    assert [v.rule for v in found] == ["overlap", "overlap"]


def test_memory_is_released_at_ends_before_it_is_taken() -> None:
    instance = unit(1, 2, memory_forward=2, memory_backward=-2, limit=2)
    assert rules(instance, [0, 3, 1, 4]) == set()  # F0 B0 F1 B1: the second F as B0 ends
    assert rules(instance, [0, 1, 2, 4]) == {"memory"}
    taken = unit(1, 1, memory_forward=1, memory_backward=1, limit=1)
    assert rules(taken, [0, 5]) == {"memory"}
    assert rules(taken.replace(limit=2), [0, 5]) == set()


def test_many_violations_are_counted() -> None:
    instance = unit(1, 300)
    found = instance.check(ScheduleSolution.of(instance, np.zeros(600)))
    overlaps = [v for v in found if v.rule == "overlap"]
    assert len(overlaps) == LISTED + 1
    assert overlaps[-1].detail == "and 499 more"


@pytest.mark.parametrize("p", [1, 2, 4, 7])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_the_closed_form_of_gpipe(p: int, m: int) -> None:
    """3(m + p - 1) cycles, bubble (p - 1)/(m + p - 1), m in flight; F = 1, B = 2."""
    instance = unit(p, m, memory_forward=1, memory_backward=-1)
    start = [
        [[s + i for i in range(m)], [m + p - 1 + 2 * (p - 1 - s + i) for i in range(m)]]
        for s in range(p)
    ]
    solution = ScheduleSolution.from_dict({"start": start}, instance)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == 3 * (m + p - 1)
    found = measure(instance, solution)
    assert found.makespan == found.span == found.total == 3 * (m + p - 1)
    assert found.bubble == pytest.approx((p - 1) / (m + p - 1))
    assert found.step_bubble == pytest.approx((p - 1) / (m + p - 1))
    assert [stage.in_flight for stage in found.stages] == [m] * p
    assert [device.peak_memory for device in found.devices] == [m] * p
    assert [device.in_flight for device in found.devices] == [m] * p
    assert {device.busy for device in found.devices} == {3 * m}


def test_what_is_measured() -> None:
    instance = unit(2, 1, **LINKED, optimizer=[3, 5], steps=4)
    solution = ScheduleSolution.of(instance, [0, 8, 3, 4])
    found = measure(instance, solution)
    assert instance.evaluate(solution) == found.makespan == 10 + 5
    assert found.total == 4 * 15
    assert found.span == 13  # device 0: [0, 10) and 3; device 1: [3, 6) and 5
    first, second = found.devices
    assert (first.first, first.last, first.span, first.busy, first.idle) == (0, 10, 13, 6, 7)
    assert (second.first, second.last, second.span, second.busy, second.idle) == (3, 6, 8, 8, 0)
    assert (first.bubble, found.bubble) == (7 / 13, 7 / 13)
    assert first.step_bubble == 9 / 15
    assert found.step_bubble == pytest.approx(1 - 14 / 30)
    assert instance.replace(objective="span").evaluate(solution) == 13
    at_once = instance.replace(post_validation=True)
    found = measure(at_once, solution)
    assert at_once.evaluate(solution) == 13
    assert found.makespan == 13
    assert found.total == 3 * 13 + 13
    assert found.to_dict()["devices"][0]["idle"] == 7


def test_rings_have_a_slot_for_every_microbatch_alive() -> None:
    """One forward, one backward: p, p - 1, ..., 1 microbatches in flight."""
    p, m = 3, 6
    instance = unit(p, m)
    start = []
    for s in range(p):
        forward = [s + (i if i < p - s else 0) for i in range(m)]
        backward = [p + 2 * (p - 1 - s) + 3 * i for i in range(m)]
        for i in range(p - s, m):
            forward[i] = backward[i - (p - s)] + 2
        start.append([forward, backward])
    solution = ScheduleSolution.from_dict({"start": start}, instance)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == 3 * (m + p - 1)
    found = measure(instance, solution)
    assert [stage.in_flight for stage in found.stages] == [3, 2, 1]
    depth = {(ring.producer, ring.consumer): ring.depth for ring in found.rings}
    assert [depth[(s, "F"), (s, "B")] for s in range(p)] == [3, 2, 1]
    assert depth[(2, "B"), (1, "B")] == 2  # the next begins as this is read
    assert set(depth) >= {((0, "F"), (1, "F")), ((1, "B"), (0, "B"))}


@given(st.integers(0, 10**6), st.data())
@settings(max_examples=60)
def test_moving_one_operation_is_found_out(seed: int, data: Any) -> None:
    """Against a checker of two operations and one moment at a time."""
    instance = random_schedule(seed)
    found = best(instance)
    solution = by_list(instance) if found is None else found[1]
    start = solution.start.copy()
    at = data.draw(st.integers(0, len(start) - 1))
    start[at] = max(0, start[at] + data.draw(st.integers(-4, 4)))
    moved = ScheduleSolution.of(instance, start)
    right = slowly_right(instance, moved)
    assert (instance.check(moved) == ()) == right
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK", data.draw(st.integers(1, 9)))
        patch.setattr(rows, "FEWEST", data.draw(st.integers(1, 3)))
        assert (instance.check(moved) == ()) == right


def test_what_is_right_takes_no_look_at_single_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """16,000 stages took seconds to check, device by device."""
    instance = unit(300, 2, memory_forward=1, memory_backward=-1, limit=2)
    solution = lone_microbatches(instance)
    for name in ("_overlaps", "_over_limit"):
        monkeypatch.delattr(check, name)
    assert instance.check(solution) == ()
    with pytest.raises(NameError):
        instance.check(ScheduleSolution.of(instance, solution.start // 2))


def test_long_rows_are_looked_at_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of operations were sorted at once: most of the time went to memory never seen."""
    instance = unit(1, 500, memory_forward=1, memory_backward=-1, limit=1)
    monkeypatch.setattr(rows, "BLOCK", 64)
    monkeypatch.setattr(rows, "FEWEST", 8)
    sorted_at_once: list[int] = []

    def ordered(moment: Array, device: Array) -> Array:
        sorted_at_once.append(len(moment))
        return np.lexsort((moment, device))

    monkeypatch.setattr(rows, "_ordered", ordered)
    solution = lone_microbatches(instance)
    assert instance.check(solution) == ()
    assert sum(sorted_at_once) == 2 * len(solution.start)
    assert max(sorted_at_once) <= 4 * 64
    late = solution.start.copy()
    late[250] += 1  # the F of one microbatch in the midst
    assert {found.rule for found in instance.check(ScheduleSolution.of(instance, late))} == {
        "overlap",
        "backward-dependency",
    }


def slowly_right(instance: PipelineSchedule, solution: ScheduleSolution) -> bool:
    starts = [rows.tolist() for rows in solution.stages]
    columns = [c for c in (instance.forward, instance.backward, instance.weight) if c is not None]
    length = [[int(c[s]) for c in columns] for s in range(instance.p)]
    changes = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    runs = [
        (starts[s][k][i], starts[s][k][i] + length[s][k], s, k, i)
        for s in range(instance.p)
        for k in range(len(columns))
        for i in range(int(instance.microbatches[s]))
    ]
    for begin, end, s, k, i in runs:
        for begin2, end2, s2, k2, i2 in runs:
            same = (s, k, i) == (s2, k2, i2)
            together = instance.devices[s] == instance.devices[s2] and not same
            if together and begin < end2 and begin2 < end:
                return False
            if (s, k) == (s2, k2) and i < i2 and begin2 < begin:
                return False
            if s == s2 and i == i2 and k < k2 and begin2 < end:
                return False
            for (a, b), latency in zip(instance.edges, instance.latency.tolist(), strict=True):
                lag = 0 if instance.devices[a] == instance.devices[b] else latency
                ends = (s, s2) == (a, b) if k == 0 else (s2, s) == (a, b)
                if ends and k == k2 < 2 and i == i2 and begin2 < end + lag:
                    return False
    if instance.limit is None:
        return True
    for moment in {t for run in runs for t in run[:2]}:
        for device in range(instance.d):
            held = 0
            for begin, end, s, k, _ in runs:
                change = int(changes[k][s])
                counts = begin <= moment if change > 0 else end <= moment
                held += change * (counts and int(instance.devices[s]) == device)
            if held > instance.limit[device]:
                return False
    return True


@pytest.mark.parametrize("scale", [1, 2**58], ids=["one number for both", "too large for that"])
def test_operations_are_ordered_by_device_and_moment(scale: int) -> None:
    draw = np.random.default_rng(3)
    device = np.repeat([4, 5, 9], [7, 5, 8])
    moment = scale * draw.integers(0, 6, len(device))
    expected = sorted(range(len(device)), key=lambda v: (device[v], moment[v]))
    assert rows._ordered(moment, device).tolist() == expected


def test_edges_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [(a, b) for b in range(5) for a in range(b)]
    instance = unit(5, 3, edges=edges, latency=1)
    at_once = check.check(instance, ScheduleSolution.of(instance, np.zeros(30, dtype=np.int64)))
    monkeypatch.setattr(check, "BLOCK", 3)
    in_parts = check.check(instance, ScheduleSolution.of(instance, np.zeros(30, dtype=np.int64)))
    assert {v.rule for v in at_once} >= {"forward-dependency", "backward-dependency"}
    assert sorted(map(str, in_parts)) == sorted(map(str, at_once))
