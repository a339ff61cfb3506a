"""Costs of layers, counted without running them.

Operations are those that FlopCounterMode counts when an operator runs on fake tensors; recurrent
layers count two for every weight of their products, row by row.  Operators in regions of their own,
such as those without gradients, are counted, too: of branches the one with most operations, of a
scan as often as it runs, of a loop once (loops are named in a warning, as the number of iterations
is unknown).  Pointwise work counts the values that other operators read or write, whichever are
more: three times for norms and softmax, once for pointwise operators, sums, poolings and moves, and
not at all for views.  Any other operator is named in a warning and counted by all values that it
reads and writes, including parameters.

A backward pass takes twice the forward pass.  The stash consists of the inputs of all operators
except sums, moves and views.  Live bytes inside a layer other than its inputs and outputs are its
scratch memory.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from stagepack.instances import clusters
from stagepack.instances.network import Block, Network
from stagepack.instances.profile import ModelProfile
from stagepack.integrations.pytorch.inside import is_fake, is_overload, schema
from stagepack.integrations.pytorch.tracing import (
    Layer,
    Traced,
    calls,
    is_tensor,
    is_view,
    nbytes,
    regions,
    tensors,
)

ATTENTIONS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
)
"""Attentions that FlopCounterMode does not know by itself."""
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
             "rnn_relu_cell")  # fmt: skip
"""Recurrent layers, which FlopCounterMode does not know."""
GROUPED = "grouped_mm"
"""Part of the names of products by experts, of PyTorch's own and of Transformers' on a CPU."""
THRICE = ("norm", "softmax")
"""Parts of names of operators that go three times over their values."""
KEEP_NOTHING = {
    "add", "add_", "arange", "cat", "clone", "copy_", "detach", "embedding", "full", "mean", "ones",
    "ones_like", "split", "stack", "sub", "sum", "to", "zeros", "zeros_like",
}  # fmt: skip
"""Operators whose backward pass reads nothing of what they read."""
TAGS = {"pointwise", "reduction"}
"""Torch's tags of operators that go once over their values."""
ONCE = KEEP_NOTHING | {
    "all", "amax", "amin", "and", "any", "argmax", "argmin", "concat", "cumprod", "cumsum",
    "diff", "eye", "fill", "flip", "floor_divide", "glu", "hardswish", "histc", "linspace",
    "log_sigmoid", "logsumexp", "max", "meshgrid", "min", "nonzero", "one_hot", "or", "polar",
    "prelu", "prod", "roll", "rsub", "scalar_tensor", "slice", "std",
    "take", "tile", "topk", "tril", "triu", "type_as", "var", "where", "xor", "zero",
}  # fmt: skip
"""Operators that do without the tag."""
ONCE_PARTS = (
    "_like", "_loss", "copy", "dropout", "embedding", "fold", "gather", "index", "new_", "pad",
    "pool", "rand", "repeat", "scatter", "shuffle", "upsample",
)  # fmt: skip
"""Parts of names of further ones."""
log = logging.getLogger("stagepack")


def counted(
    traced: Traced, machine: str, *, training: bool, state_bytes: int, told: bool = True
) -> ModelProfile:
    """Return the profile of a module on devices of a `machine` of the catalog.

    `training` adds gradients, and `state_bytes` of the optimiser per parameter.  If `told`, a
    warning names operators whose operations are not known.
    """
    operations = _Counter()
    network = network_of(traced, operations)
    if told:
        _tell(traced, operations)
    preset = clusters.preset(machine)
    return network.profile(preset, bytes_per_value=4, training=training, state_bytes=state_bytes)


def network_of(traced: Traced, operations: _Counter | None = None) -> Network:
    """Return the layers of a module as a network, before any hardware."""
    operations = operations or _Counter()
    users: dict[str, int] = {}
    for layer in traced.layers:
        for name in {traced.identity(node) for node in layer.held if _is_weight(traced, node)}:
            users[name] = users.get(name, 0) + 1
    seen: set[str] = set()
    blocks = tuple(_block(traced, layer, operations, users, seen) for layer in traced.layers)
    crossing = {node for layer in traced.layers for node in (*layer.inputs, *layer.outputs)}
    return Network(
        name=type(traced.module).__name__,
        blocks=blocks,
        tensors={node.name: nbytes(node) for node in sorted(crossing, key=lambda n: str(n.name))},
        results=tuple(node.name for node in traced.results if node in crossing),
    )


