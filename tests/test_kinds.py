"""A problem has two names, its kind and its family; both are understood everywhere."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import stagepack as sp
from stagepack import catalog
from stagepack.cli import app
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import KINDS, by_family, kind_of
from stagepack.methods import Deferred
from stagepack.solve import REGISTRY

NAMES = [(name, kind) for kind, known in KINDS.items() for name in (known.family, kind)]
ENTRIES = {entry.kind: entry.name for entry in reversed(catalog.entries())}


def test_all_problems_are_listed() -> None:
    assert set(KINDS) == set(REGISTRY) == {p.kind for p in PROBLEMS.values()} == set(ENTRIES)


def test_every_method_that_is_loaded_late_has_something_to_run() -> None:
    """A method is named in `METHODS`, and what it does in `RUNS` of the module that it names."""
    tables: dict[str, set[str]] = {}
    for methods in REGISTRY.values():
        for method in methods:
            if isinstance(method.run, Deferred):
                assert method.run.name == method.name
                tables.setdefault(method.run.module, set()).add(method.name)
    for module, named in tables.items():
        runs = set(importlib.import_module(module).RUNS)
        assert named == runs, f"METHODS and RUNS of {module} do not name the same methods"


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_python_understands_both_names(name: str, kind: str, tmp_path: Path) -> None:
    rest = ENTRIES[kind].split("/", 1)[1]
    instance = sp.load(f"{name}/{rest}")
    assert instance.kind == kind
    assert instance.source == ENTRIES[kind]
    path = tmp_path / "instance.json"
    sp.write(instance, path)
    assert sp.read(path, kind=name).digest == instance.digest
    assert sp.schema(name) == sp.schema(kind)
    assert sp.methods(name) == sp.methods(kind)
    assert {entry.kind for entry in sp.entries(name)} == {kind}
    assert {problem.kind for problem in sp.suite(name)} == {kind}


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_the_command_line_understands_both_names(name: str, kind: str) -> None:
    def answer(*words: str) -> str:
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    entry = ENTRIES[kind]
    same = f"{name}/{entry.split('/', 1)[1]}"
    assert json.loads(answer("show", same, "--kind", name, "--json"))["instance"]["problem"] == kind
    assert answer("schema", name) == answer("schema", kind)
    for words in (("methods", name), ("methods", "--kind", name)):
        assert {found["kind"] for found in json.loads(answer(*words, "--json"))} == {kind}
    listed = json.loads(answer("list", name, "--json"))
    assert {found["kind"] for found in listed} == {kind}
    assert len(listed) == len(catalog.entries(kind))
    assert json.loads(answer("list", same, "--json"))[0]["name"] == entry
    table = json.loads(
        answer("compare", same, "--kind", name, "-m", "auto", "-t", "0.01", "-j", "0",
               "--no-html", "--json")
    )  # fmt: skip
    assert table["rows"][0]["problem"] == kind


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(sp.InputError, match="unknown kind 'lmem'; did you mean lmem-packing"):
        kind_of("lmem")
    assert by_family("lmem-packing/random/planted") == "packing/random/planted"
    assert by_family("lmem-packing") == "lmem-packing"
    assert by_family("somewhere/a.csv") == "somewhere/a.csv"
