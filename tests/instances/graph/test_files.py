"""Graph partitions from and to files: native ones, those of dnn-partitioning and PipeDream."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances.graph.levels import table_of
from tests.formats.test_pipedream import SMALL, graph, node
from tests.random_graphs import random_instance

BY_HAND: dict[str, Any] = {
    "problem": "graph-partition",
    "version": 1,
    "accelerators": 2,
    "cpus": 1,
    "capacity": 100,
    "nodes": [
        {"id": "a", "time": 3, "traffic": 7, "memory": 10},
        {"id": "b", "time": 4, "cpu_time": 40, "colour": 1},
        {"id": "c", "time": None, "cpu_time": 5, "colour": 1, "name": "see"},
    ],
    "edges": [["a", "b"], ["a", "c"]],
    "tensors": [{"from": "b", "to": ["c"], "traffic": 2}],
}
DNN: dict[str, Any] = {
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "maxSizePerFPGA": 100.0,
    "nodes": [
        {"id": 7, "fpgaLatency": 1.5, "cpuLatency": 15, "size": 60.0, "isBackwardNode": False,
         "supportedOnFpga": 1, "colorClass": 1, "name": "conv", "layerId": 3},
        {"id": 3, "fpgaLatency": 2, "cpuLatency": 20, "size": 30.5, "isBackwardNode": 0,
         "supportedOnFpga": True, "colorClass": None},
        {"id": 5, "fpgaLatency": 4, "cpuLatency": 40, "size": 0, "isBackwardNode": 1,
         "supportedOnFpga": 0, "colorClass": 1},
    ],
    "edges": [
        {"sourceId": 7, "destId": 3, "cost": 0.25, "size": 9},
        {"sourceId": 7, "destId": 5, "cost": 0.25},
        {"sourceId": 3, "destId": 5, "cost": 8},
    ],
}  # fmt: skip


def saved(place: Path, document: Any) -> Path:
    path = place / "file.json"
    path.write_text(json.dumps(document))
    return path


def test_a_file_by_hand(tmp_path: Path) -> None:
    instance = sp.read(saved(tmp_path, BY_HAND), kind="graph-partition")
    assert instance.ids == ("a", "b", "c")
    assert instance.accelerator.tolist() == [True, True, False]
    assert instance.cpu.tolist() == [False, True, True]
    assert instance.colour.tolist() == [-1, 1, 1]
    assert instance.producer.tolist() == [0, 1]
    assert instance.consumers.tolist() == [1, 2, 2]
    assert instance.traffic.tolist() == [7, 2]
    assert instance.node_name(2) == "c (see)"


@pytest.mark.parametrize("seed", range(40))
def test_a_file_says_everything(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, int(rng.integers(1, 9)))
    sp.write(instance, tmp_path / "graph.json")
    again = sp.read(tmp_path / "graph.json", kind="graph-partition")
    assert again.digest == instance.digest, (again.fingerprints, instance.fingerprints)


def test_a_graph_without_tensors_is_the_same_in_a_file(tmp_path: Path) -> None:
    bare = sp.GraphPartition.from_arrays([3, 3], accelerators=2)
    sp.write(bare, tmp_path / "graph.json")
    assert sp.read(tmp_path / "graph.json").digest == bare.digest


def test_what_is_said_beside_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path, BY_HAND)
    said = sp.read(
        path, kind="graph", devices=3, cpus=2, capacity=50, speed=[1, 2, 4], bandwidth=2,
        objective="overlap", contiguous=False, device_order="fixed", microbatches=4,
    )  # fmt: skip
    assert (said.accelerators, said.cpus, said.microbatches) == (3, 2, 4)
    assert said.capacity is not None
    assert said.capacity.tolist() == [50, 50, 50]
    assert said.speeds.tolist() == [1, 2, 4]
    assert (said.bandwidth, said.objective, said.device_order) == (2, "overlap", "fixed")
    assert not said.contiguous
    unlike = saved(tmp_path, {**BY_HAND, "speeds": [1, 2]})
    with pytest.raises(InputError, match="speeds: tells devices apart"):
        sp.read(unlike, devices=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": [{"id": "a", "time": -1}]}, r"nodes\[0\].time"),
        ({"nodes": [{"id": "a"}, {"id": "a"}]}, r"nodes\[1\].id: 'a' comes twice"),
        ({"nodes": [{"id": "a", "tyme": 3}]}, r"nodes\[0\].tyme.*did you mean time"),
        ({"edges": [["a", "x"]]}, r"edges\[0\]\[1\]: there is no node 'x'"),
        ({"tensors": [{"from": "q", "to": []}]}, r"tensors\[0\].from: there is no node 'q'"),
        ({"tensors": [{"from": "a", "to": ["b", "z"]}]}, r"tensors\[0\].to\[1\]"),
        ({"tensors": [{"from": "c", "to": ["a"]}]}, "edges: nodes read one another in a circle"),
        ({"tensors": [{"from": "c", "to": ["a", "c"]}]}, r"tensors\[0\].to\[1\]: node 'c' reads"),
        ({"edges": [["b", "b"]]}, r"edges\[0\]\[1\]: node 'b' reads itself"),
        ({"accelerators": -1}, "accelerators"),
        ({"bandwidth": 0}, "bandwidth"),
        ({"bandwidth": [[0, 1], [1, 0]]}, "bandwidth: has shape"),
        ({"levels": [{"devices": 2, "bandwidth": 3}]}, "levels: have 2 devices in all, of 3"),
        ({"objective": "peak"}, "objective.*choose one of sum"),
        ({"version": 2}, "newer"),
    ],
)
def test_fields_that_are_wrong(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.read(saved(tmp_path, {**BY_HAND, **changes}))


def test_of_many_nodes_only_some_are_listed(tmp_path: Path) -> None:
    nodes = [{"id": str(at), "time": 1} for at in range(100)]
    path = saved(tmp_path, {**BY_HAND, "nodes": nodes, "edges": [["0", "x"]], "tensors": []})
    with pytest.raises(InputError, match=r"choose one of 0, 1, .*, 39, \.\.\. \(100 in all\)$"):
        sp.read(path)


# ---------------------------------------------------------------------- dnn-partitioning


def test_a_graph_of_dnn_partitioning(tmp_path: Path) -> None:
    instance = sp.read(saved(tmp_path, DNN), kind="graph-partition")
    assert instance.ids == ("7", "3", "5")
    assert instance.names == ("conv", "", "")
    assert instance.traffic.tolist() == [0.25, 8, 0]
    assert instance.memory.tolist() == [60, 31, 0]
    assert instance.colour.tolist() == [1, -1, 1]
    assert instance.backward.tolist() == [False, False, True]
    assert instance.accelerator.tolist() == [True, True, False]
    assert (instance.accelerators, instance.cpus) == (2, 1)
    solution = sp.GraphSolution.from_dict({"assignment": {"7": 2, "3": 0, "5": 2}}, instance)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == 55
    assert sp.read(saved(tmp_path, DNN), devices=4, cpus=0).devices == 4


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (("edges", 1, "cost"), 0.5, r"edges\[1\].cost: is 0.5, but edges\[0\] says 0.25 .*node 7"),
        (("edges", 1, "destId"), 9, r"edges\[1\].destId: there is no node '9'"),
        (("edges", 1, "destId"), 7, r"edges\[1\]: leads from node 7 to itself"),
        (("edges", 2, "destId"), 7, r"edges\[2\]: .*|circle: (7|3)"),
        (("nodes", 1, "id"), 7, r"nodes\[1\].id: 7 comes twice"),
        (("nodes", 0, "fpgaLatency"), -1, r"nodes\[0\].fpgaLatency"),
        (("nodes", 0, "supportedOnFpga"), 3, r"nodes\[0\].supportedOnFpga"),
    ],
)
def test_what_is_wrong_in_such_a_file(
    tmp_path: Path, at: tuple[str, int, str], value: Any, words: str
) -> None:
    document = json.loads(json.dumps(DNN))
    document[at[0]][at[1]][at[2]] = value
    with pytest.raises(InputError, match=words):
        sp.read(saved(tmp_path, document))


def test_public_graphs_are_written_as_they_were_read(data_dir: Path, tmp_path: Path) -> None:
    for path in sorted((data_dir / "dnn-partitioning").glob("*/*.json")):
        instance = sp.read(path, kind="graph-partition")
        assert instance.n == len(json.loads(path.read_text())["nodes"])
        for form in ("native", "dnn-partitioning"):
            door.write(instance, tmp_path / "graph.json", format=form)
            assert sp.read(tmp_path / "graph.json").digest == instance.digest, (path, form)


def test_what_such_files_cannot_say(tmp_path: Path) -> None:
    instance = sp.read(saved(tmp_path, DNN), kind="graph-partition")
    for changes, field in (
        ({"objective": "overlap"}, "objective"),
        ({"stash": [1, 0, 0]}, "stash"),
        ({"speeds": [1, 2]}, "speeds"),
        ({"producer": [0, 0], "consumer_ptr": [0, 1, 2], "consumers": [1, 2], "traffic": [1, 2]},
         "producer"),
    ):  # fmt: skip
        with pytest.raises(InputError, match="nothing that dnn") as caught:
            door.write(instance.replace(**changes), tmp_path / "x.json", "dnn-partitioning")
        assert caught.value.field == field


# ---------------------------------------------------------------------- PipeDream


def test_a_profile_as_a_graph(tmp_path: Path) -> None:
    given: dict[str, Any] = {"kind": "graph-partition", "devices": 2, "bandwidth": 1e6 / 2**30}
    instance = sp.read(graph(tmp_path, *SMALL), training=False, **given)
    assert instance.ids == ("node2", "node3", "node4", "node6", "node10")
    assert instance.name == "small"
    # A list of three is three tensors; the third is read by node10 alone.
    assert instance.producer.tolist() == [0, 0, 0, 1, 2, 3, 4]
    ends = instance.consumer_ptr.tolist()
    readers = [instance.consumers[a:b].tolist() for a, b in pairwise(ends)]
    assert readers == [[1, 4], [2, 4], [4], [3], [3], [4], []]
    assert instance.traffic.tolist() == [10, 20, 40, 10, 20, 8, 4]
    assert instance.time.tolist() == [1000, 1000, 1000, 2, 1000]
    assert instance.bandwidth == 1  # 10**6 bytes a second in microseconds
    trained = sp.read(graph(tmp_path, *SMALL), training=True, **given)
    assert trained.time.tolist() == [3000, 3000, 3000, 4, 3000]
    assert trained.traffic.tolist() == [20, 40, 80, 20, 40, 16, 8]
    assert trained.memory.tolist() == [32] * 5
    assert trained.stash.tolist() == [70, 10, 20, 8, 4]
    assert trained.parameters.tolist() == [16] * 5


def test_a_profile_in_two_passes(tmp_path: Path) -> None:
    """Every operator is two nodes; from each reader comes a gradient of what it read."""
    given: dict[str, Any] = {
        "kind": "graph-partition", "devices": 2, "bandwidth": 1e6 / 2**30, "training": True,
    }  # fmt: skip
    path = graph(tmp_path, *SMALL)
    instance = sp.read(path, objective="forward+backward", **given)
    assert instance.ids is not None
    assert instance.ids[:2] == ("node2", "node3")
    assert instance.ids[5:7] == ("node2.backward", "node3.backward")
    assert instance.time.tolist() == [1000, 1000, 1000, 2, 1000, 2000, 2000, 2000, 2, 2000]
    assert instance.colour.tolist() == [0, 1, 2, 3, 4] * 2
    assert instance.backward.tolist() == [False] * 5 + [True] * 5
    assert instance.traffic[:7].tolist() == [10, 20, 40, 10, 20, 8, 4]
    gradients = zip(
        instance.producer[7:].tolist(), instance.consumers[8:].tolist(),
        instance.traffic[7:].tolist(), strict=True,
    )  # fmt: skip
    assert sorted(gradients) == [
        (6, 5, 10),
        (7, 5, 20),
        (8, 6, 10),
        (8, 7, 20),
        (9, 5, 70),
        (9, 8, 8),
    ]
    assert instance.memory.tolist() == [16] * 10
    assert instance.stash.tolist() == [70, 10, 20, 8, 4] + [0] * 5
    # On device 0 nodes 2 to 4: 3000 + 70 + 10 + 20 forward, 6000 + 10 + 20 + 70 backward.
    cut = sp.GraphSolution.of(instance, [0, 0, 0, 1, 1] * 2)
    assert instance.evaluate(cut) == 3100 + 6100
    assert sp.solve(instance).status == "OPTIMAL"
    with pytest.raises(InputError, match="forward\\+backward counts the backward pass") as caught:
        sp.read(path, objective="forward+backward", **{**given, "training": False})
    assert caught.value.field == "training"


def test_two_passes_of_a_graph_with_one_are_told() -> None:
    instance = sp.GraphPartition.from_edges(2, [(0, 1)], time=[1, 2], accelerators=2)
    result = sp.solve(instance, objective="forward+backward")
    assert "no node is of the backward pass" in result.reason
    assert sp.solve(instance).reason == ""


def test_links_in_levels_are_said_beside_a_file(tmp_path: Path) -> None:
    path = saved(
        tmp_path, {**BY_HAND, "cpus": 0, "nodes": [{"id": "a"}], "edges": [], "tensors": []}
    )
    said = sp.read(path, devices=4, levels="2,8,2,0.5")
    assert np.array_equal(said.bandwidth, table_of([(2, 8), (2, 0.5)], 4) * ~np.eye(4, dtype=bool))
    for wrong in ("2,8,2", "1.5,8"):
        with pytest.raises(InputError, match="levels: are no pairs"):
            sp.read(path, devices=4, levels=wrong)
    with pytest.raises(InputError, match="bandwidth: is given beside levels"):
        sp.read(path, devices=4, levels="2,8,2,1", bandwidth=3)
    profile = sp.read(
        graph(tmp_path, *SMALL),
        kind="graph-partition",
        devices=4,
        levels=[2, 1e9 / 2**30, 2, 1e6 / 2**30],
    )
    assert np.array_equal(np.asarray(profile.bandwidth)[0], [0, 1000, 1, 1])
    assert profile.replace(levels=[(4, 7)]).bandwidth == 7


def test_a_profile_says_what_it_needs(tmp_path: Path) -> None:
    path = graph(tmp_path, *SMALL)
    with pytest.raises(InputError, match="bandwidth: is not in the file"):
        sp.read(path, devices=2)
    with pytest.raises(InputError, match="devices: is not in the file"):
        sp.read(path, kind="graph-partition", bandwidth=1)
    with pytest.raises(InputError, match="bandwidth: is not in the file"):
        sp.read(path, kind="graph-partition", devices=2)
    memory = sp.read(path, kind="graph-partition", devices=2, objective="memory")
    assert memory.objective == "memory"
    looped = graph(tmp_path, node("node1"), node("node2"), "\tnode1 -- node2", "\tnode2 -- node1")
    with pytest.raises(InputError, match="is on a cycle"):
        sp.read(looped, kind="graph-partition", devices=2, bandwidth=1)


def test_public_profiles_as_graphs(data_dir: Path) -> None:
    path = data_dir / "pipedream" / "vgg16_graph.txt"
    instance = sp.read(
        path, kind="graph-partition", devices=4, bandwidth=1e9 / 2**30, training=True,
        objective="overlap", empty_devices=False,
    )  # fmt: skip
    chain = sp.read(path, kind="pipeline-partition", devices=4, training=True, order="file")
    assert instance.time.sum() == chain.cycles.sum()
    assert instance.bandwidth == 1000
    assert instance.tolerance == 0
    # It is one of these, forward and back, that no four stages do without.
    assert 411_041_792 in instance.traffic.tolist()
