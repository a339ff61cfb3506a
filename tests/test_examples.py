"""The scripts of `examples/` run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
