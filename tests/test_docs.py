"""The documents speak of what is there, and functions say what they take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepack.cli import COMMANDS, command
from stagepack.kinds import KINDS
from tests.draw_house import PICTURE, drawing
from tests.imports import PACKAGE, ROOT

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
ROOMS = (ROOT, ROOT / "examples", PACKAGE, PACKAGE / "instances", PACKAGE / "formats")
EXAMPLES = ("toy", "<family>", "config.json")  # what a reader has, or is to make
DESCRIBED = 0.99  # of the public functions of three parameters and more
CONTRACTS = (  # which are described where they are asked for
    {"instance", "progress", "settings"},  # of every method
    {"instance", "progress", "settings", "keep_going"},  # `strengthen` of every problem
    {"instance", "evidence", "claimed"},  # every rule that verifies a proof
    {"data", "given", "file"},  # `parse` of every format
    {"instance", "solution", "ax"},  # `draw` of every kind
    {"instance", "solution", "ax", "scale"},
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`([\w./*-]+(?:\.(?:py|csv|md|json)|/))`", text))
    for name in sorted(named):
        if any(example in name for example in EXAMPLES):
            continue
        known = [*ROOMS, *(PACKAGE / "instances" / kind.family for kind in KINDS.values())]
        assert any(any(room.glob(name.rstrip("/"))) for room in known), name
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), link


def test_the_picture_shows_the_imports() -> None:
    assert PICTURE.read_text() == drawing(), "run python -m tests.draw_house"


def public(
    body: list[ast.stmt], owner: ast.ClassDef | None = None
) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield public functions and methods with what documents them: constructors, their class."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, node)
        elif isinstance(node, ast.FunctionDef):
            overloaded = "overload" in map(ast.unparse, node.decorator_list)
            if owner is not None and node.name == "__init__":
                yield node, f"{ast.get_docstring(owner)}\n{ast.get_docstring(node)}"
            elif not node.name.startswith("_") and not overloaded:
                yield node, ast.get_docstring(node) or ""


def described(text: str) -> set[str]:
    """Return the names at the head of an entry of the sections on parameters."""
    found: set[str] = set()
    for section in re.split(r"^Parameters\n-+\n", text, flags=re.MULTILINE)[1:]:
        entries = re.split(r"^\w+\n-+$", section, maxsplit=1, flags=re.MULTILINE)[0]
        for head in re.findall(r"^[\w*][\w, *]*", entries, re.MULTILINE):
            found |= set(re.findall(r"\w+", head))
    return found


def test_entries_of_parameters_are_told_from_prose() -> None:
    text = (
        "Do a, b.\n\nParameters\n----------\nc, d : int\n    Of e.\n**f\n\nReturns\n-------\nint\n"
    )
    assert described(text) == {"c", "d", "f"}


def told_by_its_class(given: ast.arg) -> bool:
    """Whether a parameter is called like its class (`blocks: Blocks`), or as everywhere."""
    said = "" if given.annotation is None else ast.unparse(given.annotation).lower()
    return given.arg in ("instance", "evidence", "claimed") or given.arg.replace("_", "") in said


def test_functions_of_three_parameters_and_more_describe_them() -> None:
    """In an entry or in backticks, unless a name says it all; commands do so in their help."""
    commands = {(one.__module__, one.__name__) for one in map(command, COMMANDS)}
    count, missing = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for function, text in public(ast.parse(path.read_text()).body):
            given = function.args
            several = [each for each in (given.vararg, given.kwarg) if each is not None]
            named = (*given.posonlyargs, *given.args, *given.kwonlyargs, *several)
            names = {each.arg for each in named} - {"self", "cls", "_"}
            plain = {each.arg for each in named if told_by_its_class(each)}
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if len(names) < 3 or names in CONTRACTS or (module, function.name) in commands:
                continue
            count += 1
            if not names - plain <= described(text) | set(re.findall(r"`(\w+)`", text)):
                where = f"{path.relative_to(PACKAGE)}:{function.lineno} {function.name}"
                missing.append((len(names), where))
    share = 1 - len(missing) / count
    worst = "\n".join(where for _, where in sorted(missing, reverse=True)[:20])
    assert share >= DESCRIBED, f"{share:.1%} of {count} do; those of most parameters:\n{worst}"
