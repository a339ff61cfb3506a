"""What holds for all formats: finding files, telling formats apart, solutions, mutated bytes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.formats import door, known, solutions
from stagepack.formats.known import Format
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.kinds import KINDS
from tests.formats import test_native_packing
from tests.formats.test_auto_pipeline import CASE
from tests.formats.test_minimalloc import FULL
from tests.formats.test_native import BY_HAND, full
from tests.formats.test_native_packing import BY_HAND as BUFFERS
from tests.formats.test_pipedream import SMALL
from tests.formats.test_tpu_mlir import GROUPS
from tests.instances.graph import test_files as test_graph_files


def test_the_list_of_formats() -> None:
    found = {f.name: f for f in door.formats()}
    assert {name: entry.kinds for name, entry in found.items()} == {
        "native": tuple(KINDS),
        "pipedream": ("graph-partition", "pipeline-partition"),
        "auto_pipeline": ("pipeline-partition",),
        "auto_pipeline_profile": ("pipeline-partition",),
        "hugging_face": ("pipeline-partition",),
        "layer_table": ("pipeline-partition",),
        "megatron_layout": ("pipeline-partition",),
        "minimalloc": ("lmem-packing",),
        "dsa-solver": ("lmem-packing",),
        "tpu_mlir": ("lmem-packing",),
        "torch_schedule": ("pipeline-schedule",),
        "onnx": (
            "pipeline-partition",
            "graph-partition",
            "layer-grouping",
            "lmem-packing",
            "phase-schedule",
            "pipeline-schedule",
        ),
        "tflite": ("lmem-packing",),
        "vela": ("lmem-packing",),
        "xla": ("lmem-packing",),
        "torch_memory": ("lmem-packing",),
        "dnn-partitioning": ("graph-partition",),
    }
    for entry in found.values():
        assert entry.description
        assert entry.extensions
        divided = {"pipeline-partition", "graph-partition"} & set(entry.kinds)
        assert ("devices" in entry.context) == bool(divided)
        assert {"capacity", "objective"} <= entry.context
        reader = entry.reader
        assert set(reader.CONTEXTS) == set(entry.kinds)
        assert entry.writes == (hasattr(reader, "dump") and entry.name != "torch_schedule")
        assert entry.tells == hasattr(reader, "tell")
        assert entry.holds_solutions == hasattr(reader, "solution")
        assert entry.writes_solutions == hasattr(reader, "dump_solution")
    writers = [name for name, entry in found.items() if entry.writes]
    assert writers == ["native", "minimalloc", "dsa-solver", "dnn-partitioning"]


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "thing.dat"
    path.write_text(json.dumps(BY_HAND))
    assert door.read(path).name == "three"
    path.write_text(json.dumps([CASE]))
    assert door.read(path).name == "one"
    path.write_text("\n".join(SMALL))
    assert door.read(path, devices=1, bandwidth=1).kind == "graph-partition"
    with pytest.raises(InputError, match="do not understand 'order'; say --kind pipeline-part"):
        door.read(path, devices=1, bandwidth=1, order="best")
    assert door.read(path, kind="pipeline-partition", devices=1).n == 5
    assert door.read(path, kind="graph", devices=1, bandwidth=1).kind == "graph-partition"
    path.write_text(json.dumps(CASE))
    assert door.read(path, format="auto_pipeline").name == "one"
    with pytest.raises(InputError, match="problem: is missing"):
        door.read(path, format="native")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.json", "no such file"),
        (tmp_path, "is a directory"),
        (f"{tmp_path}/none.json#name", "no such file"),
        ("bad\0name", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("", "is a directory"),
    ):
        with pytest.raises(InputError, match=words):
            door.read(path)
        with pytest.raises(InputError, match=words):
            solutions.read_solution(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the user may read everything")
def test_a_forbidden_file(tmp_path: Path) -> None:
    path = tmp_path / "closed.json"
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read"):
        door.read(path)


def test_unknown_words(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(BY_HAND))
    for words, options in (
        ("unknown format 'natve'; did you mean native", {"format": "natve"}),
        ("unknown kind 'pipeline-partitions'", {"kind": "pipeline-partitions"}),
        ("unknown option 'device'", {"device": 3}),
        ("do not understand 'unit'", {"unit": "us"}),
        ("'three' will not do as devices", {"devices": "three"}),
        ("0 will not do as devices", {"devices": 0}),
        ("nan will not do as bandwidth", {"bandwidth": float("nan")}),
        ("'maybe' will not do as training", {"training": "maybe"}),
        ("unknown objective 'fast'", {"objective": "fast"}),
        ("unknown cluster 'ipu-pod3'; known are ipu-pod2", {"cluster": "ipu-pod3"}),
        ("3 speeds for 2 devices", {"speed": [1, 2, 3]}),
        (r"\[\] will not do as speed", {"speed": []}),
    ):
        with pytest.raises(InputError, match=words) as caught:
            door.read(path, **options)
        assert caught.value.remedy
    assert door.read(path, devices=None, kind="pipeline-partition").k == 2


def test_writing(tmp_path: Path) -> None:
    instance = full()
    with pytest.raises(InputError, match=r"end the name in \.json or \.json\.gz, or"):
        door.write(instance, tmp_path / "file.txt")
    door.write(instance, tmp_path / "file.txt", format="native")
    assert door.read(tmp_path / "file.txt").digest == instance.digest
    with pytest.raises(InputError, match="cannot be written"):
        door.write(instance, tmp_path / "no" / "file.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.txt"]


def test_solutions(tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    solution = PipelineSolution((0, 2, 5), (1, 0))
    solutions.write_solution(None, solution, path)
    assert solutions.read_solution(path) == solution
    path.write_text('{"boundaries": [0, 2, 5]}')
    assert solutions.read_solution(path) == PipelineSolution((0, 2, 5), (0, 1))
    path.write_text(json.dumps({"status": "OPTIMAL", "solution": solution.to_dict(), "x": [1]}))
    assert solutions.read_solution(path) == solution
    for document, field in (
        ({"status": "INFEASIBLE", "solution": None}, "solution"),
        ({"solution": {"boundaries": [0, 1.5]}}, "solution.boundaries[1]"),
        ({"boundaries": [0, 2], "device": [0]}, "device"),
        ({"boundaries": "0 2"}, "boundaries"),
        ({"assignment": {}}, "assignment"),
        ({}, ""),
        ([0, 2], ""),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(InputError) as caught:
            solutions.read_solution(path)
        assert caught.value.field == field
        assert caught.value.file == str(path)
    for text in ("", "{", "\x00", '{"boundaries": [1e400]}', '{"boundaries": [NaN]}'):
        path.write_text(text)
        with pytest.raises(InputError):
            solutions.read_solution(path)


def test_solutions_of_packings(tmp_path: Path) -> None:
    instance = LmemPacking.from_arrays(
        [4, 6], [0, 1], [2, 3], ids=["a", "b"], memories=[("near", 8, 1), ("far", None, 9)]
    )
    solution = PackingSolution.of(instance, [0, 4], [0, 1])
    for name in ("solution.json", "solution.json.gz"):
        solutions.write_solution(instance, solution, tmp_path / name)
        assert solutions.read_solution(tmp_path / name, instance) == solution
    path = tmp_path / "solution.json"
    result = {"status": "OPTIMAL", "digest": instance.digest, "solution": solution.to_dict()}
    path.write_text(json.dumps(result))
    assert solutions.read_solution(path, instance) == solution
    places = {"a": "near", "b": "far"}
    chain = full()
    for document, of, field, words in (
        (result, None, "offsets", "only be read with their instance"),
        ({"offsets": {"a": 0}}, None, "offsets", "only be read with their instance"),
        (result | {"digest": "x" * 16}, instance, "digest", "for another instance"),
        (result | {"digest": None}, chain, "offsets", "no solution for pipeline-partition"),
        ({"offsets": {"a": 0, "b": 4}, "memory": places}, instance, "memory", "mean memories"),
        ({"offsets": {"a": 0, "b": 4.5}, "memories": places}, instance, "offsets.b", "4.5"),
        ({"offsets": {"a": 0}, "memories": places}, instance, "offsets.b", "is missing"),
        ({"solution": {"offsets": {"a": 0}}}, instance, "solution.offsets.b", "is missing"),
        ({"boundaries": [0, 2]}, instance, "boundaries", "no solution for lmem"),
        ({"status": "INFEASIBLE", "solution": None}, instance, "solution", "holds no solution"),
        ({}, instance, "offsets", "is missing"),
        ([], instance, "", "expected object"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(InputError, match=words) as caught:
            solutions.read_solution(path, of)
        assert caught.value.field == field
        assert caught.value.file == str(path)
    path.write_text("id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,6,4\n")
    with pytest.raises(InputError, match="only be read with their instance"):
        solutions.read_solution(path)
    with pytest.raises(InputError, match="no solution for pipeline-partition"):
        solutions.read_solution(path, chain)


def test_a_format_more_needs_no_word_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON in other words, whose longer ending decides, with solutions of its own."""
    chain, packing = full(), LmemPacking.from_arrays([4], [0], [2])
    reader: Any = SimpleNamespace(
        CONTEXTS={"pipeline-partition": frozenset(), "lmem-packing": frozenset()},
        tell=lambda data: "pipeline-partition",
        parse=lambda data, given, file: [chain],
        dump=lambda instance, file: b'{"chain": 1}',
        dump_solution=lambda solution, instance: b"in chains",
    )
    more = Format(
        name="chains",
        holds=("pipeline-partition", "lmem-packing"),
        extensions=(".chain.json",),
        description="chains",
        sniff=lambda data: b'"chain"' in data,
        home=reader,
        writes=True,
        tells=True,
        writes_solutions=True,
    )
    monkeypatch.setattr(known, "FORMATS", (*known.FORMATS, more))
    assert repr(more) == "<Format chains: chains>"
    path = tmp_path / "three.chain.json"
    door.write(chain, path)
    assert path.read_text() == '{"chain": 1}'
    assert door.read(path).digest == chain.digest
    solutions.write_solution(packing, PackingSolution.of(packing, [0]), path)
    assert path.read_text() == "in chains"
    door.write(chain, tmp_path / "three.json")
    assert door.read(tmp_path / "three.json").digest == chain.digest
    path.write_text('{"links": 1}')
    with pytest.raises(InputError, match=r'begin with \{"problem": "KIND"'):
        door.read(path)


