"""Documents of dsa-solver: what becomes of problems, and that they come back as they were."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.dsa_solver.documents import dump, fingerprint, parse
from tests.cli import shell
from tests.formats.broken_documents import mutated

FOLDER = Path(os.environ.get("STAGEPACK_DATA", "")) / "dsa-solver"
FILES = [file for file in sorted(FOLDER.glob("*.json")) if not file.stem.endswith(".schema")]
needs_data = pytest.mark.skipif(
    not os.environ.get("STAGEPACK_DATA") or not FILES, reason="STAGEPACK_DATA has no dsa-solver"
)


def buffer(number: int, name: str, size: int, pools: list[int], *lives: int) -> dict[str, Any]:
    spans = zip(lives[::2], lives[1::2], strict=True)
    return {
        "id": number, "name": name, "size": size, "alignment": 16 if size > 8 else 1,
        "live_intervals": [{"lower": lower, "upper": upper} for lower, upper in spans],
        "allowed_pools": pools,
    }  # fmt: skip


def pair(first: int, second: int, **more: Any) -> dict[str, Any]:
    return {"first": first, "second": second, **more}


PROBLEM: dict[str, Any] = {
    "schema_version": 1,
    "profile": "pypto_structured",
    "instance": "twö",
    "metadata": {"lifetime_ordering": "pypto_read_before_write"},
    "problem": {
        "pools": [
            {"id": 4, "name": "slow", "capacity": None, "reserved_ranges": []},
            {"id": 3, "name": "fast", "capacity": 128, "reserved_ranges": [{"begin": 0, "end": 16}],
             "bank_geometry": {"bank_size": 16, "num_banks": 8}},
        ],
        "buffers": [
            buffer(7, "b", 16, [3], 4, 6, 0, 2),
            buffer(0, "a", 32, [3, 4], 2, 4),
            buffer(9, "c", 8, [4, 3], 0, 6),
            buffer(10, "d", 24, [3], 6, 7),
        ],
        "constraints": {
            "colocations": [pair(7, 10), pair(7, 7)],
            "separations": [pair(7, 0, reasons=["cross_pipe"]), pair(9, 0)],
            "temporal_exclusions": [pair(9, 0), pair(9, 7)],
            "pinned_allocations": [
                {"buffer": 9, "pool": 3, "offset": 104, "exclusive_for_all_time": True}
            ],
        },
        "cost_model": {
            "reuse_penalties": [
                pair(0, 7, cost=2, reason="generic"), pair(7, 0, cost=3, reason="cross_pipe"),
                pair(7, 10, cost=9, reason="generic"), pair(0, 0, cost=9, reason="generic"),
            ]
        },
        "objective": {"aggregation": "lexicographic", "terms": ["capacity_overflow", "reuse_cost"]},
    },
}  # fmt: skip
SINGLE: dict[str, Any] = {
    "schema_version": 1,
    "profile": "standard_dsa",
    "instance": "one",
    "problem": {
        "pools": [{"id": 5, "name": "Vec", "capacity": 96, "reserved_ranges": []}],
        "buffers": [buffer(2, "", 32, [5], 0, 2), buffer(1, "", 64, [5], 1, 3)],
        "constraints": {name: [] for name in PROBLEM["problem"]["constraints"]},
        "objective": {"aggregation": "lexicographic", "terms": ["total_peak", "max_peak"]},
    },
}


def read(document: dict[str, Any], **given: Any) -> sp.LmemPacking:
    (found,) = parse(json.dumps(document).encode(), given, "file")
    return found


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    holder: Any = found
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        holder = holder[step]
    holder[last] = value
    return found


def asking(document: dict[str, Any], *terms: str, **given: Any) -> sp.LmemPacking:
    return read(changed(document, "problem.objective.terms", list(terms)), **given)


def test_everything_that_a_problem_says_is_there() -> None:
    found = read(PROBLEM)
    assert found.ids == ("a", "b", "c", "d")  # by id
    assert found.size.tolist() == [32, 24, 8, 24]  # what is colocated is as large as the largest
    assert [found.start[1], found.end[1]] == [0, 6]
    assert [(gap.buffer, gap.start, gap.end) for gap in found.gaps] == [(1, 2, 4)]
    assert [memory.name for memory in found.memories] == ["fast (3)", "slow (4)"]
    assert found.memories[0].reserved == ((0, 16),)
    assert found.homes is not None
    assert found.homes.tolist() == [[True, True], [True, False], [True, False], [True, False]]
    assert found.fixed.tolist() == [-1, -1, 104, -1]
    assert (found.exclusive, found.colocated) == ((2,), ((1, 3),))
    assert (found.apart, found.exempt) == (((0, 1), (0, 2)), ((1, 2),))
    assert found.penalties is not None
    assert [found.penalties.pairs.tolist(), found.penalties.cost.tolist()] == [[[0, 1]], [5]]
    assert (found.objective, found.name) == ("penalties", "twö")
    assert found.lifetimes == "in [lower, upper), pypto_read_before_write"
    assert found.banks is None


def test_one_pool_is_the_memory_of_a_plain_instance() -> None:
    found = read(SINGLE)
    assert (found.memories, found.capacity, found.ids) == ((), 96, None)
    assert found.size.tolist() == [64, 32]
    assert read(SINGLE, capacity=128, alignment=8).alignment.tolist() == [16, 16]
    assert sp.solve(found).objective == 96


@pytest.mark.parametrize(
    ("terms", "objective", "priced"),
    [
        (["capacity_overflow"], "fit", False),
        (["reuse_cost", "total_peak", "max_peak"], "penalties", True),
        (["capacity_overflow", "total_peak"], "peak", False),
        (["total_peak", "reuse_cost"], "peak", True),
    ],
)
def test_terms_are_objectives(terms: list[str], objective: str, priced: bool) -> None:
    document = changed(PROBLEM, "problem.pools.0.capacity", 64)
    found = asking(document, *terms)
    assert (found.objective, found.penalties is not None) == (objective, priced)
    free = changed(document, "problem.cost_model.reuse_penalties", [])
    assert asking(free, *terms).objective == ("peak" if "total_peak" in terms else "fit")
    asked = asking(document, *terms, objective="penalties")
    assert asked.penalties is not None


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("", 2, r"schema_version: version 2 is not 1.*update Stagepack"),
        ("buffers.1.size", 2**63, r"problem.buffers\[1\].size: .* expected int <="),
        ("buffers.1.id", 7, r"problem.buffers\[1\].id: 7 comes twice"),
        ("buffers.1.allowed_pools", [5], r"allowed_pools\[0\]: 5 is no pool"),
        ("buffers.1.live_intervals", [{"lower": 2, "upper": 2}], r"\[2, 2\) is empty"),
        ("buffers.1.lifetime", 1, r"problem.buffers\[1\].lifetime: unknown field"),
        ("objective.terms", ["bank_cost"], "no file says which buffers should not share"),
        ("objective.terms", ["max_peak"], "max_peak is no order that is known here"),
        ("objective.terms", ["peak"], r"terms\[0\]: .*one of capacity_overflow, total_peak"),
        ("constraints.separations.0.second", 7, r"separations\[0\]: pairs buffer 7 with it"),
        ("constraints.separations.0.second", 10, "apart: buffers b and d are kept apart, b"),
        ("constraints.colocations.0.second", 5, r"colocations\[0\].second: 5 is no buffer"),
        ("constraints.pinned_allocations.0.pool", 8, r"\[0\].pool: 8 is no pool"),
        ("constraints.pinned_allocations.0.buffer", 7, "fixed: 104 of buffer b is no multi"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(path: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(changed(PROBLEM, f"problem.{path}" if path else "schema_version", value))


def test_pins_are_where_buffers_may_lie_and_once() -> None:
    pins = PROBLEM["problem"]["constraints"]["pinned_allocations"]
    path = "problem.constraints.pinned_allocations"
    with pytest.raises(InputError, match=r"\[1\]: buffer 9 is pinned twice"):
        read(changed(PROBLEM, path, pins * 2))
    with pytest.raises(InputError, match=r"\[0\]: buffer 7 may not lie in this pool"):
        read(changed(PROBLEM, path, [{**pins[0], "buffer": 7, "pool": 4}]))


@pytest.mark.parametrize("document", [PROBLEM, SINGLE])
def test_what_is_written_reads_back(document: dict[str, Any]) -> None:
    found = read(document)
    (again,) = parse(dump(found, "file"), {}, "file")
    assert (again.digest, again.name) == (found.digest, found.name)
    plain = found.replace(memories=[sp.Memory("x", 64), sp.Memory("y", 64)] if found.memories
                          else (), homes=None, fixed=None, exclusive=(), capacity=None,
                          objective="peak")  # fmt: skip
    (again,) = parse(dump(plain, "file"), {}, "file")
    assert again.digest == plain.digest


def test_what_is_changed_at_random_is_refused_or_reads_back() -> None:
    rng, read_back = np.random.default_rng(0), 0
    for number in range(600):
        what, document = mutated((PROBLEM, SINGLE)[number % 2], rng)
        try:
            found = read(document)
            written = dump(found, "file")
        except InputError:
            continue
        (again,) = parse(written, {}, "file")
        assert again.digest == found.digest, what
        read_back += 1
    assert read_back > 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"period": 9}, "period: is nothing"),
        ({"segment": 64}, "segment: is nothing"),
        ({"size": [0, 1, 1]}, "size: .* of no bytes"),
        ({"gaps": [(0, 1, 2, 0, 4)]}, "gaps: .* in part of a buffer"),
        ({"penalties": [(0, 1, 2)], "capacity": 9, "objective": "fit"}, "penalties: .* not count"),
        ({"exclusive": [1]}, "exclusive: .* without a fixed offset"),
        ({"memories": [("x", 9), ("y", 9)], "fixed": [0, -1, -1]}, "fixed: .* in one of several"),
        ({"memories": [("x", 9, 1), ("y", 9, 1)]}, "memories: .* that have costs"),
    ],
)
def test_what_cannot_be_said_is_refused(changes: dict[str, Any], words: str) -> None:
    base: dict[str, Any] = {"size": [8, 8, 8], "start": [0, 1, 2], "end": [3, 4, 5]}
    instance = sp.LmemPacking.from_arrays(**{**base, **changes})
    with pytest.raises(InputError, match=words):
        dump(instance, "file")


def test_fingerprints_are_those_of_dsa_solver() -> None:
    assert fingerprint(json.dumps(PROBLEM).encode()) == "0aa014f2a61df5ac"


def test_solutions_are_written_and_read(tmp_path: Path) -> None:
    for document, known in ((SINGLE, [32, 0]), (PROBLEM, [32, 16, 104, 16])):
        source, target = tmp_path / "problem.json", tmp_path / "solution.json"
        source.write_text(json.dumps(document))
        instance = sp.read(source)
        memory = [1, 0, 0, 0] if instance.memories else None
        solution = sp.PackingSolution.of(instance, known, memory)
        assert instance.check(solution) == ()
        sp.write_solution(instance, solution, target, format="dsa-solver", problem=source)
        written = json.loads(target.read_text())
        assert written["problem_fingerprint"] == fingerprint(source.read_bytes())
        assert {place["buffer"]: place["pool"] for place in written["placements"]} == (
            {0: 4, 7: 3, 9: 3, 10: 3} if memory else {1: 5, 2: 5}
        )
        assert sp.read_solution(target, instance) == solution
        with pytest.raises(InputError, match="holds a solution of dsa-solver, no problem"):
            sp.read(target)
        with pytest.raises(InputError, match="holds a problem of dsa-solver, no solution"):
            sp.read_solution(source, instance)
        other, last = instance.replace(name="other"), written["placements"][-1]["buffer"]
        with pytest.raises(InputError, match=re.escape(f"of {instance.name}, not of other")):
            sp.read_solution(target, other)
        target.write_text(json.dumps(changed(written, "placements.0.buffer", last)))
        with pytest.raises(InputError, match=r"places . buffers"):
            sp.read_solution(target, instance)


def test_a_solution_beyond_the_capacity_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "problem.json"
    source.write_text(json.dumps(changed(SINGLE, "problem.pools.0.capacity", 95)))
    instance = sp.read(source)
    found = sp.solve(instance)  # the least peak, whatever the capacity
    with pytest.raises(InputError, match="reaches 96 in a pool of 95 bytes"):
        sp.write_solution(instance, found, tmp_path / "x", format="dsa-solver", problem=source)
    with pytest.raises(InputError, match="problem: is missing"):
        sp.write_solution(instance, found, tmp_path / "x", format="dsa-solver")
    source.write_text(json.dumps(PROBLEM))
    with pytest.raises(InputError, match="its buffers are not those of one"):
        sp.write_solution(instance, found, tmp_path / "x", format="dsa-solver", problem=source)


def test_the_shell_takes_documents(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(SINGLE))
    for command in (
        "show one.json",
        "solve one.json -o result.json --export solution.json --as dsa-solver",
        "check one.json solution.json",
        "convert one.json native.json",
        "convert native.json again.json --to dsa-solver",
        "solve native.json --export other.json --as dsa-solver:problem=one.json",
    ):
        done = shell.run(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert "alive in [lower, upper)" in shell.run("show", "one.json", cwd=tmp_path).stdout
    assert (tmp_path / "other.json").read_bytes() == (tmp_path / "solution.json").read_bytes()
    assert sp.read(tmp_path / "again.json").digest == sp.read(tmp_path / "one.json").digest


def lacks(value: Any, shape: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return what of a JSON schema a value does not keep, or ''; of the words used there."""
    if "$ref" in shape:
        return lacks(value, schema["$defs"][shape["$ref"].rpartition("/")[2]], schema)
    if "oneOf" in shape:
        return "" if any(not lacks(value, one, schema) for one in shape["oneOf"]) else "oneOf"
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    kind = kinds.get(shape.get("type", ""), type(value) if "type" not in shape else type(None))
    right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    right = right and ("const" not in shape or value == shape["const"])
    right = right and ("enum" not in shape or value in shape["enum"])
    if isinstance(value, int):
        right = right and shape.get("minimum", value) <= value <= shape.get("maximum", value)
    if isinstance(value, str):
        right = right and re.search(shape.get("pattern", ""), value) is not None
    if isinstance(value, str | list):
        right = right and len(value) >= shape.get("minLength", shape.get("minItems", 0))
    if isinstance(value, dict):
        right = right and all(key in value for key in shape.get("required", ()))
        inner = shape.get("properties", {})
        rest = shape.get("additionalProperties", True)
        right = right and (rest is not False or inner.keys() >= value.keys())
        parts = [(each, inner.get(key, rest)) for key, each in value.items()]
    else:
        parts = [(each, shape.get("items", True)) for each in value] if type(value) is list else []
    found = (lacks(each, one, schema) for each, one in parts if isinstance(one, dict))
    return next(filter(None, found), "") if right else f"{str(value)[:60]} is not {shape}"


