from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.schedule import annealing
from stagepack.heuristics.schedule.anneal_kernels import Walk, anneal
from stagepack.heuristics.schedule.rules import one_by_one
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import PipelineSchedule


def walked(timing: Timing, order: np.ndarray, least: int, moves: int, seed: int = 0) -> Walk:
    """Return where so many hot moves lead."""
    walk = annealing._walk(timing, order, seed, least, 4.0)
    anneal(timing.graph, walk, 30.0, 1.0, 4.0, least, moves, 1 << 40)
    return walk


def looped(number: int, objective: str) -> PipelineSchedule:
    """Return two rounds of three devices with times drawn at random."""
    draw = np.random.default_rng(number)
    return PipelineSchedule.from_arrays(
        *draw.integers(1, 9, (3, 6)), microbatches=4, devices=[0, 1, 2] * 2, latency=number % 3,
        memory_forward=2, memory_backward=-1, memory_weight=-1, limit=14, objective=objective,
    )  # fmt: skip


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_paths_that_follow_moves_are_those_found_anew(objective: str) -> None:
    for number in range(12):
        timing = Timing(looped(number, objective))
        order = one_by_one(timing.instance, lambda _: None)
        least = int(timing.instance.work.max()) - 5
        walk = walked(timing, order, least, 200, number)
        anew = walked(timing, walk.paths.order, least, 0)
        for name in ("early", "late", "ends", "span", "excess", "total"):
            assert (getattr(walk.paths, name) == getattr(anew.paths, name)).all(), (number, name)
        assert walk.value[0] == anew.value[0]
        assert walk.energy[0] == pytest.approx(anew.energy[0])
        assert (walk.paths.order != order).any()
        assert timing.fits(walk.paths.order)


def test_two_change_places_on_all_devices_at_once() -> None:
    """One chain is slow to begin, the other slow to end: one device alone makes it longer."""
    slow, quick = [9, 1, 1, 1], [1, 1, 1, 9]
    instance = PipelineSchedule.from_arrays(
        slow + quick, microbatches=1, devices=[0, 1, 2, 3] * 2,
        edges=[(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)],
    )  # fmt: skip
    timing = Timing(instance)
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    assert timing.value(order) == 21
    cold = annealing.Cooling(heat=0.01, weight=4.0, moves=100)
    assert timing.value(annealing.improve(timing, order, settings=cold)) == 13
