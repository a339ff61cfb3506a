"""Networks in ONNX, read as layer groupings.

Kinds that work value by value (activations, folded norms, scales) join the operator that writes
what they read, where nobody else reads it, as compilers fuse them; a norm that follows no
convolution is an operator of its own.  A fully connected layer is a convolution whose kernel is as
large as its input; a reshape, a transposition and a reshape that shuffle channels are a
concatenation of one input.  Constants are known by their shapes alone: weights need not be there.

Axes are those of :func:`_laid`: tokens (n, t, c) are rows of c channels, factors of a product are
planes.  What only moves values, or finds them laid out otherwise, is `other`: it stands alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.formats.onnx_resize import resized
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
from stagepack.instances.words import Words

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shape = tuple[int, ...]
SCALES = {"BatchNormalization", "Mul", "Add", "Sub", "Div"}
"""What a convolution before it absorbs, where all but one input are constants."""
VALUES = {
    "Abs", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
}  # fmt: skip
"""What is done to each value by itself; any operator before it absorbs it."""
NOTHING = {"Dropout", "Identity", "Cast"}
"""What moves nothing."""
VIEWS = {"Unsqueeze", "Squeeze", "Flatten", "Reshape"}
"""What moves nothing where values stay where they are in their lanes,"""
MOVES = {*VIEWS, "Transpose"}
"""and what moves all of them at once."""
ALONE = {
    "ArgMax", "DepthToSpace", "Expand", "Gather", "GatherND", "Pad", "ReduceMax", "ReduceMean",
    "ReduceSum", "Slice", "SpaceToDepth", "Split", "Tile", "TopK", "Trilu", "Where",
}  # fmt: skip
"""What stands alone."""
WINDOWS = {
    "Conv": OperatorKind.CONV,
    "ConvTranspose": OperatorKind.DECONV,
    "MaxPool": OperatorKind.POOL,
    "AveragePool": OperatorKind.POOL,
}
POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
PRODUCTS = {"Gemm", "MatMul"}
SUMS = {"Add", "Sum", "Mul", "Sub", "Div", "Max", "Min", "Pow"}
"""Value by value, of several tensors."""
RESIZES = {"Upsample", "Resize"}
SIZES = {"Shape", "Size"}
"""What is known from shapes alone."""
PASSES = {
    "Softmax": 4,
    "LogSoftmax": 5,
    "LRN": 5,
    "LayerNormalization": 4,
    "RMSNormalization": 3,
    "InstanceNormalization": 4,
    "GroupNormalization": 4,
}
"""How often figures of whole ranges go over their values: assumed."""
KNOWN = sorted(
    {"Concat", "Constant", *SCALES, *VALUES, *NOTHING, *MOVES, *ALONE, *WINDOWS, *POOLS}
    | {*PRODUCTS, *SUMS, *RESIZES, *SIZES, *PASSES}
)
AXES = {1: "c", 2: "nc", 3: "nhc", 4: "nchw", 5: "ncdhw"}
"""What the axes of a tensor stand for, by their number."""
NUMBER = re.compile("[a-z]?_?[0-9]*")
"""Names of nodes that say nothing."""
BIAS = 4
"""Bytes of a bias."""


class _Reader:
    """Goes over the nodes of a model."""

    def __init__(self, model: ModelProto, dtype_bytes: int) -> None:
        from onnx import helper, numpy_helper, shape_inference

        self._opset = max(given.version for given in model.opset_import)
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
        few = [w for w in graph.initializer if len(w.dims) == 1 and w.dims[0] <= len(AXES)]
        self._numbers = {w.name: numpy_helper.to_array(w).tolist() for w in few}
        self._name: dict[str, str] = {}
        self.found: list[Operator] = []
        self._at: dict[str, int] = {}
        self._count: Counter[str] = Counter()
        self._moving: set[str] = set()
        self._fixed: set[str] = set()
        self._again: dict[tuple[str, Shape], str] = {}
        self._node: NodeProto | None = None
        used: Counter[str] = Counter(name for node in graph.node for name in node.input)
        used.update(output.name for output in graph.output)
        self._used = used
        self._given: dict[str, Shape] = {}
        for given in graph.input:
            if given.name not in self._constant:
                self._name[given.name] = given.name
                self._given[given.name] = _laid(self._shape(given.name))
        self.sources = [
            Source(name=name, shape=shape, dtype_bytes=dtype_bytes)
            for name, shape in self._given.items()
        ]
        nodes = list(graph.node)
        for at, node in enumerate(nodes):
            self._node = node
            self._read(node, nodes[at + 1 : at + 3])
        self._node = None
        self.outputs = [self._result(output.name) for output in graph.output]

    def _written(self, name: str) -> str:
        """Return the operator that writes a tensor, or the input that it is."""
        if name not in self._name:
            what = "is a constant" if name in self._constant else "is written by no node read here"
            raise InputError(
                f"{name!r} {what}", field="graph", remedy="take it out of inputs and outputs"
            )
        return self._name[name]

    def _result(self, name: str) -> str:
        """Return the operator that writes a result of the network; an input is copied."""
        found = self._written(name)
        return self._other(name, [name]) if found in self._given else found

    def _shape(self, name: str) -> Shape:
        shape = self._shapes.get(name, ())
        if not shape or any(size < 1 for size in shape):
            raise InputError(
                f"the shape of {name!r} is not known",
                field="graph" if self._node is None else _place(self._node),
                remedy="give the model fixed input shapes",
            )
        return shape

    def _stands(self, name: str) -> Shape:
        """Return the shape of a tensor as it was written."""
        written = self._written(name)
        at = self._at.get(written)
        return self._given[written] if at is None else self.found[at].shape

    def _as(self, name: str, shape: Shape) -> str:
        """Return the operator that writes a tensor in a shape, one more where it is another."""
        written = self._written(name)
        if self._stands(name) == shape:
            self._fixed.add(written)
            return written
        if written in self._moving and written not in self._fixed:
            at = self._at[written]
            self.found[at] = replace(self.found[at], shape=shape)
            self._fixed.add(written)
            return written
        if (written, shape) not in self._again:
            self._again[written, shape] = self._add("", OperatorKind.OTHER, [written], shape)
        return self._again[written, shape]

    def _channels(self, names: Iterable[str], rank: int = 0) -> list[str]:
        """Return the operators that write tensors with channels as such, of equally many axes."""
        shapes = [(name, self._shape(name)) for name in names]
        return [self._as(name, _laid((1,) * (rank - len(own)) + own)) for name, own in shapes]

    # ------------------------------------------------------------------ nodes

    def _read(self, node: NodeProto, after: list[NodeProto]) -> None:
        given = [name for name in node.input if name and name not in self._constant]
        weights = [name for name in node.input if name in self._constant]
        own, kind = node.output[0], node.op_type
        if not given or kind in SIZES:
            self._constant.update(node.output)
            return
        if own in self._name:
            return  # read together with the one before it
        if kind == "Reshape" and self._shuffles(node, after):
            last = after[1].output[0]
            name = self._add(last, OperatorKind.CONCAT, self._channels(given[:1]))
            self._name[own] = self._name[after[0].output[0]] = name
        elif kind in NOTHING or (kind in VIEWS and self._stays(given[0], own)):
            self._join(own, given[0])
        elif kind in MOVES:
            self._move(own, given[0])
        elif len(given) == 1 and (kind in VALUES or (kind in SCALES and self._alike(node))):
            self._absorb(own, kind, given[0], weights)
        else:
            self._operator(node, given, weights)

    def _said(self, node: NodeProto) -> JsonObject:
        """Return the attributes of a node."""
        return {attribute.name: self._value(attribute) for attribute in node.attribute}

    def _shuffles(self, node: NodeProto, after: list[NodeProto]) -> bool:
        """Whether channels are split, transposed and joined again, and nothing else is."""
        if [other.op_type for other in after] != ["Transpose", "Reshape"]:
            return False
        turn = self._said(after[0]).get("perm", [])
        middle = self._shape(node.output[0])
        alike = self._shape(node.input[0]) == self._shape(after[1].output[0])
        return alike and len(middle) == 5 and list(turn) == [0, 2, 1, 3, 4]

    def _stays(self, before: str, own: str) -> bool:
        """Whether a view leaves values where they are, or a fully connected layer reads it."""
        stands, shape = self._stands(before), self._shape(own)
        flat = len(shape) == 2 and shape[0] == stands[0] and shape[1] == math.prod(stands[1:])
        return stands == _laid(shape) or flat

    def _alike(self, node: NodeProto) -> bool:
        """Whether what is written has the shape of what is read."""
        given = next(name for name in node.input if name not in self._constant)
        return self._shape(given) == self._shape(node.output[0])

    def _join(self, own: str, before: str) -> None:
        """Let a tensor be another name of the one before it."""
        self._name[own] = self._written(before)
        self._used[own] += self._used[before] > 1

    def _move(self, own: str, before: str) -> None:
        """Move all values at once; what is moved twice in a row is moved once."""
        name = self._written(before)
        if name in self._moving and name not in self._fixed and self._used[before] == 1:
            self._name[own] = name
            at = self._at[name]
            self.found[at] = replace(self.found[at], shape=_laid(self._shape(own)))
        else:
            self._moving.add(self._other(own, [before]))

    def _other(self, own: str, given: Sequence[str], label: str = "") -> str:
        """Add what stands alone; it reads what it reads as it stands."""
        return self._add(own, OperatorKind.OTHER, list(map(self._written, given)), label=label)

    def _absorb(self, own: str, kind: str, before: str, weights: list[str]) -> None:
        """Let the operator before it do what is done to each value, or make it one of its own."""
        name, shape = self._written(before), self._shape(own)
        channels = _laid(shape)[1]
        values = max((math.prod(self._shapes.get(weight, ())) for weight in weights), default=1)
        scales = kind in SCALES and values > 1
        joined = self.found[self._at[name]] if name in self._at else None
        joins = joined is not None and self._used[before] == 1
        joins &= joined is None or joined.kind != OperatorKind.OTHER
        if joined is not None and joins and scales:
            scaled = joined.kind == OperatorKind.ELEMENTWISE and bool(joined.weights)
            joins = joined.kind in (OperatorKind.CONV, OperatorKind.DECONV) or scaled
            joins &= values <= joined.shape[1]
        if joined is not None and joins:
            self._name[own] = name
            if scales and len(joined.weights) == 1:  # what is added is a bias
                bias = Weight(channels=joined.full[1], dtype_bytes=BIAS)
                self.found[self._at[name]] = replace(joined, weights=(*joined.weights, bias))
            return
        scale = Weight(
            channels=channels, values=max(1, -(-values // channels)), dtype_bytes=self._bytes
        )
        bias = Weight(channels=channels, dtype_bytes=BIAS)
        own_weights = (scale, bias) if values <= channels else (scale,)
        self._add(
            own,
            OperatorKind.ELEMENTWISE,
            self._channels([before]),
            in_place=True,
            label=_stem(weights),
            weights=own_weights if scales else (),
        )

    def _operator(self, node: NodeProto, given: list[str], weights: list[str]) -> None:
        own, kind = node.output[0], node.op_type
        label = _called(node, weights)
        if kind in WINDOWS:
            self._windowed(node, given, weights, label)
        elif kind in POOLS or self._pools(node, given):
            shape = self._shape(given[0])
            depth = shape[2] if len(shape) == 5 else 1
            read = self._channels(given[:1])
            pooled = _laid(self._shape(own))[:2] + (1,) * (len(shape) - 2)
            self._add(own, OperatorKind.GLOBAL_POOL, read, pooled, label=label, depth=depth)
        elif kind in PRODUCTS:
            self._product(node, given, weights, label)
        elif kind in SUMS:
            rank, passes = len(self._shape(own)), max(1, len(given) - 1)
            self._add(
                own, OperatorKind.ELEMENTWISE, self._channels(given, rank), label=label,
                in_place=True, passes=passes,
            )  # fmt: skip
        elif kind == "Concat" and not weights and self._letters(node, own, 0) == "c":
            self._add(own, OperatorKind.CONCAT, self._channels(given), label=label)
        elif kind in RESIZES:
            self._resized(node, given[0], label)
        elif kind in PASSES:
            self._add(
                own, OperatorKind.ROWS, self._channels(given[:1]), label=label,
                whole=self._together(node), passes=PASSES[kind],
            )  # fmt: skip
        elif kind in (*ALONE, "Concat"):
            for name in node.output:
                if self._used[name]:
                    self._other(name, given, label if name == own else "")
        else:
            raise _unknown(f"{kind} is an operator that", node)

    def _letters(self, node: NodeProto, name: str, default: int) -> str:
        """Return what the axis of a node stands for in a tensor."""
        letters = AXES[len(self._shape(name))]
        return letters[self._said(node).get("axis", default)]

    def _together(self, node: NodeProto) -> str:
        """Return the axes along which a node needs all values."""
        kind, shape = node.op_type, self._shape(node.output[0])
        letters = AXES[len(shape)]
        if kind in ("LRN", "InstanceNormalization", "GroupNormalization"):
            return {"LRN": "c", "InstanceNormalization": "hw"}.get(kind, "chw")
        softmax = kind in ("Softmax", "LogSoftmax")
        axis = self._said(node).get("axis", 1 if softmax and self._opset < 13 else -1)
        if softmax:
            return letters[axis]
        return "".join(letters[axis:])

    def _pools(self, node: NodeProto, given: list[str]) -> bool:
        """Whether a mean, or the largest value, is taken over all rows and columns alone."""
        if node.op_type not in ("ReduceMean", "ReduceMax"):
            return False
        before, after = self._shape(given[0]), self._shape(node.output[0])
        return len(before) == 4 and after in (before[:2], (*before[:2], 1, 1))

    def _windowed(self, node: NodeProto, given: list[str], weights: list[str], label: str) -> None:
        """Add a convolution or a pooling."""
        own, said = node.output[0], self._said(node)
        folded: JsonObject = {}
        if "Conv" in node.op_type:
            if not weights:
                raise _unknown(f"{node.op_type} without constant weights", node)
            said.setdefault("kernel_shape", self._shape(weights[0])[2:])
            folded["groups"] = said.get("group", 1)
        folded |= _window(said, node, self._shape(given[0])[2:])
        if "Conv" in node.op_type:
            folded["weights"] = self._weights(_laid(self._shape(own))[1], weights)
        read = self._channels(given[:1])
        self._add(own, WINDOWS[node.op_type], read, label=label, **folded)

    def _product(self, node: NodeProto, given: list[str], weights: list[str], label: str) -> None:
        """Add a fully connected layer, of tokens or of all values, or a product of two tensors."""
        own, shapes = node.output[0], [self._shape(name) for name in node.input[:2]]
        if not weights and len(given) == 2:
            rank = len(self._shape(own))
            planes = _planes(self._shape(own), rank)
            if node.op_type == "MatMul" and rank <= 4 and _multiplies(shapes, rank):
                factors = [self._as(name, _planes(self._shape(name), rank)) for name in given]
                self._add(own, OperatorKind.MATMUL, factors, planes, label=label)
            else:
                self._other(own, given, label)
            return
        if not weights or node.input[0] in self._constant:
            self._other(own, given, label)
            return
        stands, shape, columns = self._stands(given[0]), shapes[0], self._shape(own)[-1]
        folded: JsonObject = {"weights": self._weights(columns, weights)}
        if len(shape) == 2 and shape[1] == math.prod(stands[1:]):  # all values, as they stand
            read = self._written(given[0])
            written: Shape = (stands[0], columns, *(1 for _ in stands[2:]))
            folded |= {"kernel": stands[-2:], "depth": stands[2] if len(stands) == 5 else 1}
        else:
            rows = (shape[0], math.prod(shape[1:-1])) if len(shape) > 2 else (1, shape[0])
            read = self._as(given[0], (rows[0], shape[-1], rows[1], 1))
            written = (rows[0], columns, rows[1], 1)
        self._add(own, OperatorKind.CONV, [read], written, label=label, **folded)

    def _resized(self, node: NodeProto, before: str, label: str) -> None:
        """Add what repeats, skips or interpolates rows and columns, or else stands alone."""
        own, place = node.output[0], 2 if len(node.input) > 2 else 1
        old, new = self._shape(before), self._shape(own)
        if old == new:
            self._join(own, before)
            return
        by = node.input[place] if len(node.input) > place else ""
        scales = self._numbers.get(by, ()) if by else None
        found = resized(self._said(node), self._opset, old, new, scales)
        if found is None:
            self._other(own, [before], label)
        else:
            self._add(own, found[0], self._channels([before]), label=label, **found[1])

    def _weights(self, channels: int, names: list[str]) -> tuple[Weight, ...]:
        values = math.prod(self._shape(names[0])) // channels
        found = [Weight(channels=channels, values=max(1, values), dtype_bytes=self._bytes)]
        return (*found, *(Weight(channels=channels, dtype_bytes=BIAS) for _ in names[1:2]))

    def _label(self, own: str, kind: OperatorKind, label: str) -> str:
        """Return a name for an operator: of its node, of its weights, or its kind and a number."""
        if not label or not own:
            self._count[kind] += 1
            label = f"{kind}-{self._count[kind]}"
        taken = {*self._at, *self._given}
        if label in taken and own:
            label = own
        return label if label not in taken else self._label("", kind, "")

    def _add(
        self,
        own: str,
        kind: OperatorKind,
        reads: Sequence[str],
        shape: Shape = (),
        *,
        label: str = "",
        **fields: Any,
    ) -> str:
        """Add an operator that writes a tensor ("": none of the model's); return its name."""
        name = self._label(own, kind, label)
        if own:
            self._name[own] = name
        self._at[name] = len(self.found)
        self.found.append(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(reads),
                shape=shape or _laid(self._shape(own)),
                dtype_bytes=self._bytes,
                **fields,
            )
        )
        return name


