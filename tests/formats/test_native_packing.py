from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.formats import door, native
from stagepack.instances.packing import (
    Allowed,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
)
from tests.formats.test_native import saved
from tests.packing_cases import FEATURES, RELATIONS, random_packing

BY_HAND: dict[str, Any] = {
    "problem": "lmem-packing",
    "version": 1,
    "name": "three",
    "capacity": 64,
    "buffers": [
        {"id": "input", "size": 16, "start": 0, "end": 2, "alignment": 8, "previous": 0},
        {"id": "weights", "size": 24, "start": 0, "end": 4, "fixed": 40,
         "gaps": [{"start": 1, "end": 3, "low": 8, "high": 24}, {"start": 3, "end": 4}]},
        {"id": "output", "size": 16, "start": 2, "end": 4, "hint": 0, "accesses": 99,
         "allowed": [[0, 32], [48, 64]]},
    ],
    "reserved": [[60, 64]],
    "in_place": [["input", "output"]],
    "banks": {"count": 8, "nbytes": 8, "pairs": [["weights", "output"]]},
}  # fmt: skip
COLUMNS: dict[str, Any] = {
    "problem": "lmem-packing",
    "version": 1,
    "period": 5,
    "buffers": {
        "ids": ["a", "b", "c"], "size": [4, 6, 4], "start": [0, 0, 2], "end": [2, 4, 7],
        "alignment": [1, 2, 4], "fixed": [-1, -1, 8], "previous": [0, -1, -1],
        "hint": [-1, 4, -1], "accesses": [1, 2, 3],
        "gaps": [{"buffer": "b", "start": 1, "end": 2, "high": 3}],
        "allowed": [{"buffer": "a", "low": 0, "high": 16}],
    },
    "colocated": [["a", "c"]],
    "memories": [{"name": "near", "capacity": 12, "cost": 1}, {"name": "far", "cost": 9}],
}  # fmt: skip


def altered(base: dict[str, Any] = BY_HAND, **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def buffer(at: int, **changes: Any) -> dict[str, Any]:
    """Return the document by hand with one buffer changed."""
    buffers = list(BY_HAND["buffers"])
    buffers[at] = altered(buffers[at], **changes)
    return altered(buffers=buffers)


def columns(**changes: Any) -> dict[str, Any]:
    return altered(COLUMNS, buffers=altered(COLUMNS["buffers"], **changes))


def test_buffers_by_hand(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, BY_HAND))
    assert isinstance(instance, LmemPacking)
    assert instance.name == "three"
    assert instance.ids == ("input", "weights", "output")
    assert instance.objective is Objective.FIT
    assert instance.alignment.tolist() == [8, 1, 1]
    assert instance.previous.tolist() == [0, -1, -1]
    assert instance.fixed.tolist() == [-1, 40, -1]
    assert instance.hint.tolist() == [-1, -1, 0]
    assert instance.accesses.tolist() == [16, 24, 99]
    assert instance.gaps == (Gap(1, 1, 3, 8, 24), Gap(1, 3, 4))
    assert instance.allowed == (Allowed(2, 0, 32), Allowed(2, 48, 64))
    assert instance.reserved == ((60, 64),)
    assert instance.in_place == ((0, 2),)
    assert instance.banks is not None
    assert instance.banks.pairs.tolist() == [[1, 2]]
    # The weights would reach into the reserved bytes.
    rules = [v.rule for v in instance.check(PackingSolution.of(instance, [16, 40, 16]))]
    assert rules == ["reserved"]


def test_buffers_by_column(tmp_path: Path) -> None:
    instance = door.read(saved(tmp_path, COLUMNS))
    assert instance.objective is Objective.SPILL
    assert instance.period == 5
    assert instance.colocated == ((0, 2),)
    assert instance.memories == (Memory("near", 12, 1), Memory("far", None, 9))
    assert instance.gaps == (Gap(1, 1, 2, 0, 3),)
    assert instance.allowed == (Allowed(0, 0, 16),)


def test_buffers_without_names_are_numbers(tmp_path: Path) -> None:
    document = {
        "problem": "lmem-packing", "version": 1,
        "buffers": [{"size": 1}, {"size": 2}, {"size": 3}],
        "conflicts": [["0", "1"], [2, 1]],
    }  # fmt: skip
    instance = door.read(saved(tmp_path, document))
    assert instance.ids is None
    assert instance.conflicts.tolist() == [[0, 1], [1, 2]]
    numbered = {**document, "buffers": [{"size": 1, "id": i} for i in (7, 8, 9)]}
    numbered["conflicts"] = [[7, "9"]]
    assert door.read(saved(tmp_path, numbered)).ids == ("7", "8", "9")


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    features=st.sets(st.sampled_from((*FEATURES, *RELATIONS, "memories"))).map(sorted),
    objective=st.sampled_from(Objective),
    named=st.booleans(),
)
def test_round_trip_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    features: list[str],
    objective: Objective,
    named: bool,
) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=features, objective=objective)
    if named:
        instance = instance.replace(
            ids=[f"b{i} ü" for i in range(instance.n)],
            name='a "b"',
            source="x",
            hint=rng.integers(-1, 9, instance.n),
        )
    path = tmp_path_factory.mktemp("round") / "file.json.gz"
    door.write(instance, path)
    again = door.read(path)
    assert again.digest == instance.digest
    assert (again.ids, again.name, again.source) == (instance.ids, instance.name, instance.source)
    assert door.read(path, kind="lmem-packing").digest == instance.digest


