"""Numbers at the edge: beyond doubles, of mixed magnitude, without limits, without sense."""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.result import Status, Termination
from stagepack.solve import solve
from tests.strategies import brute_force, pipelines


def test_integers_beyond_doubles_are_compared_as_integers() -> None:
    instance = PipelinePartition.from_arrays([2**58, 10, 2**58 - 15, 5], devices=2)
    best = brute_force(instance)
    heuristic = solve(instance, "equal-layers")
    assert heuristic.objective != heuristic.bound
    assert heuristic.status is Status.FEASIBLE
    exact = solve(instance, "dp")
    assert (exact.status, exact.objective, exact.bound) == (Status.OPTIMAL, best, best)
    one = solve(PipelinePartition.from_arrays([51677046506177053], devices=1), "dp")
    assert (one.status, one.termination) == (Status.OPTIMAL, Termination.PROVED)


FRACTIONS = [5.963145755860332, 3.450333143009978, 4.422689318910158, 5.645605490769137, 4.4224]


@pytest.mark.parametrize("method", ["dp", "bisect", "dp-reference", "cp-sat", "milp-interval"])
def test_transfers_that_do_not_count_leave_a_bottleneck_exact(method: str) -> None:
    cluster = Cluster.uniform(3, link=Link(GBps=1, idle=1e13))
    instance = PipelinePartition.from_arrays(FRACTIONS, cluster=cluster)
    result = solve(instance, method, time_limit=30)
    assert result.objective == pytest.approx(brute_force(instance), rel=1e-9)


@pytest.mark.parametrize("objective", ["transfer-bounded", "sum", "overlap"])
@pytest.mark.parametrize("idle", [1e7, 1e11, 1e15])
def test_bounds_stay_safe_when_figures_differ_by_magnitudes(objective: str, idle: float) -> None:
    cluster = Cluster.uniform(3, link=Link(GBps=1, idle=idle))
    instance = PipelinePartition.from_arrays(FRACTIONS, cluster=cluster, objective=objective)
    best = brute_force(instance)
    assert best is not None
    for method in ("dp", "cp-sat", "milp-interval"):
        result = solve(instance, method, time_limit=30)
        assert all(event.value <= best * (1 + 1e-9) for event in result.trace.bounds), method


def test_tables_with_huge_entries_that_no_one_uses() -> None:
    table = np.full((7, 7), 1e12)
    for a in range(6):
        table[a, a + 1 : a + 3] = [1 / 3 + a / 7, 1.1234567 + a / 11][: 6 - a]
    instance = PipelinePartition.from_arrays(None, devices=3, compute_table=table)
    best = brute_force(instance)
    result = solve(instance, "dp")
    assert best is not None
    assert result.objective == pytest.approx(best, rel=1e-3)
    assert result.bound is not None
    assert result.bound <= best


def test_cp_sat_bounds_written_as_doubles() -> None:
    cycles = [13958643751, 4294967311, 19327352887, 3221225485]
    instance = PipelinePartition.from_arrays(cycles, devices=2, speed=[0.7, 0.7])
    best = brute_force(instance)
    result = solve(instance, "cp-sat", warm_start=None)
    assert best is not None
    assert all(event.value <= best for event in result.trace.bounds)


@pytest.mark.parametrize("capacity", [2**62, sys.maxsize, 2**80])
def test_capacity_without_end(capacity: int) -> None:
    instance = PipelinePartition.from_arrays(
        [1, 5, 3], devices=2, exclusive=[2**50] * 3, capacity=capacity
    )
    for method in ("auto", "dp", "bisect", "greedy", "cp-sat", "milp-interval"):
        assert solve(instance, method).objective == 6, method


