from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack import catalog
from stagepack.errors import InputError
from stagepack.formats import door, native
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.kinds import KINDS

BY_HAND: dict[str, Any] = {
    "problem": "pipeline-partition",
    "version": 1,
    "name": "three",
    "objective": "transfer-bounded",
    "cluster": {
        "clock": 1000,
        "devices": [
            {"name": "left", "memory": 900, "send": {"GBps": 1.5, "idle": 3}},
            {"memory": 900, "speed": 2, "recv": {"GBps": 1.5, "idle": 3}},
        ],
    },
    "tensors": {"in": 8, "a": 16, "b": 24, "out": 4},
    "layers": [
        {"name": "one", "forward": 5, "backward": 9, "inputs": ["in"], "outputs": ["a"]},
        {
            "name": "two",
            "forward": 7,
            "exclusive": {"weights": 100},
            "shared": {"code": 50},
            "inputs": ["a"],
            "outputs": ["b"],
        },
        {
            "name": "three",
            "forward": 2,
            "shared": {"code": 50},
            "temporary": 10,
            "variables": ["v"],
            "inputs": ["a", "b"],
            "outputs": ["out"],
        },
    ],
}


def saved(place: Path, document: Any, name: str = "file.json") -> Path:
    path = place / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def altered(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**BY_HAND, **changes}.items() if value is not ...}


def columns(**changes: Any) -> dict[str, Any]:
    layers = {"forward": [1, 2, 3], **changes}
    return altered(layers=layers, tensors=...)


def test_layers_by_hand(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, BY_HAND))
    assert (instance.n, instance.k, instance.name) == (3, 2, "three")
    assert instance.layer_names == ("one", "two", "three")
    assert instance.in_bytes.tolist() == [8, 16, 40, 4]
    assert instance.carry.tolist() == [0, 16, 0]
    assert instance.cluster.devices[1].speed == 2
    assert instance.device_name(0) == "left"
    assert [v.name for v in instance.variables] == ["v"]
    assert instance.forward.dtype == np.int64
    assert not instance.check(PipelineSolution.in_order([0, 2, 3]))


PASSING = {"names": ["a", "b"], "born": [0, -1], "last_use": [2, 3], "bytes": [16, 4]}


def full() -> PipelinePartition:
    link = Link(GBps=7, idle=2.5)
    return PipelinePartition.from_arrays(
        [1.0, 2.0, 3.5],
        backward=[0.0, 0.0, 0.0],
        cluster=Cluster(
            devices=(
                Device(name="a", memory=10**15, speed=1.0, recv=link),
                Device(memory=0, speed=1, send=Link(GBps=7.0)),
            ),
            name="pair",
            clock=1e9,
            host_recv=link,
        ),
        exclusive={"weights": [0, 0, 0], "ünïcode \u2028": [1, 2, 2**60]},
        shared={"z": (5, [2, 0]), "a": (0, [1]), "unused": (9, [])},
        temporary=[1, 0, 0],
        carry=[0, 1, 0],
        stash=[0, 0, 1],
        in_bytes=[1, 2, 3, 4],
        out_bytes=[0, 0, 0, 5],
        recv_cycles=[[0.5, 1, 2, 3]] * 2,
        send_cycles=[[1, 2, 3, 4]] * 2,
        compute_table=np.arange(32).reshape(2, 4, 4),
        memory_table=np.arange(16).reshape(4, 4),
        variables=[("x", 0, 1), ("", 2, 2)],
        forbidden_cuts=[1],
        fixed_cuts=[2],
        training=True,
        microbatches=3,
        objective="overlap",
        host_transfer=True,
        fewer_stages=True,
        free_order=True,
        layer_names=["one", "two", "two"],
        name='full "of" everything',
        source="somewhere",
    )


