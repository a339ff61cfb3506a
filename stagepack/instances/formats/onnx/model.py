"""ONNX models with all shapes known: nodes in order, constants, attributes.

Weights need not be there: constants are known by shape and type alone, those that `ConstantOfShape`
makes and what follows from constants, shapes and sizes among them.  Sizes that a model leaves open
are taken from the words `batch`, `sequence` and `image`: by the name that an axis has, else by its
place.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.words import LARGEST

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Shape = tuple[int, ...]
SIZES = {"Shape", "Size"}
"""Operators whose results are known from shapes alone."""
FEW = 8
"""Numbers of a constant that are read: sizes, axes, scales."""
MOST_AXES = 64
MORE, GROWTH = 2**30, 16
"""Bytes that the following of shapes may take beside those of a model, and how many times these."""
NAMES = {
    "batch": ("batch", "n", "b", "bs", "bsz"),
    "sequence": ("seq", "len", "token", "time", "t", "s"),
    "image": ("height", "width", "h", "w"),
}
"""What axes are called that stand for a word: shorter than three letters alone, else as a part."""


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
    branches.
    """

    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    said: JsonObject
    inner: int = 0

    @property
    def place(self) -> str:
        """Where it is."""
        return f"graph.node {self.name or self.outputs[0]}"


@dataclass(frozen=True)
class Model:
    """A model whose shapes are known.

    Attributes
    ----------
    nodes : tuple of Node
        Each after those whose results it reads; what only makes constants is not among them.
    tensors : mapping of str to Tensor
    constants : frozenset of str
        Tensors that do not depend on the inputs.
    parts : mapping of str to str
        Of constants that are views of another one: that one.
    numbers : mapping of str to tuple
        Of small constants, their values.
    inputs, outputs : tuple of str
    opset : int
    assumed : tuple of Node
        Operators of which nobody knows what they write; it is taken to be as what they read.
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
        """Return a tensor whose shape is known.

        Raises
        ------
        InputError
            Where it is not.
        """
        found = self.tensors.get(name)
        if found is None or any(size < 1 for size in found.shape):
            raise InputError(
                f"the shape of {name!r} is not known",
                field="graph" if node is None else node.place,
                remedy="give the model fixed input shapes",
            )
        return found

    def shape(self, name: str, node: Node | None = None) -> Shape:
        """Return the shape of a tensor, which is known."""
        return self.tensor(name, node).shape

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


# ---------------------------------------------------------------------- reading


def load(data: bytes, sizes: Mapping[str, int]) -> Model:
    """Return the model of a file.

    Parameters
    ----------
    data : bytes
    sizes : mapping of str to int
        Of axes that the model leaves open: `batch` (1 where it is not given), `sequence`, `image`.

    Raises
    ------
    InputError
        Without the package onnx; for what is no model; naming the node, tensor or axis.
    """
    try:
        import onnx
    except ImportError:
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
    _close(proto.graph, sizes)
    proto, order, assumed = _inferred(proto)
    return _Reading(proto, order, assumed).model()


def _require_text(graph: GraphProto) -> None:
    """Refuse names that are no text, which protobuf hands out as bytes."""
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    names += [name for node in graph.node for name in (node.name, node.op_type, node.domain)]
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    names += [value.name for value in values]
    names += [dim.dim_param for given in graph.input for dim in given.type.tensor_type.shape.dim]
    if any(isinstance(name, bytes) for name in names):
        raise InputError("a name is no text", field="graph", remedy="export it again")


def _close(graph: GraphProto, sizes: Mapping[str, int]) -> None:
    """Give axes of the inputs that are open the sizes of words.

    Raises
    ------
    InputError
        Where the word is not given.
    """
    constants = {weight.name for weight in graph.initializer}
    for given in graph.input:
        if given.name in constants:
            continue
        dims = given.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if dim.dim_value > 0 or (dim.HasField("dim_value") and not dim.dim_param):
                continue
            word = _word(dim.dim_param, axis, len(dims))
            if word not in sizes and word != "batch":
                raise InputError(
                    f"axis {axis} ({dim.dim_param or 'without a name'}) has no size",
                    field=f"graph.input {given.name}",
                    remedy=f"say it: --set {word}=N",
                )
            dim.dim_value = sizes.get(word, 1)


def _word(name: str, axis: int, rank: int) -> str:
    """Return the word that says the size of an open axis."""
    plain = name.lower()
    for word, called in NAMES.items():
        if plain in called or any(len(part) > 2 and part in plain for part in called):
            return word
    if axis == 0:
        return "batch"
    return "image" if rank == 4 and axis > 1 else "sequence"


def _inferred(proto: ModelProto) -> tuple[ModelProto, list[NodeProto], list[str]]:
    """Return a model with the shapes that follow, nodes in order, and outputs that were assumed.

    What an operator writes that nobody knows is taken to be as the first tensor that it reads.

    Raises
    ------
    InputError
        For shapes that contradict each other, and circles.
    """
    import onnx
    from google.protobuf.message import DecodeError, EncodeError
    from onnx import inliner, shape_inference

    assumed: list[str] = []
    try:
        if proto.functions:
            proto = inliner.inline_local_functions(proto)
        order = _in_order(proto.graph)
        del proto.graph.node[:]
        proto.graph.node.extend(order)
        while True:
            with _within(MORE + GROWTH * proto.ByteSize()):
                proto = shape_inference.infer_shapes(proto, data_prop=True)
            order = list(proto.graph.node)
            fresh = _taken(proto.graph, order)
            if not fresh:
                return proto, order, assumed
            assumed += [value.name for value in fresh]
            proto.graph.value_info.extend(fresh)
    except MemoryError:
        raise InputError(
            "its shapes take too much memory to be followed: sizes are computed from too many"
            " values",
            field="graph",
            remedy="export it again, with fixed shapes",
        ) from None
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise InputError(
            f"shapes contradict each other: {error}", field="graph", remedy="export it again"
        ) from None
    except (DecodeError, EncodeError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"its shapes cannot be followed: {error}", field="graph", remedy="export it again"
        ) from None


@contextlib.contextmanager
def _within(more: int) -> Iterator[None]:
    """Let the process take so many bytes more in the block, and no others, where that can be said.

    Values from which sizes are computed are followed one by one, and a file of a thousand bytes
    can say to double them forty times.
    """
    try:
        import resource

        data = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):  # not on Linux
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([data + more, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _taken(graph: GraphProto, order: Iterable[NodeProto]) -> list[Any]:
    """Return what is written by operators that onnx does not know: as the first tensor read."""
    from onnx import defs

    known = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
    typed = {name for name, value in known.items() if value.type.tensor_type.HasField("shape")}
    found = []
    for node in order:
        source = next((known[name] for name in node.input if name in typed), None)
        if source is None or defs.has(node.op_type, node.domain):
            continue
        for name in node.output:
            if name and name not in typed:
                taken = type(source)(name=name, type=source.type)
                found.append(taken)
                known[name] = taken
                typed.add(name)
    return found


def _in_order(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes so that each follows those whose results it reads, else as they are.

    Raises
    ------
    InputError
        For a tensor that is written twice, and a circle, naming a node on it.
    """
    nodes = list(graph.node)
    writer: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if name in writer and name:
                raise InputError(
                    f"{name!r} is written twice", field=_place(node), remedy="export it again"
                )
            writer[name] = at
    writer.pop("", None)
    sources = [{writer[name] for name in _read(node) if name in writer} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for at, read in enumerate(sources):
        for source in read:
            users[source].append(at)
    waiting = [len(read) for read in sources]
    if all(source < at for at, read in enumerate(sources) for source in read):
        return nodes
    ready = deque(at for at, count in enumerate(waiting) if count == 0)
    order = []
    while ready:
        at = ready.popleft()
        order.append(nodes[at])
        for user in users[at]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    if len(order) < len(nodes):
        at = next(at for at, count in enumerate(waiting) if count)
        for _ in nodes:  # back among the unfinished: this many steps end on a circle
            at = next(source for source in sources[at] if waiting[source])
        raise InputError(
            "is on a circle", field=_place(nodes[at]), remedy="give a graph without circles"
        )
    return order


def _place(node: NodeProto) -> str:
    return f"graph.node {node.name or (node.output[0] if node.output else node.op_type)}"


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs inside of a node, and inside of these."""
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield body
            for inner in body.node:
                yield from _bodies(inner)


def _read(node: NodeProto) -> list[str]:
    """Return what a node reads; what its bodies read from outside comes last."""
    found = dict.fromkeys(node.input)
    bodies = list(_bodies(node))
    own = {value.name for body in bodies for value in (*body.input, *body.initializer)}
    own |= {name for body in bodies for inner in body.node for name in inner.output}
    for body in bodies:
        names = [name for inner in body.node for name in inner.input]
        names += [value.name for value in body.output]
        found |= dict.fromkeys(name for name in names if name not in own)
    return list(found) if bodies else list(node.input)


class _Reading:
    """Makes a model of a proto whose shapes were followed."""

    def __init__(self, proto: ModelProto, order: list[NodeProto], assumed: list[str]) -> None:
        self._proto, self._order, self._assumed = proto, order, set(assumed)
        self._tensors: dict[str, Tensor] = {}
        self._numbers: dict[str, tuple[Any, ...]] = {}
        self._parts: dict[str, str] = {}
        graph = proto.graph
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
        self._constants = {weight.name for weight in graph.initializer}
        self._constants |= {sparse.values.name for sparse in graph.sparse_initializer}
        self._used = {name for node in order for name in _read(node)}
        self._used |= {value.name for value in graph.output}

    def model(self) -> Model:
        """Return the model."""
        graph = self._proto.graph
        inputs = tuple(v.name for v in graph.input if v.name not in self._constants)
        nodes = []
        for proto in self._order:
            node = self._node(proto)
            if not node.outputs or self._is_constant(node, proto):
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
            opset=max((given.version for given in self._proto.opset_import), default=1),
            assumed=tuple(n for n in nodes if self._assumed & found.intersection(n.outputs)),
        )

    def _know(self, name: str, shape: Shape, kind: int) -> None:
        """Keep what is known of a tensor.

        Raises
        ------
        InputError
            For more axes or values than can be.
        """
        if len(shape) > MOST_AXES or math.prod(max(size, 1) for size in shape) > LARGEST // 8:
            raise InputError(
                "has more axes or values than can be", field=f"tensor {name}", remedy="mend it"
            )
        width, floating = _type(kind)
        self._tensors[name] = Tensor(shape, width, floating)

    def _remember(self, name: str, constant: Any) -> None:
        """Keep the values of a constant of few numbers, where they are in the file."""
        from onnx import numpy_helper

        if len(constant.dims) > 1 or math.prod(constant.dims) > FEW:
            return
        try:
            values = numpy_helper.to_array(constant).reshape(-1).tolist()
        except (ValueError, TypeError, OSError, KeyError, AttributeError):
            return  # external, or cut short: its shape has to do
        self._numbers[name] = tuple(values)

    def _node(self, proto: NodeProto) -> Node:
        from onnx import helper

        bodies = list(_bodies(proto))
        read = [name for name in proto.output if name in self._used]
        held = [weight for body in bodies for weight in body.initializer]
        inner = sum(math.ceil(math.prod(w.dims) * _type(w.data_type)[0]) for w in held)
        try:
            said = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        except ValueError as error:
            raise InputError(
                f"has an attribute that cannot be read: {error}",
                field=_place(proto),
                remedy="export it again",
            ) from None
        return Node(
            name=proto.name,
            kind=proto.op_type,
            domain="" if proto.domain == "ai.onnx" else proto.domain,
            inputs=tuple(_read(proto)),
            outputs=tuple(dict.fromkeys(n for n in (*proto.output[:1], *read) if n)),
            said=said,
            inner=inner,
        )

    def _is_constant(self, node: Node, proto: NodeProto) -> bool:
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