@pytest.mark.parametrize(
    "device",
    [
        {"speed": 0},
        {"speed": float("nan")},
        {"memory": -3},
        {"memory": 2.5},
        {"recv": Link(GBps=1, idle=-5)},
        {"send": Link(GBps=0)},
    ],
)
def test_clusters_made_in_python_are_checked_too(device: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cluster"):
        PipelinePartition.from_arrays([1, 2], cluster=Cluster(devices=(Device(**device),)))


def test_many_odd_speeds() -> None:
    speeds = (np.random.default_rng(0).random(40) + 0.5).tolist()
    instance = PipelinePartition.from_arrays(range(1, 61), devices=40, speed=speeds)
    result = solve(instance, "dp")
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize(
    "forward",
    [
        np.array([1, 2], dtype=np.float32),
        np.array([1, 2], dtype=np.uint64),
        np.array([1, 2], dtype=np.int8),
        np.array([2**40, 2**41], dtype=object),
        (2, 1),
        range(1, 3),
    ],
)
def test_arrays_of_odd_types(forward: Any) -> None:
    instance = PipelinePartition.from_arrays(forward, devices=1)
    result = solve(instance)
    assert result.objective == sum(int(value) for value in forward)
    assert result.objective == result.bound
    whole = not isinstance(forward, np.ndarray) or forward.dtype.kind != "f"
    assert (instance.forward.dtype.kind == "i") == whole


@pytest.mark.parametrize(
    "forward", [["1", "2"], np.array([1j]), np.array(["2020-01-01"], dtype="datetime64[D]")]
)
def test_arrays_of_no_numbers(forward: Any) -> None:
    with pytest.raises(InputError, match="forward"):
        PipelinePartition.from_arrays(forward, devices=1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"backward": [1]}, "backward"),
        ({"temporary": [-5, 1, 1]}, "temporary"),
        ({"microbatches": 1.5}, "microbatches"),
        ({"variables": [("v", 0)]}, "variables"),
        ({"fixed_cuts": [1.5]}, "fixed_cuts"),
    ],
)
def test_replaced_fields_are_validated_like_new_ones(changes: dict[str, Any], field: str) -> None:
    instance = PipelinePartition.from_arrays([1, 2, 3], devices=2)
    with pytest.raises(InputError) as caught:
        instance.replace(**changes)
    assert caught.value.field == field
    changed = instance.replace(forward=[3, 2, 1], variables=[("v", 0, 1)], exclusive=[1, 1, 1])
    assert solve(changed).objective == 5


@given(pipelines(tables=False, free_order=False))
@settings(max_examples=150)
def test_what_an_infeasible_answer_promises_is_true(instance: PipelinePartition) -> None:
    result = solve(instance, "dp")
    if result.status is not Status.INFEASIBLE:
        return

    def with_memory(extra: int) -> PipelinePartition:
        devices = tuple(
            d if d.memory is None else msgspec.structs.replace(d, memory=d.memory + extra)
            for d in instance.cluster.devices
        )
        cluster = msgspec.structs.replace(instance.cluster, devices=devices)
        return instance.replace(cluster=cluster)

    more = re.search(r"with ([\d,]+) bytes? more", result.reason)
    if more:
        extra = int(more[1].replace(",", ""))
        assert brute_force(with_memory(extra)) is not None
        if extra > 1:
            assert brute_force(with_memory(extra - 1)) is None
    number = re.search(r"with (\d+) devices", result.reason)
    if number:
        devices = instance.cluster.devices[:1] * int(number[1])
        cluster = msgspec.structs.replace(instance.cluster, devices=devices)
        assert brute_force(instance.replace(cluster=cluster)) is not None
    assert more or number or "cut" in result.reason


def test_out_of_time_while_explaining_keeps_the_verdict() -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    instance = PipelinePartition.from_arrays(
        rng.integers(1, 100, n), devices=32, exclusive=np.full(n, 1000), capacity=1000 * n // 40
    )
    result = solve(instance, "dp", time_limit=0.05)
    assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)
    patient = solve(instance, "dp", time_limit=60)
    assert patient.status is Status.INFEASIBLE
    assert "bytes more on every device" in patient.reason