def test_writing_goes_by_the_kind_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format for pipeline-partition is written to files"):
        door.write(full(), tmp_path / "file.csv")
    for name, why in (
        ("minimalloc", "minimalloc files hold no pipeline-partition"),
        ("pipedream", "pipedream files can only be read"),
    ):
        with pytest.raises(InputError, match=rf"{why}; write native$"):
            door.write(full(), tmp_path / "file.csv", format=name)
    with pytest.raises(InputError, match=r"end the name in .*\.csv or .*\.json"):
        door.write(LmemPacking.from_arrays([4], [0], [2]), tmp_path / "file.txt")
    with pytest.raises(InputError, match="with the instance"):
        solutions.write_solution(None, PipelineSolution((0, 1), (0,)), tmp_path / "file.csv")


def test_importing_is_light() -> None:
    code = """
import sys
import stagepack.formats, stagepack.catalog
heavy = ("numba", "ortools", "pyomo", "highspy", "scipy", "matplotlib", "plotly", "pandas")
assert not [name for name in heavy if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_native_file_loads_its_own_problem_alone(tmp_path: Path) -> None:
    door.write(full(), tmp_path / "full.json")
    code = """
import sys
from stagepack.cli.context import instance_of
instance_of(sys.argv[1], {})
made = {name.split(".")[2] for name in sys.modules if name.endswith(".instance")}
assert made == {"pipeline"}, made
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "full.json")], check=True)


