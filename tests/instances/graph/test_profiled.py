"""Graphs of profiles of layers."""

from __future__ import annotations

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
