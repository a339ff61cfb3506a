"""Costs of ONNX operators: multiply-accumulates, passes over values, working bytes.

Multiply-accumulates, where |x| is the number of values of a tensor x:

- convolutions: |output| times the values of one filter; transposed ones: |input| times them;
- matrix products: |output| times the inner axis; `Einsum`: the product of the sizes of all letters;
- recurrent layers: steps * batch * (|input weights| + |recurrent weights|);
- attention: batch * queries * keys * (width of all query heads + width of all values), and the
  projections if the operator has their weights.

Pointwise work is measured in passes over the values read or written, whichever are more: 3 passes
for norms and softmax, 1 for activations, poolings, sums of two, and operators that only move
values; views cost nothing.  For unknown operators, all values read and written are counted.

Of two branches the more expensive one is counted, or the one that is always taken.  A loop counts
as often as it runs at most, and once if that is unknown.

Working bytes are the scores of an attention, the gates of a recurrent layer, and the live bytes
inside a branch or loop, what a loop hands to its next turn included; other operators need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from stagepack.errors import InputError
from stagepack.formats.onnx.model import Model, Node, Shape

CONVOLUTIONS = {
    "Conv": 1, "ConvInteger": 1, "DeformConv": 1, "FusedConv": 1, "QLinearConv": 3,
}  # fmt: skip
"""Convolutions, and which of their inputs is the filters."""
PRODUCTS = {
    "FusedGemm": 1, "FusedMatMul": 1, "Gemm": 1, "MatMul": 1, "MatMulInteger": 1,
    "QLinearMatMul": 3,
}  # fmt: skip
"""Products, and which of their inputs is the right factor."""
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent layers, and how many gates they have."""
FLOWS = {"If", "Loop", "Scan"}
"""Branches and loops."""
ATTENTIONS = {"Attention", "GroupQueryAttention", "MultiHeadAttention"}
VIEWS = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
"""What moves nothing."""
VALUES = {
    "Abs", "Acos", "Acosh", "And", "Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "DequantizeLinear", "Dropout", "DynamicQuantizeLinear", "Elu", "Equal", "Erf", "Exp",
    "FastGelu", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish",
    "Hardmax", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Mish", "Mod", "Neg",
    "Not", "Or", "PRelu", "Pow", "QuantizeLinear", "QuickGelu", "Reciprocal", "Relu", "Round",
    "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tan", "Tanh", "ThresholdedRelu", "Xor",
}  # fmt: skip
"""What is done to each value by itself."""
SUMS = {"Add", "Div", "Max", "Mean", "Min", "Mul", "Sub", "Sum", "Where"}
"""Value by value, of several tensors: a pass for each beyond the first."""
NORMS = {
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN",
    "LayerNormalization", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization",
    "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "Softmax",
}  # fmt: skip
"""What goes three times over its values."""
ONCE = {
    "ArgMax", "ArgMin", "AveragePool", "Bernoulli", "CenterCropPad", "Col2Im", "Compress",
    "Concat", "CumSum", "DepthToSpace", "EmbedLayerNormalization", "Expand", "EyeLike", "Gather",
    "GatherElements", "GatherND", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "GridSample", "LpPool", "MaxPool", "MaxRoiPool", "MaxUnpool", "NonZero", "OneHot", "Pad",
    "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearMul",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Resize", "ReverseSequence", "RoiAlign",
    "RotaryEmbedding", "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth",
    "Split", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Upsample",
}  # fmt: skip
"""What goes once over the values that it reads or writes."""
PASSES = {**dict.fromkeys(VALUES | ONCE, 1), **dict.fromkeys(NORMS, 3)}
KEPT = {*CONVOLUTIONS, *PRODUCTS, *RECURRENT, *ATTENTIONS, *NORMS, "ConvTranspose", "Einsum",
        "MatMulNBits", "MaxPool"}  # fmt: skip
"""What a backward pass needs the inputs of."""
Macs = Callable[[Node, Model], int]


def known(node: Node) -> bool:
    """Whether it is known what an operator costs."""
    kind = node.kind
    own = node.domain in ("", "com.microsoft")
    if kind in FLOWS:
        return own and bool(node.bodies)
    return own and (kind in MACS or kind in PASSES or kind in SUMS or kind in VIEWS)


def inside(node: Node) -> Iterator[Node]:
    """Yield the operators inside of branches and loops, and inside of these."""
    for body in node.bodies:
        for one in body.nodes:
            yield one
            yield from inside(one)


def work(node: Node, model: Model) -> tuple[int, int]:
    """Return the multiply-accumulates of an operator, and the values that it passes over."""
    if not node.bodies:
        return macs(node, model), values(node, model)
    found = []
    for body in node.bodies:
        parts = [work(one, body) for one in body.nodes]
        found.append((sum(one[0] for one in parts), sum(one[1] for one in parts)))
    most, passed = max(found)
    turns = 1 if node.turns is None else node.turns
    return turns * most, turns * passed


def values(node: Node, model: Model) -> int:
    """Return the values that pointwise work of an operator passes over."""
    read = [model.tensor(name, node).values for name in model.reads(node)]
    written = [model.tensor(name, node).values for name in node.outputs]
    if not known(node):
        return sum(read) + sum(written)
    if node.kind in SUMS:
        return max(1, len(read) - 1) * max(written)
    return PASSES.get(node.kind, 0) * max(sum(read), sum(written))


