"""Methods for latency: against every assignment and chains; relaxations, limits, refusals."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.graph import GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.methods.graph import METHODS
from stagepack.verify import verify
from tests.latency_graphs import brute_force, makespan, random_instance

KNOWING = ("auto", "cp-sat", "local-search")


def worth(result: sp.Result[GraphSolution]) -> float:
    """Return what an answer is worth that is known to be one."""
    assert result.objective is not None
    return result.objective


def large(seed: int, nodes: int, **options: Any) -> GraphPartition:
    """Return a graph of layers that is too large to be tried."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 6, (nodes, 2)).tolist()
    edges = sorted({(max(0, v - step), v) for v in range(1, nodes) for step in steps[v]})
    given = {
        "time": rng.integers(1, 30, nodes),
        "cpu_time": rng.integers(40, 200, nodes),
        "memory": rng.integers(1, 9, nodes),
        "traffic": rng.integers(0, 15, nodes),
        "accelerators": 4,
        "cpus": 1,
        "capacity": int(1.4 * nodes),
        "objective": "latency",
    }
    return GraphPartition.from_edges(nodes, edges, **{**given, **options})


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_trying_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for at in range(100):
        instance = random_instance(rng, int(rng.integers(1, 7)))
        best = brute_force(instance)
        for method in KNOWING[: 3 if at % 4 == 0 else 1]:
            result = sp.solve(instance, method, time_limit=20)
            if best is None:
                assert result.solution is None
                assert method == "local-search" or result.status is sp.Status.INFEASIBLE
                continue
            value, near = float(best[0]), 1e-9 * max(1.0, float(best[0]))
            assert result.bound is None or result.bound <= value + near
            if result.solution is None:
                assert method == "local-search"
                continue
            devices = tuple(result.solution.assignment.tolist())
            own = makespan(instance, devices)
            assert own is not None
            assert result.objective == pytest.approx(float(own), rel=1e-9)
            assert worth(result) >= value - near
            wide = instance.tolerance > 0 or "huge" in instance.name
            if method == "auto" or (method == "cp-sat" and not wide):
                assert result.status is sp.Status.OPTIMAL
                assert abs(worth(result) - value) <= near
            elif method == "cp-sat":  # steps may be too coarse for the last digits
                assert worth(result) <= value * (1 + 1e-6) + near
                assert result.bound is not None
                assert result.bound >= value * (1 - 1e-6) - near


def test_bounds_are_safe_where_ticks_are_coarse() -> None:
    rng = np.random.default_rng(0)
    drawn = (random_instance(rng, int(rng.integers(1, 6)), most=10**16) for _ in range(120))
    for instance in drawn:
        best = brute_force(instance) if "huge" in instance.name else None
        if best is None:
            continue
        for method in KNOWING:
            result = sp.solve(instance, method, time_limit=10)
            assert result.bound is None or result.bound <= best[0]
            if result.solution is not None:
                value = makespan(instance, tuple(result.solution.assignment.tolist()))
                assert value is not None
                assert result.objective == pytest.approx(float(value), rel=1e-12)
                exact = result.status is sp.Status.OPTIMAL
                assert value >= best[0]
                assert not exact or float(value) == pytest.approx(float(best[0]), rel=1e-9)


def test_chains_have_the_latency_of_chains() -> None:
    rng = np.random.default_rng(8)
    for at in range(60):
        n, k = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        time, traffic, memory = (rng.integers(0, 20, n) for _ in range(3))
        speeds = rng.choice([1, 2], k) if at % 2 else np.ones(k, dtype=int)
        room = int(rng.integers(20, 20 + memory.sum()))
        graph = sp.GraphPartition.from_edges(
            n, [(u, u + 1) for u in range(n - 1)], time=time, traffic=traffic, memory=memory,
            accelerators=k, speeds=speeds, capacity=room, objective="latency",
        )  # fmt: skip
        crossing = [0, *traffic[:-1].tolist(), 0]
        chain = sp.PipelinePartition.from_arrays(
            time,
            cluster=sp.Cluster(devices=tuple(sp.Device(speed=int(v), memory=room) for v in speeds)),
            exclusive=memory,
            recv_cycles=np.tile(crossing, (k, 1)),
            send_cycles=np.tile(crossing, (k, 1)),
            fewer_stages=True,
            free_order=True,
            objective="latency",
        )
        here, there = sp.solve(graph), sp.solve(chain)
        assert here.status is there.status
        assert here.objective == there.objective


def test_more_freedom_makes_nothing_worse() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        instance = random_instance(rng, int(rng.integers(2, 6)))
        if "huge" in instance.name:
            continue
        value = sp.solve(instance).objective
        freer = [
            instance.replace(capacity=None),
            instance.replace(traffic=np.zeros_like(instance.traffic)),
            instance.replace(colour=np.full(instance.n, -1)),
            instance.replace(bandwidth=2 * instance.bandwidth),
        ]
        if len({*instance.speeds.tolist()}) == 1 and instance.capacity is None:
            freer.append(instance.replace(accelerators=instance.accelerators + 1))
        if value is None:
            continue
        for other in freer:
            relaxed = sp.solve(other)
            assert relaxed.status is sp.Status.OPTIMAL
            assert worth(relaxed) <= value * (1 + 1e-9)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_other_methods_refuse_latency_by_name(method: Any) -> None:
    graph = large(1, 12)
    if method.name in KNOWING:
        assert sp.solve(graph, method.name, time_limit=5).objective is not None
        return
    with pytest.raises(sp.InputError, match="latency"):
        sp.solve(graph, method.name)