def _tell(traced: Traced, operations: _Counter) -> None:
    """Name the operators whose operations are not known: how often they run, what is counted."""
    found: dict[str, list[int]] = {}
    for layer in traced.layers:
        for node in _all_nodes(traced.graph, layer.nodes, operations):
            if not operations(node) and not _is_known(node):
                found.setdefault(str(node.target), []).append(_passed(node))
    if found:
        names = (f"{len(v)} x {name} ({sum(v)} values)" for name, v in sorted(found.items()))
        log.warning(
            "operators of unknown operations, counted by the values that they read and write: %s",
            ", ".join(names),
        )


def _is_weight(traced: Traced, node: fx.Node) -> bool:
    return isinstance(traced.held(node), torch.nn.Parameter)


def _block(
    traced: Traced,
    layer: Layer,
    operations: Callable[[fx.Node], int],
    users: dict[str, int],
    seen: set[str],
) -> Block:
    """Return what a layer costs; parameters count where they are first used."""
    weights = weight_bytes = constants = 0
    variables, first = [], []
    for node in layer.held:
        held, name = traced.held(node), traced.identity(node)
        if not isinstance(held, torch.Tensor):
            continue
        if isinstance(held, torch.nn.Parameter) and users[name] > 1 and name not in variables:
            variables.append(name)
        if name in seen:
            continue
        seen.add(name)
        if isinstance(held, torch.nn.Parameter):
            weights += held.numel()
            weight_bytes += held.numel() * held.element_size()
            if name in variables:
                first.append((name, held.numel(), held.numel() * held.element_size()))
        else:
            constants += held.numel() * held.element_size()
    nodes = _all_nodes(traced.graph, layer.nodes, operations)
    return Block(
        name=layer.name,
        shape=signature(layer),
        flops=sum(map(operations, nodes)),
        values=sum(0 if operations(node) else _passed(node) for node in nodes),
        weights=weights,
        weight_bytes=weight_bytes,
        constants=constants,
        inputs=tuple(node.name for node in layer.inputs),
        outputs=tuple(node.name for node in layer.outputs),
        scratch=_scratch(traced.graph, layer.nodes, layer.outputs),
        saved=_saved(layer),
        variables=tuple(variables),
        first=tuple(first),
    )


class _Counter:
    """Counts operations of operators, each kind and shape once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, node: fx.Node) -> int:
        key = described(node, {})
        if key not in self._known:
            self._known[key] = self._count(node)
        return self._known[key]

    def _count(self, node: fx.Node) -> int:
        values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
        fakes = [part for value in values for part in tensors(value)]
        modes = [fake.fake_mode for fake in fakes if is_fake(fake)]
        if not modes or not is_overload(node.target):
            return 0
        if _called(node) in RECURRENT:
            return _recurrent(node)
        if GROUPED in _called(node):
            return _grouped(node)
        mode = modes[0]
        mode.allow_non_fake_inputs = True
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        known = {getattr(torch.ops.aten, name): _attention for name in ATTENTIONS}
        with mode, torch.no_grad(), FlopCounterMode(display=False, custom_mapping=known) as counter:
            node.target(*args, **kwargs)
        return int(counter.get_total_flops())


def _recurrent(node: fx.Node) -> int:
    """Return the operations of a recurrent layer: every row is multiplied by all its matrices."""
    names = (said.name for said in schema(node).arguments)
    named = dict(zip(names, node.args, strict=False))
    weights = [*named.get("params", ()), *(named.get(name) for name in ("w_ih", "w_hh"))]
    shapes = [one.meta["val"].shape for one in weights if is_tensor(one)]
    rows = node.args[0].meta["val"].shape[:-1]
    return 2 * int(prod(rows) * sum(prod(shape) for shape in shapes if len(shape) == 2))


def _grouped(node: fx.Node) -> int:
    """Return the operations of a product of rows by the matrices of experts, each row by one."""
    rows, matrices = (source.meta["val"] for source in node.args[:2])
    return 2 * int(rows.shape[0] * prod(matrices.shape[-2:]))


def _all_nodes(
    graph: fx.GraphModule, nodes: Iterable[fx.Node], operations: Callable[[fx.Node], int]
) -> list[fx.Node]:
    """Return operators, and in place of regions what runs there; of branches the one with most.

    A scan's region comes as often as it runs; a loop's comes once, after the loop itself.
    """
    found: list[fx.Node] = []
    for node in nodes:
        inner = [_all_nodes(region, calls(region), operations) for region in regions(graph, node)]
        if not inner:
            found.append(node)
        elif str(node.target) == "while_loop":
            found += [node, *(one for part in inner for one in part)]
        else:
            most = max(inner, key=lambda part: sum(map(operations, part)))
            found += most * _turns(node)
    return found


def _turns(node: fx.Node) -> int:
    """Return how often the region of an operator runs: a scan's for all that it goes along."""
    if str(node.target) != "scan":
        return 1
    along: Sequence[fx.Node] = node.args[2]
    return int(along[0].meta["val"].shape[0]) if along else 1


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return the operations of an attention, given shapes."""
    return int(sdpa_flop_count(query, key, value))


def _numel(node: fx.Node) -> int:
    """Return the values of the tensors that a node is."""
    return sum(int(tensor.numel()) for tensor in tensors(node.meta.get("val")))


def _called(node: fx.Node) -> str:
    """Return the name of an operator: `conv2d` of aten.conv2d.default."""
    said = schema(node)
    return str(said.name).partition("::")[2] if said else str(node.target)


def _is_known(node: fx.Node) -> bool:
    """Whether the values that an operator passes over tell its work, if it has no operations."""
    if node.target is operator.getitem or not _numel(node):
        return True  # nothing is computed
    if not is_overload(node.target):
        return False  # control flow, or a region without gradients
    if is_view(node) or any(tag.name in TAGS for tag in node.target.tags):
        return True
    name = _called(node)
    parts = (*THRICE, *ONCE_PARTS)
    own = node.target.namespace == "aten"
    return own and (name.strip("_") in ONCE or any(part in name for part in parts))


def _passed(node: fx.Node) -> int:
    """Return the values that pointwise work of an operator passes over."""
    if not _is_known(node):
        return sum(_numel(one) for one in (node, *node.all_input_nodes))
    if is_view(node):
        return 0
    touched = [node, *(source for source in node.all_input_nodes if source.op != "get_attr")]
    most = max(map(_numel, touched))
    return 3 * most if any(part in _called(node) for part in THRICE) else most


def _root(node: fx.Node) -> fx.Node:
    """Return the tensor that a view is of."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _saved(layer: Layer) -> int:
    """Return the bytes that are kept for the backward pass of a layer."""
    kept = {
        _root(source)
        for node in layer.nodes
        if not is_view(node) and _called(node) not in KEEP_NOTHING
        for source in node.all_input_nodes
        if source.op != "get_attr" and is_tensor(source)
    }
    return sum(nbytes(node) for node in kept if node.op != "get_attr")


