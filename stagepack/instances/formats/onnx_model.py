"""Networks in ONNX, read as layer groupings.

Kinds that work value by value (activations, folded norms, scales) join the operator that writes
what they read, where nobody else reads it, as compilers fuse them; a norm that follows no
convolution is an operator of its own.  A fully connected layer is a convolution whose kernel is as
large as its input; a reshape, a transposition and a reshape that shuffle channels are a
concatenation of one input.  Constants are known by their shapes alone: weights need not be there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stagepack.errors import InputError
from stagepack.instances.formats.registry import Format, stem_of
from stagepack.instances.groups import (
    KIND,
    LayerGrouping,
    Operator,
    OperatorKind,
    Source,
    Weight,
)
from stagepack.instances.groups.chip import GENERIC
from stagepack.instances.groups.native import GIVEN, changed

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shape = tuple[int, ...]
SCALES = {"BatchNormalization", "Mul", "Add", "Sub", "Div"}
"""What a convolution before it absorbs, where all but one input are constants."""
VALUES = {"Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"}
"""What is done to each value by itself; any operator before it absorbs it."""
NOTHING = {"Dropout", "Identity", "Unsqueeze", "Squeeze", "Flatten", "Reshape", "Cast"}
"""What moves nothing."""
NUMBER = re.compile("[a-z]?_?[0-9]*")
"""Names of nodes that say nothing."""
BIAS = 4
"""Bytes of a bias."""
PASSES = {"Softmax": 4, "LogSoftmax": 5, "LRN": 5, "LayerNormalization": 4}
"""How often figures of whole ranges go over their values: assumed."""


class _Reader:
    """Goes over the nodes of a model."""

    def __init__(self, model: ModelProto, dtype_bytes: int) -> None:
        from onnx import helper, shape_inference

        self._value = helper.get_attribute_value
        self._bytes = dtype_bytes
        try:
            graph = shape_inference.infer_shapes(model).graph
        except shape_inference.InferenceError as error:
            raise InputError(
                f"shapes contradict each other: {error}",
                field="graph",
                remedy="export it again",
            ) from None
        self._shapes: dict[str, Shape] = {
            tensor.name: tuple(d.dim_value for d in tensor.type.tensor_type.shape.dim)
            for tensor in (*graph.value_info, *graph.input, *graph.output)
        }
        self._shapes |= {weight.name: tuple(weight.dims) for weight in graph.initializer}
        self._constant = {weight.name for weight in graph.initializer}
        self._name: dict[str, str] = {}
        self.found: list[Operator] = []
        self._at: dict[str, int] = {}
        self._count: Counter[str] = Counter()
        self._given: set[str] = set()
        used: Counter[str] = Counter(name for node in graph.node for name in node.input)
        used.update(output.name for output in graph.output)
        self._used = used
        self.sources = []
        for given in graph.input:
            if given.name not in self._constant:
                self._name[given.name] = given.name
                self._given.add(given.name)
                shape = _four(self._shape(given.name))
                self.sources.append(Source(name=given.name, shape=shape, dtype_bytes=dtype_bytes))
        nodes = list(graph.node)
        for at, node in enumerate(nodes):
            self._read(node, nodes[at + 1 : at + 3])

    def written(self, name: str) -> str:
        """Return the operator that writes a tensor, or the input that it is."""
        if name not in self._name:
            what = "is a constant" if name in self._constant else "is written by no node read here"
            raise InputError(
                f"{name!r} {what}", field="graph", remedy="take it out of inputs and outputs"
            )
        return self._name[name]

    def _shape(self, name: str) -> Shape:
        shape = self._shapes.get(name, ())
        if not shape or any(size < 1 for size in shape):
            raise InputError(
                f"the shape of {name!r} is not known",
                field="graph",
                remedy="give the model fixed input shapes",
            )
        return shape

    def _read(self, node: NodeProto, after: list[NodeProto]) -> None:
        given = [name for name in node.input if name and name not in self._constant]
        weights = [name for name in node.input if name in self._constant]
        own, kind = node.output[0], node.op_type
        if not given or all(name in self._constant for name in node.input):
            self._constant.update(node.output)
            return
        if own in self._name:
            return  # read together with the one before it
        if kind == "Reshape" and self._shuffles(node, after):
            last = after[1].output[0]
            self._add(last, OperatorKind.CONCAT, given[:1])
            self._name[own] = self._name[after[0].output[0]] = last
        elif kind in NOTHING:
            self._name[own] = self.written(given[0])
            self._used[own] += self._used[given[0]] > 1
        elif kind in VALUES or (kind in SCALES and len(given) == 1):
            self._absorb(own, kind, given[0], weights)
        else:
            self._operator(node, given, weights)

    def _shuffles(self, node: NodeProto, after: list[NodeProto]) -> bool:
        """Whether channels are split, transposed and joined again, and nothing else is."""
        if [other.op_type for other in after] != ["Transpose", "Reshape"]:
            return False
        turn = {a.name: self._value(a) for a in after[0].attribute}.get("perm", [])
        middle = self._shape(node.output[0])
        alike = self._shape(node.input[0]) == self._shape(after[1].output[0])
        return alike and len(middle) == 5 and list(turn) == [0, 2, 1, 3, 4]

    def _absorb(self, own: str, kind: str, before: str, weights: list[str]) -> None:
        """Let the operator before it do what is done to each value, or make it one of its own."""
        name = self.written(before)
        at = self._at.get(name)
        joins = at is not None and self._used[before] == 1
        if joins and at is not None and kind in SCALES:
            joined = self.found[at]
            scaled = joined.kind == OperatorKind.ELEMENTWISE and bool(joined.weights)
            joins = joined.kind in (OperatorKind.CONV, OperatorKind.DECONV) or scaled
        if joins and at is not None:
            self._name[own] = name
            if kind in SCALES and len(self.found[at].weights) == 1:  # what is added is a bias
                self._give_bias(at)
            return
        channels = _four(self._shape(own))[1]
        scale = Weight(channels=channels, dtype_bytes=self._bytes)
        bias = Weight(channels=channels, dtype_bytes=BIAS)
        self._add(
            own,
            OperatorKind.ELEMENTWISE,
            [before],
            in_place=True,
            label=_stem(weights),
            weights=(scale, bias) if kind in SCALES and weights else (),
        )

    def _give_bias(self, at: int) -> None:
        joined = self.found[at]
        bias = Weight(channels=joined.full[1], dtype_bytes=BIAS)
        self.found[at] = replace(joined, weights=(*joined.weights, bias))

    def _operator(self, node: NodeProto, given: list[str], weights: list[str]) -> None:
        own, kind = node.output[0], node.op_type
        said = {attribute.name: self._value(attribute) for attribute in node.attribute}
        label = _stem(weights) or ("" if NUMBER.fullmatch(node.name) else node.name)
        if kind in ("Conv", "ConvTranspose"):
            if not weights:
                raise _unknown(f"{kind} without constant weights", node)
            said.setdefault("kernel_shape", self._shape(weights[0])[2:])
            named = OperatorKind.CONV if kind == "Conv" else OperatorKind.DECONV
            self._add(
                own, named, given, label, weights=self._weights(own, weights),
                **_window(said, node, self._shape(given[0])[2:]), groups=said.get("group", 1),
            )  # fmt: skip
        elif kind in ("MaxPool", "AveragePool"):
            self._add(
                own,
                OperatorKind.POOL,
                given,
                label,
                **_window(said, node, self._shape(given[0])[2:]),
            )
        elif kind in ("GlobalAveragePool", "GlobalMaxPool"):
            self._add(own, OperatorKind.GLOBAL_POOL, given, label)
        elif kind in ("Gemm", "MatMul") and weights:
            _, _, h, w = self._four_of(given[0])
            self._add(
                own, OperatorKind.CONV, given[:1], label, kernel=(h, w),
                weights=self._weights(own, weights),
            )  # fmt: skip
        elif kind in ("Add", "Sum", "Mul", "Sub", "Div", "Max", "Min"):
            passes = max(1, len(given) - 1)
            self._add(own, OperatorKind.ELEMENTWISE, given, label, in_place=True, passes=passes)
        elif kind == "Concat" and said["axis"] == 1:
            self._add(own, OperatorKind.CONCAT, given, label)
        elif kind in ("Upsample", "Resize"):
            before, after = self._four_of(given[0]), _four(self._shape(own))
            scale = after[2] // before[2], after[3] // before[3]
            self._add(own, OperatorKind.UPSAMPLE, given[:1], label, scale=scale)
        elif kind in PASSES:
            self._add(own, OperatorKind.ROWS, given[:1], label, whole="c", passes=PASSES[kind])
        elif kind in ("Transpose", "Concat", "Slice", "Gather", "Pad"):
            self._add(own, OperatorKind.OTHER, given, label)
        else:
            raise _unknown(f"{kind} is an operator that", node)

    def _four_of(self, name: str) -> Shape:
        """Return the shape of what is read, as it was written."""
        at = self._at.get(self.written(name))
        return _four(self._shape(name)) if at is None else self.found[at].shape

    def _weights(self, own: str, names: list[str]) -> tuple[Weight, ...]:
        channels = _four(self._shape(own))[1]
        values = math.prod(self._shape(names[0])) // channels
        found = [Weight(channels=channels, values=values, dtype_bytes=self._bytes)]
        return (*found, *(Weight(channels=channels, dtype_bytes=BIAS) for _ in names[1:2]))

    def _label(self, own: str, kind: OperatorKind, label: str) -> str:
        """Return a name for an operator: of its node, of its weights, or its kind and a number."""
        if not label:
            self._count[kind] += 1
            label = f"{kind}-{self._count[kind]}"
        return own if label in self._at or label in self._given else label

    def _add(
        self, own: str, kind: OperatorKind, given: list[str], label: str = "", **fields: Any
    ) -> None:
        self._name[own] = name = self._label(own, kind, label)
        self._at[name] = len(self.found)
        self.found.append(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(map(self.written, given)),
                shape=_four(self._shape(own)),
                dtype_bytes=self._bytes,
                **fields,
            )
        )


def _stem(weights: list[str]) -> str:
    """Return what the name of a weight says of its operator; "" without weights."""
    name = weights[0] if weights else ""
    for ending in ("_w_0", "_scale_0", "_s_0", ".weight", "_weight"):
        name = name.removesuffix(ending)
    return name


def _four(shape: Shape) -> Shape:
    """Return a shape on (n, c, h, w), ones behind it."""
    return (*shape, 1, 1)[:4] if len(shape) < 4 else shape


def _unknown(what: str, node: NodeProto) -> InputError:
    """Return the refusal of a node."""
    return InputError(
        f"{what} is not known here",
        field=f"graph.node {node.name or node.output[0]}",
        remedy="leave it out, or write it as a native file with kind `other`",
    )


def _window(said: Mapping[str, Any], node: NodeProto, size: Shape) -> dict[str, Any]:
    """Return the fields of a window over rows and columns of so many values.

    Raises
    ------
    InputError
        For windows along other axes, and paddings that are no numbers from 0.
    """
    kernel = tuple(said["kernel_shape"])
    stride, dilation = (tuple(said.get(name, (1, 1))) for name in ("strides", "dilations"))
    if not len(kernel) == len(stride) == len(dilation) == len(size) == 2:
        raise _unknown(f"a window along {len(size)} axes", node)
    pads = tuple(said.get("pads", (0, 0, 0, 0)))
    rule = said.get("auto_pad", b"NOTSET").decode()
    if rule.startswith("SAME") and node.op_type != "ConvTranspose":
        pads = _same(rule, zip(size, kernel, stride, dilation, strict=True))
    elif rule not in ("NOTSET", "VALID"):
        raise _unknown(f"auto_pad {rule} of {node.op_type}", node)
    if len(pads) != 4 or min(pads) < 0:
        raise _unknown(f"padding {list(pads)}", node)
    top, left, bottom, right = pads
    return {
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "padding": (top, bottom, left, right),
    }


def _same(rule: str, axes: Iterable[tuple[int, int, int, int]]) -> Shape:
    """Return the padding with which a window writes a value for every stride; odd ones behind."""
    before, after = [], []
    for size, kernel, stride, dilation in axes:
        reach = (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1
        less, more = (max(reach - size, 0) + odd >> 1 for odd in (0, 1))
        before.append(less if rule == "SAME_UPPER" else more)
        after.append(more if rule == "SAME_UPPER" else less)
    return (*before, *after)


def _sniff(data: bytes) -> bool:
    """Whether `data` begins like a ModelProto: the version of its representation, then a field."""
    return len(data) > 4 and data[0] == 0x08 and data[1] < 0x20 and data[2] in b"\x12\x1a\x22\x3a"


def _parse(data: bytes, given: Mapping[str, Any], file: str) -> list[LayerGrouping]:
    """Return the network of a file on a chip, by default the generic one.

    Raises
    ------
    InputError
        Without the package onnx; for what is no model; naming the node or tensor.
    """
    try:
        import onnx
    except ImportError:
        raise InputError(
            "reading it needs the package onnx",
            field="format",
            remedy="pip install 'stagepack[onnx]'",
        ) from None
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # of protobuf, whichever implementation it has
        raise InputError(
            f"is no ONNX model: {error}", field="format", remedy="export it again"
        ) from None
    reader = _Reader(model, 1)
    outputs = [reader.written(output.name) for output in model.graph.output]
    instance = LayerGrouping.from_arrays(
        reader.found, reader.sources, outputs=outputs, chip=GENERIC, name=stem_of(file), source=file
    )
    return [changed(instance, given)]


FORMAT = Format(
    name="onnx",
    contexts={KIND: GIVEN},
    extensions=(".onnx",),
    description="ONNX models: operators and shapes; weights need not be there",
    sniff=_sniff,
    parse=_parse,
    binary=True,
)