def test_cpus_alone_take_the_longest_path() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    graph = sp.GraphPartition.from_edges(
        4, edges, time=[0] * 4, cpu_time=[1, 5, 7, 1], accelerators=0, cpus=1, objective="latency"
    )
    result = sp.solve(graph)
    assert (result.status, result.objective) == (sp.Status.OPTIMAL, 9)
    assert "any number" in graph.proviso
    assert sp.explain(graph).result.objective == 9


def test_engines_without_a_model_are_refused() -> None:
    with pytest.raises(sp.InputError, match="cp-sat"):
        sp.solve(large(1, 12), engine="highs")


def test_the_verifier_believes_nothing_of_latency() -> None:
    graph = large(2, 10)
    result = sp.solve(graph, options={"proof": True})
    assert result.status is sp.Status.OPTIMAL
    assert result.evidence is None or not dict(result.evidence)
    for bound in (0, result.bound):
        assert not verify(graph, bound, "witness", {"rule": "work"}).shown
        assert not verify(graph, bound, "log", {"rule": "ideals", "light": 0}).shown


def test_exact_methods_agree_on_larger_graphs() -> None:
    for seed in range(4):
        graph = large(seed, 14, accelerators=2)
        found = [sp.solve(graph, method, time_limit=60) for method in ("auto", "cp-sat")]
        assert {one.status for one in found} == {sp.Status.OPTIMAL}
        assert len({one.objective for one in found}) == 1
        search = sp.solve(graph, "local-search", time_limit=10)
        assert worth(found[0]) <= worth(search) <= 1.1 * worth(found[0])


def test_a_start_is_taken_and_never_made_worse() -> None:
    graph = large(3, 60)
    everywhere = GraphSolution.of(graph, [4] * graph.n)
    start = sp.solve(graph, "local-search", warm_start=everywhere, time_limit=3)
    assert worth(start) < graph.evaluate(everywhere)
    for method in KNOWING:
        again = sp.solve(graph, method, warm_start=start.solution, time_limit=1)
        assert worth(again) <= worth(start)
    with pytest.raises(sp.InputError, match="warm_start"):
        sp.solve(graph, "cp-sat", warm_start="linear-dp")


@pytest.mark.parametrize("method", KNOWING)
def test_limits_return_what_is_known_with_its_bound(method: str) -> None:
    for limit in (0.001, 0.05, 0.5):
        result = sp.solve(large(4, 400), method, time_limit=limit)
        assert result.bound is not None or limit < 0.5
        if result.objective is not None and result.bound is not None:
            assert result.bound <= result.objective


def test_runs_by_work_repeat() -> None:
    for method in KNOWING:
        runs = [
            sp.solve(large(6, 16), method, time_limit=1.5, options={"deterministic": True})
            for _ in range(2)
        ]
        assert runs[0].objective == runs[1].objective
        assert np.array_equal(runs[0].solution.assignment, runs[1].solution.assignment)


def test_what_fits_nowhere_is_said() -> None:
    graph = large(0, 8, cpus=0, cpu_time=None, capacity=3)
    result = sp.solve(graph)
    assert result.status is sp.Status.INFEASIBLE
    assert "bytes" in result.reason
    tight = large(0, 8, cpus=0, cpu_time=None, memory=[2] * 8, capacity=3)
    for method in ("auto", "cp-sat"):
        result = sp.solve(tight, method)
        assert result.status is sp.Status.INFEASIBLE
        assert "more memory" in result.reason


def test_nothing_waits_in_a_circle_that_takes_no_time() -> None:
    """Without time for anything, an order is all that tells a circle from none."""
    for seed in count(0):
        rng = np.random.default_rng(seed)
        n = 6
        edges = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.4]
        graph = sp.GraphPartition.from_edges(
            n, edges, time=[0] * n, cpu_time=[0] * n, accelerators=2, cpus=1, memory=[1] * n,
            capacity=2, objective="latency", colour=[0, 1, -1, -1, 0, 1],
        )  # fmt: skip
        result = sp.solve(graph, "cp-sat", warm_start=None)
        assert result.objective == 0
        assert not graph.check(result.solution)
        if seed == 12:
            return


def test_published_graphs(data_dir: Path) -> None:
    path = data_dir / "dnn-partitioning" / "memory-tight" / "gnmt_inference.json"
    graph = sp.read(path, kind="graph-partition", objective="latency")
    result = sp.solve(graph, "local-search", time_limit=10)
    assert result.objective == pytest.approx(225.647890625, rel=1e-9)  # theirs, greedily: 268.5
    assert result.bound == pytest.approx(219.544375, rel=1e-9)
