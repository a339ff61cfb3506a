"""Model profiles of Auto Pipeline, with the figures of its own tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError


def layer(**memory: Any) -> dict[str, Any]:
    empty = {"shared": {}, "exclusive": {}, "inputs": 0, "outputs": 0, "maxTemporary": 0}
    cycle = {"forward": 10_000, "backward": 0}
    return {"cycle": cycle, "memory": {**empty, "curCarryOver": 0, "curActivation": 0, **memory}}


def profile(layers: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    names = [str(at) for at in range(len(layers))]
    return {"layerName": names, "layerType": names, "layerInfo": layers, **more}


def cluster(devices: int) -> dict[str, Any]:
    """Return 10 bytes a cycle between devices, 1 to the host."""
    connection = [
        {
            "recvGBps": 1 if i == 0 else 10,
            "recvIdleCycle": 1_000_000 if i == 0 else 100_000,
            "sendGBps": 1 if i == devices - 1 else 10,
            "sendIdleCycle": 1_000_000 if i == devices - 1 else 100_000,
        }
        for i in range(devices)
    ]
    return {"clock": 1024**3, "memory": 128, "connection": connection}


def read(folder: Path, document: dict[str, Any], **given: Any) -> sp.PipelinePartition:
    path = folder / "model.json"
    path.write_text(json.dumps(document))
    whole: sp.PipelinePartition = sp.read(path, kind="pipeline", **given)
    return whole


@pytest.mark.parametrize(
    ("devices", "cuts", "stage", "cycles"),
    [
        (2, (0, 2, 12), 0, 2_113_200),
        (2, (0, 6, 12), 1, 2_113_700),
        (4, (0, 2, 5, 8, 12), 1, 2_213_800),
    ],
)
def test_transfers_are_those_of_its_tests(
    tmp_path: Path, devices: int, cuts: tuple[int, ...], stage: int, cycles: int
) -> None:
    layers = [layer(inputs=(i + 1) * 1000, outputs=(i + 1) * 1000) for i in range(12)]
    whole = read(tmp_path, profile(layers, cluster_info=cluster(devices)))
    plan = sp.PipelineSolution.in_order(cuts)
    assert sp.estimate(whole, plan).stages[stage].transfer == cycles


def test_memory_is_added_up_as_in_its_tests(tmp_path: Path) -> None:
    layers = [
        layer(shared={"code_1": 1000}, exclusive={"var_1": 10_000}, maxTemporary=999_999),
        layer(
            shared={"code_1": 1000, "code_2": 1000},
            exclusive={"var_1": 10_000, "var_2": 10_000},
            maxTemporary=9_000_000,
            curCarryOver=999_999,
        ),
    ]
    whole = read(tmp_path, profile(layers), devices=1)
    (stage,) = sp.estimate(whole, sp.PipelineSolution.in_order((0, 2))).stages
    assert stage.exclusive == {"var_1": 20_000, "var_2": 10_000}
    assert stage.memory == 1000 + 1000 + 20_000 + 10_000 + 9_000_000 + 999_999


def test_a_profile_needs_a_cluster(tmp_path: Path) -> None:
    document = profile([layer(), layer(), layer()])
    document["layerName"] = ["a", "b", "a"]
    with pytest.raises(InputError, match="does not say on how many devices to run"):
        read(tmp_path, document)
    whole = read(tmp_path, document, cluster="ipu-pod4", fewer_stages=True)
    assert (len(whole.cluster), whole.cluster.clock) == (4, 1_850_000_000)
    assert [(v.first, v.last) for v in whole.variables] == [(0, 2)]
    config = {"memoryProportion": 0.5, "usePoplarEstimation": False}
    whole = read(tmp_path, {**document, "cluster_info": cluster(2), "config": config})
    assert {device.memory for device in whole.cluster.devices} == {64 * 2**20}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (profile([]), "no layers"),
        ({**profile([layer()]), "layerName": []}, "layerName: 0 entries for 1 layers"),
        ({**profile([layer()]), "layerType": ["a", "b"]}, "layerType: 2 entries for 1 layers"),
        (
            profile([layer(shared={"k": 1}), layer(shared={"k": 2})]),
            r"layerInfo\[1\]\.memory\.shared: key 'k' has 2 bytes here and 1 elsewhere",
        ),
        (profile([layer(odd=1)]), "odd"),
        (profile([layer(inputs=-1)]), "inputs"),
    ],
)
def test_bad_profiles_are_refused_by_name(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, document, devices=1)


README = {  # of Auto Pipeline: IPUs with the host at both ends
    "clock": 1_850_000_000,
    "memory": 894,
    "connection": [
        {"recvGBps": 7, "recvIdleCycle": 50_000, "sendGBps": 70, "sendIdleCycle": 3_000},
        {"recvGBps": 70, "recvIdleCycle": 3_000, "sendGBps": 7, "sendIdleCycle": 50_000},
    ],
}


def test_a_cluster_is_read_as_it_stands(tmp_path: Path) -> None:
    """By itself, or with the share of memory; the readme's is the catalog's."""
    path = tmp_path / "two.json"
    document = profile([layer(inputs=1000, outputs=1000) for _ in range(4)])
    config = {"memoryProportion": 0.85, "usePoplarEstimation": True}
    for told, memory in (
        (README, 894 * 2**20),
        ({"cluster_info": README}, 894 * 2**20),
        ({"cluster_info": README, "config": config}, int(894 * 0.85 * 2**20)),
    ):
        path.write_text(json.dumps(told))
        whole = read(tmp_path, document, cluster=str(path))
        assert (whole.cluster.name, whole.cluster.clock) == ("two", 1_850_000_000)
        assert {device.memory for device in whole.cluster.devices} == {memory}
    pod = read(tmp_path, document, cluster="ipu-pod2")
    ends = [sp.PipelineSolution.in_order(cuts) for cuts in ((0, 1, 4), (0, 2, 4))]
    assert [whole.evaluate(one) for one in ends] == [pod.evaluate(one) for one in ends]


def test_a_cluster_that_is_wrong_is_told_by_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    document = profile([layer() for _ in range(4)])
    path.write_text(json.dumps({**README, "connection": [{"recvGBps": 7}]}))
    with pytest.raises(InputError, match=r"cluster: .*two.json: connection\[0\].*sendGBps"):
        read(tmp_path, document, cluster=str(path))
