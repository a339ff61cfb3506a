from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Link

CASE: dict[str, Any] = {
    "name": "one",
    "layers": [
        {"name": "a", "cycles": 10, "exclusive_bytes": 5, "inputs_bytes": 7, "outputs_bytes": 9},
        {"name": "b", "cycles": 20, "exclusive_bytes": 6, "inputs_bytes": 8, "outputs_bytes": 10},
        {"name": "a", "cycles": 30, "exclusive_bytes": 7, "inputs_bytes": 9, "outputs_bytes": 11},
        {"name": "c", "cycles": 40, "exclusive_bytes": 8, "inputs_bytes": 1, "outputs_bytes": 12},
    ],
    "cluster": {
        "clock": 1073741824,
        "memory_MiB": 894,
        "memoryProportion": 0.85,
        "connection": [
            {"recvGBps": 1, "recvIdleCycle": 100, "sendGBps": 0.5, "sendIdleCycle": 3},
            {"recvGBps": 0.5, "recvIdleCycle": 3, "sendGBps": 2, "sendIdleCycle": 200},
        ],
    },
}


def saved(place: Path, document: Any) -> Path:
    path = place / "cases.json"
    path.write_text(json.dumps(document))
    return path


def brute_force(instance: PipelinePartition) -> tuple[float, list[list[int]]]:
    values: dict[tuple[int, ...], float] = {}
    for inner in combinations(range(1, instance.n), instance.k - 1):
        solution = PipelineSolution.in_order((0, *inner, instance.n))
        if not instance.check(solution):
            values[solution.boundaries] = instance.evaluate(solution)
    best = min(values.values())
    return best, [list(cuts) for cuts, value in values.items() if value == best]


def test_one_case(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, CASE))
    assert instance.name == "one"
    assert instance.objective == "transfer-bounded"
    assert instance.host_transfer
    assert [(v.first, v.last) for v in instance.variables] == [(0, 2)]
    assert {d.memory for d in instance.cluster.devices} == {int(894 * 0.85 * 2**20)}
    assert instance.in_bytes.tolist() == [7, 8, 9, 1, 0]
    assert instance.out_bytes.tolist() == [0, 9, 10, 11, 12]
    assert instance.cluster.host_recv == Link(GBps=1, idle=100)
    assert instance.cluster.host_send == Link(GBps=2, idle=200)
    # compute 60; first device sends 11 bytes at half a byte a cycle, second receives 1;
    # the host gives 7 bytes and takes 12 at two a cycle.
    assert instance.evaluate(PipelineSolution.in_order([0, 3, 4])) == 60 + 25 + 107 + 206
    assert brute_force(instance)[1] == [[0, 3, 4]]
    assert door.read(saved(tmp_path, CASE), objective="bottleneck").objective == "bottleneck"


def test_the_public_cases(data_dir: Path) -> None:
    path = data_dir / "auto_pipeline" / "partition_cases.json"
    answers = {case["name"]: case["answers"] for case in json.loads(path.read_text())}
    instances = door.read_all(path)
    assert (
        [instance.name for instance in instances]
        == list(answers)
        == ["even2", "shared2", "memory2"]
    )
    for instance in instances:
        best, cuts = brute_force(instance)
        assert cuts == answers[instance.name]
        assert door.read(f"{path}#{instance.name}").digest == instance.digest
        assert best == {"even2": 30000, "shared2": 40000, "memory2": 50000}[instance.name]


def test_choosing_among_several(tmp_path: Path) -> None:
    path = saved(tmp_path, [CASE, {**CASE, "name": "two"}, CASE])
    with pytest.raises(InputError, match="holds 3 instances; choose one, for example"):
        door.read(path)
    assert door.read(f"{path}#two").name == "two"
    assert [i.name for i in door.read_all(path)] == ["one", "two", "one"]
    assert len(door.read_all(f"{path}#two")) == 1
    with pytest.raises(InputError, match=r"2 instances are named 'one'; choose by position: .*#0"):
        door.read(f"{path}#one")
    assert door.read(f"{path}#2").name == "one"
    with pytest.raises(InputError, match="has no instance 'three'; there are one, two"):
        door.read(f"{path}#three")
    odd = tmp_path / "odd#one.json"
    odd.write_text(json.dumps(CASE))
    assert door.read(odd).name == "one"


def changed(**changes: Any) -> list[Any]:
    return [CASE, {**CASE, **changes}]


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (changed(layers=[]), "[1].layers", "no layers"),
        (changed(layers=[{"name": "a", "cycles": -1}]), "[1].layers[0].cycles", "is -1"),
        (changed(layers=[{"name": "a"}]), "[1].layers[0].cycles", "is missing"),
        (changed(layers=[{"name": "a", "cycles": 1, "bytes": 3}]), "[1].layers[0].bytes",
         "unknown field"),
        (changed(cluster={**CASE["cluster"], "memoryProportion": 1.5}),
         "[1].cluster.memoryProportion", "is 1.5"),
        (changed(cluster={**CASE["cluster"], "memory": 5}), "[1].cluster.memory",
         "did you mean memory_MiB?"),
        (changed(cluster={**CASE["cluster"], "connection": []}), "[1].cluster.connection", ""),
        (changed(layers=[{"name": "a", "cycles": 10**30}]), "[1].forward", "2**62"),
    ],
)  # fmt: skip
def test_bad_cases_are_named(tmp_path: Path, document: Any, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        door.read_all(saved(tmp_path, document))
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.file.endswith("cases.json")


def test_training_is_not_understood(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not understand 'training'"):
        door.read(saved(tmp_path, CASE), training=True)
