"""ONNX models that say less, or more, than those of the model zoo."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.onnx import shapes, sizes
from stagepack.instances.groups.operators import macs

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
        (
            {"pads": [-1, -1, -1, -1], "writes": (1, 4, 4, 4)},
            r"odd: padding \[-1, -1, -1, -1\] is not known",
        ),
        ({"auto_pad": "ODD"}, "odd: auto_pad ODD of Conv is not known here"),
        ({"constant": False}, "odd: Conv without constant weights is not known here"),
        ({"results": ("w",), "writes": (4, 3, 3, 3)}, "graph: 'w' is a constant"),
        ({"results": ("w",), "writes": (1, 3, 3, 3)}, "shapes contradict each other: .*differ"),
        ({"reads": "z", "writes": (1, 4, 6, 6)}, "graph.node odd: the shape of 'z' is not known"),
    ],
)
def test_what_is_not_known_is_named(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(convolution(tmp_path, **given))


def test_the_third_axis_of_a_kernel_is_its_depth(tmp_path: Path) -> None:
    whole = read(convolution(tmp_path, axes=3, strides=[2, 1, 1], pads=[1, 0, 1, 1, 2, 1]))
    (operator,) = whole.operators
    assert (operator.kernel, operator.depth, operator.stride) == ((3, 3), 3, (1, 1))
    assert operator.padding == (0, 2, 1, 1)
    assert operator.shape == (1, 4, 4, 8, 8)
    assert macs(operator, whole.sources(0)) == 4 * 4 * 8 * 8 * 3 * 27


Tensors = Mapping[str, list[Any]]


def model(
    folder: Path,
    nodes: list[Any],
    shapes: Tensors,
    weights: Tensors | None = None,
    result: str = "y",
    opset: int = 20,
    infer: bool = True,
) -> Path:
    """Write a model of some nodes from x to a result, and return its file.

    Parameters
    ----------
    folder : Path
    nodes : list of NodeProto
    shapes : dict
        Of the inputs.
    weights : dict
        Of constants: with values where they are small, for shapes follow from them.
    result : str
    opset : int
    infer : bool
        Whether the shapes in between are in the file.
    """
    make, tensor = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    known = []
    for name, shape in (weights or {}).items():
        if name.startswith("shape"):
            made = onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [len(shape)], shape)
        elif name == "scales":
            made = onnx.helper.make_tensor(name, tensor, [len(shape)], shape)
        else:
            made = onnx.helper.make_tensor(name, tensor, shape, [0.5] * math.prod(shape))
        known.append(made)
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [make(name, tensor, shape) for name, shape in shapes.items()],
        [make(result, tensor, None)],
        known,
    )
    versions = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("somebody.else", 1)]
    whole = onnx.helper.make_model(graph, opset_imports=versions)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(whole) if infer else whole, str(path))
    return path


def node(kind: str, reads: str, writes: str, **said: Any) -> Any:
    """Return a node; "_" stands for an input that is left out."""
    given = ["" if name == "_" else name for name in reads.split()]
    return onnx.helper.make_node(kind, given, writes.split(), name=f"n{writes}", **said)


def transformer(tokens: int, width: int, heads: int) -> tuple[list[Any], dict[str, list[int]]]:
    """Return a block of attention and two layers, as exporters write it, and its constants."""
    nodes = [node("LayerNormalization", "x g b", "norm", axis=-1)]
    for factor in "qkv":
        turn = [0, 2, 3, 1] if factor == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", f"norm w{factor}", f"{factor}0"),
            node("Add", f"{factor}0 b{factor}", f"{factor}1"),
            node("Reshape", f"{factor}1 shape_heads", f"{factor}2"),
            node("Transpose", f"{factor}2", factor, perm=turn),
        ]
    nodes += [
        node("MatMul", "q k", "scores0"),
        node("Div", "scores0 root", "scores"),
        node("Softmax", "scores", "part", axis=-1),
        node("MatMul", "part v", "mixed0"),
        node("Transpose", "mixed0", "mixed1", perm=[0, 2, 1, 3]),
        node("Reshape", "mixed1 shape_tokens", "mixed"),
        node("MatMul", "mixed wo", "out0"),
        node("Add", "out0 bo", "out"),
        node("Add", "x out", "skip"),
        node("LayerNormalization", "skip g b", "norm2", axis=-1),
        node("MatMul", "norm2 w1", "up0"),
        node("Add", "up0 b1", "up"),
        node("Div", "up root", "erf0"),
        node("Erf", "erf0", "erf1"),
        node("Add", "erf1 one", "erf2"),
        node("Mul", "up erf2", "erf3"),
        node("Mul", "erf3 half", "gelu"),
        node("MatMul", "gelu w2", "down0"),
        node("Add", "down0 b2", "down"),
        node("Add", "skip down", "y"),
    ]
    weights: dict[str, list[int]] = {"g": [width], "b": [width], "root": [], "one": [], "half": []}
    for name in "qkvo":
        weights |= {f"w{name}": [width, width], f"b{name}": [width]}
    weights |= {"w1": [width, 4 * width], "b1": [4 * width]}
    weights |= {"w2": [4 * width, width], "b2": [width]}
    weights |= {
        "shape_heads": [1, tokens, heads, width // heads],
        "shape_tokens": [1, tokens, width],
    }
    return nodes, weights


def test_a_block_of_a_transformer(tmp_path: Path) -> None:
    tokens, width, heads = 16, 32, 4
    nodes, weights = transformer(tokens, width, heads)
    whole = read(model(tmp_path, nodes, {"x": [1, tokens, width]}, weights))
    work = sum(macs(op, whole.sources(at)) for at, op in enumerate(whole.operators))
    linear, attention = (4 + 4 + 4) * tokens * width**2, 2 * tokens**2 * width
    assert work == linear + attention
    kinds = Counter(str(op.kind) for op in whole.operators)
    assert kinds == {"conv": 6, "matmul": 2, "rows": 3, "other": 4, "elementwise": 4}
    by_name = {op.name: op for op in whole.operators}
    assert by_name["nscores0"].shape == (1, heads, tokens, tokens)
    assert by_name["npart"].whole == "w"
    assert (whole.operators[0].whole, whole.operators[0].shape) == ("c", (1, width, tokens, 1))
    result = sp.solve(whole)
    assert result.status is sp.Status.OPTIMAL


@pytest.mark.parametrize(
    ("nodes", "shapes", "weights", "found"),
    [
        (
            [node("MatMul", "x w", "y")],
            {"x": [2, 7, 8]},
            {"w": [8, 5]},
            [("conv", (2, 5, 7, 1))],
        ),
        (
            [node("Gemm", "x w c", "y")],
            {"x": [3, 8]},
            {"w": [8, 5], "c": [5]},
            [("conv", (3, 5, 1, 1))],
        ),
        (
            [node("MatMul", "x z", "y")],
            {"x": [2, 7, 8], "z": [2, 8, 5]},
            {},
            [("other", (2, 1, 7, 8)), ("other", (2, 1, 8, 5)), ("matmul", (2, 1, 7, 5))],
        ),
        (
            [node("MatMul", "x z", "y")],
            {"x": [2, 3, 7, 8], "z": [2, 3, 8, 5]},
            {},
            [("matmul", (2, 3, 7, 5))],
        ),
        (
            [node("Split", "x", "a b", axis=1, num_outputs=2), node("Add", "a b", "y")],
            {"x": [1, 8, 4, 4]},
            {},
            [("other", (1, 4, 4, 4)), ("other", (1, 4, 4, 4)), ("elementwise", (1, 4, 4, 4))],
        ),
        ([node("Gelu", "x", "y")], {"x": [1, 8, 4, 4]}, {}, [("elementwise", (1, 8, 4, 4))]),
        (
            [node("Concat", "x w", "y", axis=1)],
            {"x": [1, 8, 4, 4]},
            {"w": [1, 2, 4, 4]},
            [("other", (1, 10, 4, 4))],
        ),
        (
            [node("Concat", "x x", "y", axis=-1)],
            {"x": [1, 8, 4, 4]},
            {},
            [("other", (1, 8, 4, 8))],
        ),
        (
            [node("Resize", "x _ _ shape", "y", mode="nearest")],
            {"x": [1, 8, 8, 8]},
            {"shape": [1, 8, 4, 4]},
            [("pool", (1, 8, 4, 4))],
        ),
        (
            [node("Resize", "x _ _ shape", "y", mode="linear")],
            {"x": [1, 8, 4, 4]},
            {"shape": [1, 8, 8, 8]},
            [("interpolate", (1, 8, 8, 8))],
        ),
        ([node("Identity", "x", "y")], {"x": [1, 8, 4, 4]}, {}, [("other", (1, 8, 4, 4))]),
        (
            [node("Transpose", "x", "y", perm=[0, 2, 3, 1])],
            {"x": [1, 8, 4, 5]},
            {},
            [("other", (1, 4, 5, 8))],
        ),
        (
            [node("Reshape", "x shape", "a"), node("Transpose", "a", "y", perm=[0, 2, 1])],
            {"x": [1, 8, 4, 5]},
            {"shape": [1, 8, 20]},
            [("other", (1, 8, 20, 1))],
        ),
        (
            [node("ReduceMean", "x shape", "y", keepdims=0)],
            {"x": [1, 8, 4, 5]},
            {"shape": [2, 3]},
            [("global-pool", (1, 8, 1, 1))],
        ),
    ],
)
def test_kinds_that_networks_use(
    tmp_path: Path,
    nodes: list[Any],
    shapes: Tensors,
    weights: Tensors,
    found: list[tuple[str, tuple[int, ...]]],
) -> None:
    whole = read(model(tmp_path, nodes, shapes, weights))
    assert [(str(op.kind), op.shape) for op in whole.operators] == found
    assert sp.solve(whole).status is sp.Status.OPTIMAL


# attributes, scales or sizes, rows that are read -> kind and fields
RESIZES: list[tuple[dict[str, Any], list[Any], int, str, dict[str, Any]]] = [
    ({"mode": "linear"}, [1, 1, 2.0, 1.5], 4, "interpolate", {"coordinates": "half-pixel"}),
    ({"mode": "linear"}, [1, 1, 1.3, 1.3], 4, "other", {}),  # 5 rows, not 5.2
    (
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        [1, 8, 7, 7],
        4,
        "interpolate",
        {"coordinates": "align-corners", "interpolation": "cubic"},
    ),
    (
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        [1, 8, 7, 7],
        4,
        "other",
        {},
    ),
    ({"mode": "linear", "antialias": 1}, [1, 8, 2, 2], 4, "other", {}),
    ({"mode": "nearest"}, [1, 1, 3.0, 2.0], 4, "upsample", {"scale": (3, 2)}),
    (
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        [1, 1, 3.0, 3.0],
        4,
        "upsample",
        {"scale": (3, 3)},
    ),
    ({"coordinate_transformation_mode": "asymmetric"}, [1, 1, 3.0, 3.0], 4, "other", {}),  # 2: 0.67
    ({"mode": "nearest"}, [1, 8, 6, 6], 4, "other", {}),
]


@pytest.mark.parametrize(("said", "by", "rows", "kind", "fields"), RESIZES)
def test_resizes(
    tmp_path: Path,
    said: dict[str, Any],
    by: list[Any],
    rows: int,
    kind: str,
    fields: dict[str, Any],
) -> None:
    sizes = by[1] == 8
    made = node("Resize", "x _ _ shape" if sizes else "x _ scales", "y", **said)
    known: Tensors = {"shape" if sizes else "scales": by}
    whole = read(model(tmp_path, [made], {"x": [1, 8, rows, rows]}, known))
    operator = whole.operators[0]
    assert operator.kind == kind
    assert {name: getattr(operator, name) for name in fields} == fields


def test_kinds_that_nobody_knows_stand_alone_and_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = model(tmp_path, [node("Det", "x", "z"), node("Relu", "z", "y")], {"x": [1, 8, 4, 4]})
    whole = read(path)
    assert [(op.name, str(op.kind), op.shape) for op in whole.operators] == [
        ("nz", "other", (1, 8, 1, 1)),
        ("elementwise-1", "elementwise", (1, 8, 1, 1)),
    ]
    assert "Det is not known here: nz stands alone" in caplog.text


def test_a_batch_is_a_multiple_of_that_of_the_model(tmp_path: Path) -> None:
    path = model(tmp_path, [node("Relu", "x", "y")], {"x": [2, 8, 4, 4]})
    whole = sp.read(path, kind="layer-grouping", batch=6)
    assert (whole.operators[0].shape, whole.inputs[0].shape) == ((6, 8, 4, 4), (6, 8, 4, 4))
    with pytest.raises(InputError, match="batch: 5 is no multiple of the model's 2"):
        sp.read(path, kind="layer-grouping", batch=5)


def test_operators_are_called_as_their_nodes_are(tmp_path: Path) -> None:
    """The name of a weight is for those whose nodes are numbered."""
    make = onnx.helper.make_node
    kinds = [("Conv", "stem"), ("Conv", "Conv_12"), ("Conv", ""), ("MaxPool", "MaxPool_3")]
    nodes, weights = [], {}
    for at, (kind, name) in enumerate(kinds):
        reads = [f"t{at - 1}" if at else "x"]
        if kind == "Conv":
            weights[f"layer{at}.weight"] = [4, 4, 1, 1]
            reads.append(f"layer{at}.weight")
        nodes.append(make(kind, reads, [f"t{at}"], name=name, kernel_shape=[1, 1]))
    path = model(tmp_path, nodes, {"x": [1, 4, 8, 8]}, weights, "t3")
    whole = sp.read(path, kind="layer-grouping")
    assert [op.name for op in whole.operators] == ["stem", "layer1", "layer2", "MaxPool_3"]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        pytest.param(
            "import os; os.kill(os.getpid(), 11)",
            "SIGSEGV",
            marks=pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX"),
        ),
        ("import sys; sys.exit('no room')", "no room"),
        ("import sys; sys.exit(127)", "exit code 127"),
    ],
)
def test_a_model_of_which_onnx_dies_is_refused(
    run: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "RUN", run)
    path = model(tmp_path, [onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": [2]})
    with pytest.raises(InputError, match=rf"graph: .*onnx dies of them \({said}\)"):
        sp.read(path, kind="lmem-packing")


@pytest.mark.parametrize(
    ("nodes", "last"),
    [
        ([node("Div", "width shape_4", "last")], 8),
        ([node("Mod", "width shape_20", "last")], 12),
        (
            [node("Equal", "width shape_32", "is"), node("Where", "is shape_8 shape_4", "last")],
            8,
        ),
        (
            [
                node("Cast", "width", "f", to=1),
                node("Sqrt", "f", "r"),
                node("Cast", "r", "last", to=7),
            ],
            5,
        ),
    ],
)
def test_sizes_are_computed_as_exporters_do(nodes: list[Any], last: int, tmp_path: Path) -> None:
    head = [node("Shape", "x", "all"), node("Gather", "all shape_2", "width"), *nodes]
    ones = [node("Concat", "shape_1 last", "many", axis=0), node("Expand", "column many", "y")]
    constants = {f"shape_{size}": [size] for size in (1, 2, 4, 8, 20, 32)}
    column = [node("ReduceMax", "x shape_axes", "column")]
    path = model(
        tmp_path,
        [*column, *head, *ones],
        {"x": [2, 3, 32]},
        {**constants, "shape_axes": [1, 2]},
        infer=False,
    )
    (_, whole) = read(path).operators
    assert math.prod(whole.shape) == 2 * last


def test_sizes_are_computed_from_shapes_that_follow_from_others(tmp_path: Path) -> None:
    last, nodes = "x", []
    for at in range(40):
        nodes += [node("Shape", last, f"shape{at}"), node("Div", f"shape{at} shape_1", f"to{at}")]
        nodes += [
            node("Reshape", f"{last} to{at}", f"part{at}"),
            node("Exp", f"part{at}", f"e{at}"),
        ]
        last = f"e{at}"
    nodes.append(node("Add", f"{last} x", "y"))
    path = model(tmp_path, nodes, {"x": [2, 6]}, {"shape_1": [1]}, infer=False)
    assert {op.shape[:2] for op in read(path).operators} == {(2, 6)}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Range", "zero size one", "many")],
        [node("ConstantOfShape", "shape_much", "many")],
        [node("Expand", "size shape_much", "many")],
    ],
)
def test_sizes_of_too_many_values_are_not_computed(nodes: list[Any], tmp_path: Path) -> None:
    first = [node("Size", "x", "size"), node("Sub", "size size", "zero")]
    first += [node("Div", "size size", "one"), *nodes]
    path = model(
        tmp_path, first, {"x": [2**20]}, {"shape_much": [2**20]}, result="many", infer=False
    )
    proto = onnx.load(str(path))
    assert sizes.settle(proto)
    kinds = [given.op_type for given in proto.graph.node]
    assert kinds == ["Constant", "Constant", "Constant", nodes[0].op_type]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_sizes_computed_from_more_values_than_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "MORE", 2**26)
    nodes = [onnx.helper.make_node("Shape", ["x"], ["s0"])]
    nodes += [
        onnx.helper.make_node("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], axis=0)
        for i in range(41)
    ]
    nodes.append(onnx.helper.make_node("Expand", ["x", "s41"], ["y"]))
    make, tensor = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "g", [make("x", tensor, [2])], [onnx.helper.make_empty_tensor_value_info("y")]
    )
    path = tmp_path / "bomb.onnx"
    onnx.save(onnx.helper.make_model(graph), str(path))
    with pytest.raises(InputError, match="too much memory"):
        sp.read(path, kind="lmem-packing")


def test_operators_that_nobody_knows_take_no_pass_each(monkeypatch: pytest.MonkeyPatch) -> None:
    make, passes = onnx.helper.make_node, []
    nodes = [
        make(*given, domain=domain)
        for i in range(20)
        for given, domain in (
            (("Mystery", [f"t{2 * i}"], [f"t{2 * i + 1}"]), "com.example"),
            (("Relu", [f"t{2 * i + 1}"], [f"t{2 * i + 2}"]), ""),
        )
    ]
    ends = [onnx.helper.make_tensor_value_info("t0", onnx.TensorProto.FLOAT, [2, 8])]
    last = onnx.helper.make_empty_tensor_value_info("t40")
    graph = onnx.helper.make_graph(nodes, "g", ends, [last])
    infer = onnx.shape_inference.infer_shapes

    def counted(*given: Any, **named: Any) -> Any:
        passes.append(given)
        return infer(*given, **named)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", counted)
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.example", 1)]
    data, assumed = shapes._follow(onnx.helper.make_model(graph, opset_imports=opsets))
    assert len(assumed) == 20
    assert len(passes) <= 3
    found = onnx.load_model_from_string(data).graph.value_info
    assert {tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in found} == {(2, 8)}