NASTY = [
    b"-1", b"1e400", b"1e30", b"NaN", b"Infinity", b"null", b"true", b'""', b"[]", b"{}",
    b"1" + b"0" * 30, b"9223372036854775808", b"4611686018427387904", b"0", b"0.5", b"\xff",
    b"\0", b'"', b",", b"\t", b"\n", b" -- ", b"1e-320", b"-0.0", b"\\ud800", b"[" * 3000,
    b"18446744073709551616", b"1e308", b"9" * 5000,
]  # fmt: skip

PLAUSIBLE = [b"0", b"1", b"2", b"3", b"7.5", b"1e-3", b"123456789", b"4611686018427387903"]


def mutated(content: bytes, seed: int, steps: int) -> bytes:
    """Return `content` after some random edits, most of them at numbers and delimiters."""
    rng = random.Random(seed)
    data = bytearray(content)
    for _ in range(steps):
        at = rng.randrange(len(data) + 1)
        digits = [i for i, byte in enumerate(data) if byte in b"0123456789"]
        match rng.choice((0, 1, 2, 2, 2, 2, 2, 3, 4, 5)):
            case 0:
                data[at : at + rng.randrange(1, 20)] = b""
            case 1:
                data[at:at] = rng.choice(NASTY)
            case 2 if digits:
                at = end = rng.choice(digits)
                while end < len(data) and data[end] in b"0123456789.e":
                    end += 1
                data[at:end] = rng.choice([*NASTY, *PLAUSIBLE * 4])
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            case 4 if at < len(data):
                data[at] = rng.randrange(256)
            case _:
                data = data[:at]
    return bytes(data)


