from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.schedule import modulo
from stagepack.heuristics.schedule.greedy import Lists, shop_of
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from tests.heuristics.schedule.cases import FOUR, looped, run, vee, zero_bubble


def placed(instance: PipelineSchedule, period: int) -> np.ndarray | None:
    time = np.zeros((instance.p, 3), dtype=np.int64)
    random = np.ones(1, dtype=np.uint64)
    order = np.array(instance.order, dtype=np.int64)
    found = modulo.placed(shop_of(instance), order, period, 300, random, time, lambda _: True)
    return time if found else None


@pytest.mark.parametrize(
    ("instance", "period"),
    [
        (zero_bubble(4, 8, 5, 6, 4, None), 15),
        (zero_bubble(4, 8, 1, 1, 1, 8), 3),
        (vee(3, 8, 12), 6),
        (looped(3, 2, 6), 6),
    ],
)
def test_a_placing_repeats_without_overlap_and_within_memory(
    instance: PipelineSchedule, period: int
) -> None:
    time = placed(instance, period)
    assert time is not None
    operations = instance.operations
    start = time[operations.stage, operations.kind] + period * operations.microbatch
    solution = ScheduleSolution.of(instance, start)
    assert instance.check(solution) == ()


def test_no_period_is_shorter_than_the_work() -> None:
    assert placed(zero_bubble(4, 8, 5, 6, 4, None), 14) is None


def test_memory_lengthens_the_period() -> None:
    # One microbatch in flight: stage 0 waits for the whole round, 3 * (1 + 1) and W.
    instance = zero_bubble(3, 4, 1, 1, 1, 2)
    assert placed(instance, 6) is None
    assert placed(instance, 7) is not None


@pytest.mark.parametrize("instance", [FOUR, vee(4, 16, 16), looped(4, 2, 16)])
def test_large_steps_come_near_the_bound(instance: PipelineSchedule) -> None:
    progress = run(modulo.search, instance, deterministic=True, time_limit=2.0)
    assert progress.objective is not None
    assert progress.bound is not None
    assert progress.objective <= 1.1 * progress.bound


def test_runs_limited_by_work_repeat() -> None:
    instance = zero_bubble(3, 6, 5, 6, 4, 8)
    runs = [
        run(modulo.search, instance, seed=3, deterministic=True, time_limit=1.0) for _ in range(2)
    ]
    assert runs[0].solution is not None
    assert runs[0].solution == runs[1].solution


def test_inference_and_unequal_chains() -> None:
    assert (
        run(modulo.search, PipelineSchedule.from_arrays([2, 3, 1], microbatches=9)).objective == 30
    )
    uneven = PipelineSchedule.from_arrays(
        [1, 1], [1, 1], microbatches=[2, 3], edges=[], devices=[0, 0]
    )
    assert "same number of microbatches" in modulo.unsupported(uneven)
    assert modulo.unsupported(FOUR) == ""


def test_placings_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = vee(3, 8, 12)
    whole = placed(instance, 6)
    assert whole is not None
    monkeypatch.setattr(modulo, "LOOKED", 1)
    parts = placed(instance, 6)
    assert parts is not None
    assert (parts == whole).all()
    asked = iter([True, True, False])
    order, random = np.array(instance.order, dtype=np.int64), np.ones(1, dtype=np.uint64)
    shop, time = shop_of(instance), np.zeros((instance.p, 3), dtype=np.int64)
    assert not modulo.placed(shop, order, 6, 300, random, time, lambda _: next(asked))
    assert next(asked, None) is None


def test_a_single_placing_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two million pairs was one call, 0.23 s in silence."""
    instance = zero_bubble(4, 8, 5, 6, 4, None)
    monkeypatch.setattr(modulo, "LOOKED", 1)
    looked: list[int] = []

    def going(steps: int) -> bool:
        looked.append(steps)
        return True

    order, random = np.array(instance.order, dtype=np.int64), np.ones(1, dtype=np.uint64)
    time = np.zeros((instance.p, 3), dtype=np.int64)
    assert modulo.placed(shop_of(instance), order, 15, 1, random, time, going)
    assert len(looked) == 4 * 3 + 4  # each operation, and the memory of each device


def test_edges_count_in_a_placing() -> None:
    p, looked = 60, []

    def going(steps: int) -> bool:
        looked.append(steps)
        return True

    edges = np.argwhere(np.triu(np.ones((p, p), dtype=bool), 1))
    for instance in (
        PipelineSchedule.from_arrays([1] * p, microbatches=2),
        PipelineSchedule.from_arrays([1] * p, microbatches=2, edges=edges),
    ):
        order, random = np.arange(p), np.ones(1, dtype=np.uint64)
        time = np.zeros((p, 3), dtype=np.int64)
        modulo.placed(shop_of(instance), order, 1, 1, random, time, going)
    few, many = looked
    assert many - few > modulo.COST * (len(edges) // 2 - p)


@pytest.mark.parametrize(
    "instance", [vee(3, 8, 12), looped(3, 2, 6), zero_bubble(9, 2, 5, 6, 4, None)]
)
def test_long_delays_are_unrolled_alike_and_device_after_device(
    monkeypatch: pytest.MonkeyPatch, instance: PipelineSchedule
) -> None:
    """10,000 stages, which the first microbatch takes long to pass, took four seconds."""
    period = int(instance.work.max())
    time, lists, asked = placed(instance, period), Lists(instance), []
    assert time is not None

    def going(steps: int) -> bool:
        asked.append(steps)
        return True

    found = []
    for sparse in (0, 1000):
        monkeypatch.setattr(modulo, "SPARSE", sparse)
        found.append(modulo._unrolled(lists, time, period, going).tolist())
    assert found[0] == found[1]
    assert sorted(found[0]) == list(range(len(instance.operations)))
    assert len(asked) == 2 * instance.d
