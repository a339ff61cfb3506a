"""What is interpreted where it is short finds what machine code finds."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import valleys
from stagepack.heuristics.schedule import annealing, greedy, sequences
from stagepack.heuristics.schedule.lower_bounds import counting
from stagepack.heuristics.schedule.policies import policies
from stagepack.heuristics.schedule.rules import one_by_one
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.schedule import Objective
from stagepack.kernels import compiled
from tests.heuristics.schedule.cases import looped
from tests.random_schedules import random_schedule


def _in_valleys(seed: int) -> object:
    random = np.random.default_rng(seed)
    size, start = random.integers(1, 2**40, 30), random.integers(0, 20, 30)
    end = start + random.integers(1, 9, 30)
    period = 30 if seed % 2 else None
    instance = LmemPacking.from_arrays(size, start, end, period=period, alignment=64)
    found = valleys.first(valleys.Spans(Blocks.of(instance).rounded))
    assert found is not None
    return found[0].tolist(), found[1]


def _counted(seed: int) -> object:
    instance = random_schedule(seed)
    return "" if counting.unsupported(instance) else counting.counting_bound(instance)


def _merged(seed: int) -> object:
    timing = Timing(looped(2 + seed % 3, 2, 6))
    return [order.tolist() for order in sequences.lists(timing, lambda _: True)]


def _annealed(seed: int) -> object:
    """Both objectives, and orders that memory limits."""
    instance = looped(2 + seed % 3, 2, 4).replace(objective=list(Objective)[seed % 2])
    timing, cooling = Timing(instance), annealing.Cooling(heat=0.5, weight=4.0, moves=100)
    order = one_by_one(instance, lambda _: None)
    return annealing.improve(timing, order, seed=seed, settings=cooling).tolist()


def _listed(seed: int) -> object:
    instance = random_schedule(seed)
    lists = greedy.Lists(instance)
    found = [lists.order(policy) for policy in itertools.islice(policies(instance), 3)]
    return [None if order is None else order.tolist() for order in found]


@pytest.mark.parametrize("find", [_in_valleys, _counted, _merged, _annealed, _listed])
def test_answers_are_alike(find: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few, warm_up in ((1 << 62, 1e9), (-1, 0.03)):
        monkeypatch.setattr(compiled, "FEW", few)
        monkeypatch.setattr(compiled, "WARM_UP", warm_up)
        found.append([find(seed) for seed in range(12)])
    assert found[0] == found[1]
