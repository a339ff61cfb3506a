"""Networks in ONNX as operators with their costs, for every kind of problem."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.onnx.model import load
from stagepack.formats.onnx.network import read_network
from stagepack.instances.network import Block, Network
from tests.formats.test_onnx_model import model, node, transformer

onnx = pytest.importorskip("onnx")

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
# Multiply-accumulates and parameters.  DenseNet-121 has 7,978,856, and in this file a scale and a
# bias after each of its norms (41,824 channels) beside those of the norm; likewise Inception v2.
KNOWN = {
    "bvlc_alexnet": (654_560_384, 60_965_224),
    "densenet121": (2_834_161_664, 7_978_856 + 2 * 41_824),
    "inception_v1": (1_431_556_352, 6_998_552),
    "inception_v2": (2_018_851_840, 11_214_888),
    "resnet50": (4_089_184_256, 25_557_032),
    "shufflenet": (124_664_528, 1_393_320),
    "squeezenet": (349_151_936, 1_235_496),
    "vgg19": (19_632_062_464, 143_667_240),
    "zfnet512": (1_481_727_008, 87_250_536),
}


def network(path: Path, **given: Any) -> Network:
    """Return the network of a model whose operators are all known."""
    sizes = {name: given[name] for name in given if name in ("batch", "sequence", "image")}
    found, unknown = read_network(load(path.read_bytes(), sizes), "net", given)
    assert unknown == {}
    return found


def only(path: Path, **given: Any) -> Block:
    """Return the one operator of a model."""
    (block,) = network(path, **given).blocks
    return block


@pytest.mark.parametrize("name", KNOWN)
def test_arithmetic_and_parameters_are_those_known(name: str) -> None:
    whole = network(LIGHT / f"light_{name}.onnx", training=True)
    assert (whole.macs, whole.weights) == KNOWN[name]


def test_a_batch_norm_after_a_convolution_becomes_its_bias() -> None:
    path = LIGHT / "light_resnet50.onnx"
    trained, ready = network(path, training=True), network(path)
    channels = 26_560  # of all norms
    assert trained.weights - ready.weights == channels
    assert sum(block.constants for block in trained.blocks) == 2 * 4 * channels
    assert sum(block.constants for block in ready.blocks) == 0
    assert [block.name for block in trained.blocks] == [block.name for block in ready.blocks]


def test_another_batch_is_in_proportion() -> None:
    path = LIGHT / "light_squeezenet.onnx"
    one, many = network(path), network(path, batch=16)
    assert (many.macs, many.weights) == (16 * one.macs, one.weights)
    assert many.tensors == {name: 16 * nbytes for name, nbytes in one.tensors.items()}


# nodes, inputs, constants, multiply-accumulates, values, parameters
WORK: list[tuple[list[Any], dict[str, list[int]], dict[str, list[int]], int, int, int]] = [
    ([node("Conv", "x w", "y")], {"x": [1, 4, 8, 8]}, {"w": [6, 4, 3, 3]}, 6**3 * 36, 0, 216),
    ([node("Conv", "x w", "y", group=4)], {"x": [1, 4, 8, 8]}, {"w": [4, 1, 3, 3]}, 1296, 0, 36),
    ([node("ConvTranspose", "x w", "y")], {"x": [1, 4, 8, 8]}, {"w": [4, 6, 3, 3]}, 13824, 0, 216),
    ([node("Gemm", "x w b", "y")], {"x": [3, 8]}, {"w": [8, 5], "b": [5]}, 120, 0, 45),
    ([node("Gemm", "x w", "y", transA=1)], {"x": [8, 3]}, {"w": [8, 5]}, 120, 0, 40),
    ([node("MatMul", "x z", "y")], {"x": [2, 7, 8], "z": [2, 8, 5]}, {}, 560, 0, 0),
    (
        [node("Einsum", "x z", "y", equation="bij,bjk->bik")],
        {"x": [2, 7, 8], "z": [2, 8, 5]},
        {},
        560,
        0,
        0,
    ),
    (
        [node("Einsum", "x z", "y", equation="...ij,jk->...ik")],
        {"x": [2, 3, 7, 8], "z": [8, 5]},
        {},
        1680,
        0,
        0,
    ),
    ([node("LSTM", "x w r", "y", hidden_size=5)], {"x": [6, 2, 3]},
     {"w": [1, 20, 3], "r": [1, 20, 5]}, 12 * 160, 0, 160),
    ([node("GRU", "x w r", "y", hidden_size=5)], {"x": [6, 2, 3]},
     {"w": [1, 15, 3], "r": [1, 15, 5]}, 12 * 120, 0, 120),
    ([node("Softmax", "x", "y")], {"x": [2, 10]}, {}, 0, 60, 0),
    ([node("LayerNormalization", "x g b", "y")], {"x": [2, 10]}, {"g": [10], "b": [10]}, 0, 60, 20),
    ([node("Sum", "x z v", "y")], {"x": [2, 10], "z": [2, 10], "v": [2, 10]}, {}, 0, 40, 0),
    ([node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[2, 2])], {"x": [1, 4, 8, 8]}, {}, 0,
     256, 0),
    ([node("Concat", "x z", "y", axis=0)], {"x": [2, 10], "z": [3, 10]}, {}, 0, 50, 0),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "shapes", "weights", "macs", "values", "parameters"), WORK)
def test_what_operators_cost(
    tmp_path: Path,
    nodes: list[Any],
    shapes: dict[str, list[int]],
    weights: dict[str, list[int]],
    macs: int,
    values: int,
    parameters: int,
) -> None:
    block = only(model(tmp_path, nodes, shapes, weights))
    assert (block.flops, block.values, block.weights) == (2 * macs, values, parameters)
    assert block.weight_bytes == 4 * parameters


def test_an_attention_of_one_operator(tmp_path: Path) -> None:
    nodes = [node("Attention", "q k v", "y", q_num_heads=4, kv_num_heads=4)]
    shapes = {"q": [2, 10, 32], "k": [2, 20, 32], "v": [2, 20, 32]}
    block = only(model(tmp_path, nodes, shapes, opset=23))
    assert block.flops == 2 * (2 * 10 * 20 * (32 + 32))
    assert block.scratch == 4 * (2 * 4 * 10 * 20)


def test_a_block_of_a_transformer(tmp_path: Path) -> None:
    tokens, width, heads = 16, 32, 4
    nodes, weights = transformer(tokens, width, heads)
    path = model(tmp_path, nodes, {"x": [1, tokens, width]}, weights)
    whole = network(path)
    assert whole.macs == (4 + 4 + 4) * tokens * width**2 + 2 * tokens**2 * width
    # Two norms share their vectors, of which each has a copy: two of two times the width.
    assert whole.weights == 12 * width**2 + (4 + 4 + 1) * width + 4 * width
    assert sp.solve(sp.read(path, kind="graph", devices=2)).status is sp.Status.OPTIMAL


def test_matrices_of_several_operators_are_one_variable(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b w", "c"),
             node("MatMul", "c v", "y")]  # fmt: skip
    path = model(tmp_path, nodes, {"x": [3, 8]}, {"w": [8, 8], "v": [8, 8]})
    whole = network(path)
    assert [block.variables for block in whole.blocks] == [("w",), ("w",), ()]
    assert [block.weights for block in whole.blocks] == [64, 0, 64]
    graph = sp.read(path, kind="graph", devices=2)
    assert graph.colour.tolist() == [0, 0, -1]
    chain = sp.read(path, kind="pipeline", devices=2)
    assert [(v.name, v.first, v.last) for v in chain.variables] == [("w", 0, 1)]
    copied = sp.read(path, kind="pipeline", devices=2, tied="copied")
    assert copied.tied is not None
    assert (copied.variables, copied.tied.uses()) == ((), {"w": (256, [0, 1])})
    assert sum(int(column.sum()) for column in copied.exclusive.values()) == (
        sum(int(column.sum()) for column in chain.exclusive.values()) - 256
    )
    assert network(path, tied=False).weights == 3 * 64


def test_training_keeps_what_the_backward_pass_reads(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a g b m v", "c"),
             node("Gelu", "c", "d"), node("Add", "d x", "y")]  # fmt: skip
    vectors = {name: [4] for name in "gbmv"}
    path = model(tmp_path, nodes, {"x": [1, 4, 8, 8]}, {"w": [4, 4, 1, 1], **vectors})
    size = 4 * 256
    whole = network(path, training=True)
    assert [block.saved for block in whole.blocks] == [3 * size, 0]  # input, raw, normalised
    graph = sp.read(path, kind="graph", devices=2, training=True, objective="forward+backward")
    assert graph.n == 4
    assert graph.colour.tolist() == [0, 1, 0, 1]
    assert graph.stash.tolist() == [3 * size, 0, 0, 0]
    once = sp.read(path, kind="graph", devices=2, training=True)
    assert once.traffic.tolist() == [2 * size, 2 * size]
    assert once.memory.tolist()[0] == (16 + 8) * (4 + 4 + 8) + 8 * 4
    memory = sp.read(path, kind="packing", training=True)
    assert "gradient of d" in (memory.ids or ())


def test_open_axes_are_given_by_words(tmp_path: Path) -> None:
    shapes: dict[str, list[Any]] = {"x": ["batch", "seq_len", 8]}
    path = model(tmp_path, [node("MatMul", "x w", "y")], shapes, {"w": [8, 5]})
    with pytest.raises(
        InputError,
        match=r"graph\.input: no size for axis 1 \(seq_len\) of x; say it: --set sequence=N "
        "or --set dim.seq_len=N or --set shape.x=1xNx8",
    ):
        sp.read(path, kind="packing")
    assert network(path, sequence=7).macs == 7 * 40
    assert network(path, sequence=7, batch=3).macs == 3 * 7 * 40
    image = model(tmp_path, [node("Relu", "x", "y")], {"x": ["", 3, "", ""]})
    assert network(image, image=32).tensors == {"x": 4 * 3 * 32**2, "y": 4 * 3 * 32**2}


def test_weights_that_nodes_make_and_wide_values(tmp_path: Path) -> None:
    nodes = [node("ConstantOfShape", "shape_w", "w"), node("Unsqueeze", "w shape_axis", "v"),
             node("Conv", "x v", "y", group=4)]  # fmt: skip
    path = model(tmp_path, nodes, {"x": [1, 4, 8]}, {"shape_w": [4, 3], "shape_axis": [1]})
    block = only(path, bytes_per_value=2)
    assert (block.weights, block.weight_bytes, block.flops) == (12, 24, 2 * 4 * 6 * 3)


def test_operators_that_nobody_knows_are_named_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [
        onnx.helper.make_node("Odd", ["x", "w"], ["z"], name="strange", domain="somebody.else"),
        node("MatMul", "z w", "y"),
    ]
    path = model(tmp_path, nodes, {"x": [3, 8]}, {"w": [8, 8]}, infer=False)
    whole = sp.read(path, kind="graph", devices=2, tied=False)
    assert whole.ids == ("strange", "ny")
    assert whole.time[0] > 0
    assert whole.memory.tolist() == [256, 256]
    assert whole.traffic.tolist()[0] == 96
    assert "Odd is not known here: strange is counted by the values" in caplog.text
    assert "what strange write is taken to be as large as what they read first" in caplog.text


def test_loops_count_what_they_hold_and_read(tmp_path: Path) -> None:
    inner = onnx.helper.make_graph(
        [node("Mul", "x inside", "out")],
        "body",
        [],
        [onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [3, 8])],
        [onnx.helper.make_tensor("inside", onnx.TensorProto.FLOAT, [8], [0.5] * 8)],
    )
    nodes = [
        node("ReduceMax", "x", "top", keepdims=0),
        node("Cast", "top", "whether", to=onnx.TensorProto.BOOL),
        onnx.helper.make_node("If", ["whether"], ["y"], then_branch=inner, else_branch=inner),
    ]
    found, unknown = read_network(
        load(model(tmp_path, nodes, {"x": [3, 8]}).read_bytes(), {}), "net", {}
    )
    assert unknown == {}
    assert found.blocks[-1].constants == 2 * 32
    assert found.blocks[-1].values == 3 * 8
    assert set(found.blocks[-1].inputs) == {"whether", "x"}


FLOAT, BOOL, INT64 = (onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "BOOL", "INT64"))


def body(nodes: list[Any], reads: dict[str, int], writes: dict[str, int]) -> Any:
    """Return a graph of operators; what it reads and writes by type, without shapes."""
    make = onnx.helper.make_tensor_value_info
    given, made = ([make(name, known[name], None) for name in known] for known in (reads, writes))
    return onnx.helper.make_graph(nodes, "body", given, made)


@pytest.mark.parametrize("when", [None, True, False])
def test_of_branches_the_taken_one_counts_or_the_dearer(
    tmp_path: Path, when: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    little = body([node("Relu", "x", "a")], {}, {"a": FLOAT})
    much = body([node("MatMul", "x w", "b"), node("Relu", "b", "c")], {}, {"c": FLOAT})
    branch = onnx.helper.make_node("If", ["when"], ["y"], then_branch=little, else_branch=much)
    weights = {"w": [8, 8]}
    path = model(tmp_path, [branch], {"x": [3, 8]}, weights, infer=False)
    whole = onnx.load(path)
    if when is None:
        whole.graph.input.append(onnx.helper.make_tensor_value_info("when", BOOL, []))
    else:
        whole.graph.initializer.append(onnx.helper.make_tensor("when", BOOL, [], [when]))
    onnx.save(whole, path)
    block = only(path)
    macs = 0 if when else 3 * 8 * 8
    assert (block.flops, block.values, block.weights) == (2 * macs, 24, 64)
    assert block.scratch == (0 if when else 96)
    sp.read(path, kind="graph", devices=1)
    assert ("y is counted by its dearer branch" in caplog.text) == (when is None)


@pytest.mark.parametrize("turns", [5, 2**62, None])
def test_a_loop_counts_as_often_as_it_runs(
    tmp_path: Path, turns: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """What it carries has no shape inside, nor what it writes: they are as it begins."""
    step = body(
        [node("MatMul", "c w", "d"), node("Tanh", "d", "e"), node("Identity", "go", "on")],
        {"i": INT64, "go": BOOL, "c": FLOAT},
        {"on": BOOL, "e": FLOAT},
    )
    nodes = [onnx.helper.make_node("Loop", ["most", "", "x"], ["z"], name="loop", body=step),
             node("MatMul", "z w", "y")]  # fmt: skip
    path = model(tmp_path, nodes, {"x": [3, 8]}, {"w": [8, 8]}, infer=False)
    whole = onnx.load(path)
    if turns is None:
        whole.graph.input.append(onnx.helper.make_tensor_value_info("most", INT64, []))
    else:
        whole.graph.initializer.append(onnx.helper.make_tensor("most", INT64, [], [turns]))
    onnx.save(whole, path)
    found = network(path)
    assert [block.flops for block in found.blocks] == [2 * 192 * (5 if turns == 5 else 1), 2 * 192]
    assert found.blocks[0].scratch == 2 * 96  # d, and e, which the next turn reads
    sp.read(path, kind="graph", devices=1)
    said = "loop is counted once, as nobody knows how often it runs"
    assert (said in caplog.text) == (turns != 5)


def test_a_scan_counts_for_all_that_it_goes_along(tmp_path: Path) -> None:
    step = body(
        [node("MatMul", "row w", "d"), node("Add", "state d", "next"), node("Tanh", "next", "out")],
        {"state": FLOAT, "row": FLOAT},
        {"next": FLOAT, "out": FLOAT},
    )
    scan = onnx.helper.make_node("Scan", ["s", "x"], ["last", "y"], body=step, num_scan_inputs=1)
    path = model(tmp_path, [scan], {"s": [8], "x": [7, 8]}, {"w": [8, 8]}, infer=False)
    found, unknown = read_network(load(path.read_bytes(), {}), "net", {})
    assert unknown == {}
    assert (found.macs, found.blocks[0].values) == (7 * 64, 7 * 2 * 8)


# ---------------------------------------------------------------------- bad input


def test_external_weights_need_not_be_there(tmp_path: Path) -> None:
    path = model(tmp_path, [node("MatMul", "x w", "y")], {"x": [3, 8]}, {"w": [8, 5]})
    whole = onnx.load(path)
    (weight,) = whole.graph.initializer
    del weight.float_data[:]
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="away")
    onnx.save(whole, path)
    assert network(path).weights == 40


def test_nodes_may_come_in_any_order_but_not_in_circles(tmp_path: Path) -> None:
    nodes = [node("Relu", "a", "y"), node("MatMul", "x w", "a")]
    path = model(tmp_path, nodes, {"x": [3, 8]}, {"w": [8, 5]}, infer=False)
    assert network(path).macs == 120
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]
    path = model(tmp_path, nodes, {"x": [3, 8]}, infer=False)
    with pytest.raises(InputError, match=r"graph\.node n[ab]: is on a circle"):
        network(path)
    path = model(tmp_path, [node("Relu", "x", "y")] * 2, {"x": [3, 8]}, infer=False)
    with pytest.raises(InputError, match="'y' is written twice"):
        network(path)


def test_figures_beyond_all_bounds_are_refused(tmp_path: Path) -> None:
    path = model(tmp_path, [node("Relu", "x", "y")], {"x": [2**40, 2**30]})
    with pytest.raises(InputError, match="has more axes or values than can be"):
        network(path)
    path = model(tmp_path, [node("Relu", "x", "y")], {"x": [1] * 100})
    with pytest.raises(InputError, match="has more axes or values than can be"):
        network(path)
    empty = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    with pytest.raises(InputError, match="has no nodes"):
        load(empty.SerializeToString(), {})


def test_bytes_that_were_cut_or_changed_are_refused_or_read(tmp_path: Path) -> None:
    nodes, weights = transformer(4, 8, 2)
    data = model(tmp_path, nodes, {"x": [1, 4, 8]}, weights).read_bytes()
    draw, read = random.Random(0), 0
    machine: dict[str, Any] = {"devices": 2}
    for turn in range(40):
        broken = bytearray(data[: draw.randrange(8, len(data))] if turn % 2 else data)
        for _ in range(turn % 5):
            broken[draw.randrange(8, len(broken))] = draw.randrange(256)
        path = tmp_path / "broken.onnx"
        path.write_bytes(broken)
        kind = "graph" if turn % 4 < 2 else "groups"
        with contextlib.suppress(InputError):
            sp.read(path, kind=kind, **(machine if kind == "graph" else {}))
            read += 1
    assert 0 < read < 40
