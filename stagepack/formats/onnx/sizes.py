"""Evaluates the sizes that an ONNX model computes, where ONNX's shape inference stops.

Exporters divide, compare and select sizes: the width of an attention head is the width of its layer
divided by the number of heads.  Shape inference adds and multiplies sizes, but does not divide or
select.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto

NUMBERS = 4096
"""Values of a tensor from which sizes are computed; larger ones are left alone."""
COMPUTED = {
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "Div", "Equal",
    "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Sign", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose",
    "Unsqueeze", "Where", "Xor",
}  # fmt: skip
"""Operators with which sizes are computed."""


def has_gaps(graph: GraphProto) -> bool:
    """Whether the shape of a tensor of a graph is not known."""
    found = _types(graph)
    return any(name and name not in found for node in graph.node for name in node.output)


def settle(proto: ModelProto) -> bool:
    """Make constants of what is computed from known shapes; return whether there was any.

    O(nodes), which are in order; tensors of more than `NUMBERS` values are left alone.
    """
    from onnx import helper, numpy_helper

    graph, found = proto.graph, _types(proto.graph)
    opsets = {given.domain: given.version for given in proto.opset_import}
    values = constants(graph)
    fresh = False
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if any(name and name not in found for name in node.output):
            found |= written(node, values, found, opsets)
        if len(node.output) != 1:
            continue
        value = _value(node, values, found, proto.opset_import)
        if value is None or value.size > NUMBERS:
            continue
        name = node.output[0]
        values[name] = value
        found[name] = _type(value)
        if node.op_type != "Constant":
            made = helper.make_node("Constant", [], [name], name=node.name)
            made.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
            node.CopyFrom(made)
            fresh = True
    return fresh


def constants(graph: GraphProto) -> dict[str, np.ndarray]:
    """Return the small weights of a graph by name, shapes and axes among them."""
    found = {
        weight.name: value for weight in graph.initializer if (value := _read(weight)) is not None
    }
    for given in graph.input:  # an initialiser may be no more than a default
        found.pop(given.name, None)
    return found


def _types(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types of tensors whose shapes are known."""
    from onnx import helper

    found = {
        weight.name: helper.make_tensor_type_proto(weight.data_type, weight.dims)
        for weight in graph.initializer
    }
    for value in (*graph.value_info, *graph.output, *graph.input):
        if _is_known(value.type):
            found[value.name] = value.type
    return found


def _is_known(kind: TypeProto) -> bool:
    shape = kind.tensor_type
    return shape.HasField("shape") and all(dim.HasField("dim_value") for dim in shape.shape.dim)


def _dims(kind: TypeProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)


def _type(value: np.ndarray) -> TypeProto:
    from onnx import helper

    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def written(
    node: NodeProto,
    values: Mapping[str, np.ndarray],
    found: Mapping[str, TypeProto],
    opsets: Mapping[str, int],
) -> dict[str, TypeProto]:
    """Return the types that a node writes, where they follow from what it reads alone.

    By name: `values` of small tensors, types `found` so far, and `opsets` by domain.
    """
    from onnx import defs, helper, numpy_helper, shape_inference

    read = [name for name in node.input if name]
    inside = any(given.HasField("g") for given in node.attribute)
    version = opsets.get("", opsets.get("ai.onnx", 1))
    if inside or any(name not in found for name in read):
        return {}
    try:
        wrote = shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, version, ""),
            node,
            {name: found[name] for name in read},
            {name: numpy_helper.from_array(values[name]) for name in read if name in values},
            opset_imports=[helper.make_opsetid("", version)],
        )
    except (defs.SchemaError, shape_inference.InferenceError, RuntimeError):
        return {}  # what is known of all nodes together says what is wrong
    return {name: kind for name, kind in wrote.items() if _is_known(kind)}


def _read(tensor: Any) -> np.ndarray | None:
    """Return the values of a small tensor, where they are in the file."""
    from onnx import numpy_helper

    if math.prod(tensor.dims) > NUMBERS:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OSError, KeyError, AttributeError):
        return None


def _value(
    node: NodeProto,
    values: Mapping[str, np.ndarray],
    found: Mapping[str, TypeProto],
    opsets: Sequence[OperatorSetIdProto],
) -> np.ndarray | None:
    """Return what a node writes, where that is known."""
    import numpy as np

    if node.op_type == "Constant":
        return next((_read(given.t) for given in node.attribute if given.name == "value"), None)
    if node.op_type == "Shape" and node.input[0] in found:
        said = {given.name: given.i for given in node.attribute}
        whole = _dims(found[node.input[0]])
        return np.array(whole[said.get("start", 0) : said.get("end", len(whole))], np.int64)
    if node.op_type == "Size" and node.input[0] in found:
        return np.array(math.prod(_dims(found[node.input[0]])), np.int64)
    read = {name: values.get(name) for name in node.input if name}
    if node.op_type not in COMPUTED or not read or any(value is None for value in read.values()):
        return None
    known = {name: value for name, value in read.items() if value is not None}
    return _computed(node, known, opsets) if _is_small(node, known) else None


def _is_small(node: NodeProto, read: Mapping[str, np.ndarray]) -> bool:
    """Whether what a node writes is not too large to be computed."""
    first = [read[name].reshape(-1) for name in node.input if name]
    if node.op_type == "Concat":
        return sum(value.size for value in first) <= NUMBERS
    if node.op_type in ("ConstantOfShape", "Expand"):
        return math.prod(max(int(size), 1) for size in first[-1]) <= NUMBERS
    if node.op_type == "Range":
        start, limit, delta = (float(value[0]) if value.size else 0.0 for value in first)
        return delta != 0 and abs(limit - start) <= NUMBERS * abs(delta)
    return math.prod(max(value.size, 1) for value in first) <= NUMBERS**2


def _computed(
    node: NodeProto, read: Mapping[str, np.ndarray], opsets: Sequence[OperatorSetIdProto]
) -> np.ndarray | None:
    """Return what a node makes of values, None where it cannot be run."""
    import numpy as np
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    given = [helper.make_value_info(name, _type(value)) for name, value in read.items()]
    graph = helper.make_graph([node], "one", given, [helper.make_empty_tensor_value_info("")])
    graph.output[0].name = node.output[0]
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        with np.errstate(all="ignore"):
            (value,) = ReferenceEvaluator(model).run(None, dict(read))
    except MemoryError:
        raise
    except Exception:  # whatever a node that contradicts itself does to the evaluator
        return None
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
