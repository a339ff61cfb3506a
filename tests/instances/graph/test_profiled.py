"""Graphs of profiles of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagepack as sp
from stagepack.errors import InputError

LAYERS = (
    sp.LayerProfile(name="a", forward=3, backward=6, inputs=("x",), outputs=("p",), stash=5,
                    exclusive={"parameters": 8, "gradients": 8}, variables=("v",)),
    sp.LayerProfile(name="b", forward=4, backward=8, inputs=("p",), outputs=("q",),
                    variables=("v", "w")),
    sp.LayerProfile(name="b", forward=5, backward=9, inputs=("p", "q"), outputs=("y",),
                    variables=("w",)),
)  # fmt: skip
PROFILE = sp.ModelProfile(layers=LAYERS, tensors={"x": 1, "p": 10, "q": 20, "y": 2}, name="net")


def test_columns_are_those_of_the_layers() -> None:
    link = sp.Link(GBps=2, idle=7)
    cluster = sp.Cluster.uniform(2, memory=64, link=link, clock=2**30)
    graph = sp.GraphPartition.from_profile(PROFILE, cluster)
    assert graph.time.tolist() == [3, 4, 5]
    assert graph.ids == ("a", "b", "b #2")
    assert graph.memory.tolist() == [16, 0, 0]
    assert graph.parameters.tolist() == [8, 0, 0]
    assert graph.stash.tolist() == [0, 0, 0]
    assert graph.colour.tolist() == [0, 0, 0]  # v joins the first two, w the last two
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.traffic.tolist() == [10, 20, 2]
    assert (graph.name, graph.bandwidth) == ("net", 2)
    assert graph.capacity is not None
    assert graph.capacity.tolist() == [64, 64]
    trained = sp.GraphPartition.from_profile(PROFILE, cluster, training=True)
    assert trained.microbatches == len(cluster)
    assert trained.time.tolist() == [9, 12, 14]
    assert trained.traffic.tolist() == [20, 40, 4]
    assert trained.stash.tolist() == [5, 0, 0]


def test_two_passes_have_nodes_of_their_own() -> None:
    cluster = sp.Cluster.uniform(2)
    graph = sp.GraphPartition.from_profile(
        PROFILE, cluster, training=True, objective="forward+backward"
    )
    assert graph.time.tolist() == [3, 4, 5, 6, 8, 9]
    assert graph.ids == ("a", "b", "b #2", "a.backward", "b.backward", "b #2.backward")
    assert graph.backward.tolist() == [False] * 3 + [True] * 3
    assert graph.colour.tolist() == [0] * 6
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [4, 3], [5, 3], [5, 4]]
    assert graph.traffic.tolist() == [10, 20, 2, 10, 10, 20]


def test_limits_are_of_all_devices_or_of_none() -> None:
    devices = (sp.Device(memory=3), sp.Device())
    with pytest.raises(InputError, match="capacity: only some devices have a limit"):
        sp.GraphPartition.from_profile(PROFILE, sp.Cluster(devices=devices))


def test_bytes_that_a_chain_counts_and_a_graph_does_not_are_told(tmp_path: Path) -> None:
    """The best graph within a capacity may not fit the chain: the answer says why."""
    layers = [
        sp.LayerProfile(name="a", forward=3, outputs=("p", "r"), temporary=30, stash=1,
                        exclusive={"parameters": 8}, shared={"code": 7}),
        sp.LayerProfile(name="b", forward=4, inputs=("p",), outputs=("q",), temporary=9,
                        backward_temporary=50, exclusive={"parameters": 8}, shared={"code": 7}),
        sp.LayerProfile(name="c", forward=4, inputs=("q", "r"), outputs=("y",)),
    ]  # fmt: skip
    tensors = {"p": 1, "q": 1, "r": 2, "y": 1}
    profile = sp.ModelProfile(layers=tuple(layers), tensors=tensors)
    cluster = sp.Cluster.uniform(2, memory=20)
    graph = sp.GraphPartition.from_profile(profile, cluster)
    assert graph.uncounted == {"temporary": 30, "carry": 2, "shared": 7}
    said = (
        "not counted: temporary 30, carry 2, shared 7 bytes at most, which --kind pipeline counts"
    )
    result = sp.solve(graph)
    assert (result.status, result.reason) == ("OPTIMAL", said)
    chain = sp.PipelinePartition.from_profile(profile, cluster)
    assert sp.solve(chain).status == "INFEASIBLE"
    sp.write(graph, tmp_path / "graph.json")
    again = sp.read(tmp_path / "graph.json")
    assert (again.uncounted, again.digest) == (graph.uncounted, graph.digest)
    assert graph.replace(capacity=None).proviso == ""
    trained = sp.GraphPartition.from_profile(profile, cluster, training=True, microbatches=2)
    assert trained.uncounted["temporary"] == 50
    assert trained.replace(objective="memory", capacity=None).proviso.startswith("not counted: ")
    bare = sp.ModelProfile(layers=(sp.LayerProfile(forward=1),))
    assert sp.GraphPartition.from_profile(bare, "generic-2").uncounted == {}


def test_a_profile_of_pipedream_tells_them_too() -> None:
    profile = Path(__file__).parents[3] / "examples" / "operators_graph.txt"
    given: dict[str, Any] = {"devices": 3, "bandwidth": 10, "capacity": 10**9}
    graph = sp.read(profile, kind="graph", **given)
    chain = sp.read(profile, kind="pipeline", order="file", training=True, **given)
    assert graph.uncounted == {
        "temporary": chain.temporary.max(),
        "carry": chain.carry.max(),
    }
    assert "not counted: temporary " in sp.solve(graph).reason


@pytest.mark.parametrize("kind", ["PipelinePartition", "GraphPartition", "PipelineSchedule"])
def test_a_profile_says_whether_it_is_of_training(kind: str) -> None:
    """Without a word it is of inference, as everywhere; its bytes are never taken for others."""
    make = getattr(sp, kind).from_profile
    untold, cluster = sp.ModelProfile(layers=LAYERS, tensors=PROFILE.tensors), "generic-1"
    told = {is_: msgspec.structs.replace(untold, training=is_) for is_ in (False, True)}
    assert make(untold, cluster).digest == make(told[False], cluster).digest
    assert make(untold, cluster, training=True).digest == make(told[True], cluster).digest
    assert make(untold, cluster).digest != make(told[True], cluster).digest
    for own in (False, True):
        assert make(told[own], cluster, training=own).digest == make(told[own], cluster).digest
        words = f"training: is {not own}, but the profile {'has' if own else 'has not'} the bytes"
        with pytest.raises(InputError, match=words):
            make(told[own], cluster, training=not own)