@pytest.mark.parametrize("end", [".json", ".json.gz"])
@pytest.mark.parametrize(
    "make",
    [
        full,
        lambda: PipelinePartition.from_arrays([0], devices=1),
        lambda: catalog.load("pipeline/bert-base", training=True, batch=1),
        lambda: catalog.load("pipeline/random/unlike-devices"),
        lambda: catalog.load("pipeline/random/shared-variables"),
    ],
)
def test_round_trip_is_exact(tmp_path: Path, make: Any, end: str) -> None:
    instance = make()
    path = tmp_path / f"file{end}"
    door.write(instance, path)
    again = door.read(path)
    assert again.digest == instance.digest
    for name in ("name", "source", "layer_names", "cluster", "variables"):
        assert getattr(again, name) == getattr(instance, name)
    assert again.shared.names == instance.shared.names
    for name in ("forward", "backward", "recv_cycles"):
        ours, theirs = getattr(again, name), getattr(instance, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or ours.dtype == theirs.dtype
    assert path.read_bytes().startswith(b"\x1f\x8b") == (end == ".json.gz")
    door.write(again, tmp_path / f"again{end}")
    assert (tmp_path / f"again{end}").read_bytes() == path.read_bytes()


numbers = st.integers(0, 2**40) | st.floats(0, 1e12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_columns_round_trip(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    n = data.draw(st.integers(1, 5))

    def column(of: Any) -> Any:
        return data.draw(st.none() | st.lists(of, min_size=n, max_size=n))

    instance = PipelinePartition.from_arrays(
        data.draw(st.lists(numbers, min_size=n, max_size=n)),
        devices=data.draw(st.integers(1, min(3, n))),
        bandwidth=data.draw(st.none() | st.floats(1e-3, 1e6)),
        backward=column(numbers),
        temporary=column(st.integers(0, 2**50)),
        exclusive=data.draw(
            st.dictionaries(
                st.text(max_size=3), st.lists(st.integers(0, 2**50), min_size=n, max_size=n)
            )
        ),
        name=data.draw(st.text(max_size=5)),
    )
    path = tmp_path_factory.mktemp("round") / "file.json"
    door.write(instance, path)
    assert door.read(path).digest == instance.digest
    assert door.read(path).name == instance.name


@pytest.mark.parametrize("carry", [[4, 20, 4], None])
def test_columns_tell_tensors_that_pass_layers(tmp_path: Path, carry: list[int] | None) -> None:
    path = saved(tmp_path, columns(passing=PASSING, carry=carry))
    instance = door.read(path)
    assert instance.carry.tolist() == (carry or [0, 0, 0])
    assert instance.tensors is not None
    assert instance.tensors.carried().tolist() == [4, 20, 4]
    door.write(instance, path)
    assert json.loads(path.read_text())["layers"]["passing"] == PASSING


def test_a_long_chain_is_columns(tmp_path: Path) -> None:
    n = 100_000
    instance = PipelinePartition.from_arrays(
        np.arange(n), devices=2, exclusive=np.arange(n), shared={"code": (3, range(n))}
    )
    door.write(instance, tmp_path / "long.json.gz")
    assert door.read(tmp_path / "long.json.gz").digest == instance.digest


def test_context_replaces_what_the_file_says(tmp_path: Path) -> None:
    path = saved(tmp_path, BY_HAND)
    changed = door.read(
        path, objective="sum", training=True, microbatches="4", capacity=77, speed="1,3"
    )
    assert changed.objective == "sum"
    assert changed.training
    assert changed.microbatches == 4
    assert [d.memory for d in changed.cluster.devices] == [77, 77]
    assert [d.speed for d in changed.cluster.devices] == [1, 3]
    assert door.read(path, bandwidth=2).cluster.host_recv == Link(GBps=2)
    with pytest.raises(InputError, match="differ"):
        door.read(path, devices=3)
    pod = door.read(path, cluster="ipu-pod4", fewer_stages=True).cluster
    assert len(pod) == 4
    assert pod.clock == 1000
    assert pod.devices[0].recv is not None
    assert pod.devices[0].recv.idle == pytest.approx(3000 * 1000 / 1.85e9)
    alike = saved(tmp_path, columns(), "alike.json")
    assert door.read(alike, cluster="generic-3", devices=3).k == 3
    with pytest.raises(InputError, match="not both"):
        door.read(alike, cluster="generic-3", devices=4)
    nowhere = saved(tmp_path, {**columns(), "cluster": None}, "nowhere.json")
    with pytest.raises(InputError, match="--devices"):
        door.read(nowhere)
    assert door.read(nowhere, devices=2, fewer_stages=True).fewer_stages


BAD: list[tuple[Any, str, str]] = [
    ({}, "problem", 'is missing; begin with {"problem": "KIND", "version": 1'),
    ({"layers": [{"forward": 1}]}, "problem", "stagepack schema KIND"),
    ([], "", "is an array; a native file is an object"),
    (altered(problem="ship-routing"), "problem", "unknown problem 'ship-routing'"),
    (altered(version=2), "version", "version 2 is newer"),
    (altered(version=2, news=1), "version", "update Stagepack"),
    (altered(version="1"), "version", "is '1'"),
    (altered(version=...), "version", "is missing"),
    (altered(layers=...), "layers", "is missing"),
    (altered(layers=[]), "layers", "no layers"),
    (altered(layers=7), "layers", "is 7"),
    (altered(layer=[]), "layer", "did you mean layers?"),
    (altered(cost=3), "cost", "known here are problem, version, "),
    (altered(objective="fastest"), "objective", "choose one of bottleneck"),
    (altered(microbatches=0), "microbatches", "is 0"),
    (altered(training="yes"), "training", 'is "yes"'),
    (altered(tensors={"in": 8, "a": -16, "b": 24, "out": 4}), "tensors.a", "is -16"),
    (altered(tensors={"in": 8, "a": 16, "out": 4}), "tensors", "'b' has no size"),
    (altered(tensors={"in": 2**62, "a": 2**62, "b": 2**62, "out": 2**62}), "tensors", "sum"),
    (altered(variables=[{"first": 0, "last": 1}]), "variables", "layers name"),
    (altered(cluster={"devices": []}), "cluster.devices", ""),
    (altered(cluster={"devices": [{"speed": 0}]}), "cluster.devices[0].speed", "is 0"),
    (altered(cluster={"devices": [{"speed": 1e-300}]}), "cluster.devices[0].speed", "range"),
    (altered(cluster={"devices": [{"recv": {"GBps": 1, "lag": 2}}]}),
     "cluster.devices[0].recv.lag", "unknown field"),
    (altered(stages=2), "stages", "give --devices"),
    (altered(cluster={"devices": [{}], "clock": 10**400}), "cluster.clock", "out of range"),
    (columns(forward=[]), "layers.forward", "no layers"),
    (columns(forward=[1, -2, 3]), "layers.forward[1]", "is -2"),
    (columns(forward=[1, "2", 3]), "layers.forward[1]", "str"),
    (columns(forward=[1, 10**30, 3]), "layers.forward[1]", ""),
    (columns(forward=[2**61, 2**61, 3]), "layers.forward", "2**62"),
    (columns(backward=[1, 2]), "layers.backward", "shape"),
    (columns(names=["a"]), "layers.names", "1 names for 3 layers"),
    (columns(exclusive={"code": [1, 2, 3], "weights": [1, 2, -3]}),
     "layers.exclusive.weights[2]", "is -3"),
    (columns(exclusive={"code": [1.5, 2, 3]}), "layers.exclusive.code[0]", "is 1.5"),
    (columns(shared={"code": {"bytes": 1, "layers": [3]}}), "layers.shared", "outside"),
    (columns(temprary=[1, 2, 3]), "layers.temprary", "did you mean temporary?"),
    (columns(passing=PASSING | {"bytes": [1]}), "layers.passing", "differ in length"),
    (columns(passing=PASSING | {"last_use": [1, 3]}), "layers.passing", "leave out tensors that"),
    (columns(passing=PASSING | {"born": [0, -2]}), "layers.passing.born[1]", "is -2"),
    (columns(passing=PASSING | {"bytes": [2**62, 1]}), "layers.passing.bytes", "sum"),
    (columns(passing=PASSING, carry=[4, 21, 4]), "layers.carry", "not the sum of the tensors"),
    ({**columns(), "tensors": {"a": 1}}, "tensors", "list of layers"),
    ({**columns(), "recv_cycles": [[1, 2, 3, 4]]}, "recv_cycles", "shape"),
    ({**columns(), "compute_table": [[1, 2], [3]]}, "compute_table", ""),
    ({**columns(), "forbidden_cuts": [3]}, "forbidden_cuts", "cut 3"),
    ({**columns(), "variables": [{"name": "v", "first": 2, "last": 1}]}, "variables", "spans"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "field", "words"), BAD)
def test_bad_fields_are_named(tmp_path: Path, document: Any, field: str, words: str) -> None:
    path = saved(tmp_path, document)
    with pytest.raises(InputError) as caught:
        door.read(path)
    error = caught.value
    assert error.file == str(path)
    assert error.field == field
    assert words in str(error)
    assert error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(BY_HAND)[:-40], "cut short: the JSON ends at line 1, column"),
        ('{"problem": "pipeline-partition",\n "version": 1,, }', "at line 2, column 15"),
        (json.dumps(columns(forward=[1, float("nan")])), "NaN at line 1"),
        (json.dumps(columns(forward=[1, float("-inf")])), "-Infinity at line 1"),
        (json.dumps(columns()).replace("[1, 2, 3]", "[1, 1e400, 3]"), "layers.forward[1]"),
        ('{"problem": "pipeline-partition", "version": 1, "x": ' + "[" * 100_000, ""),
        ('{"problem": "pipeline-partition", "version": ' + "9" * 5000 + "}", "version: "),
        ("", "is empty"),
        (" \n ", "is empty"),
        ("hello", "not recognised: the first line is"),
    ],
)
def test_broken_text(tmp_path: Path, text: str, words: str) -> None:
    path = saved(tmp_path, text)
    with pytest.raises(InputError) as caught:
        door.read(path)
    assert caught.value.file == str(path)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


