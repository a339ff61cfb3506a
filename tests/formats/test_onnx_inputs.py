"""Sizes of inputs that are said beside an ONNX model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from tests.cli.shell import run
from tests.formats.test_onnx_model import model, node

pytest.importorskip("onnx")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Return a model of two inputs with a named dimension in common, and one without a name."""
    shapes: dict[str, list[Any]] = {"x": ["batch", "seq", 8], "mask": ["batch", "", 8]}
    return model(tmp_path, [node("MatMul", "x w", "z"), node("Add", "z mask", "y")],
                 shapes, {"w": [8, 8]})  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"sequence": 16, "dim": {"batch": 2}},
        {"dim.batch": 2, "dim.seq": 16, "shape": {"mask": (2, 16, 8)}},
        {"shape": {"x": "2x16x8", "mask": [2, 16, 8]}},
        {"shape.x": "2x16x8", "sequence": 16},  # the batch of mask is that of x
    ],
)
def test_shapes_and_dimensions_are_said(two: Path, given: dict[str, Any]) -> None:
    assert sp.read(two, kind="packing", **given).size.tolist() == [2 * 16 * 8 * 4] * 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"no size for axis 1 \(seq\) of x, axis 1 \(without a name\) of mask; say it: --set "
             r"sequence=N or --set dim.seq=N or --set shape.x=1xNx8 .*shape.mask=1xNx8"),
        ({"dim.length": 3}, "dim.length: 'length' is no named dimension .*; there are batch, seq"),
        ({"shape.z": "3"}, "shape.z: 'z' is no input; there are mask, x"),
        ({"shape.x": "2x8"}, "shape.x: 2x8 has 2 axes, and the input 3"),
        ({"shape.x": "2xax8"}, "shape.x: '2xax8' is no shape; write sizes: 1x3x48x320"),
        ({"shape.x": "0x2x8"}, "shape.x: '0x2x8' is no shape"),
        ({"shape": "2x8"}, r"shape: '2x8' is for no name; say for which: --set shape.NAME="),
        ({"dim.seq": 0}, "0 will not do as dim"),
        ({"shape.x": "2x3x8", "dim.batch": 3}, "dimension 'batch' is 2 here and 3 elsewhere"),
        ({"shape.x": "2x3x9", "shape.mask": "2x3x8"}, "--set shape.INPUT=1x3x224x224"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(two: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sp.read(two, kind="packing", **given)


def test_a_shape_replaces_that_of_the_file(tmp_path: Path) -> None:
    weights = {"w": [4, 4, 3, 3]}
    nodes = [
        node("Conv", "x w", "z", pads=[1, 1, 1, 1]),
        node("MaxPool", "z", "y", kernel_shape=[1, 1]),
    ]
    path = model(tmp_path, nodes, {"x": [1, 4, 8, 8]}, weights)
    assert sp.read(path, kind="packing").size.tolist() == [4 * 4 * 64] * 3
    done = run("solve", path, "--kind", "packing", "--set", "shape.x=1x4x48x320", "--json")
    assert json.loads(done.stdout)["objective"] == 2 * 4 * 4 * 48 * 320


def test_names_of_inputs_stay_as_they_are(tmp_path: Path) -> None:
    path = model(tmp_path, [node("Exp", "in-put.1:0", "y")], {"in-put.1:0": ["n-1", 3]})
    assert sp.read(path, kind="packing", shape={"in-put.1:0": (64, 3)}).size.tolist() == [768, 768]
    assert run("show", path, "--kind", "packing", "--set", "dim.n-1=64").returncode == 0
