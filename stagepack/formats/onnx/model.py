"""ONNX models with all shapes known: nodes in order, constants, attributes.

Weights may be missing.  Constants are known by shape and type only, including those made by
`ConstantOfShape` and those computed from constants, shapes and sizes.  Sizes that a model leaves
open are said beside it (:mod:`.onnx.inputs`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stagepack import memory
from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.onnx import inputs, shapes
from stagepack.formats.onnx.shapes import bodies, place, reads
from stagepack.instances.words import LARGEST

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

Shape = tuple[int, ...]
SIZES = {"Shape", "Size"}
"""Operators whose results are known from shapes alone."""


@dataclass(frozen=True)
class Tensor:
    """What is known of a tensor: shape, bytes of a value (a half for four bits), its type."""

    shape: Shape
    width: float
    floating: bool = True

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values, rounded up."""
        return math.ceil(self.values * self.width)


@dataclass(frozen=True)
class Node:
    """A node: its kind, the tensors that it reads ("" for one left out) and writes, attributes.

    Of what it writes, the first is there, and what else somebody reads.  `domain` is "" for the
    operators of ONNX itself; `inner` are bytes of constants inside of its bodies, for loops and
    branches.  Of these, `bodies` are those that may run, and `turns` says how often (None: not
    known).
    """

    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    said: JsonObject
    inner: int = 0
    bodies: tuple[Model, ...] = ()
    turns: int | None = 1

    @property
    def place(self) -> str:
        """Where it is."""
        return f"graph.node {self.name or self.outputs[0]}"