def test_broken_bytes(tmp_path: Path) -> None:
    for name, content, words in (
        ("cut.json.gz", gzip.compress(json.dumps(BY_HAND).encode())[:-20], "broken gzip"),
        ("bad.json.gz", b"\x1f\x8b" + bytes(40), "broken gzip"),
        ("junk.json", bytes(range(256)), "is not text"),
        ("junk.onnx", bytes(range(255, 0, -1)), "is no onnx file: its first bytes are not those"),
        ("wide.json", json.dumps(BY_HAND).encode("utf-16"), "is not text"),
        ("latin.json", json.dumps(altered(name="?")).encode().replace(b"?", b"\xe9"), "UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=words):
            door.read(tmp_path / name)


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "mark.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(BY_HAND).encode())
    assert door.read(tmp_path / "mark.json").n == 3


def test_schema_describes_what_is_written(tmp_path: Path) -> None:
    schema = native.schema("pipeline-partition")
    assert json.loads(json.dumps(schema)) == schema
    document = schema["$defs"]["Document"]
    assert set(document["required"]) == {"problem", "version", "layers"}
    assert document["additionalProperties"] is False
    door.write(full(), tmp_path / "full.json")
    written = json.loads((tmp_path / "full.json").read_text())
    assert set(written) <= set(document["properties"])
    assert set(written["layers"]) <= set(schema["$defs"]["Columns"]["properties"])


@pytest.mark.parametrize("kind", KINDS)
def test_descriptions_of_a_schema_are_not_indented(kind: str) -> None:
    for shape in native.schema(kind)["$defs"].values():
        described = shape.get("description", "")
        assert described == inspect.cleandoc(described)


def test_files_of_training_mean_what_they_meant(tmp_path: Path) -> None:
    document = {
        "problem": "pipeline-partition",
        "version": 1,
        "training": True,
        "layers": {"forward": [1, 2, 3], "stash": [1, 1, 1]},
        "cluster": {"devices": [{"memory": 9}, {"memory": 9}]},
    }
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    old = door.read(path)
    assert (old.microbatches, old.backward_transfers) == (1, False)
    path.write_text(json.dumps({**document, "training": False}))
    asked = door.read(path, training=True)
    assert (asked.microbatches, asked.backward_transfers) == (2, True)
    for instance in (old, asked, asked.replace(training=False)):
        door.write(instance, tmp_path / "again.json")
        assert door.read(tmp_path / "again.json").digest == instance.digest


def test_files_may_leave_out_terms_of_memory(tmp_path: Path) -> None:
    layers = {"forward": [1, 2], "exclusive": {"state": [3, 4]}, "temporary": [5, 6]}
    document = {"problem": "pipeline-partition", "version": 1, "layers": layers}
    path = tmp_path / "some.json"
    path.write_text(json.dumps({**document, "memory": ["temporary"]}))
    assert door.read(path, devices=1).exclusive == {}
    assert door.read(path, devices=1, memory="state").temporary.tolist() == [0, 0]


def test_a_list_of_rows_is_told_what_native_files_are(tmp_path: Path) -> None:
    path = tmp_path / "tensors.json"
    for rows in ('[{"name": "in", "bytes": 9}]', '[{"name":"in","forward":9}]'):
        path.write_text(rows)
        with pytest.raises(
            InputError, match=r'is an object; begin with \{"problem".*read from CSV'
        ):
            door.read(path)
