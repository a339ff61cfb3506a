"""The least step of all stages: never above what trying all stages and schedules finds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.pipeline.step_stages import StepStages, affordable

MICROBATCHES = 3


def cluster(rng: np.random.Generator, k: int, *, alike: bool, linked: bool) -> sp.Cluster:
    """Return devices with little memory, and links that take about as long as layers."""
    kinds = 1 if alike else k
    devices = []
    link = None
    for memory in rng.integers(30, 60, kinds).tolist():
        if link is None or not linked:
            link = sp.Link(GBps=1, idle=int(rng.integers(0, 12)))
        speed = 1 if alike else float(rng.choice([0.5, 1, 1.5]))
        devices.append(sp.Device(memory=memory, speed=speed, recv=link, send=link))
    return sp.Cluster(devices=tuple((devices * k)[:k]), clock=2**28, host_recv=link)


def chain(seed: int, **changes: Any) -> sp.PipelinePartition:
    """Return a small chain; those of odd seeds on unlike devices, with like links in thirds."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 5)), int(rng.integers(2, 4))
    given: dict[str, Any] = {
        "backward": rng.integers(2, 30, n),
        "exclusive": rng.integers(1, 9, n),
        "stash": rng.integers(0, 8, n),
        "in_bytes": rng.integers(0, 6, n + 1),
        "training": True,
        "microbatches": 1,
        "cluster": cluster(rng, k, alike=seed % 2 == 0, linked=seed % 3 == 0),
        "fewer_stages": bool(rng.integers(2)),
        "free_order": bool(rng.integers(2)),
        "host_transfer": seed % 4 > 1,
    }
    return sp.PipelinePartition.from_arrays(rng.integers(2, 20, n), **{**given, **changes})


def tried(instance: sp.PipelinePartition, *, split: bool) -> dict[sp.PipelineSolution, int]:
    """Return the shortest step of all stages that fit, from a schedule of each."""
    found = {}
    alike = len({device.kind for device in instance.cluster.devices}) == 1
    for stages in range(1, instance.k + 1):
        for cuts in itertools.combinations(range(1, instance.n), stages - 1):
            orders = itertools.permutations(range(instance.k), stages)
            for devices in itertools.islice(orders, 1 if alike else None):
                solution = sp.PipelineSolution((0, *cuts, instance.n), devices)
                if instance.check(solution):
                    continue
                schedule = sp.PipelineSchedule.from_partition(
                    instance, solution, microbatches=MICROBATCHES, split=split
                )
                result = sp.solve(schedule, time_limit=5)
                if result.status is not sp.Status.INFEASIBLE:
                    assert result.bound is not None
                    found[solution] = int(result.bound)
    return found


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 9, 15])
@pytest.mark.parametrize("training", [True, False])
def test_no_stages_and_no_schedule_are_faster(seed: int, training: bool) -> None:
    instance = chain(seed, training=training)
    split = training and seed % 3 == 0
    search = StepStages(instance, MICROBATCHES, split)
    every, least = tried(instance, split=split), search.least()
    if least is None:
        assert not every
        return
    assert affordable(instance)
    best = min(every.values(), default=least.bound)
    assert least.bound <= best
    if not training:
        assert least.bound == best
    if training:
        limit = best + seed
        reached, stages = search.within(limit, 1000)
        assert reached == limit
        assert all(took >= reached for given, took in every.items() if given not in stages)
        assert len(set(stages)) == len(stages)


def test_where_there_are_too_many_stages_the_limit_is_lower() -> None:
    instance = sp.load(
        "pipeline/bert-large", training=True, cluster="ipu-pod16", host_transfer=False
    )
    search = StepStages(instance, 16)
    least = search.least()
    assert least is not None
    reached, stages = search.within(2 * least.bound, 20)
    assert least.bound <= reached < 2 * least.bound
    assert 0 < len(stages) <= 20
    assert search.within(reached, 20) == (reached, stages)