def _called(node: NodeProto, weights: list[str]) -> str:
    """Return what an operator is called: as its node, if by more than a kind and a number."""
    if not NUMBER.fullmatch(node.name.removeprefix(node.op_type)):
        return node.name
    return _stem(weights) or ("" if NUMBER.fullmatch(node.name) else node.name)


def _stem(weights: list[str]) -> str:
    """Return what the name of a weight says of its operator; "" without weights."""
    name = weights[0] if weights else ""
    for ending in ("_w_0", "_scale_0", "_s_0", ".weight", "_weight"):
        name = name.removesuffix(ending)
    return name


def _laid(shape: Shape) -> Shape:
    """Return a shape on (n, c, h, w) or (n, c, d, h, w); tokens (n, t, c) are rows of channels.

    >>> _laid((1, 77, 512)), _laid((1, 512))
    ((1, 512, 77, 1), (1, 512, 1, 1))
    """
    if len(shape) == 3:
        return shape[0], shape[2], shape[1], 1
    if len(shape) > 5:  # such as windows of windows, which are only moved
        return (*shape[:3], math.prod(shape[3:-1]), shape[-1])
    return shape if len(shape) > 3 else (*shape, 1, 1, 1)[:4]


def _planes(shape: Shape, rank: int) -> Shape:
    """Return the shape of a factor, of so many axes: planes of rows and columns."""
    shape = (1,) * (4 - len(shape)) + shape if rank != 3 else (*shape[:-2], 1, *shape[-2:])
    return (1,) * (4 - len(shape)) + shape