def macs(node: Node, model: Model) -> int:
    """Return the multiply-accumulates of an operator."""
    if node.kind not in MACS or not known(node):
        return 0
    try:
        return MACS[node.kind](node, model)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        raise InputError(
            f"inputs and attributes are no {node.kind}",
            field=node.place,
            remedy="export it again",
        ) from None


def working_values(node: Node, model: Model) -> int:
    """Return the values that an operator holds while it runs, besides inputs and outputs."""
    if node.kind in RECURRENT:
        steps = model.shape(node.inputs[0], node)
        return RECURRENT[node.kind] * steps[1] * model.shape(node.inputs[2], node)[-1]
    if node.kind in ATTENTIONS:
        q, k = _lengths(node, model)
        return _heads(node, model) * model.shape(node.inputs[0], node)[0] * q * k
    return max((_alive(body, _results(node, body)) for body in node.bodies), default=0)


def _results(node: Node, body: Model) -> tuple[str, ...]:
    """Return what a body writes to where the operator's results are: all, or of a loop the rows.

    What a loop carries has a second place, for its next turn reads the first.
    """
    if node.kind == "Loop":
        return body.outputs[len(body.inputs) - 1 :]  # behind the condition and what is carried
    if node.kind == "Scan":
        return body.outputs[len(body.inputs) - node.said.get("num_scan_inputs", 0) :]
    return body.outputs


def _alive(body: Model, results: tuple[str, ...]) -> int:
    """Return the most values that are alive inside of a body at a time, besides its results."""
    last = {name: at for at, node in enumerate(body.nodes) for name in node.inputs}
    last |= dict.fromkeys(body.outputs, len(body.nodes))
    ending: dict[int, int] = {}
    alive = most = 0
    for at, node in enumerate(body.nodes):
        for name in set(node.outputs).difference(results):
            own = body.tensor(name, node).values
            alive += own
            end = last.get(name, at)
            ending[end] = ending.get(end, 0) + own
        most = max(most, alive + working_values(node, body))
        alive -= ending.pop(at, 0)
    return most


def _convolution(node: Node, model: Model) -> int:
    filters = model.shape(node.inputs[CONVOLUTIONS[node.kind]], node)
    return model.tensor(node.outputs[0], node).values * math.prod(filters[1:])


def _transposed(node: Node, model: Model) -> int:
    filters = model.shape(node.inputs[1], node)
    return model.tensor(node.inputs[0], node).values * math.prod(filters[1:])


def _product(node: Node, model: Model) -> int:
    left = model.shape(node.inputs[0], node)
    turned = node.said.get("transA", 0) and len(left) > 1
    return model.tensor(node.outputs[0], node).values * left[-2 if turned else -1]


def _packed_product(node: Node, model: Model) -> int:
    return model.tensor(node.outputs[0], node).values * int(node.said["K"])


def _einsum(node: Node, model: Model) -> int:
    given = node.said["equation"].decode().replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for letters, name in zip(given, node.inputs, strict=True):
        shape = model.shape(name, node)
        before, dots, after = letters.partition("...")
        inner = shape[len(before) : len(shape) - len(after)] if dots else ()
        tail = shape[len(shape) - len(after) :] if after else ()
        named = [*zip(before, shape, strict=False), *zip(after, tail, strict=True)]
        named += [(f".{len(inner) - at}", size) for at, size in enumerate(inner)]
        for letter, size in named:
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values()) if len(given) > 1 else 0


def _recurrent(node: Node, model: Model) -> int:
    steps, batch = model.shape(node.inputs[0], node)[:2]
    weights = sum(model.tensor(name, node).values for name in node.inputs[1:3])
    return steps * batch * weights


def _lengths(node: Node, model: Model) -> tuple[int, int]:
    """Return the numbers of queries and of keys of an attention."""
    query = model.shape(node.inputs[0], node)
    key = _key(node, model)
    return query[-2], key[-2]


def _key(node: Node, model: Model) -> Shape:
    """Return the shape of the keys; where all is in one tensor, that of the queries."""
    whole = node.domain and node.kind == "Attention"
    given = len(node.inputs) > 1 and node.inputs[1] and not whole
    return model.shape(node.inputs[1 if given else 0], node)


def _heads(node: Node, model: Model) -> int:
    query = model.shape(node.inputs[0], node)
    said = node.said.get("q_num_heads") or node.said.get("num_heads") or 1
    return query[1] if len(query) == 4 else int(said)


def _attention(node: Node, model: Model) -> int:
    query, result = (model.shape(n, node) for n in (node.inputs[0], node.outputs[0]))
    q, k = _lengths(node, model)
    projected = 0
    width = math.prod(query) // (query[0] * q)
    if node.domain and node.kind == "Attention":  # the projections of ONNX Runtime's are in it
        weights = model.shape(node.inputs[1], node)
        projected, width = query[0] * q * math.prod(weights), math.prod(result) // (query[0] * q)
    return projected + query[0] * q * k * (width + math.prod(result) // (query[0] * q))


MACS: Mapping[str, Macs] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(ATTENTIONS, _attention),
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "MatMulNBits": _packed_product,
}
