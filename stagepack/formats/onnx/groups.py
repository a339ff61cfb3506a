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
from typing import Any

from msgspec.structs import replace

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.onnx.model import Model, Node, Shape
from stagepack.formats.onnx.resize import resized
from stagepack.instances.groups import Operator, OperatorKind, Source, Weight

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
"""Operators that move nothing where values stay where they are in their lanes."""
MOVES = {*VIEWS, "Transpose"}
"""Operators without arithmetic: those of `VIEWS`, and what moves all values at once."""
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
AXES = {1: "c", 2: "nc", 3: "nhc", 4: "nchw", 5: "ncdhw"}
"""What the axes of a tensor stand for, by their number."""
NUMBER = re.compile("[a-z]?_?[0-9]*")
"""Names of nodes that say nothing."""
BIAS = 4
"""Bytes of a bias."""


class Reader:
    """Goes over the nodes of a model: `found` and `sources` are what was read.

    `outputs` are the operators whose results are those of the network; `unknown`, by kind, those
    that nobody knows here, which stand alone.
    """

    def __init__(self, model: Model, dtype_bytes: int) -> None:
        self._model, self._bytes = model, dtype_bytes
        self._constant = set(model.constants)
        self._name: dict[str, str] = {}
        self.found: list[Operator] = []
        self.unknown: dict[str, list[str]] = {}
        self._at: dict[str, int] = {}
        self._count: Counter[str] = Counter()
        self._moving: set[str] = set()
        self._fixed: set[str] = set()
        self._again: dict[tuple[str, Shape], str] = {}
        self._node: Node | None = None
        self._used = model.uses()
        self._given = {name: _laid(self._shape(name)) for name in model.inputs}
        self._name |= {name: name for name in model.inputs}
        self.sources = [
            Source(name=name, shape=shape, dtype_bytes=dtype_bytes)
            for name, shape in self._given.items()
        ]
        nodes = model.nodes
        for at, node in enumerate(nodes):
            self._node = node
            self._read(node, nodes[at + 1 : at + 3])
        self._node = None
        self.outputs = [self._result(name) for name in model.outputs]

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
        shape = self._model.shape(name, self._node)
        return shape or (1,)

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

    def _read(self, node: Node, after: Sequence[Node]) -> None:
        given, weights = self._model.reads(node), self._model.weights(node)
        own, kind = node.outputs[0], node.kind
        if own in self._name:
            return  # read together with the one before it
        if kind == "Reshape" and self._shuffles(node, after):
            last = after[1].outputs[0]
            name = self._add(last, OperatorKind.CONCAT, self._channels(given[:1]))
            self._name[own] = self._name[after[0].outputs[0]] = name
        elif kind in NOTHING or (kind in VIEWS and self._stays(given[0], own)):
            self._join(own, given[0])
        elif kind in MOVES:
            self._move(own, given[0])
        elif len(given) == 1 and (kind in VALUES or (kind in SCALES and self._alike(node))):
            self._absorb(own, kind, given[0], weights)
        else:
            self._operator(node, given, weights)

    def _shuffles(self, node: Node, after: Sequence[Node]) -> bool:
        """Whether channels are split, transposed and joined again, and nothing else is."""
        if [other.kind for other in after] != ["Transpose", "Reshape"]:
            return False
        turn = after[0].said.get("perm", [])
        middle = self._shape(node.outputs[0])
        alike = self._shape(node.inputs[0]) == self._shape(after[1].outputs[0])
        return alike and len(middle) == 5 and list(turn) == [0, 2, 1, 3, 4]

    def _stays(self, before: str, own: str) -> bool:
        """Whether a view leaves values where they are, or a fully connected layer reads it."""
        stands, shape = self._stands(before), self._shape(own)
        flat = len(shape) == 2 and shape[0] == stands[0] and shape[1] == math.prod(stands[1:])
        return stands == _laid(shape) or flat

    def _alike(self, node: Node) -> bool:
        """Whether what is written has the shape of what is read."""
        given = next(name for name in node.inputs if name not in self._constant)
        return self._shape(given) == self._shape(node.outputs[0])

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
        known = self._model.tensors
        values = max((known[weight].values for weight in weights if weight in known), default=1)
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

    def _operator(self, node: Node, given: list[str], weights: list[str]) -> None:
        own, kind = node.outputs[0], node.kind
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
                in_place=True, passes=passes, adds=kind in ("Add", "Sum", "Sub"),
            )  # fmt: skip
        elif kind == "Concat" and not weights and self._letters(node, own) == "c":
            self._add(own, OperatorKind.CONCAT, self._channels(given), label=label)
        elif kind in RESIZES:
            self._resized(node, given[0], label)
        elif kind in PASSES:
            self._add(
                own, OperatorKind.ROWS, self._channels(given[:1]), label=label,
                whole=self._together(node), passes=PASSES[kind],
            )  # fmt: skip
        elif kind in (*ALONE, "Concat"):
            for name in node.outputs:
                if self._used[name]:
                    self._other(name, given, label if name == own else "")
        else:
            self._unknown(node, given, label)

    def _unknown(self, node: Node, given: list[str], label: str) -> None:
        """Let an operator that nobody knows stand alone, and remember it."""
        for name in node.outputs:
            made = self._other(name, given, label if name == node.outputs[0] else "")
            self.unknown.setdefault(node.kind, []).append(made)

    def _letters(self, node: Node, name: str) -> str:
        """Return what the axis of a node stands for in a tensor."""
        letters = AXES[len(self._shape(name))]
        return letters[node.said.get("axis", 0)]

    def _together(self, node: Node) -> str:
        """Return the axes along which a node needs all values."""
        kind, shape = node.kind, self._shape(node.outputs[0])
        letters = AXES[len(shape)]
        if kind in ("LRN", "InstanceNormalization", "GroupNormalization"):
            return {"LRN": "c", "InstanceNormalization": "hw"}.get(kind, "chw")
        softmax = kind in ("Softmax", "LogSoftmax")
        axis = node.said.get("axis", 1 if softmax and self._model.opset < 13 else -1)
        if softmax:
            return letters[axis]
        return "".join(letters[axis:])

    def _pools(self, node: Node, given: list[str]) -> bool:
        """Whether a mean, or the largest value, is taken over all rows and columns alone."""
        if node.kind not in ("ReduceMean", "ReduceMax"):
            return False
        before, after = self._shape(given[0]), self._shape(node.outputs[0])
        return len(before) == 4 and after in (before[:2], (*before[:2], 1, 1))

    def _windowed(self, node: Node, given: list[str], weights: list[str], label: str) -> None:
        """Add a convolution or a pooling."""
        own, said = node.outputs[0], dict(node.said)
        folded: JsonObject = {}
        if "Conv" in node.kind:
            if not weights:
                raise _unknown(f"{node.kind} without constant weights", node)
            said.setdefault("kernel_shape", self._shape(weights[0])[2:])
            folded["groups"] = said.get("group", 1)
        folded |= _window(said, node, self._shape(given[0])[2:])
        if "Conv" in node.kind:
            folded["weights"] = self._weights(_laid(self._shape(own))[1], weights)
        read = self._channels(given[:1])
        self._add(own, WINDOWS[node.kind], read, label=label, **folded)

    def _product(self, node: Node, given: list[str], weights: list[str], label: str) -> None:
        """Add a fully connected layer, of tokens or of all values, or a product of two tensors."""
        own, shapes = node.outputs[0], [self._shape(name) for name in node.inputs[:2]]
        if not weights and len(given) == 2:
            rank = len(self._shape(own))
            planes = _planes(self._shape(own), rank)
            if node.kind == "MatMul" and rank <= 4 and _multiplies(shapes, rank):
                factors = [self._as(name, _planes(self._shape(name), rank)) for name in given]
                self._add(own, OperatorKind.MATMUL, factors, planes, label=label)
            else:
                self._other(own, given, label)
            return
        if not weights or node.inputs[0] in self._constant:
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

    def _resized(self, node: Node, before: str, label: str) -> None:
        """Add what repeats, skips or interpolates rows and columns, or else stands alone."""
        own, place = node.outputs[0], 2 if len(node.inputs) > 2 else 1
        old, new = self._shape(before), self._shape(own)
        if old == new:
            self._join(own, before)
            return
        by = node.inputs[place] if len(node.inputs) > place else ""
        scales = self._model.numbers.get(by, ()) if by else None
        found = resized(node.said, self._model.opset, old, new, scales)
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


