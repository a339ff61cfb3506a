"""ONNX models that say less, or more, than those of the model zoo."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

onnx = pytest.importorskip("onnx")

WEIGHTS = {2: [4, 3, 3, 3], 1: [4, 3, 3], 3: [4, 3, 3, 3, 3]}


def convolution(
    folder: Path,
    *,
    rows: int = 8,
    axes: int = 2,
    constant: bool = True,
    results: tuple[str, ...] = ("y",),
    reads: str = "x",
    writes: tuple[int, ...] | None = None,
    **said: Any,
) -> Path:
    """Write a model of one convolution of 3 x 3, and return its file."""
    make, tensor = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    given = [make("x", tensor, [1, 3] + [rows] * axes)]
    shape = WEIGHTS[axes]
    if constant:
        values = [0.0] * math.prod(shape)
        known = [onnx.helper.make_tensor("w", tensor, shape, values)]
    else:
        known, given = [], [*given, make("w", tensor, shape)]
    node = onnx.helper.make_node("Conv", [reads, "w"], ["y"], name="odd", **said)
    outputs = [make(name, tensor, writes) for name in results]
    graph = onnx.helper.make_graph([node], "g", given, outputs, known)
    path = folder / "odd.onnx"
    onnx.save(onnx.helper.make_model(graph), str(path))
    return path


def read(path: Path) -> sp.LayerGrouping:
    return sp.read(path, kind="layer-grouping")


def test_a_kernel_is_that_of_the_weights(tmp_path: Path) -> None:
    operator = read(convolution(tmp_path)).operators[0]
    assert operator.kernel == (3, 3)
    assert operator.shape == (1, 4, 6, 6)


@pytest.mark.parametrize(
    ("rule", "strides", "rows", "padding"),
    [
        ("SAME_UPPER", [1, 1], 8, (1, 1, 1, 1)),
        ("SAME_UPPER", [2, 2], 8, (0, 1, 0, 1)),
        ("SAME_LOWER", [2, 2], 8, (1, 0, 1, 0)),
        ("SAME_UPPER", [2, 2], 7, (1, 1, 1, 1)),
        ("VALID", [1, 1], 8, (0, 0, 0, 0)),
    ],
)
def test_padding_by_a_rule(
    tmp_path: Path, rule: str, strides: list[int], rows: int, padding: tuple[int, ...]
) -> None:
    path = convolution(tmp_path, rows=rows, auto_pad=rule, strides=strides)
    assert read(path).operators[0].padding == padding


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"axes": 1}, "odd: a window along 1 axes is not known here"),
        ({"axes": 3}, "odd: a window along 3 axes is not known here"),
        (
            {"pads": [-1, -1, -1, -1], "writes": (1, 4, 4, 4)},
            r"odd: padding \[-1, -1, -1, -1\] is not known",
        ),
        ({"auto_pad": "ODD"}, "odd: auto_pad ODD of Conv is not known here"),
        ({"constant": False}, "odd: Conv without constant weights is not known here"),
        ({"results": ("w",), "writes": (4, 3, 3, 3)}, "graph: 'w' is a constant"),
        ({"results": ("w",), "writes": (1, 3, 3, 3)}, "shapes contradict each other: .*differ"),
        ({"reads": "z", "writes": (1, 4, 6, 6)}, "graph: the shape of 'z' is not known"),
    ],
)
def test_what_is_not_known_is_named(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(convolution(tmp_path, **given))
