from __future__ import annotations

import pytest

from benchmarks.soak_schedules import MAPS, laid_out
from stagepack import solvers
from stagepack.formulations.schedule import CpSat
from stagepack.heuristics.schedule.lower_bounds import counting
from stagepack.heuristics.schedule.lower_bounds.bounds import bound
from stagepack.heuristics.schedule.lower_bounds.counting import counting_bound
from stagepack.instances.schedule import PipelineSchedule
from stagepack.result import Status
from stagepack.solvers import Limits
from tests.random_schedules import optimum, random_schedule


def equal(devices: list[int], m: int, limit: int | list[int]) -> PipelineSchedule:
    """Return stages of 500 cycles a kind on some devices, with a latency of 20."""
    p = len(devices)
    return PipelineSchedule.from_arrays(
        [500] * p, [500] * p, [500] * p, microbatches=m, devices=devices, latency=20,
        memory_forward=2, memory_backward=-1, memory_weight=-1, limit=limit,
    )  # fmt: skip


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_it_never_exceeds_the_optimum(first: int) -> None:
    for seed in range(first, first + 20):
        instance = random_schedule(seed)
        value = optimum(instance)
        if value is not None:
            assert counting_bound(instance) <= value, f"seed {seed}"


@pytest.mark.parametrize("layout", range(len(MAPS)))
def test_it_never_exceeds_what_cp_sat_proves(layout: int) -> None:
    engine = solvers.engine("cp-sat")
    engine.load()
    limits = Limits(time_limit=None, work_limit=0.1, threads=1, seed=0)
    proved = 0
    for number in range(layout, 60, len(MAPS)):
        instance = laid_out(number)
        model = CpSat(instance)
        if model.infeasible:
            continue
        outcome = engine.solve(model.model, limits=limits)
        if outcome.status is Status.OPTIMAL and outcome.bound is not None:
            proved += 1
            assert counting_bound(instance) <= model.lower_bound(outcome.bound), instance.name
    assert proved


@pytest.mark.parametrize(
    ("devices", "m", "limit", "before", "now"),
    [
        # Vs in the memory of 1F1B, both attained: (p - 1) (b + 3 c) beside the work of a device.
        ([*range(4), *reversed(range(4))], 8, 16, 25560, 25680),
        ([*range(8), *reversed(range(8))], 16, 32, 51640, 51920),
        ([*range(8), *range(8)], 16, [*range(32, 24, -1)], 51640, 51940),
    ],
)
def test_memory_that_arcs_within_a_stage_do_not_see(
    devices: list[int], m: int, limit: int | list[int], before: int, now: int
) -> None:
    instance = equal(devices, m, limit)
    assert bound(instance)[0] == before
    assert counting_bound(instance) >= now


def test_it_ends_when_told_and_returns_what_is_proved() -> None:
    instance = equal([*range(4), *reversed(range(4))], 8, 16)
    assert counting_bound(instance, 7, lambda _: False) == 7
    assert counting_bound(instance, 30_000) == 30_000


def test_what_it_is_not_for() -> None:
    many = PipelineSchedule.from_arrays([1] * 501, [1] * 501, microbatches=1)
    assert "rows" in counting.unsupported(many)
    long = PipelineSchedule.from_arrays([1], [1], microbatches=10_000)
    assert "pairs" in counting.unsupported(long)
    far = PipelineSchedule.from_arrays(
        [1 << 40], [1], microbatches=9, memory_forward=(1 << 30) + 1, memory_backward=-1,
        limit=1 << 40,
    )  # fmt: skip
    assert "64 bits" in counting.unsupported(far)
    assert counting_bound(many, 5) == 5
