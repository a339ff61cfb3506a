from __future__ import annotations

import numpy as np
import pytest

from stagepack import solvers
from stagepack.formulations.schedule import Idle
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.result import Status
from stagepack.solvers import Limits
from tests.random_schedules import best, random_schedule


def proved(model: Idle) -> int:
    """Return the idle cycles that CP-SAT proves."""
    engine = solvers.engine("cp-sat")
    engine.load()
    outcome = engine.solve(
        model.model, limits=Limits(work_limit=1.0, threads=1), parameters=model.parameters
    )
    assert outcome.status is Status.OPTIMAL
    assert outcome.bound is not None
    return model.cycles(outcome.bound)


def idle(instance: PipelineSchedule, start: Array, device: int, moment: int) -> int:
    """Return how long a device is idle before a moment in a schedule."""
    own = instance.operations.device == device
    return moment - int(np.clip(moment - start[own], 0, instance.operations.duration[own]).sum())


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_no_schedule_is_idle_for_less(first: int) -> None:
    """The best ones are not, before any moment of theirs and after any, from either end."""
    draw = np.random.default_rng(first)
    for number in range(first, first + 15):
        instance = random_schedule(number, objective=Objective.MAKESPAN)
        found = best(instance)
        if found is None:
            continue
        start = found[1].start
        end = start + instance.operations.duration
        head = np.zeros(len(start), dtype=np.int64)
        device, moment = int(draw.integers(instance.d)), int(draw.integers(1, end.max() + 1))
        apart = range(int(draw.integers(instance.d + 1)))
        for starts, back in ((start, False), (end.max() - end, True)):
            model = Idle(instance, head, device, moment, apart=apart, back=back)
            assert proved(model) <= idle(instance, starts, device, moment), f"seed {number}"


CHAIN = PipelineSchedule.from_arrays(
    [3, 2], [4, 5], microbatches=3, latency=1, memory_forward=1, memory_backward=-1, limit=[2, 1],
)  # fmt: skip


@pytest.mark.parametrize(
    ("device", "moment", "back", "expected"),
    [
        (1, 4, False, 4),  # the way there: 3 + 1
        (1, 11, False, 4),  # then F and B
        (1, 20, False, 6),  # the third F of the first stage, held up by memory, ends at 19
        (0, 15, False, 6),  # two F's fit; the first B of the second stage ends at 11, its way is 1
        (1, 5, True, 5),  # the last B of the first stage, and the way there
        (0, 4, True, 0),
    ],
)
def test_a_chain_worked_by_hand(device: int, moment: int, back: bool, expected: int) -> None:
    head = np.zeros(len(CHAIN.operations), dtype=np.int64)
    assert proved(Idle(CHAIN, head, device, moment, apart=(0, 1), back=back)) == expected


def test_what_is_proved_already_is_where_it_begins() -> None:
    head = np.zeros(len(CHAIN.operations), dtype=np.int64)
    assert proved(Idle(CHAIN, head, 1, 11, least=4)) == 4
    without = proved(Idle(CHAIN, head, 1, 20))
    assert without <= proved(Idle(CHAIN, head, 1, 20, apart=(0,)))
