from __future__ import annotations

import numpy as np
import pytest

from stagepack import solvers
from stagepack.formulations.schedule import WithinMemory
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.result import Status
from stagepack.solvers import Limits, Outcome
from tests.heuristics.schedule.cases import vee
from tests.random_schedules import lone_microbatches, optimum, random_schedule

AWKWARD = PipelineSchedule.from_arrays(
    [37, 21, 13, 21, 30], [8, 7, 36, 35, 13], [36, 14, 22, 7, 11],
    microbatches=3, devices=[0, 1, 2, 2, 0],
    edges=[(a, b) for a in range(5) for b in range(a + 1, 5)],
    memory_forward=[3, 4, 0, 4, 0], memory_backward=[2, -4, 2, -4, 1],
    memory_weight=[-5, 0, -1, 0, -1], limit=[5, 4, 5], objective="span",
)  # fmt: skip
"""45 operations that each fit alone, and in no order together."""


def outcome(model: WithinMemory) -> Outcome:
    engine = solvers.engine("cp-sat")
    engine.load()
    return engine.solve(
        model.model, limits=Limits(time_limit=None, work_limit=1.0, threads=1, seed=0)
    )


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_agrees_with_trying_every_order(first: int) -> None:
    for seed in range(first, first + 25):
        instance = random_schedule(seed)
        if WithinMemory.unsupported(instance):
            continue
        model = WithinMemory(instance)
        feasible = optimum(instance) is not None
        if model.infeasible:
            assert not feasible
            continue
        found = outcome(model)
        assert (found.status is Status.INFEASIBLE) == (not feasible)
        if found.values is not None:
            assert instance.check(model.decode(found.values)) == ()


def test_awkward_memory_is_seen_to_have_no_order() -> None:
    found = outcome(WithinMemory(AWKWARD))
    assert found.status is Status.INFEASIBLE
    assert found.work < 0.1


def test_a_schedule_is_its_orders_one_operation_after_the_other() -> None:
    instance = vee(3, 2, limit=4)
    model = WithinMemory(instance)
    solution = lone_microbatches(instance)
    found = model.decode(model.hint(solution))
    assert isinstance(found, ScheduleSolution)
    assert instance.evaluate(found) <= instance.evaluate(solution)
    assert sorted(model.hint(solution).tolist()) == list(range(len(instance.operations)))
    assert model.worth(5) == 0


def test_what_it_is_not_for() -> None:
    assert "limited memory" in WithinMemory.unsupported(vee(2, 4))
    assert "operations" in WithinMemory.unsupported(vee(8, 100, limit=32))
    huge = vee(2, 4).replace(limit=np.full(2, 1 << 50))
    assert "bytes" in WithinMemory.unsupported(huge)
