"""Methods of graph partitioning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.graph import GraphPartition
from tests.random_graphs import random_instance

PROVED = {
    "throughput/bert24_inference": 17.789906,
    "throughput/bert24_training": 41.745812,
    "throughput/gnmt_inference": 32.910658,
    "throughput/resnet50_inference": 33.774666,
    "operators/bert_l-3_inference": 27.918568,
    "operators/bert_l-3_training": 65.303149,
    "operators/bert_l-12_inference": 147.477984,
    "memory-tight/gnmt_inference": 44.896516,
}


def ladder(rungs: int, **options: Any) -> GraphPartition:
    """Return two chains with a bar between them at every rung."""
    edges = [(2 * r + side, 2 * (r + 1) + side) for r in range(rungs - 1) for side in (0, 1)]
    edges += [(2 * r, 2 * r + 1) for r in range(rungs)]
    rng = np.random.default_rng(0)
    figures = {"time": rng.integers(1, 30, 2 * rungs), "traffic": rng.integers(0, 4, 2 * rungs)}
    return GraphPartition.from_edges(2 * rungs, edges, **{"accelerators": 4, **figures, **options})


@pytest.mark.parametrize("name", PROVED)
def test_optima_of_the_published_graphs(name: str, data_dir: Path) -> None:
    cpus = 0 if name.startswith("memory-tight") else 1
    path = data_dir / "dnn-partitioning" / f"{name}.json"
    instance = sp.read(path, kind="graph-partition", cpus=cpus)
    result = sp.solve(instance)
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == pytest.approx(PROVED[name], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "devices", "objective", "microseconds"),
    [
        *(("vgg16", devices, "overlap", 411_041.792) for devices in (4, 8, 16)),
        ("resnet50", 4, "overlap", 256_901.12),
        ("gnmt", 16, "overlap", 19_285.0),
        ("vgg16", 4, "replicated", 205_520.896),
        ("vgg16", 8, "replicated", 103_833.170360),
        ("vgg16", 16, "replicated", 56_529.767),
    ],
)
def test_optima_of_profiles(
    name: str, devices: int, objective: str, microseconds: float, data_dir: Path
) -> None:
    instance = sp.read(
        data_dir / "pipedream" / f"{name}_graph.txt",
        kind="graph-partition",
        devices=devices,
        bandwidth=1e9 / 2**30,
        training=True,
        objective=objective,
        empty_devices=objective == "replicated",
    )
    result = sp.solve(instance)
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == pytest.approx(microseconds, rel=1e-8)


@pytest.mark.parametrize("devices", [4, 8])
def test_inception_is_proved_where_devices_do_all_at_once(devices: int) -> None:
    instance = sp.load("graph/inception-v1", objective="overlap", devices=devices)
    result = sp.solve(instance)
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == sp.solve(instance, "dp", warm_start=None).objective
    model = sp.solve(instance, "cp-sat", time_limit=5)
    assert model.objective is not None
    assert model.bound is not None
    assert result.objective is not None
    assert model.bound <= result.objective <= model.objective


@pytest.mark.parametrize("objective", ["sum", "overlap", "forward+backward", "memory"])
def test_linear_dp_is_never_better_than_dp(objective: str) -> None:
    instance = ladder(
        12, objective=objective, memory=range(24), backward=[False] * 12 + [True] * 12
    )
    best = sp.solve(instance, method="dp", warm_start=None)
    order = sp.solve(instance, method="linear-dp")
    assert best.status is sp.Status.OPTIMAL
    assert best.objective is not None
    assert order.objective is not None
    assert order.objective >= best.objective
    assert order.bound is not None
    assert order.bound <= best.objective


def test_dp_starts_from_a_solution_and_keeps_the_best() -> None:
    instance = ladder(10)
    best = sp.solve(instance, method="dp")
    again = sp.solve(instance, method="dp", warm_start=best.solution)
    assert (again.objective, again.status) == (best.objective, sp.Status.OPTIMAL)
    values = [event.value for event in again.trace.events if event.kind == "incumbent"]
    assert values == [best.objective]


def test_dp_says_where_ideals_do_not_apply() -> None:
    with pytest.raises(sp.InputError, match="contiguous stages only"):
        sp.solve(ladder(3, contiguous=False), method="dp")
    links = np.arange(16).reshape(4, 4) + 1
    with pytest.raises(sp.InputError, match="links are unlike"):
        sp.solve(ladder(3, bandwidth=links), method="dp")
    assert sp.solve(ladder(3, bandwidth=links)).solution is not None
    assert sp.solve(ladder(3, contiguous=False)).solution is not None


def test_too_little_memory_is_proved() -> None:
    """Each of three blocks fits on a device, but no two together."""
    instance = ladder(2, memory=[6, 6, 6, 0], capacity=10, accelerators=2)
    for method in ("auto", "dp"):
        result = sp.solve(instance, method=method)
        assert result.status is sp.Status.INFEASIBLE
        assert result.reason


def test_too_many_ideals_leave_what_orders_found() -> None:
    rng = np.random.default_rng(1)
    wide = GraphPartition.from_edges(60, [], time=rng.integers(1, 99, 60), accelerators=4)
    result = sp.solve(wide, method="dp", time_limit=0.5)
    assert result.solution is not None
    assert result.bound is not None


def test_unlike_devices_beyond_all_orders_are_used_in_turn() -> None:
    instance = ladder(20, accelerators=14, speeds=np.linspace(1, 2, 14))
    result = sp.solve(instance, method="linear-dp", time_limit=5)
    assert result.solution is not None


def test_the_same_seed_gives_the_same_answer() -> None:
    results = [sp.solve(ladder(30), method="linear-dp", seed=3) for _ in range(2)]
    assert results[0].solution == results[1].solution


def test_a_search_by_labels_that_ends_without_anything_says_so() -> None:
    """Every device has to be used, and memory is short: labels know the one rule or the other."""
    rng = np.random.default_rng([5017, 8])
    instance = random_instance(rng, int(rng.integers(8, 15)))
    result = sp.solve(instance, "frontier", time_limit=30)
    assert result.solution is None
    assert result.status == "INFEASIBLE" or "no label keeps all rules" in result.reason


def test_labels_say_where_they_prove_no_more_than_bounds() -> None:
    for seed, why in ((1, "which devices are in use"), (8, "loads of both passes")):
        rng = np.random.default_rng([seed, 9])
        objective = ("forward+backward", "sum")[seed % 2]
        options: dict[str, Any] = {"accelerators": 3, "contiguous": True, "objective": objective}
        instance = random_instance(rng, int(rng.integers(8, 13)), **options)
        told = {method.name: method for method in sp.methods(instance)}
        assert not told["frontier"].exact
        assert why in told["frontier"].description
        assert told["dp"].exact
        result = sp.solve(instance, "frontier", time_limit=30)
        assert result.status == "FEASIBLE"
        assert why in result.reason
    assert {method.name: method for method in sp.methods(ladder(3))}["frontier"].exact


def test_labels_prove_what_a_float_cannot_count() -> None:
    """In ticks the best partitions differ by one, far above 2**53."""
    instance = GraphPartition.from_arrays(
        np.array([16, 13, 3, 6, 7]) * (1 / 7),
        accelerators=2,
        cpus=1,
        cpu_time=np.array([20, 7, 13, 41, 41]) * (1 / 7),
        producer=[0, 0, 1, 1, 2, 3, 4],
        consumers=[1, 2, 4, 1, 2, 3, 4, 2, 3, 4, 3, 4, 4],
        consumer_ptr=[0, 3, 5, 7, 10, 12, 13, 13],
        traffic=np.array([0, 8, 1, 3, 4, 1, 11]) * (1 / 7),
        device_order="fixed",
        objective="overlap",
    )
    result = sp.solve(instance, "frontier")
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == pytest.approx(29 / 7)


@pytest.mark.parametrize("method", [m.name for m in sp.methods("graph-partition")])
@pytest.mark.parametrize("objective", ["sum", "replicated", "forward+backward"])
def test_times_near_the_smallest_doubles(method: str, objective: str) -> None:
    passes = [0, 0, 0, 0, 1, 1] if objective == "forward+backward" else [0] * 6
    instance = GraphPartition.from_arrays(
        np.array([3, 4, 5, 6.5, 2, 7]) * 1e-300,
        accelerators=2,
        producer=range(5),
        consumers=range(1, 6),
        consumer_ptr=range(6),
        traffic=np.array([2, 3, 1.5, 1, 2]) * 1e-300,
        backward=passes,
        objective=objective,
    )
    if not next(m for m in sp.methods(instance) if m.name == method).available:
        return
    result = sp.solve(instance, method)
    ordinary = sp.solve(
        instance.replace(time=instance.time * 1e300, traffic=instance.traffic * 1e300)
    )
    assert ordinary.status is sp.Status.OPTIMAL
    assert result.objective is not None
    assert ordinary.objective is not None
    least = ordinary.objective * 1e-300
    assert result.objective >= least * (1 - 1e-9)
    assert (result.bound or 0) <= least * (1 + 1e-9)


@pytest.mark.parametrize("method", ["milp", "cp-sat"])
def test_a_first_solution_whose_value_lost_bits(method: str) -> None:
    ordinary = GraphPartition.from_arrays(
        [19, 28, 26, 25], accelerators=2, producer=[0, 2], consumers=[1, 3], consumer_ptr=[0, 1, 2],
        traffic=[2, 1],
    )  # fmt: skip
    scale = 2.3e-17  # sums of 57 bits
    tiny = ordinary.replace(time=ordinary.time * scale, traffic=ordinary.traffic * scale)
    result = sp.solve(tiny, method)
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == pytest.approx(51 * scale, rel=1e-12, abs=0)


@pytest.mark.parametrize("method", ["milp", "cp-sat"])
def test_exchanges_that_dwarf_all_times(method: str) -> None:
    instance = GraphPartition.from_arrays(
        np.array([3, 4, 5, 6.5, 2, 7]) * 1e-30,
        accelerators=2,
        parameters=range(1, 7),
        bandwidth=2,
        objective="replicated",
    )
    result = sp.solve(instance, method)
    assert result.objective is not None
    assert (result.bound or 0) <= 15 * 1e-30


@pytest.mark.parametrize("start", ["auto", None])
@pytest.mark.parametrize("method", ["dp", "frontier", "auto", "milp", "cp-sat"])
def test_times_far_below_the_largest_traffic_are_answered_and_why_nothing_is_proved_is_said(
    method: str, start: str | None
) -> None:
    small, large = 1e-14, 4.5e15
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5)]
    instance = GraphPartition.from_edges(
        6,
        edges,
        time=[small / 1000, small / 4000, small, 1, small / 2000, small],
        cpu_time=[small * 2.0**-900] * 4 + [small] * 2,
        traffic=[large, large, large / 2, large, 1e12, 1e12],
        accelerators=1,
        cpus=1,
    )
    result = sp.solve(instance, method, warm_start=start)
    # Where there are few blocks, `auto` tries everything in fractions.
    tried = method == "auto"
    assert result.status is (sp.Status.OPTIMAL if tried else sp.Status.FEASIBLE)
    assert result.objective is not None
    assert result.objective < 2
    assert bool(result.reason) is not tried
