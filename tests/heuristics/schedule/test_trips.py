"""Labels of chains, against trying every order."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.layouts import gpt
from stagepack.heuristics.schedule import trips
from stagepack.heuristics.schedule import trips_kernels as kernels
from stagepack.heuristics.schedule.rules import one_by_one
from stagepack.heuristics.schedule.timing import Timing
from stagepack.heuristics.schedule.tuning import TUNING, LabelsTuning, Way
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution, least_memory
from stagepack.progress import Progress
from tests.random_schedules import optimum

ALL, BEST, NEAR, MERGED = Way


def chain(seed: int) -> PipelineSchedule:
    """Return a small chain: any order of stages and devices, B and W in one or apart."""
    draw = np.random.default_rng(seed)
    split = seed % 2 == 0
    p = 2 if split else 3
    stage, longest = draw.permutation(p), int(draw.choice([2, 9]))
    held = draw.integers(1, 4, p)
    given = held // 2 if split else held
    instance = PipelineSchedule.from_arrays(
        draw.integers(1, longest + 1, p),
        draw.integers(1, longest + 1, p),
        draw.integers(1, longest + 1, p) if split else None,
        microbatches=3,
        edges=[(int(stage[a]), int(stage[a + 1])) for a in range(p - 1)],
        devices=draw.permutation(p).tolist(),
        latency=draw.integers(0, longest + 1, p - 1),
        memory_forward=held,
        memory_backward=-given,
        memory_weight=given - held if split else 0,
        optimizer=int(draw.integers(0, 3)),
    )
    return instance.replace(limit=least_memory(instance) + draw.integers(0, 4, p))


def tuned(*sweeps: tuple[int, Way], **changes: object) -> LabelsTuning:
    """Return what makes only these sweeps, where some are given."""
    if sweeps:
        changes |= {"widths": [width for width, _ in sweeps]}
        changes |= {"ways": [way.value for _, way in sweeps]}
    return TUNING.labels.changed(changes)


def found(
    instance: PipelineSchedule, *sweeps: tuple[int, Way], **changes: object
) -> Progress[ScheduleSolution]:
    """Return what is known once all sweeps are made; schedules are checked where offered."""
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    trips.Trips(instance, progress, tuned(*sweeps, **changes)).find(60.0)
    return progress


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_trying_everything(seed: int) -> None:
    instance = chain(seed)
    assert trips.unsupported(instance) == ""
    progress = found(instance)
    assert progress.objective == progress.bound == optimum(instance)


def test_few_labels_make_schedules_and_safe_bounds() -> None:
    instance = gpt(5, 1, 9, limit=2 * 3)
    best = found(instance)
    assert best.objective == best.bound
    few = found(instance, (40, ALL), (40, BEST), (40, MERGED))
    assert 0 < (few.bound or 0) <= (best.objective or 0) <= (few.objective or 0)


@pytest.mark.parametrize("seed", range(12))
def test_merged_labels_are_bounds(seed: int) -> None:
    instance = chain(seed)
    assert 0 < (found(instance, (2, MERGED)).bound or 0) <= (optimum(instance) or 0)


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_interrupted_weights_ask_for_no_more_the_fewer_stages_they_stay_whole_on(seed: int) -> None:
    instance, values = chain(seed), [0]
    for whole in range(instance.p + 1):
        progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
        for _ in trips.Trips(instance, progress)._sweep(5_000, MERGED, whole):
            pass
        values.append(int(progress.bound or 0))
    assert values == sorted(values)
    assert values[-1] == optimum(instance)


def test_interrupted_weights_prove_more_with_as_many_labels() -> None:
    instance = gpt(7, 1, 14, limit=2 * 4)
    best = found(instance)
    few = found(instance, (500, MERGED))
    assert best.objective == few.bound == 70_252  # 70,111 with all W's whole


def test_weights_stay_whole_where_pieces_are_too_many_to_count() -> None:
    instance = gpt(3, 1, 6, limit=2 * 2)
    assert instance.backward is not None
    assert instance.weight is not None
    cycles, memory = 10**9, 10**8
    large = instance.replace(
        forward=instance.forward * cycles,
        backward=instance.backward * cycles,
        weight=instance.weight * cycles,
        memory_forward=2 * memory + 1,  # no unit that all have in common
        memory_backward=-memory,
        memory_weight=-memory - 1,
        limit=2 * (2 * memory + 1),
    )
    assert trips.interrupted(trips.chain_of(large), 0).pieces.tolist() == [1, 1, 1]
    whole = trips.interrupted(trips.chain_of(instance), 1)
    assert whole.pieces[0] == 1
    assert (whole.pieces[1:] == instance.weight[1:]).all()
    assert found(large).bound == found(large).objective


def test_merged_labels_are_close_to_the_optimum() -> None:
    instance = gpt(6, 1, 12, limit=2 * 4)
    best = found(instance)
    merged = found(instance, (100, MERGED))
    assert 0.97 * (best.objective or 0) < (merged.bound or 0) <= (best.objective or 0)


def test_merged_labels_keep_how_long_stages_were_idle() -> None:
    few = found(gpt(7, 1, 28, limit=2 * 5), (300, MERGED))
    assert few.bound == 117_857  # 107,002 with as many W's done as either label has


def test_a_label_that_can_run_weights_in_time_is_merged_without_them() -> None:
    # One stage: F's and W's done, free; and an F that is on its way.
    labels = np.array([[3, 40, 100, 90], [3, 45, 150, 80], [3, 45, 144, 95]])
    for other, weights, free, forward in ((1, 40, 100, 80), (2, 41, 100, 90)):
        pair, gone = labels[[0, other]], np.zeros(2, dtype=np.bool_)
        order, whose = np.array([1]), np.array([-1, 0])
        assert kernels.absorb(1, pair, np.array([10]), order, whose, gone, 1, True) == 1
        assert gone.tolist() == [False, True]
        assert pair[0].tolist() == [3, weights, free, forward]


@pytest.mark.parametrize("seed", range(12))
def test_labels_near_a_schedule_prove_no_more_than_the_optimum(seed: int) -> None:
    instance, best = chain(seed), optimum(chain(seed)) or 0
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    order = one_by_one(instance, lambda _: None)
    assert order is not None
    start = Timing(instance).best(order)
    assert start is not None
    progress.offer(ScheduleSolution.of(instance, start), "one by one")
    trips.Trips(instance, progress, tuned((5_000, NEAR))).find(60.0)
    assert (progress.bound or 0) <= best <= (progress.objective or 0)


def test_labels_near_the_best_find_shorter_schedules() -> None:
    instance = gpt(7, 1, 20, limit=2 * 5)
    far = found(instance, (100, BEST))
    near = found(instance, (100, BEST), (100, NEAR))
    assert (near.objective or 0) < (far.objective or 0)


def test_routes_get_better_with_the_weights_of_ever_more_stages_in_one_piece() -> None:
    near = found(gpt(9, 1, 16, limit=2 * 6), (100, BEST), (100, NEAR))
    assert (near.objective or 0) <= 74_464  # 75,991 with the route of interrupted W's alone


def test_routes_are_as_many_forwards_as_come_before_each_backward() -> None:
    instance = PipelineSchedule.from_arrays(
        [2, 2], [2, 2], microbatches=3, memory_forward=1, memory_backward=-1, limit=2
    )
    start = Timing(instance).best(np.array([0, 1, 3, 2, 4, 5, 6, 9, 7, 10, 8, 11]))
    assert start is not None
    route = trips.route_of(instance, ScheduleSolution.of(instance, start))
    assert route.tolist() == [[2, 1], [3, 2], [3, 3]]


def test_a_label_that_becomes_too_many_ends_the_sweep() -> None:
    for way in (BEST, MERGED):  # and does not go on for ever
        assert found(gpt(8, 1, 9, limit=2 * 6), (20, way), room=60).objective is None


def test_room_that_others_use_up_does_not_end_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = gpt(7, 1, 12, limit=2 * 5)
    whole = found(instance, (100, BEST), room=500)
    monkeypatch.setattr(trips, "PART", 1)
    assert found(instance, (100, BEST), room=500).objective == whole.objective is not None


def test_labels_made_in_small_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = gpt(4, 1, 8, limit=2 * 3)
    whole = found(instance)
    monkeypatch.setattr(trips, "PART", 1_000)
    parts = found(instance, room=400)
    assert parts.objective == parts.bound == whole.objective


def test_what_is_known_of_fewer_microbatches_is_no_more_than_they_need() -> None:
    instance = gpt(4, 1, 9, split=False, limit=2 * 2)
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    labels = trips.Trips(instance, progress)
    labels.find(60.0)
    for count in (1, 3, 5, 7):
        assert labels.rest(count) <= (found(instance.replace(microbatches=count)).objective or 0)


FOUR = gpt(4, 1, 6, limit=8)


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (FOUR, ""),
        (FOUR.replace(limit=None), "memory"),
        (FOUR.replace(objective="span"), "makespan"),
        (FOUR.replace(devices=[0, 1, 1, 0], limit=8, optimizer=0), "device each"),
        (FOUR.replace(edges=[(0, 1), (2, 3)], latency=0), "chain"),
        (FOUR.replace(memory_backward=1), "that do not"),
        (gpt(4, 1, 20, limit=40), "under way"),
    ],
)
def test_it_is_for_chains_within_a_memory(instance: PipelineSchedule, said: str) -> None:
    assert said in trips.unsupported(instance)
    assert bool(said) == bool(trips.unsupported(instance))
