"""Numbers that steer searches: changed by name, and refused where they are none."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack import kinds
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.heuristics.schedule.tuning import TUNING as SCHEDULING
from stagepack.heuristics.schedule.tuning import Way
from stagepack.heuristics.tuning import Tuning
from stagepack.methods import Settings

CHAIN = sp.PipelinePartition.from_arrays([3, 1, 4, 1, 5], devices=2)


def test_a_change_keeps_the_others() -> None:
    changed = TUNING.changed({"pace": 3})
    assert (changed.pace, changed.overdue) == (3.0, TUNING.overdue)
    assert Settings(tuning=changed).tuned(TUNING) is changed
    assert Settings().tuned(TUNING) is TUNING


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pase": 3}, "pace"),
        ({"pace": "3"}, "number"),
        ({"pace": -1}, "number"),
        ({"pace": float("nan")}, "number"),
        ({"pace": 10**400}, "number"),
        ({"stages_at_once": 0}, "more than 0"),
        ({"repair_limits": []}, "numbers"),
        (3, "mapping"),
    ],
)
def test_what_is_no_change_is_refused_by_name(changes: Any, said: str) -> None:
    with pytest.raises(sp.InputError, match=said) as caught:
        sp.solve(CHAIN, options={"tuning": changes})
    assert "options.tuning" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"annealing": {"heats": [1.0] * 7}}, "heats, weights: 7 and 6 values; give as many"),
        ({"lists": {"slopes": [1]}}, "slopes, more: 1 and 9"),
        ({"lists": {"payments": ["waits"]}}, "patience, payments: 4 and 1"),
        ({"lists": {"payments": ["wait"]}}, r"payments\[0\]: 'wait'; did you mean waits"),
        ({"labels": {"widths": [5], "ways": ["x"]}}, "'x'; choose one of all, best, near, merged"),
        ({"labels": {"ways": ["all"]}}, "widths, ways: 10 and 1"),
        ({"labels": {"room": 2**61}}, "room: 2305843009213693952; give at most 16,777,216"),
    ],
)
def test_what_schedules_cannot_do_with_is_refused(changes: Any, said: str) -> None:
    with pytest.raises(sp.InputError, match=said):
        SCHEDULING.changed(changes)


def test_words_are_changed_by_name() -> None:
    labels = SCHEDULING.changed({"labels": {"widths": [5], "ways": ["merged"]}}).labels
    assert (labels.widths, labels.ways) == ((5,), (Way.MERGED,))


def test_a_run_records_what_it_was_told() -> None:
    result = sp.solve(CHAIN, method="cp-sat", options={"tuning": {"pace": 4.0}})
    assert result.status == "OPTIMAL"
    assert result.options["options"] == {"tuning": {"pace": 4.0}}
    assert sp.check_result(CHAIN, result).valid


@pytest.mark.parametrize("kind", [*kinds.KINDS])
def test_every_number_is_described(kind: str) -> None:
    """The string below a field says its unit and its meaning."""
    module = kinds.part(kind, "heuristics", "tuning")
    for made in ast.parse(inspect.getsource(module)).body:
        if isinstance(made, ast.ClassDef):
            after = dict(zip(made.body, made.body[1:], strict=False))
            for field in made.body:
                if isinstance(field, ast.AnnAssign):
                    below = after.get(field)
                    assert isinstance(below, ast.Expr), ast.unparse(field.target)


def numbers(tuning: Tuning, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the fields that are numbers, each as the names on the way to it."""
    for field in dataclasses.fields(tuning):
        value = getattr(tuning, field.name)
        if isinstance(value, Tuning):
            yield from numbers(value, *path, field.name)
        elif type(value) in (int, float):
            yield (*path, field.name)


def named(node: ast.AST, local: dict[str, ast.expr]) -> tuple[str, ...]:
    """Return the names of a chain of attributes, names of a function as what they stand for."""
    if isinstance(node, ast.Attribute):
        return (*named(node.value, local), node.attr)
    if not isinstance(node, ast.Name):
        return ()
    others = {name: value for name, value in local.items() if name != node.id}
    return (node.id in local and named(local[node.id], others)) or (node.id,)


def locals_of(function: ast.AST) -> dict[str, ast.expr]:
    """Return the names of a function and what they are assigned."""
    local: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            pairs = [(target, node.value)] if isinstance(node, ast.Assign) else []
            if isinstance(target, ast.Tuple) and isinstance(pairs[0][1], ast.Tuple):
                pairs = list(zip(target.elts, pairs[0][1].elts, strict=False))
            local |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return local


def divisors(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield what is below tunings and divides, or is the step of a range, in a module."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        local = locals_of(function)
        for node in ast.walk(function):
            by: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(
                node.op, ast.Div | ast.FloorDiv | ast.Mod
            ):
                by = [node.right]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
                by = node.args[2:]
            while by:
                one = by.pop()
                if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult):
                    by += [one.left, one.right]
                chain = named(one, local)
                at = next((i for i, name in enumerate(chain) if name.strip("_") == "tuning"), None)
                if at is not None:
                    yield chain[at + 1 :]


@pytest.mark.parametrize("kind", [*kinds.KINDS])
def test_what_divides_is_not_zero(kind: str) -> None:
    usual = kinds.part(kind, "heuristics", "tuning").TUNING
    home = kinds.part(kind, "heuristics").__name__.rpartition(".")[2]
    package, fields = Path(sp.__file__).parent, [*numbers(usual)]
    found = {
        field
        for wing in ("heuristics", "methods", "formulations")
        for path in (package / wing / home).rglob("*.py")
        for chain in divisors(path)
        for field in fields
        if chain and field[-len(chain) :] == chain
    }
    assert found, "nothing was found: the search is blind"
    for field in sorted(found):
        changes: Any = 0
        for name in reversed(field):
            changes = {name: changes}
        with pytest.raises(sp.InputError, match="more than 0"):
            usual.changed(changes)
