"""What follows from precedences and memory holds in every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.formulations.schedule.frame import NONE, Frame
from stagepack.instances.schedule import PipelineSchedule
from tests.random_schedules import best, random_schedule


def test_a_round_trip_over_other_devices() -> None:
    instance = PipelineSchedule.from_arrays(
        [2, 3, 4], [5, 6, 7], [1, 1, 1], microbatches=2, latency=10, objective="makespan"
    )
    frame = Frame(instance)
    # F0, F1, F2, B2, B1 with four hops lie between the starts of F0 and B0.
    assert frame.distances[0, 1] == 2 + 3 + 4 + 7 + 6 + 4 * 10
    assert frame.distances[1, 0] == NONE
    assert {(step.one, step.then): step.distance for step in frame.steps()} == {
        ((0, 0), (0, 1)): 62,
        ((0, 1), (0, 2)): 5,
        ((1, 0), (1, 1)): 3 + 4 + 7 + 2 * 10,
        ((1, 1), (1, 2)): 6,
        ((2, 0), (2, 1)): 4,
        ((2, 1), (2, 2)): 7,
    }


def test_the_first_operation_of_a_device() -> None:
    folded = PipelineSchedule.from_arrays([1] * 4, devices=[0, 1, 1, 0], microbatches=2)
    assert [Frame(folded).first_stage(d) for d in range(2)] == [0, 1]
    apart = folded.replace(edges=[(0, 1), (3, 2)], latency=0)  # from both ends
    assert [Frame(apart).first_stage(d) for d in range(2)] == [None, None]


def test_retentions_add_up_to_the_memory() -> None:
    instance = PipelineSchedule.from_arrays(
        [1],
        [1],
        [1],
        microbatches=3,
        memory_forward=5,
        memory_backward=-2,
        memory_weight=-2,
        limit=11,
    )
    found = {(r.taken, r.given): r.nbytes for r in Frame(instance).retentions(0)}
    assert found == {(0, 1): 2, (0, 2): 2, (0, None): 1}
    taking = instance.replace(memory_backward=3, memory_weight=-6)
    found = {(r.taken, r.given): r.nbytes for r in Frame(taking).retentions(0)}
    assert found == {(1, 2): 3, (0, 2): 3, (0, None): 2}


@pytest.mark.parametrize("seeds", [range(start, start + 15) for start in range(2000, 2060, 15)])
def test_the_best_schedule_keeps_them(seeds: range) -> None:
    for seed in seeds:
        instance = random_schedule(seed)
        found = best(instance)
        if found is None:
            continue
        frame, operations = Frame(instance), instance.operations
        start = found[1].start
        end = start + operations.duration
        for step in frame.steps():
            for i in range(int(instance.microbatches[step.one[0]])):
                one, then = operations.op(*step.one, i), operations.op(*step.then, i)
                assert start[then] >= start[one] + step.distance * frame.unit
        for d in range(instance.d):
            _keeps_to_the_limit(frame, d, start, end)
            first = frame.first_stage(d)
            if first is not None:
                own = start[operations.device == d]
                assert start[operations.op(first, 0, 0)] == own.min()
        assert max(end) - min(start) <= frame.horizon * frame.unit


def _keeps_to_the_limit(frame: Frame, d: int, start: np.ndarray, end: np.ndarray) -> None:
    """Retained bytes stay within the limit, and reach the memory that the changes make."""
    instance, operations = frame.instance, frame.instance.operations
    row = np.flatnonzero(operations.device == d)
    row = row[np.argsort(start[row])]
    held = 0
    for v in row.tolist():
        delta, now = int(operations.delta[v]), int(start[v])
        retained = sum(
            r.nbytes
            for r in frame.retentions(d)
            for i in range(int(instance.microbatches[r.stage]))
            if start[operations.op(r.stage, r.taken, i)]
            <= now
            < (now + 1 if r.given is None else end[operations.op(r.stage, r.given, i)])
        )
        assert retained == held + max(delta, 0)
        assert instance.limit is None or retained <= instance.limit[d]
        held += delta
