"""What memory keeps in order holds in every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.instances.schedule import PipelineSchedule, memory, memory_arcs
from tests.random_schedules import best, random_schedule


@pytest.mark.parametrize("seed", range(40))
def test_memory_arcs_hold_in_an_optimal_schedule(seed: int) -> None:
    instance = random_schedule(seed)
    found = best(instance)
    if found is not None:
        start, operations = found[1].start, instance.operations
        before, after = memory_arcs(instance)
        assert (start[before] + operations.duration[before] <= start[after]).all()


def test_memory_arcs_of_a_pipeline_of_one_microbatch_in_flight() -> None:
    instance = PipelineSchedule.from_arrays(
        [1] * 3, [2] * 3, microbatches=3, memory_forward=1, memory_backward=-1, limit=1
    )
    op = instance.operations.op
    arcs = set(zip(*(column.tolist() for column in memory_arcs(instance)), strict=True))
    assert arcs == {(op(s, 1, i), op(s, 0, i + 1)) for s in range(3) for i in range(2)}


def test_memory_arcs_of_a_split_backward_pass() -> None:
    instance = PipelineSchedule.from_arrays(
        [1],
        [1],
        [1],
        microbatches=4,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=4,
    )
    # F2 needs 6: two B's, or one B and its W, have given back 2.  So B0 has ended; F3 needs B1
    # and, with the three B's there are, W0.
    op = instance.operations.op
    arcs = sorted(zip(*(column.tolist() for column in memory_arcs(instance)), strict=True))
    assert arcs == [
        (op(0, 1, 0), op(0, 0, 2)),
        (op(0, 1, 1), op(0, 0, 3)),
        (op(0, 2, 0), op(0, 0, 3)),
    ]


def test_stages_of_a_device_wait_for_one_another() -> None:
    """F of the first stage waits for B of the second, whatever comes first in between."""
    instance = PipelineSchedule.from_arrays(
        [1] * 2, [1] * 2, devices=[0, 0], microbatches=2, memory_forward=1, memory_backward=-1,
        limit=2,
    )  # fmt: skip
    op = instance.operations.op
    arcs = set(zip(*(column.tolist() for column in memory_arcs(instance)), strict=True))
    assert (op(1, 1, 0), op(0, 0, 1)) in arcs


def test_all_stages_of_devices_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of 64 stages took 25 microseconds, two seconds in all for what is looked at."""
    instance = PipelineSchedule.from_arrays(
        [1] * 128, [1] * 128, microbatches=3, devices=np.arange(128) % 2,
        memory_forward=1, memory_backward=-1, limit=70,
    )  # fmt: skip
    looks: list[int] = []
    assert len(memory_arcs(instance, looks.append)[0])
    assert len(looks) == 5  # one a device, and three for all


def test_many_pairs_are_left_out_and_looks_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 stages on 64 devices took eleven seconds without a look, and eight million arcs."""
    instance = PipelineSchedule.from_arrays(
        [1] * 16, [1] * 16, microbatches=9, devices=[0] * 8 + [1] * 7 + [2],
        memory_forward=1, memory_backward=-1, limit=[16, 14, 2],
    )  # fmt: skip
    looks: list[int] = []
    monkeypatch.setattr(memory, "TOLD", 40)
    whole = {int(d) for d in instance.operations.device[memory_arcs(instance, looks.append)[1]]}
    assert whole == {0, 1, 2}
    assert len(looks) > 10
    monkeypatch.setattr(memory, "COMPARED", 49 * (memory.PAIR + 9) + memory.PAIR + 9)
    some = {int(d) for d in instance.operations.device[memory_arcs(instance)[1]]}
    assert some == {1, 2}
    monkeypatch.setattr(memory, "COMPARED", 0)
    assert {int(d) for d in instance.operations.device[memory_arcs(instance)[1]]} == {2}
