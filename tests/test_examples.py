"""The scripts of `examples/` run."""

from __future__ import annotations

import ast
import itertools
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.test_dumps import ASSIGNMENT, RANGES
from tests.formats.test_tflite import SMALL
from tests.imports import ROOT


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


FIRST = ("megatron_layout", "vllm_layers", "tflite_plan", "executorch_plan", "compiler_dump")


@pytest.mark.parametrize("name", FIRST)
def test_a_first_time_takes_ten_lines(name: str) -> None:
    _, *lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    assert 5 <= sum(bool(line) for line in lines) <= 10


@pytest.mark.parametrize("name", ["compiler_dump", "onnx_partition", "tflite_plan"])
def test_scripts_that_want_a_file_say_so(name: str) -> None:
    words = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name}.py [-h] ")


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


def test_tools_that_train_and_serve_get_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "vllm_layers.py"))
    assert capsys.readouterr().out == "VLLM_PP_LAYER_PARTITION=45,33\nOPTIMAL\n"
    runpy.run_path(str(ROOT / "examples" / "megatron_layout.py"))
    assert capsys.readouterr().out.startswith("Et*6|t*6|t*7|t*5L\n0F0,")


def test_models_and_dumps_become_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    Path("net.tflite").write_bytes(SMALL)
    Path("dump.txt").write_text(RANGES + ASSIGNMENT)
    for name, given, said in (
        ("tflite_plan.py", "net.tflite", "OPTIMAL: 96 bytes of tensors in planned.tflite\n"),
        ("compiler_dump.py", "dump.txt", "dump: OPTIMAL 260, at least 260 bytes\n"),
    ):
        monkeypatch.setattr(sys, "argv", [name, given])
        runpy.run_path(str(ROOT / "examples" / name))
        assert capsys.readouterr().out == said
    assert "_SIZE 260ULL" in Path("offsets.h").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "notebooks").glob("*")), ids=str)
def test_notebooks_print_and_show_what_they_are_said_to(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *lines, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(lines, []), path.name, "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
                assert "text/html" not in str(cell["outputs"]) or shown._repr_html_()
            else:
                exec(compile(ast.Module([last], []), path.name, "exec"), names)
            printed = [one["text"] for one in cell["outputs"] if one["output_type"] == "stream"]
            assert capsys.readouterr().out == "".join(itertools.chain.from_iterable(printed))


def test_a_module_becomes_a_program_of_executorch(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="ExecuTorch is not installed")
    assert run(tmp_path, "executorch_plan.py").endswith(" bytes of tensors\n")