def _called(node: Node, weights: list[str]) -> str:
    """Return what an operator is called: as its node, if by more than a kind and a number."""
    if not NUMBER.fullmatch(node.name.removeprefix(node.kind)):
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


def _unknown(what: str, node: Node) -> InputError:
    return InputError(
        f"{what} is not known here",
        field=node.place,
        remedy="leave it out, or write it as a native file with kind `other`",
    )


def _window(said: JsonObject, node: Node, size: Shape) -> JsonObject:
    """Return the fields of a window over rows and columns, and depth, of so many values."""
    kernel, axes = tuple(said["kernel_shape"]), len(size)
    stride, dilation = (tuple(said.get(name, (1,) * axes)) for name in ("strides", "dilations"))
    if axes not in (2, 3) or not len(kernel) == len(stride) == len(dilation) == axes:
        raise _unknown(f"a window along {axes} axes", node)
    pads = tuple(said.get("pads", (0,) * 2 * axes))
    rule = said.get("auto_pad", b"NOTSET").decode()
    if rule.startswith("SAME") and node.kind != "ConvTranspose":
        pads = _same(rule, zip(size, kernel, stride, dilation, strict=True))
    elif rule not in ("NOTSET", "VALID"):
        raise _unknown(f"auto_pad {rule} of {node.kind}", node)
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
