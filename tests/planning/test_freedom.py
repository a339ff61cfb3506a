"""More freedom makes no plan worse: devices in any order, and fewer stages."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.pipeline import step_stages

FREEDOM = [
    {"free_order": free, "fewer_stages": fewer}
    for free, fewer in itertools.product((False, True), repeat=2)
]


def chain(seed: int, *, training: bool = True, n: int = 24) -> sp.PipelinePartition:
    """Return layers for two slow devices with much memory and two fast ones with little."""
    rng = np.random.default_rng(seed)
    link = sp.Link(GBps=1, idle=100)
    devices = [
        sp.Device(memory=memory, speed=speed, recv=link, send=link)
        for memory, speed in ((400, 1), (150, 2.5), (400, 1), (100, 4))
    ]
    return sp.PipelinePartition.from_arrays(
        rng.integers(1_000, 90_000, n),
        backward=rng.integers(2_000, 180_000, n),
        exclusive=rng.integers(5, 30, n),
        stash=rng.integers(1, 5, n),
        in_bytes=rng.integers(1, 50, n + 1),
        training=training,
        microbatches=8,
        cluster=sp.Cluster(devices=tuple(devices), clock=2**28),
    )


def steps(given: sp.PipelinePartition) -> list[sp.ModelPlan]:
    plans = [sp.plan_model(given.replace(**freedom), time_limit=2) for freedom in FREEDOM]
    assert all(plan.check() == () for plan in plans)
    return plans


def assert_no_worse(plans: list[sp.ModelPlan]) -> None:
    fixed = plans[0].objective
    assert fixed is not None
    for plan in plans[1:]:
        assert plan.objective is not None
        assert plan.objective <= fixed


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unlike_devices_in_any_order_are_planned_to_the_end(seed: int, training: bool) -> None:
    plans = steps(chain(seed, training=training))
    assert_no_worse(plans)
    assert all(plan.status == "OPTIMAL" for plan in plans)


@pytest.mark.parametrize("seed", [1, 2])
def test_where_orders_are_too_many_the_given_one_is_tried(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_stages, "LARGEST", 5 * 24**2)
    assert step_stages.StepStages(chain(seed).replace(free_order=True), 8).relaxed
    assert_no_worse(steps(chain(seed)))


def test_what_is_too_long_for_the_bound_is_tried_with_less_freedom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stagepack.planning.resident.affordable", lambda model: False)
    for seed in (1, 2):
        assert_no_worse(steps(chain(seed)))


def test_devices_without_layers_are_no_matter() -> None:
    given = sp.PipelinePartition.from_arrays([3, 4], devices=4, fewer_stages=True)
    assert sp.plan_model(given, microbatches=4).objective == 3 + 4 * 4


def graph(accelerators: int, seed: int = 0, **changes: Any) -> sp.GraphPartition:
    """Return a small graph whose tensors take about as long as its nodes, on unlike devices."""
    rng = np.random.default_rng(seed)
    n = 8
    given: dict[str, Any] = {
        "time": rng.integers(5, 20, n),
        "producer": range(n - 1),
        "consumers": [sorted({at + 1, int(rng.integers(at + 1, n))}) for at in range(n - 1)],
        "traffic": rng.integers(1, 30, n - 1),
        "accelerators": accelerators,
        "speeds": [1, 2, 1, 2][:accelerators],
        "capacity": 1000,
    }
    return sp.GraphPartition.from_arrays(**{**given, **changes})


def test_a_graph_on_one_device_waits_for_no_tensor() -> None:
    given: dict[str, Any] = {"producer": [0], "consumers": [[1]], "traffic": [3], "accelerators": 2}
    plan = sp.plan_model(sp.GraphPartition.from_arrays([10, 10], **given), time_limit=1)
    assert (plan.objective, plan.status, plan.check()) == (20, "OPTIMAL", ())


@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_more_devices_than_a_graph_needs_make_no_plan_slower(seed: int, microbatches: int) -> None:
    found = []
    for accelerators in (1, 2, 4):
        plan = sp.plan_model(graph(accelerators, seed), microbatches=microbatches, time_limit=1)
        assert plan.check() == ()
        assert plan.objective is not None
        found.append(plan.objective)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("training", [True, False])
def test_every_device_waits_for_the_host_with_each_microbatch(training: bool) -> None:
    given = chain(0, n=6, training=training)
    host = msgspec.structs.replace(given.cluster, host_recv=sp.Link(GBps=1, idle=5_000))
    waiting = given.replace(cluster=host, host_transfer=True, objective="sum")
    alone = sp.plan_model(waiting.replace(host_transfer=False), time_limit=2)
    plan = sp.plan_model(waiting, time_limit=2)
    assert plan.check() == ()
    assert plan.status == alone.status == "OPTIMAL"
    assert alone.objective is not None
    assert plan.objective is not None
    assert plan.objective >= alone.objective + 8 * 5_000
    # A step is no shorter than what its slowest stage does for one of its microbatches.
    one = sp.plan_model(waiting, microbatches=1, time_limit=2)
    assert one.objective is not None
    assert waiting.evaluate(one.level("partition").result.solution) <= one.objective