def parses_or_refuses(path: Path, content: bytes, **context: Any) -> bool:
    path.write_bytes(content)
    refusal, instances = None, []
    try:
        instances = door.read_all(path, **context)
    except InputError as error:
        refusal = error
    if refusal is not None:
        assert refusal.file == str(path)
        assert "\n" not in str(refusal)
    for instance in instances:
        assert len(instance.digest) == 16
        door.dump(instance, "instance.json")
        if isinstance(instance, LmemPacking):
            stacked = PackingSolution.of(instance, np.cumsum(instance.size) - instance.size)
            if not instance.memories:
                instance.check(stacked)
                instance.evaluate(stacked)
            continue
        if isinstance(instance, GraphPartition):
            together = GraphSolution.of(instance, [0] * instance.n)
            instance.check(together)
            instance.evaluate(together)
            continue
        if not isinstance(instance, PipelinePartition):
            continue
        cuts = sorted({instance.n * j // instance.k for j in range(instance.k + 1)})
        solution = PipelineSolution.in_order(cuts)
        instance.check(solution)
        instance.evaluate(solution)
    return refusal is None


COLUMNS = {
    "problem": "pipeline-partition", "version": 1, "name": "c", "training": True,
    "microbatches": 4, "objective": "sum", "host_transfer": True, "fewer_stages": True,
    "cluster": {"devices": [{"memory": 50, "recv": {"GBps": 7}}] * 2, "clock": 1000},
    "layers": {"forward": [1, 2.5, 3], "exclusive": {"w": [1, 2, 3]}, "names": ["a", "b", "c"],
               "shared": {"k": {"bytes": 4, "layers": [0, 2]}}, "in_bytes": [1, 2, 3, 4]},
    "variables": [{"name": "v", "first": 0, "last": 1}], "forbidden_cuts": [1],
    "recv_cycles": [[1, 2, 3, 4], [1, 2, 3, 4]], "memory_table": [[1, 2, 3, 4]] * 4,
}  # fmt: skip
PIPEDREAM: dict[str, Any] = {"kind": "pipeline-partition", "devices": 2}
VALID = {
    "by hand": json.dumps(BY_HAND).encode(),
    "columns": json.dumps(COLUMNS).encode(),
    "auto_pipeline": json.dumps([CASE]).encode(),
    "pipedream": "\n".join(SMALL).encode(),
    "packing by hand": json.dumps(BUFFERS).encode(),
    "packing columns": json.dumps(test_native_packing.COLUMNS).encode(),
    "minimalloc": FULL.encode(),
    "tpu_mlir": json.dumps(GROUPS).encode(),
    "graph by hand": json.dumps(test_graph_files.BY_HAND).encode(),
    "dnn-partitioning": json.dumps(test_graph_files.DNN).encode(),
}


@pytest.mark.parametrize("name", VALID)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 4))
def test_mutated_files(name: str, tmp_path: Path, seed: int, steps: int) -> None:
    context = PIPEDREAM if name == "pipedream" else {}
    parses_or_refuses(tmp_path / "file", mutated(VALID[name], seed, steps), **context)


@pytest.mark.parametrize("name", VALID)
def test_the_files_that_are_mutated_are_valid(name: str, tmp_path: Path) -> None:
    context = PIPEDREAM if name == "pipedream" else {}
    assert parses_or_refuses(tmp_path / "file", VALID[name], **context)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_bytes(content: bytes, tmp_path: Path) -> None:
    parses_or_refuses(tmp_path / "file", content)


def test_public_files_mutated(data_dir: Path, tmp_path: Path) -> None:
    content = (data_dir / "pipedream" / "gnmt_graph.txt").read_bytes()
    for seed in range(100):
        parses_or_refuses(tmp_path / "file", mutated(content, seed, 2), **PIPEDREAM)
        graph = {"kind": "graph-partition", "devices": 3, "bandwidth": 1}
        parses_or_refuses(tmp_path / "file", mutated(content, seed, 2), **graph)
    for name in (
        "auto_pipeline/partition_cases.json",
        "tpu-mlir/blazeface_bm1688.json",
        "minimalloc/A.1048576.csv",
        "dnn-partitioning/throughput/bert24_training.json",
    ):
        content = (data_dir / name).read_bytes()
        for seed in range(100):
            parses_or_refuses(tmp_path / "file", mutated(content, seed, 2))