@dataclass(frozen=True)
class Model:
    """A model whose shapes are known.

    Each of its `nodes` is after those whose results it reads; what only makes constants, tensors
    that do not depend on the inputs, is not among them.  `parts` are constants that are views of
    another one, by name, and `numbers` the values of small ones.  Nobody knows what `assumed`
    operators write; it is taken to be as what they read.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: frozenset[str]
    parts: Mapping[str, str]
    numbers: Mapping[str, tuple[Any, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    assumed: tuple[Node, ...]

    def tensor(self, name: str, node: Node | None = None) -> Tensor:
        """Return a tensor whose shape is known."""
        found = self.tensors.get(name)
        if found is None or any(size < 1 for size in found.shape):
            raise InputError(
                f"the shape of {name!r} is not known",
                field="graph" if node is None else node.place,
                remedy="fix the shapes of inputs, or say them: --set shape.INPUT=1x3x224x224",
            )
        return found

    def shape(self, name: str, node: Node | None = None) -> Shape:
        """Return the shape of a tensor, which is known."""
        return self.tensor(name, node).shape

    @property
    def leading(self) -> int:
        """The first axis of the first input, its batch; 0 without one."""
        return self.shape(self.inputs[0])[0] if self.inputs and self.shape(self.inputs[0]) else 0

    def reads(self, node: Node) -> list[str]:
        """Return the tensors that a node reads and that are no constants."""
        return [name for name in node.inputs if name and name not in self.constants]

    def weights(self, node: Node) -> list[str]:
        """Return the constants that a node reads."""
        return [name for name in node.inputs if name in self.constants]

    def uses(self) -> Counter[str]:
        """Return how often each tensor is read, results of the network included."""
        used = Counter(name for node in self.nodes for name in node.inputs)
        used.update(self.outputs)
        return used


def load(data: bytes, sizes: Mapping[str, Any]) -> Model:
    """Return the model of a file, with `sizes` of its inputs as :func:`.inputs.close` has them."""
    try:
        import onnx
    except ImportError as error:
        if memory.ran_out(error):
            raise MemoryError from None
        raise InputError(
            "reading it needs the package onnx",
            field="format",
            remedy="pip install 'stagepack[onnx]'",
        ) from None
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load_model_from_string(data)
    except (DecodeError, RuntimeError) as error:
        raise InputError(
            f"is no ONNX model: {error}", field="format", remedy="export it again"
        ) from None
    if not proto.graph.node:
        raise InputError("has no nodes", field="graph", remedy="export it again")
    _require_text(proto.graph)
    inputs.close(proto.graph, sizes)
    proto, assumed = shapes.followed(proto)
    opset = max((given.version for given in proto.opset_import), default=1)
    return _Reading(proto.graph, opset, set(assumed)).model()


def _require_text(graph: GraphProto) -> None:
    """Refuse names that are no text, which protobuf hands out as bytes."""
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    names += [name for node in graph.node for name in (node.name, node.op_type, node.domain)]
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    names += [value.name for value in values]
    names += [dim.dim_param for given in graph.input for dim in given.type.tensor_type.shape.dim]
    if any(isinstance(name, bytes) for name in names):
        raise InputError("a name is no text", field="graph", remedy="export it again")


class _Reading:
    """Makes a model of a graph whose shapes were followed."""

    def __init__(
        self, graph: GraphProto, opset: int, assumed: set[str], outer: _Reading | None = None
    ) -> None:
        self._graph, self._opset, self._assumed = graph, opset, assumed
        self._order = list(graph.node)
        self._used = {name for node in self._order for name in reads(node)}
        self._used |= {value.name for value in graph.output}
        self._tensors: dict[str, Tensor] = {}
        self._numbers: dict[str, tuple[Any, ...]] = {}
        self._parts: dict[str, str] = {}
        self._constants: set[str] = set()
        if outer is not None:
            self._see(outer)
        for value in (*graph.value_info, *graph.input, *graph.output):
            kind = value.type.tensor_type
            if kind.HasField("shape"):
                shape = tuple(dim.dim_value for dim in kind.shape.dim)
                self._know(value.name, shape, kind.elem_type)
        for weight in graph.initializer:
            self._know(weight.name, tuple(weight.dims), weight.data_type)
            self._remember(weight.name, weight)
        for sparse in graph.sparse_initializer:
            self._know(sparse.values.name, tuple(sparse.dims), sparse.values.data_type)
        self._constants -= {value.name for value in graph.input}
        self._constants |= {weight.name for weight in graph.initializer}
        self._constants |= {sparse.values.name for sparse in graph.sparse_initializer}

    def _see(self, outer: _Reading) -> None:
        """Know of the graph around it what is read here."""
        self._tensors |= {name: outer._tensors[name] for name in self._used & outer._tensors.keys()}
        self._numbers |= {name: outer._numbers[name] for name in self._used & outer._numbers.keys()}
        self._parts |= {name: outer._parts[name] for name in self._used & outer._parts.keys()}
        self._constants = self._used & outer._constants

    def model(self) -> Model:
        """Return the model."""
        graph = self._graph
        inputs = tuple(v.name for v in graph.input if v.name not in self._constants)
        nodes = []
        for proto in self._order:
            node = self._node(proto)
            if not node.outputs or self._is_constant(node):
                continue
            nodes.append(node)
        found = {name for node in nodes for name in node.outputs}
        return Model(
            nodes=tuple(nodes),
            tensors=self._tensors,
            constants=frozenset(self._constants),
            parts=self._parts,
            numbers=self._numbers,
            inputs=inputs,
            outputs=tuple(value.name for value in graph.output),
            opset=self._opset,
            assumed=tuple(n for n in nodes if self._assumed & found.intersection(n.outputs)),
        )

    def _know(self, name: str, shape: Shape, kind: int) -> None:
        """Keep what is known of a tensor."""
        if len(shape) > 64 or math.prod(max(size, 1) for size in shape) > LARGEST // 8:
            raise InputError(
                "has more axes or values than can be", field=f"tensor {name}", remedy="mend it"
            )
        width, floating = _type(kind)
        self._tensors[name] = Tensor(shape, width, floating)

    def _remember(self, name: str, constant: Any) -> None:
        """Keep the values of a constant of few numbers, where they are in the file."""
        from onnx import numpy_helper

        if len(constant.dims) > 1 or math.prod(constant.dims) > 8:
            return  # neither sizes nor axes nor scales
        try:
            values = numpy_helper.to_array(constant).reshape(-1).tolist()
        except (ValueError, TypeError, OSError, KeyError, AttributeError):
            return  # external, or cut short: its shape has to do
        self._numbers[name] = tuple(values)

    def _node(self, proto: NodeProto) -> Node:
        from onnx import helper

        inside = list(bodies(proto))
        held = [weight for body in inside for weight in body.initializer]
        inner = sum(math.ceil(math.prod(w.dims) * _type(w.data_type)[0]) for w in held)
        try:
            said = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        except ValueError as error:
            raise InputError(
                f"has an attribute that cannot be read: {error}",
                field=place(proto),
                remedy="export it again",
            ) from None
        return Node(
            name=proto.name,
            kind=proto.op_type,
            domain="" if proto.domain == "ai.onnx" else proto.domain,
            inputs=tuple(reads(proto)),
            outputs=self._kept(proto),
            said=said,
            inner=inner,
            **self._run(proto),
        )

    def _run(self, proto: NodeProto) -> dict[str, Any]:
        """Return which bodies of a node may run, and how often, as fields of a node."""
        graphs = {given.name: given.g for given in proto.attribute if given.HasField("g")}
        turns: int | None = 1
        first = self._numbers.get(proto.input[0], ()) if proto.input else ()
        if proto.op_type == "If":
            if first:
                taken = "then_branch" if first[0] else "else_branch"
                graphs = {taken: graphs[taken]} if taken in graphs else {}
        elif proto.op_type == "Loop":
            turns = int(first[0]) if first and 0 <= first[0] < 2**31 else None
        elif proto.op_type == "Scan":
            turns = self._scanned(proto)
        else:
            return {}
        order = sorted(graphs, reverse=True)  # then_branch before else_branch
        inside = [_Reading(graphs[one], self._opset, set(), self).model() for one in order]
        if proto.op_type == "If":  # results that nobody reads are none
            kept = [at for at, name in enumerate(proto.output) if name in self._kept(proto)]
            inside = [
                replace(one, outputs=tuple(one.outputs[at] for at in kept if at < len(one.outputs)))
                for one in inside
            ]
        return {"bodies": tuple(inside), "turns": turns}

    def _kept(self, proto: NodeProto) -> tuple[str, ...]:
        """Return what a node writes: the first, and what else somebody reads."""
        read = [name for name in proto.output if name in self._used]
        return tuple(dict.fromkeys(n for n in (*proto.output[:1], *read) if n))

    def _scanned(self, proto: NodeProto) -> int | None:
        """Return how long what a scan goes along is."""
        said = {given.name: given for given in proto.attribute}
        many = said["num_scan_inputs"].i if "num_scan_inputs" in said else 0
        axes = said["scan_input_axes"].ints if "scan_input_axes" in said else ()
        along = self._tensors.get(proto.input[-1]) if 0 < many <= len(proto.input) else None
        axis = axes[-1] if axes else 0
        if along is None or not -len(along.shape) <= axis < len(along.shape):
            return None
        return along.shape[axis] or None

    def _is_constant(self, node: Node) -> bool:
        """Whether a node makes constants; they are remembered as such."""
        given = [name for name in node.inputs if name and name not in self._constants]
        if (given and node.kind not in SIZES) or node.kind.startswith("Random"):
            return False
        self._constants.update(node.outputs)
        if node.kind == "Constant":
            value = node.said.get("value")
            if value is not None:
                self._remember(node.outputs[0], value)
        sources = [name for name in node.inputs if name and self._tensors.get(name)]
        if sources and node.outputs[0] in self._tensors:
            first = sources[0]
            if self._tensors[first].values == self._tensors[node.outputs[0]].values:
                self._parts[node.outputs[0]] = self._parts.get(first, first)
        return True


def _type(kind: int) -> tuple[float, bool]:
    """Return the bytes of a value of a type of ONNX, and whether it is a floating one."""
    from onnx import TensorProto

    try:
        name = TensorProto.DataType.Name(kind)
    except ValueError:
        name = "UNDEFINED"
    digits = "".join(c for c in name.partition("E")[0] if c.isdigit())
    named = {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8, "COMPLEX64": 64, "COMPLEX128": 128, "STRING": 64}
    bits = named.get(name, int(digits or 32))
    return bits / 8, "FLOAT" in name or name in ("DOUBLE", "COMPLEX64", "COMPLEX128")