def test_what_is_usual_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    door.write(LmemPacking.from_arrays([1, 2], [0, 1], [2, 3], capacity=5), path)
    written = json.loads(path.read_text())
    assert set(written) == {"problem", "version", "name", "capacity", "buffers"}
    assert set(written["buffers"]) == {"size", "start", "end"}
    properties = native.schema("lmem-packing")["$defs"]["Document"]["properties"]
    assert set(written) <= set(properties)
    full = door.read(saved(tmp_path, COLUMNS))
    door.write(full, path)
    written = json.loads(path.read_text())
    schema = native.schema("lmem-packing")
    assert json.loads(json.dumps(schema)) == schema
    assert set(written) <= set(properties)
    unsaid = {"memories", "exclusive"}
    assert set(written["buffers"]) == set(schema["$defs"]["Columns"]["properties"]) - unsaid
    assert schema["$defs"]["Document"]["additionalProperties"] is False


def test_context(tmp_path: Path) -> None:
    path = saved(tmp_path, BY_HAND)
    assert door.read(path, capacity="128").capacity == 128
    assert door.read(path, objective="bank-conflicts").objective is Objective.BANK_CONFLICTS
    assert door.read(path, objective="peak").ceiling == 64  # the banks end there
    assert door.read(path, alignment=4).alignment.tolist() == [8, 4, 4]
    free = saved(tmp_path, altered(capacity=...), "free.json")
    assert door.read(free).objective is Objective.PEAK
    assert door.read(free, capacity=70).objective is Objective.FIT
    assert door.read(path, period=4).period == 4
    for words, options in (
        ("unknown objective 'bottleneck' for lmem-packing; choose one of peak, fit, bank-conf",
         {"objective": "bottleneck"}),
        ("unknown objective 'best'; choose one of peak, fit", {"objective": "best"}),
        ("native lmem-packing files do not understand 'devices'; known here are alignment, cap",
         {"devices": 3}),
        ("holds lmem-packing, not pipeline-partition", {"kind": "pipeline-partition"}),
        ("unknown kind 'lmem'", {"kind": "lmem"}),
        ("0 will not do as alignment", {"alignment": 0}),
        ("needs it; give the old offsets", {"objective": "moves", "capacity": 80}),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            door.read(path if "old" not in words else free_of_previous(tmp_path), **options)
        assert words in str(caught.value)


def free_of_previous(place: Path) -> Path:
    return saved(place, buffer(0, previous=...), "new.json")


BAD: list[tuple[Any, str, str]] = [
    (altered(buffers=...), "buffers", "is missing"),
    (altered(buffers=[]), "buffers", "no buffers"),
    (altered(buffers=7), "buffers", "is 7"),
    (altered(buffer=[]), "buffer", "did you mean buffers?"),
    (altered(objective="fastest"), "objective", "choose one of peak"),
    (altered(objective="spill"), "memories", "needs it"),
    (altered(capacity=-1), "capacity", "is -1"),
    (altered(capacity="64"), "capacity", 'is "64"'),
    (altered(version=2), "version", "newer"),
    (altered(problem="lmem"), "problem", "did you mean lmem-packing"),
    (altered(in_place=[["input", "outputs"]]), "in_place[0][1]", "'outputs' is no buffer"),
    (altered(in_place=[["input"]]), "in_place[0]", "length"),
    (altered(in_place=[["input", "input"]]), "in_place[0]", "with itself"),
    (altered(reserved=[[4, 4]]), "reserved[0]", "empty"),
    (altered(colocated=[["input", "x"]]), "colocated[0][1]", "'x' is no buffer"),
    (altered(conflicts=[["input", "output"]]), "conflicts", "replaces lifetimes"),
    (altered(banks={"count": 8}), "banks.nbytes", "is missing"),
    (altered(banks={"count": 0, "nbytes": 8}), "banks.count", "is 0"),
    (altered(banks={"count": 1, "nbytes": 8, "pairs": [["input", "x"]]}), "banks.pairs[0][1]",
     "'x' is no buffer"),
    (altered(memories=[{"name": "m", "cost": -1}]), "memories[0].cost", "is -1"),
    (buffer(0, size=-1), "buffers[0].size", "is -1"),
    (buffer(0, size=1.5), "buffers[0].size", "is 1.5"),
    (buffer(0, size=...), "buffers[0].size", "is missing"),
    (buffer(0, sise=4), "buffers[0].sise", "did you mean size?"),
    (buffer(1, end=...), "buffers[1].end", "is missing"),
    (buffer(1, start=..., end=...), "buffers[1].start", "is missing"),
    (buffer(1, end=0), "buffers", "0 of buffer weights is not after its start"),
    (buffer(1, id=...), "buffers[1].id", "name all buffers or none"),
    (buffer(1, id="input"), "buffers", "two buffers are named 'input'"),
    (buffer(1, fixed=-1), "buffers[1].fixed", "is -1"),
    (buffer(1, gaps=[{"start": 3, "end": 9}]), "buffers", "lifetime [0, 4) of buffer weights"),
    (buffer(1, gaps=[{"start": 3}]), "buffers[1].gaps[0].end", "is missing"),
    (buffer(2, allowed=[[4, 4]]), "buffers", "empty"),
    (columns(size=[4, 6]), "buffers.ids", "3 names for 2 buffers"),
    (columns(start=[0, 0]), "buffers.start", "shape"),
    (columns(start=...), "buffers.start", "is missing"),
    (columns(size=[4, -6, 4]), "buffers.size[1]", "is -6"),
    (columns(size=[4, 2**63, 4]), "buffers.size[1]", "expected int"),
    (columns(alignment=[1, 2]), "buffers.alignment", "shape"),
    (columns(ids=["a", "b", "b"], gaps=[], allowed=[]), "buffers.ids", "two buffers"),
    (columns(gaps=[{"buffer": "z", "start": 1, "end": 2}]), "buffers.gaps[0].buffer", "'z'"),
    (columns(allowed=[{"buffer": "a", "low": 9, "high": 2}]), "buffers.allowed[0]", "empty"),
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


VARYING: dict[str, Any] = {
    "problem": "lmem-packing",
    "version": 1,
    "name": "varying",
    "dimensions": {"batch": [1, 4], "seq": {"least": 1, "most": 32}},
    "buffers": [
        {"id": "a", "size": "4*batch*seq", "start": 0, "end": 3, "accesses": 7,
         "gaps": [{"start": 1, "end": 2, "low": 0, "high": 4}]},
        {"id": "b", "size": "(seq+7)//8*8", "start": 1, "end": 4},
        {"id": "c", "size": "1KiB", "start": 2, "end": 4},
    ],
}  # fmt: skip


def test_sizes_are_the_largest_for_what_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, VARYING)
    whole = door.read(path)
    assert whole.size.tolist() == [512, 32, 1024]
    assert whole.accesses.tolist() == [7, 32, 1024]
    assert "sizes are those at batch=4, seq=32: the addresses hold for all" in caplog.text
    part = door.read(path, dim={"batch": 1, "seq": 9})
    assert (part.size.tolist(), part.name) == ([36, 16, 1024], "varying at batch=1, seq=9")
    given: dict[str, Any] = {"dim.batch": 1}
    assert door.read(path, **given).size.tolist() == [128, 32, 1024]
    buffers = {"ids": ["a", "b"], "size": ["batch*2", 3], "start": [0, 0], "end": [1, 1]}
    columns = altered(VARYING, buffers=buffers)
    assert door.read(saved(tmp_path, columns)).size.tolist() == [8, 3]
    door.write(whole, tmp_path / "largest.json")
    assert door.read(tmp_path / "largest.json").digest == whole.digest


@pytest.mark.parametrize(
    ("changes", "said", "words"),
    [
        ({"dimensions": {}}, {}, r"buffers: .*'4\*batch\*seq' of buffer a .* no dimension batch"),
        ({}, {"dim.width": 3}, "dim.width: is no dimension; there are batch, seq"),
        ({}, {"dim.batch": 2}, "dim.batch: 2 is not among its values; give one of 1, 4"),
        (
            {"dimensions": {"batch": [0, 4], "seq": [1]}},
            {},
            r"window \[0, 4\) does not lie in the 0",
        ),
        ({"dimensions": {"batch": [], "seq": [1]}}, {}, "dimensions.batch"),
        (
            {"views": [{"buffer": "b", "host": "c"}]},
            {},
            r"views: are of sizes that vary; say all dimensions \(--set dim",
        ),
    ],
)
def test_dimensions_that_do_not_fit_are_named(
    changes: dict[str, Any], said: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, altered(VARYING, **changes))
    with pytest.raises(InputError, match=words):
        door.read(path, **said)
    if "views" in changes:
        assert door.read(path, dim={"batch": 1, "seq": 8}).views