def _multiplies(shapes: list[Shape], rank: int) -> bool:
    """Whether two factors have the same planes."""
    return all(len(shape) == rank for shape in shapes) and shapes[0][:-2] == shapes[1][:-2]


def _place(node: NodeProto) -> str:
    return f"graph.node {node.name or node.output[0]}"


def _unknown(what: str, node: NodeProto) -> InputError:
    """Return the refusal of a node."""
    return InputError(
        f"{what} is not known here",
        field=_place(node),
        remedy="leave it out, or write it as a native file with kind `other`; known are "
        + ", ".join(KNOWN),
    )


def _window(said: JsonObject, node: NodeProto, size: Shape) -> JsonObject:
    """Return the fields of a window over rows and columns, and depth, of so many values.

    Raises
    ------
    InputError
        For windows along other axes, and paddings that are no numbers from 0.
    """
    kernel, axes = tuple(said["kernel_shape"]), len(size)
    stride, dilation = (tuple(said.get(name, (1,) * axes)) for name in ("strides", "dilations"))
    if axes not in (2, 3) or not len(kernel) == len(stride) == len(dilation) == axes:
        raise _unknown(f"a window along {axes} axes", node)
    pads = tuple(said.get("pads", (0,) * 2 * axes))
    rule = said.get("auto_pad", b"NOTSET").decode()
    if rule.startswith("SAME") and node.op_type != "ConvTranspose":
        pads = _same(rule, zip(size, kernel, stride, dilation, strict=True))
    elif rule not in ("NOTSET", "VALID"):
        raise _unknown(f"auto_pad {rule} of {node.op_type}", node)
    if len(pads) != 2 * axes or min(pads) < 0:
        raise _unknown(f"padding {list(pads)}", node)
    before, after = pads[axes - 2 : axes], pads[-2:]
    return {
        "kernel": kernel[-2:],
        "stride": stride[-2:],
        "dilation": dilation[-2:],
        "padding": (before[0], after[0], before[1], after[1]),
        "depth": kernel[0] if axes == 3 else 1,
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


def _parse(data: bytes, given: Words, file: str) -> list[LayerGrouping]:
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
    instance = LayerGrouping.from_arrays(
        reader.found,
        reader.sources,
        outputs=reader.outputs,
        chip=GENERIC,
        name=stem_of(file),
        source=file,
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
