"""What the pages say runs: their Python prints what stands below it, their commands do not fail."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

import stagepack as sp
from tests.cli import shell
from tests.imports import ROOT

DOCS = ROOT / "docs"
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\|(.*)\| `(stagepack [^`]+)` \|$", re.MULTILINE)
"""Of a table whose last column has a command."""
FILE = re.compile(r"\w+(\.\w+)+")  # other than a name of the catalog
OUTPUTS = ("-o", "--export", "--offsets", "--csv")


def code(page: str) -> list[tuple[str, str]]:
    """Return the Python of a page, and what it is said to print."""
    return CODE.findall((ROOT / page).read_text())


def commands(page: str) -> list[str]:
    """Return the lines of a page that read a file."""
    text = (ROOT / page).read_text()
    lines = "".join(SHELL.findall(text)).splitlines()
    lines += [f"{line[2]} # {line[1]}" for line in ROW.finditer(text)]
    return [line for line in lines if re.match(rf"stagepack \w+ {FILE.pattern}( |$)", line)]


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples", tmp_path / "examples"))


@pytest.mark.parametrize("page", [page for page in PAGES if code(page)])
def test_python_prints_what_stands_below_it(
    page: str, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("pandas")
    monkeypatch.chdir(examples)
    monkeypatch.setenv("COLUMNS", "120")  # what the pages show is not broken
    names: dict[str, object] = {"sp": sp}
    for source, wanted in code(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, page, "exec"), names)
        said = "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"
        checker = doctest.OutputChecker()
        assert not wanted or checker.check_output(wanted, said, doctest.ELLIPSIS), said


@pytest.fixture(scope="module")
def written() -> dict[str, dict[str, bytes]]:
    """The files that a line wrote, by line: many stand on several pages."""
    return {}


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if commands(page)])
def test_commands_on_files_run_from_the_examples(
    page: str, examples: Path, written: dict[str, dict[str, bytes]]
) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("plotly")
    for line in commands(page):
        command, _, remark = (part.strip() for part in line.partition(" #"))
        _, *words = shlex.split(command)
        if command not in written:
            wanted = re.search(r"exit (\d)", remark)
            done = shell.run(*words, cwd=examples)
            assert done.returncode == (int(wanted[1]) if wanted else 0), f"{line}\n{done.stderr}"
            files = [words[words.index(option) + 1] for option in OUTPUTS if option in words]
            written[command] = {name: (examples / name).read_bytes() for name in files}
        for name, content in written[command].items():
            assert content, line
            (examples / name).write_bytes(content)


def test_commands_of_the_readme_stand_on_pages_where_they_run() -> None:
    run = {line.partition(" #")[0].strip() for page in PAGES[1:] for line in commands(page)}
    front = {line.partition(" #")[0].strip() for line in commands("README.md")}
    assert len(front) > 8
    assert front <= run, front - run


def test_every_public_name_has_its_place() -> None:
    listed = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
    described = re.findall(r"^\.\. auto\w+:: ((?:stagepack\.plots\.)?\w+)$", listed, re.MULTILINE)
    public = {name for name in dir(sp) if name not in ("__version__", "plots")}
    public |= {f"stagepack.plots.{name}" for name in sp.plots.__all__ if name != "plot"}
    assert sorted(described) == sorted(public)
