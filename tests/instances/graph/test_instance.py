"""What constructors of graph partitions take, and what they refuse by name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.graph import Compact

GIVEN: dict[str, Any] = {
    "time": [1, 2, 3],
    "producer": [0, 1],
    "consumers": [[1], [2]],
    "traffic": [4, 5],
    "accelerators": 2,
}


def made(**changes: Any) -> sp.GraphPartition:
    return sp.GraphPartition.from_arrays(**{**GIVEN, **changes})


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"time": []}, "time", "no nodes"),
        ({"time": [1, -1, 3]}, "time", "entry 1 is -1"),
        ({"time": [1, float("nan"), 3]}, "time", "nan"),
        ({"time": [2**61, 2**61, 1]}, "time", "2\\*\\*62"),
        ({"cpu_time": [1, 2]}, "cpu_time", "shape"),
        ({"memory": [1, 2.5, 3]}, "memory", "2.5"),
        ({"memory": [2**61] * 3}, "memory", "2\\*\\*62"),
        ({"stash": [2**40] * 3, "microbatches": 2**30}, "memory", "2\\*\\*62"),
        ({"traffic": [1]}, "traffic", "shape"),
        ({"traffic": [2**61, 1]}, "traffic", "exceeds"),
        ({"colour": [0, -2, 1]}, "colour", "-2"),
        ({"backward": [0, 1, 2]}, "backward", "no flags"),
        ({"accelerator": [True]}, "accelerator", "shape"),
        ({"producer": [0, 3]}, "producer", "entry 1 is 3, no node"),
        ({"consumers": [[1], [-1]]}, "consumers", "entry 1 is -1, no node"),
        ({"consumers": [[1]]}, "consumers", "1 lists for 2 tensors"),
        ({"consumers": [1, 2], "consumer_ptr": [0, 2, 1]}, "consumer_ptr", "does not rise"),
        ({"consumers": [[1], [1]]}, "consumers", "tensor 1 is read by node 1, which writes it"),
        ({"consumers": [[1], [0]]}, "edges", "circle: 1 -> 0 -> 1|circle: 0 -> 1 -> 0"),
        ({"accelerators": 0}, "accelerators", "no devices"),
        ({"accelerators": 2**31 - 1}, "accelerators", "2,147,483,647 devices; give at most"),
        ({"cpus": 2**20}, "cpus", "1,048,578 devices"),
        ({"accelerators": 5000, "levels": [(5000, 1)]}, "levels", "5,000 devices are too many"),
        ({"accelerators": 2.5}, "accelerators", "no integer"),
        ({"accelerators": 4, "empty_devices": False}, "accelerators", "4 devices for 3 nodes"),
        ({"speeds": [1, 0]}, "speeds", "entry 1 is 0"),
        ({"speeds": [1]}, "speeds", "shape"),
        ({"capacity": [1, -1]}, "capacity", "-1"),
        ({"bandwidth": 0}, "bandwidth", "is 0"),
        ({"bandwidth": [[0, 1]]}, "bandwidth", "shape"),
        ({"bandwidth": [[0, 0], [1, 0]]}, "bandwidth", "is 0"),
        ({"bandwidth": [[0, 1], [1]]}, "bandwidth", "no array of numbers"),
        (
            {"accelerators": 2100, "bandwidth": 1 + np.arange(4_410_000).reshape(2100, 2100)},
            "bandwidth",
            "4,407,901 different values for 2 tensors",
        ),
        ({"levels": [(1, 5)]}, "levels", "1 devices in all, of 2"),
        ({"levels": [5]}, r"levels[0]", "no pair"),
        ({"levels": [(2, 5)], "bandwidth": 3}, "bandwidth", "beside levels"),
        ({"device_order": "best"}, "device_order", "unknown"),
        ({"objective": "time"}, "objective", "unknown"),
        ({"microbatches": 0}, "microbatches", "0 microbatches"),
        ({"ids": ["a", "b", "a"]}, "ids", "two nodes are named 'a'"),
        ({"ids": ["a", "b"]}, "ids", "2 names for 3 nodes"),
        ({"objective": "replicated", "speeds": [1, 2]}, "speeds", "unlike"),
        ({"objective": "replicated", "cpus": 1}, "cpus", "unlike"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        made(**changes)
    assert caught.value.field == field
    assert caught.value.remedy


def test_every_link_may_have_a_bandwidth_of_its_own() -> None:
    k = 9  # as many stages as nodes: what each costs is plain to see
    links = 10.0 + np.arange(k * k).reshape(k, k)
    time, traffic = np.arange(3, 3 + k), 100 + 7 * np.arange(k - 1)
    instance = sp.GraphPartition.from_edges(
        k,
        [(v, v + 1) for v in range(k - 1)],
        time=time,
        traffic=[*traffic, 0],
        accelerators=k,
        bandwidth=links,
        device_order="fixed",
        empty_devices=False,
    )
    passed = traffic / links.diagonal(1)
    loads = time + np.append(0, passed) + np.append(passed, 0)
    result = sp.solve(instance, "linear-dp")
    assert result.objective == pytest.approx(loads.max())


def test_a_long_circle_is_named_by_its_ends() -> None:
    n = 50
    around = [(at, (at + 1) % n) for at in range(n)]
    with pytest.raises(InputError, match=r"-> \.\.\. ->") as caught:
        sp.GraphPartition.from_edges(n, [*around, (0, 7)], time=[1] * n, accelerators=1)
    assert len(str(caught.value)) < 300


def test_nodes_by_name_and_figures_from_functions() -> None:
    edges = [("in", "left"), ("in", "right"), ("left", "out"), ("right", "out")]
    sizes = {"in": 4, "left": 1, "right": 2, "out": 0}
    instance = sp.GraphPartition.from_edges(
        sizes, edges, time=len, traffic=sizes, memory=lambda node: 10 * sizes[node], accelerators=2
    )
    assert instance.ids == ("in", "left", "right", "out")
    assert instance.time.tolist() == [2, 4, 5, 3]
    assert instance.traffic.tolist() == [4, 1, 2, 0]
    assert instance.memory.tolist() == [40, 10, 20, 0]
    apart = sp.GraphPartition.from_edges(
        sizes, edges, time=len, edge_traffic=lambda u, v: len(u + v), accelerators=2
    )
    assert apart.traffic.tolist() == [6, 7, 7, 8]
    assert apart.producer.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("edges", "more", "field", "words"),
    [
        ([("a", "x")], {}, "edges[0]", "'x' is no node"),
        ([("a",)], {}, "edges[0]", "no pair"),
        ([("a", "b")], {"time": {"a": 1}}, "time.b", "is missing"),
        ([("a", "b")], {"traffic": [1, 2], "edge_traffic": [3]}, "traffic", "beside"),
    ],
)
def test_edges_that_lead_nowhere(edges: Any, more: Any, field: str, words: str) -> None:
    given = {"time": [1, 2], "accelerators": 1, **more}
    with pytest.raises(InputError, match=words) as caught:
        sp.GraphPartition.from_edges(["a", "b"], edges, **given)
    assert caught.value.field == field


@pytest.mark.parametrize("edge", [(0, 2), (-1, 1), (2, 0)])
def test_edges_of_numbers_that_lead_nowhere(edge: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="which are not both nodes") as caught:
        sp.GraphPartition.from_edges(2, [(0, 1), edge], time=[1, 2], accelerators=1)
    assert caught.value.field == "edges[1]"


def test_figures_of_edges_by_name_and_too_few_of_nodes() -> None:
    edges = [("b", "c"), ("a", "b")]
    made_of = sp.GraphPartition.from_edges(
        "abc", edges, time=[1, 2, 3], edge_traffic={("a", "b"): 5, ("b", "c"): 6}, accelerators=1
    )
    assert made_of.traffic.tolist() == [6, 5]
    with pytest.raises(InputError, match=r"edge_traffic.\('a', 'b'\): is missing"):
        sp.GraphPartition.from_edges(
            "abc", edges, time=[1, 2, 3], edge_traffic={("b", "c"): 6}, accelerators=1
        )
    with pytest.raises(InputError, match="time: 2 for 3 nodes"):
        sp.GraphPartition.from_edges("abc", edges, time=[1, 2], accelerators=1)


@pytest.mark.parametrize("nodes", [2, ["a", "b"]])
def test_a_node_that_reads_itself_is_named(nodes: int | list[str]) -> None:
    last = 1 if nodes == 2 else "b"
    with pytest.raises(InputError, match=f"node {last!r} reads itself") as caught:
        sp.GraphPartition.from_edges(nodes, [(last, last)], time=[1, 2], accelerators=1)
    assert caught.value.field == "edges[0]"


def test_names_may_come_twice_and_matter_to_nobody() -> None:
    named = made(names=["x", "x", "y"], ids=["1", "2", "3"])
    assert named.digest == made().digest
    assert named.node_name(0) == "1 (x)"


def test_what_makes_no_difference_makes_no_other_instance() -> None:
    doubled = made(consumers=[[1, 1], [2]])
    assert doubled.digest == made().digest
    barred = [True, False, True]
    cpu: dict[str, Any] = {"cpus": 1, "cpu": barred}
    assert made(cpu_time=[1, 2, 3], **cpu).digest == made(cpu_time=[1, 7, 3], **cpu).digest
    assert made(bandwidth=[[0, 3], [3, 0]]).digest == made(bandwidth=3).digest


def test_changes_and_copies() -> None:
    instance = made(speeds=2, capacity=9)
    more = instance.replace(accelerators=3)
    assert more.speeds.tolist() == [2, 2, 2]
    assert more.capacity is not None
    assert more.capacity.tolist() == [9, 9, 9]
    again = pickle.loads(pickle.dumps(instance))
    assert again.digest == instance.digest
    with pytest.raises(InputError, match="speeds"):
        made(speeds=[1, 2]).replace(accelerators=3)


def test_one_node_and_no_edges() -> None:
    lone = sp.GraphPartition.from_arrays([0], accelerators=1)
    solution = sp.GraphSolution.of(lone, [0])
    assert lone.check(solution) == ()
    assert lone.evaluate(solution) == 0
    assert Compact.of(lone).blocks == 1
    assert sp.solve(lone).objective == 0


def test_huge_integers_stay_exact() -> None:
    big = 2**53 + 1
    instance = sp.GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[big, big, 1], traffic=[3, 5, 0], accelerators=2
    )
    assert instance.tolerance == 0
    solution = sp.GraphSolution.of(instance, [0, 1, 1])
    assert instance.evaluate(solution) == big + 4
    compact = Compact.of(instance)
    assert compact.value(int(compact.loads([0, 1, 1], [0, 0]).max())) == big + 4


def test_a_million_nodes_of_one_colour_and_none() -> None:
    n = 10**6
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, n, (n, 2)), axis=1)
    edges = edges[edges[:, 0] < edges[:, 1]]
    instance = sp.GraphPartition.from_edges(
        n, edges, time=np.ones(n, dtype=int), traffic=np.ones(n, dtype=int),
        colour=np.where(np.arange(n) % 3, -1, 7), contiguous=False, accelerators=8,
    )  # fmt: skip
    solution = sp.GraphSolution.of(instance, np.where(np.arange(n) % 3, np.arange(n) % 8, 0))
    assert instance.check(solution) == ()
    assert Compact.of(instance).blocks == n - -(-n // 3) + 1
