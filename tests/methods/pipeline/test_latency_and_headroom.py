"""What a sample takes from end to end, and how many tokens fit: by hand, and by trying all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.instances.tradeoffs import axis
from stagepack.verify import verify
from tests.random_pipelines import asked, optimum, random_instance

OBJECTIVES = ("latency", "headroom")


def served(**changes: Any) -> sp.PipelinePartition:
    """Return four layers of 4 bytes, and 1 a token, on devices of 12 and 32 bytes."""
    given: dict[str, Any] = {
        "devices": 2, "capacity": [12, 32], "exclusive": [4] * 4, "kv_bytes": 1,
        "objective": "headroom",
    }  # fmt: skip
    return sp.PipelinePartition.from_arrays([3, 4, 5, 6], **{**given, **changes})


# ---------------------------------------------------------------------- by hand


def test_latency_adds_up_stages_and_transfers() -> None:
    link = Link(GBps=1, idle=2)
    cluster = Cluster(
        devices=(Device(send=link), Device(recv=link, speed=2)),
        clock=2.0**30, host_recv=link, host_send=link,
    )  # fmt: skip
    instance = sp.PipelinePartition.from_arrays(
        [10, 20, 30], cluster=cluster, in_bytes=[7, 1, 5, 3], out_bytes=[7, 1, 5, 3],
        objective="latency", host_transfer=True,
    )  # fmt: skip
    # 10 + (20 + 30) / 2; the cut is sent and received, 1 byte after 2 cycles; 9 + 5 for the host.
    assert instance.evaluate(sp.PipelineSolution((0, 1, 3), (0, 1))) == 35 + 3 + 3 + 14
    assert sp.solve(instance).objective == 55
    # One device that is faster: no transfers but those of the host.
    assert sp.solve(instance.replace(fewer_stages=True)).objective == 30 + 14


def test_headroom_is_that_of_the_fullest_device() -> None:
    instance = served()
    # 12 bytes hold a layer and 8 tokens; 32 hold three and 6 of each.
    assert instance.evaluate(sp.PipelineSolution((0, 1, 4), (0, 1))) == -6
    assert instance.evaluate(sp.PipelineSolution((0, 2, 4), (0, 1))) == -2
    result = sp.solve(instance)
    assert (result.objective, result.bound, result.status) == (-6, -6, "OPTIMAL")
    assert "6 tokens" in str(result)


def test_layers_without_a_cache_limit_nothing() -> None:
    instance = served(exclusive=[12, 4, 4, 4], kv_bytes=[0, 1, 1, 1])
    assert sp.solve(instance).objective == -6  # although the first device is full


def test_tokens_are_a_limit_of_every_objective() -> None:
    instance = served(objective="bottleneck")
    assert sp.solve(instance).solution == sp.PipelineSolution((0, 2, 4), (0, 1))
    held = sp.solve(instance.replace(tokens=6))
    assert held.solution == sp.PipelineSolution((0, 1, 4), (0, 1))
    many = sp.solve(instance.replace(tokens=7))
    assert many.status == "INFEASIBLE"
    assert "with the cache of 7 tokens (headroom finds the most)" in many.reason
    assert sp.solve(served(tokens=7)).status == "INFEASIBLE"
    assert sp.solve(served(tokens=6)).objective == -6


def test_cached_bytes_are_told_by_stage() -> None:
    instance = served(tokens=6)
    found = sp.estimate(instance, sp.PipelineSolution((0, 1, 4), (0, 1)))
    assert [stage.exclusive for stage in found.stages] == [
        {"memory": 4, "KV cache": 6}, {"memory": 12, "KV cache": 18}
    ]  # fmt: skip
    assert [stage.memory for stage in found.stages] == [10, 30]


# ---------------------------------------------------------------------- by trying everything


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_agrees_with_trying_everything(objective: str) -> None:
    for seed in range(500):
        instance = asked(random_instance(seed, largest_k=4), objective, seed)
        result, best = sp.solve(instance), optimum(instance)
        assert result.termination == "PROVED", instance.name
        shown = None
        if best is None:
            assert result.status == "INFEASIBLE", instance.name
        else:
            assert result.objective == pytest.approx(best[0], rel=instance.tolerance, abs=0)
            costs = RangeCosts(instance)
            slack = instance.tolerance * abs(best[0])
            assert costs.bound(objective_bound(costs)) <= best[0] + slack, instance.name
            shown = result.bound
            above = best[0] + 1 if instance.tolerance == 0 else best[0] + 1e-6 * abs(best[0]) + 1e-6
            assert not verify(instance, above, result.proof, result.evidence).shown
            assert not verify(instance, None, result.proof, result.evidence).shown
        assert result.proof == "witness", instance.name
        assert verify(instance, shown, result.proof, result.evidence).shown, instance.name


@pytest.mark.parametrize("method", ["cp-sat", "milp-interval", "greedy", "greedy-repair"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_methods_agree(objective: str, method: str) -> None:
    tried = 0
    for seed in range(40):
        instance = asked(random_instance(seed, largest_n=5), objective, seed)
        info = next(one for one in sp.methods(instance) if one.name == method)
        if instance.tolerance or not info.available:
            continue
        tried += 1
        result, best = sp.solve(instance, method), optimum(instance)
        if info.exact:
            assert result.termination == "PROVED"
            assert result.objective == (None if best is None else best[0]), instance.name
        elif result.objective is not None:
            assert best is not None
            assert result.bound is not None
            assert result.bound <= best[0] <= result.objective
    assert bool(tried) == ((objective, method) != ("latency", "milp-interval"))


def test_headroom_is_what_tokens_as_a_limit_leave() -> None:
    for seed in range(60):
        instance = asked(random_instance(seed), "headroom", seed).replace(tokens=0)
        most = sp.solve(instance).objective
        if most is not None:
            plain = instance.replace(objective="bottleneck")
            assert sp.solve(plain.replace(tokens=-int(most))).status == "OPTIMAL"
            assert sp.solve(plain.replace(tokens=1 - int(most))).status == "INFEASIBLE"


@pytest.mark.parametrize("method", ["dp", "cp-sat", "milp-interval"])
def test_tokens_are_exact_where_cycles_are_not(method: str) -> None:
    instance = sp.PipelinePartition.from_arrays(
        [0.5] * 5,
        devices=2,
        capacity=120_693_577_359,
        exclusive=[10**9 * each for each in (26, 13, 22, 28, 14)],
        kv_bytes=[4, 4, 1, 3, 3],
        objective="headroom",
    )
    assert instance.tolerance == 0
    result = sp.solve(instance, method)
    best = optimum(instance)
    assert best is not None
    assert (result.status, result.objective) == ("OPTIMAL", best[0])


def test_tokens_multiply_nothing_but_the_cache() -> None:
    instance = served(exclusive=[10**12] * 4, capacity=4 * 10**12 + 10**7)
    result = sp.solve(instance.replace(objective="bottleneck", tokens=5 * 10**6))
    assert result.status == "OPTIMAL"


def test_nothing_takes_less_than_no_time() -> None:
    table = np.full((3, 3), 1 / 7)
    table[0, 2] = 0
    instance = sp.PipelinePartition.from_arrays(
        None, devices=2, compute_table=table, fewer_stages=True
    )
    result = sp.solve(instance)
    assert (result.status, result.objective, result.bound) == ("OPTIMAL", 0, 0)


def test_the_cheapest_of_all_choices_of_sixteen_unlike_devices() -> None:
    devices = tuple(
        Device(memory=30 + at, speed=1 + at % 7 / 4, recv=Link(GBps=1 + at), send=Link(GBps=2 + at))
        for at in range(16)
    )
    instance = sp.PipelinePartition.from_arrays(
        [40 + at * 37 % 23 for at in range(24)],
        cluster=Cluster(devices=devices, clock=2.0**30),
        exclusive=[6] * 24,
        kv_bytes=1,
        in_bytes=[at * 29 % 17 for at in range(25)],
        out_bytes=[at * 31 % 19 for at in range(25)],
        free_order=True,
        fewer_stages=True,
        objective="latency",
    )
    result = sp.solve(instance)
    assert (result.status, result.proof) == ("OPTIMAL", "search")
    few = instance.replace(cluster=Cluster(devices=devices[-8:], clock=2.0**30))
    fewer = sp.solve(few).objective
    assert result.objective is not None
    assert fewer is not None
    assert result.objective <= fewer
    most = sp.solve(instance.replace(objective="headroom"))
    assert most.status == "OPTIMAL"
    # Eight hold two layers at least: the eighth largest has 38 bytes, and 12 are of layers.
    assert most.objective == -(38 - 12) // 2


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_bytes": None}, "kv_bytes"),
        ({"kv_bytes": 0}, "kv_bytes"),
        ({"kv_bytes": [1, 2]}, "kv_bytes"),
        ({"kv_bytes": -1}, "kv_bytes"),
        ({"kv_bytes": None, "objective": "sum", "tokens": 1}, "kv_bytes"),
        ({"tokens": -1}, "tokens"),
        ({"tokens": 2**61}, "exclusive"),
        ({"capacity": None}, "capacity"),
        ({"training": True}, "training"),
    ],
)
def test_what_headroom_needs_is_said(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        served(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_methods_that_count_the_dearest_stage_refuse_by_name(objective: str) -> None:
    instance = served(objective=objective)
    refused = {one.name: one.reason for one in sp.methods(instance) if not one.available}
    assert {"bisect", "dp-reference", "milp-assignment"} <= set(refused)
    assert objective in refused["dp-reference"]
    assert objective in refused["milp-assignment"]
    assert ("milp-interval" in refused) == (objective == "latency")


def test_memory_is_no_axis_beside_headroom() -> None:
    assert "headroom" in axis("pipeline-partition", "memory").lacking(served())
    assert not axis("pipeline-partition", "memory").lacking(served(objective="latency"))


def test_what_binds_is_explained_in_tokens() -> None:
    found = sp.explain(served())
    assert dict(found.critical)["fewest tokens"] == "stage 1 (layers 1 to 3) on device 1: 6 tokens"
    assert all(change.saved is not None and change.saved >= 0 for change in found.changes)
    assert "6 tokens" in str(found)


def test_a_free_order_of_too_many_choices_is_no_worse_than_the_given_one() -> None:
    cluster = sp.Cluster(devices=tuple(sp.Device(speed=1 + d / 7) for d in range(6)))
    rows = [[d + 1] * 41 for d in range(6)]
    instance = sp.PipelinePartition.from_arrays(
        [5 + at % 7 for at in range(40)],
        cluster=cluster,
        objective="latency",
        recv_cycles=rows,
        send_cycles=rows,
    )
    given = sp.solve(instance)
    free = instance.replace(free_order=True)
    few = sp.solve(free, "dp", options={"tuning": {"latency_cells": 1_000}})
    assert given.status == "OPTIMAL"
    values = [sp.solve(free).objective, few.objective, given.objective]
    assert None not in values
    assert values == sorted(filter(None, values))
    assert "choices of devices" in few.reason