def _scratch(graph: fx.GraphModule, nodes: Sequence[fx.Node], outputs: Iterable[fx.Node]) -> int:
    """Return the most bytes that are alive inside of operators at a time."""
    place = {node: at for at, node in enumerate(nodes)}
    ends = {node: at for at, node in enumerate(nodes)}
    for node, at in place.items():
        for source in node.all_input_nodes:
            root = _root(source)
            if root in place:
                ends[root] = max(ends[root], at)
    outer = {_root(node) for node in outputs}
    steps = [0] * (len(nodes) + 1)
    within = [0] * (len(nodes) + 1)
    for node, at in place.items():
        if node not in outer and not is_view(node):
            steps[at] += nbytes(node)
            steps[ends[node] + 1] -= nbytes(node)
        within[at] = max((_inside(region) for region in regions(graph, node)), default=0)
    most = alive = 0
    for step, own in zip(steps, within, strict=True):
        alive += step
        most = max(most, alive + own)
    return most


def _inside(region: fx.GraphModule) -> int:
    """Return the most bytes that are alive inside of a region at a time."""
    (output,) = (node for node in region.graph.nodes if node.op == "output")
    return _scratch(region, calls(region), output.all_input_nodes)


def described(node: fx.Node, places: dict[fx.Node, int]) -> str:
    """Return an operator with its arguments: tensors by shape, and by place where it is known."""

    def told(value: Any) -> Any:
        if isinstance(value, fx.Node):
            shapes = [(tuple(t.shape), str(t.dtype)) for t in tensors(value.meta.get("val"))]
            return f"{places.get(value, value.op)}{shapes}"
        if isinstance(value, tuple | list):
            return [told(part) for part in value]
        return repr(value)

    named = sorted((key, told(value)) for key, value in node.kwargs.items())
    return f"{node.target} {told(node.args)} {named}"


def signature(layer: Layer) -> str:
    """Return a text that is the same for layers that run the same code on the same shapes."""
    places = {node: at for at, node in enumerate((*layer.inputs, *layer.held, *layer.nodes))}
    lines = [described(node, places) for node in layer.nodes]
    return "; ".join([*lines, str([places[node] for node in layer.outputs])])
