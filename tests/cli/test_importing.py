"""``stagepack import``: models of networks become instances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stagepack as sp
from stagepack.formats.door import read
from tests.cli.shell import run

onnx = pytest.importorskip("onnx")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def test_a_model_becomes_an_instance_of_a_kind(tmp_path: Path) -> None:
    model, target = LIGHT / "light_squeezenet.onnx", tmp_path / "x.json"
    machine = ["--cluster", "ipu-pod4", "--batch", "16", "--kind", "graph-partition"]
    done = run("import", str(model), *machine, "-o", str(target))
    assert (done.returncode, done.stdout) == (0, f"light_squeezenet: written to {target}\n")
    known = sp.read(model, kind="graph", cluster="ipu-pod4", batch=16)
    assert read(target).digest == known.digest
    done = run("import", str(model), "-o", str(target))
    assert done.returncode == 2
    assert "say which (--kind): pipeline-partition or graph-partition" in done.stderr
    done = run("import", "nothing.onnx", "-o", str(target))
    assert done.returncode == 2
    assert "nothing.onnx: no such file" in done.stderr


def test_a_model_becomes_layer_groups_that_are_solved(tmp_path: Path) -> None:
    model, target = LIGHT / "light_squeezenet.onnx", tmp_path / "groups.json"
    done = run("import", str(model), "--kind", "layer-grouping", "-o", str(target))
    assert done.returncode == 0, done.stderr
    whole = read(target)
    assert isinstance(whole, sp.LayerGrouping)
    assert len(whole.operators) == 39
    done = run("solve", str(target), "--method", "greedy-tail", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["violations"]) == (0, [])
    assert 0 < told["bound"] <= told["objective"] <= whole.evaluate(sp.solve(whole, "layerwise"))
    assert told["solution"]["boundaries"][-1] == 39