@needs_data
@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(str(file)).stem[-40:])
def test_the_files_of_compilers_are_read_and_come_back(file: Path) -> None:
    found = sp.read(file)
    written = dump(found, file.name)
    (again,) = parse(written, {}, file.name)
    assert (again.digest, again.name) == (found.digest, found.name)
    schema = json.loads((FOLDER / "dsa-problem-v1.schema.json").read_text())
    assert lacks(json.loads(written), schema, schema) == ""
    assert lacks(json.loads(file.read_bytes()), schema, schema) == ""


@needs_data
def test_what_is_no_document_is_told_by_our_schema_check() -> None:
    schema = json.loads((FOLDER / "dsa-problem-v1.schema.json").read_text())
    for path, value in (("schema_version", 2), ("problem.pools.0.id", -1), ("more", 1),
                        ("problem.buffers.0.live_intervals", []), ("profile", "x")):  # fmt: skip
        assert lacks(changed(PROBLEM, path, value), schema, schema) != ""
    assert lacks(PROBLEM, schema, schema) == ""


@needs_data
def test_solutions_of_compilers_files_are_documents_too(tmp_path: Path) -> None:
    schema = json.loads((FOLDER / "dsa-solution-v1.schema.json").read_text())
    file = FOLDER / "recognized_cross_pipe_v1.json"
    instance = sp.read(file, objective="fit")
    tops = np.cumsum(instance.size)
    solution = sp.PackingSolution.of(instance, tops - instance.size)
    target = tmp_path / "solution.json"
    sp.write_solution(instance, solution, target, format="dsa-solver", problem=file)
    assert lacks(json.loads(target.read_text()), schema, schema) == ""
    assert json.loads(target.read_text())["problem_fingerprint"] == "8ad5d3002e119163"
