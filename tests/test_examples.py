"""The scripts of `examples/` run, and so do the commands of the documents on its files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import shell
from tests.imports import ROOT

FILE = re.compile(r"\w+(\.\w+)+")  # other than a name of the catalog


def commands(page: str) -> list[str]:
    """Return the lines of a page that read a file."""
    text = (ROOT / page).read_text()
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    return [line for line in lines if re.match(rf"stagepack \w+ {FILE.pattern} ", line)]


def run(folder: Path, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_onnx_file_becomes_a_partition(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    said = run(tmp_path, "onnx_partition.py", str(light / "light_squeezenet.onnx"))
    assert "'assignment': {" in said


def test_a_module_becomes_stages_that_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    said = run(tmp_path, "pytorch_stages.py")
    assert said.startswith("stage 0: layers.0\n")
    assert said.endswith("OPTIMAL True\n")
    assert (tmp_path / "stages.py").stat().st_size > 1000


@pytest.mark.parametrize("page", ["README.md", "docs/readers.md"])
def test_commands_on_files_run_from_the_examples(page: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("plotly")
    folder = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", folder)
    lines = commands(page)
    assert len(lines) > 12
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        wanted = re.search(r"# exit (\d)", line)
        done = shell.run(*words, cwd=folder)
        assert done.returncode == (int(wanted[1]) if wanted else 0), f"{line}\n{done.stderr}"
        for option in ("-o", "--export", "--offsets"):
            if option in words:
                assert (folder / words[words.index(option) + 1]).stat().st_size, line


def test_documents_of_the_readme_are_files_of_the_examples() -> None:
    blocks = re.findall(r"```json\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for name, block in zip(("profile", "buffers", "schedule", "phases"), blocks, strict=True):
        assert block == (ROOT / "examples" / f"{name}.json").read_text(), name
