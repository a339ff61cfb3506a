"""Numbers that steer packing: handed down everywhere; without a step answers stay right."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.heuristics.tuning import Tuning
from tests.packing_cases import tight

PACKAGE = Path(sp.__file__).parent
MODULES = sorted(
    path
    for wing in ("heuristics", "methods")
    for path in (PACKAGE / wing / "packing").rglob("*.py")
)


def switches(tuning: Tuning, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the fields that are true or false, each as the names on the way to it."""
    for field in dataclasses.fields(tuning):
        value = getattr(tuning, field.name)
        if isinstance(value, Tuning):
            yield from switches(value, *path, field.name)
        elif isinstance(value, bool):
            yield (*path, field.name)


@pytest.mark.parametrize(("part", "name"), [*switches(TUNING)])
def test_without_a_step_answers_stay_right(part: str, name: str) -> None:
    """Of 17 bytes, one above the load, and of a capacity that is too small by one."""
    given = {"deterministic": True, "tuning": {part: {name: False}}}
    for objective, capacity in (("peak", None), ("fit", 16)):
        instance = tight().replace(objective=objective, capacity=capacity)
        result = sp.solve(instance, time_limit=0.5, options=given)
        assert result.bound is None or result.bound <= 17
        assert result.objective is None or (capacity is None and result.objective >= 17)
        assert sp.check_result(instance, result).valid


def test_all_steps_off_is_an_answer_and_an_end() -> None:
    changes: dict[str, dict[str, Any]] = {}
    for part, name in switches(TUNING):
        changes.setdefault(part, {})[name] = False
    result = sp.solve(tight(), time_limit=None, options={"tuning": changes})
    assert result.objective is not None
    assert result.objective >= 17


def test_numbers_are_read_nowhere_but_handed_down() -> None:
    """What is usual is a default of what others call, or what a run's settings fall back on."""
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        allowed = set[ast.AST]()
        for node in ast.walk(tree):
            if isinstance(node, ast.arguments):
                allowed.update(filter(None, (*node.defaults, *node.kw_defaults)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".tuned"):
                allowed.update(node.args)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "TUNING":
                made = isinstance(node.ctx, ast.Store)
                assert made or node in allowed, f"{path}:{node.lineno}"


def test_whoever_is_called_is_handed_the_numbers() -> None:
    """A forgotten argument would be what is usual, whatever the caller asked for.

    `methods/packing/__init__.py` has none to hand down: whoever checks a proof has no settings.
    """
    takes: dict[str, set[str]] = {}
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    for path, tree in trees.items():
        module = ".".join(("stagepack", *path.relative_to(PACKAGE).with_suffix("").parts))
        takes[module] = {
            made.name
            for made in tree.body
            if isinstance(made, ast.ClassDef | ast.FunctionDef)
            for function in (made.body if isinstance(made, ast.ClassDef) else [made])
            if isinstance(function, ast.FunctionDef)
            and (made is function or function.name == "__init__")
            and any(argument.arg == "tuning" for argument in function.args.kwonlyargs)
        }
    for path, tree in trees.items():
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or path.name == "__init__.py":
                continue
            first, *rest = ast.unparse(node.func).split(".")
            home, _, name = ".".join((imported.get(first, first), *rest)).rpartition(".")
            if name in takes.get(home, ()):
                handed = any(keyword.arg == "tuning" for keyword in node.keywords)
                assert handed, f"{path}:{node.lineno}: {name}"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "tuning.py"], ids=str)
def test_every_number_is_described(path: Path) -> None:
    """The string below a field says its unit and its meaning."""
    for made in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = made.body if isinstance(made, ast.ClassDef) else []
        for at, field in enumerate(body):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(body[at + 1], ast.Expr), ast.unparse(field.target)
