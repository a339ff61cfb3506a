from __future__ import annotations

import numpy as np
import pytest

from benchmarks.layouts import gpt
from stagepack import solvers
from stagepack.formulations.schedule import CpSat
from stagepack.heuristics.schedule.lower_bounds.bounds import bound
from stagepack.heuristics.schedule.lower_bounds.counting import counting_bound
from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution
from stagepack.methods import Settings
from stagepack.methods.schedule.stretches import Stretches, unsupported
from stagepack.progress import Progress
from stagepack.result import Status
from tests.random_schedules import optimum


def tight(seed: int) -> PipelineSchedule:
    """Return a chain whose first stage holds fewer F's than there are stages."""
    draw = np.random.default_rng(seed)
    p = 3
    return PipelineSchedule.from_arrays(
        draw.integers(1, 6, p),
        draw.integers(1, 9, p),
        microbatches=3 + seed % 2,
        latency=int(draw.integers(0, 3)),
        memory_forward=2,
        memory_backward=-int(draw.integers(1, 3)),
        limit=int(draw.integers(3, 6)),
        optimizer=int(draw.integers(0, 3)),
        objective=list(Objective)[int(draw.integers(2))],
    )


def found(instance: PipelineSchedule, work: float) -> Stretches:
    """Return what is found of fewer microbatches in so many seconds of work."""
    engine = solvers.engine("cp-sat")
    engine.load()
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    stretches = Stretches(instance, progress, engine, Settings())
    stretches.find(work)
    return stretches


def test_it_never_exceeds_the_optimum_and_cuts_off_no_schedule() -> None:
    tried = 0
    for seed in range(16):
        instance = tight(seed)
        value = None if unsupported(instance) else optimum(instance)
        if value is None:
            continue
        tried += 1
        cycles = found(instance, 5.0).cycles
        for count, least in cycles.items():
            fewer = instance.replace(microbatches=count, objective=Objective.MAKESPAN)
            assert least <= (optimum(fewer) or 0), f"seed {seed}"
        model = CpSat(instance, stretches=cycles)
        outcome = solvers.engine("cp-sat").solve(model.model, limits=solvers.Limits(threads=1))
        assert outcome.status is Status.OPTIMAL
        assert outcome.objective is not None
        assert round(outcome.objective) * model.frame.unit == value, f"seed {seed}"
    assert tried > 5


def test_it_sees_what_is_in_the_way_on_the_way_back() -> None:
    instance = gpt(5, 1, 9, split=False, limit=2 * 3)
    stretches = found(instance, 4.0)
    count = max(stretches.cycles)
    fewer = instance.replace(microbatches=count)
    assert stretches.cycles[count] > counting_bound(fewer, bound(fewer)[0])
    orders = stretches.prolonged()
    assert orders
    assert not stretches.prolonged()  # those that are new


FOUR = PipelineSchedule.from_arrays(
    [1] * 4, [1] * 4, microbatches=6, memory_forward=2, memory_backward=-2, limit=6
)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (FOUR, ""),
        (FOUR.replace(limit=None), "memory"),
        (FOUR.replace(limit=8), "fewer F's"),
        (FOUR.replace(devices=[0, 0, 1, 1], limit=6, optimizer=0), "device each"),
        (FOUR.replace(weight=[1] * 4), "one piece"),
        (FOUR.replace(edges=[(0, 1), (2, 3)], latency=0), "first stage"),
        (FOUR.replace(microbatches=4_000), "operations"),
    ],
)
def test_what_it_is_not_for(instance: PipelineSchedule, said: str) -> None:
    assert said in unsupported(instance)
    assert bool(said) == bool(unsupported(instance))
