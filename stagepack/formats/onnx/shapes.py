"""Shape inference of ONNX models, in a separate process.

ONNX's shape inference is C++ code that trusts its input.  It propagates values from which sizes are
computed, and a file of a thousand bytes can make it double a value forty times, or nest functions
in functions.  The process has a memory limit, and if it dies, the calling process does not.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import ChainMap
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stagepack.errors import InputError
from stagepack.formats.onnx import sizes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

TOO_MUCH = "its shapes take too much memory to be followed: sizes are computed from too many values"
MORE, GROWTH = 2**30, 16
"""Bytes that the process may take: so many, and so many for each of the model."""
RUN = "from stagepack.formats.onnx.shapes import main; main()"


def followed(proto: ModelProto) -> tuple[ModelProto, list[str]]:
    """Return a model with the shapes that follow, nodes in order, and outputs that were assumed.

    What an operator writes that nobody knows is taken to be as the first tensor that it reads,
    what a loop carries to stay as it begins.  Large weights lose their values.
    """
    from google.protobuf.message import EncodeError
    from onnx import load_model_from_string

    _lighten(proto.graph)
    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        _refuse(f"its shapes cannot be followed: {error}")
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(MORE + GROWTH * len(data))],
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        input=data,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        _refuse(
            f"its shapes cannot be followed: onnx dies of them ({_last_word(done)}): too much"
            " memory, or a fault of its own"
        )
    said, _, model = done.stdout.partition(b"\n")
    answer = json.loads(said)
    if "problem" in answer:
        raise InputError(answer["problem"], field=answer["field"], remedy=answer["remedy"])
    return load_model_from_string(model), answer["assumed"]


def _last_word(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the signal that a process died of, else the last line that it wrote."""
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    lines = done.stderr.decode(errors="replace").splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _lighten(graph: GraphProto) -> None:
    """Take the values out of weights from which no shape is computed."""
    for weight in graph.initializer:
        if math.prod(weight.dims) > sizes.NUMBERS:
            for field, _ in weight.ListFields():
                if field.name.endswith("_data"):
                    weight.ClearField(field.name)


def _refuse(problem: str, remedy: str = "export it again") -> NoReturn:
    raise InputError(problem, field="graph", remedy=remedy) from None


# ---------------------------------------------------------------------- in the child


def main() -> None:
    """Follow the shapes of the model that is read; write what was assumed, and the model."""
    from onnx import load_model_from_string

    proto = load_model_from_string(sys.stdin.buffer.read())
    answer: dict[str, object]
    model = b""
    try:
        _limit(int(sys.argv[1]))
        model, assumed = _follow(proto)
        answer = {"assumed": assumed}
    except InputError as error:
        answer = {"problem": error.problem, "field": error.field, "remedy": error.remedy}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + model)


def _limit(more: int) -> None:
    """Let the process take so many bytes more, where that can be said."""
    try:
        import resource

        data = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):  # not on Linux
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([data + more, *known]), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _follow(proto: ModelProto) -> tuple[bytes, list[str]]:
    """Return what :func:`followed` does, the model as bytes; raises as it does."""
    import onnx
    from google.protobuf.message import DecodeError, EncodeError
    from onnx import inliner, shape_inference

    assumed: list[str] = []
    rounds = 16  # that sizes are computed, and shapes followed again
    try:
        if proto.functions:
            proto = inliner.inline_local_functions(proto)
        order = _in_order(proto.graph)
        del proto.graph.node[:]
        proto.graph.node.extend(order)
        while True:
            proto = shape_inference.infer_shapes(proto, data_prop=True)
            fresh = _taken(proto)
            carried = _carry(proto.graph, ChainMap())
            if not fresh and not carried:
                rounds -= 1
                if not rounds or not sizes.has_gaps(proto.graph) or not sizes.settle(proto):
                    return proto.SerializeToString(), assumed
            assumed += [value.name for value in fresh]
            proto.graph.value_info.extend(fresh)
    except MemoryError:
        _refuse(TOO_MUCH, "export it again, with fixed shapes")
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        _refuse(f"shapes contradict each other: {error}")
    except (DecodeError, EncodeError, RuntimeError, ValueError, TypeError, IndexError) as error:
        _refuse(f"its shapes cannot be followed: {error}")


def _taken(proto: ModelProto) -> list[Any]:
    """Return what is written by operators that onnx does not know: as the first tensor read.

    Operators between two such are followed here, one by one, lest each takes a pass over all.
    """
    from onnx import ValueInfoProto, defs

    graph = proto.graph
    found: list[Any] = []
    values = (*graph.input, *graph.output, *graph.value_info)
    known = {value.name: value.type for value in values if _is_shaped(value)}
    small: dict[str, Any] | None = None
    opsets = {given.domain: given.version for given in proto.opset_import}
    for node in graph.node:
        missing = [name for name in node.output if name and name not in known]
        if not missing:
            continue
        if defs.has(node.op_type, node.domain):
            if found:
                small = sizes.constants(graph) if small is None else small
                known |= sizes.written(node, small, known, opsets)
            continue
        source = next((known[name] for name in node.input if name in known), None)
        if source is None:
            continue
        for name in missing:
            found.append(ValueInfoProto(name=name, type=source))
            known[name] = source
    return found


def _carry(graph: GraphProto, outer: ChainMap[str, Any]) -> bool:
    """Give what loops carry the shapes with which they begin; return whether any was not known."""
    from onnx import TensorProto, helper

    own = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
    known = outer.new_child(
        {
            weight.name: helper.make_tensor_type_proto(weight.data_type, weight.dims)
            for weight in graph.initializer
        }
    )
    known.update({name: value.type for name, value in own.items() if _is_shaped(value)})
    fresh, scalar = False, helper.make_tensor_type_proto(TensorProto.BOOL, ())
    for node in graph.node:
        inside = [given.g for given in node.attribute if given.HasField("g")]
        begins = [scalar, scalar, *map(known.get, node.input[2:])]
        for at, kind in enumerate(begins if node.op_type == "Loop" else ()):
            if kind is None:
                continue
            carried = [value for body in inside for value in body.input[at : at + 1]]
            written = node.output[at - 2 : at - 1] if at > 1 else ()
            carried += [own[name] for name in written if name in own]
            for value in carried:
                if value.type.HasField("tensor_type") and not _is_shaped(value):
                    value.type.tensor_type.shape.CopyFrom(kind.tensor_type.shape)
                    fresh = True
        for body in inside:
            fresh |= _carry(body, known)
    return fresh


def _is_shaped(value: Any) -> bool:
    return bool(value.type.tensor_type.HasField("shape"))


def _in_order(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes so that each follows those whose results it reads, else as they are."""
    nodes = list(graph.node)
    writer: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if name in writer and name:
                raise InputError(
                    f"{name!r} is written twice", field=place(node), remedy="export it again"
                )
            writer[name] = at
    writer.pop("", None)
    sources = [{writer[name] for name in reads(node) if name in writer} for node in nodes]
    if all(source < at for at, read in enumerate(sources) for source in read):
        return nodes
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(nodes)), ()))
    for at, read in enumerate(sources):
        sorter.add(at, *read)
    try:
        return [nodes[at] for at in sorter.static_order()]
    except CycleError as error:
        circle: list[int] = error.args[1]
        raise InputError(
            "is on a circle", field=place(nodes[circle[0]]), remedy="give a graph without cycles"
        ) from None


def place(node: NodeProto) -> str:
    """Return the field of a model that a node is."""
    return f"graph.node {node.name or (node.output[0] if node.output else node.op_type)}"


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs inside of a node, and inside of these."""
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield body
            for inner in body.node:
                yield from bodies(inner)


def reads(node: NodeProto) -> list[str]:
    """Return what a node reads; what its bodies read from outside comes last."""
    found = dict.fromkeys(node.input)
    inside = list(bodies(node))
    own = {value.name for body in inside for value in (*body.input, *body.initializer)}
    own |= {name for body in inside for inner in body.node for name in inner.output}
    for body in inside:
        names = [name for inner in body.node for name in inner.input]
        names += [value.name for value in body.output]
        found |= dict.fromkeys(name for name in names if name not in own)
    return list(found) if inside else list(node.input)
