"""Traces a module into layers: one graph of operators by torch.export, cut at module boundaries.

Every operator belongs to the module that calls it.  The operators of one call of a layer form a
layer; operators between the children of a container are added to the preceding layer.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from stagepack.errors import InputError
from stagepack.integrations.pytorch.exporting import exported
from stagepack.integrations.pytorch.inside import pytree, schema

REGIONS = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "cond", "scan", "while_loop")
"""Operators that run graphs of their own."""
NOT_CUT = "_no_split_modules"
"""Where models of Transformers name the classes of their parts that stay whole."""
FIRST = "(inputs)"
"""Name of what runs before the first layer."""


@dataclass(frozen=True)
class Layer:
    """Operators that run one after the other; a name of a module that runs again has a number.

    They read `inputs` of layers before and of the module, and what is `held`: parameters, buffers
    and constants.  Of what they make, others read `outputs`, or the module returns these.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    held: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Traced:
    """A module that was traced.

    `graph` has all operators; it shares the module's parameters and buffers.  `results` are flat,
    and `built` tells how inputs and results are put together, as torch does.  `slopes` are whose
    backward passes the module has of its own and its operators do not, `moving` the attributes that
    are numbers and change when it runs.
    """

    module: nn.Module
    graph: fx.GraphModule
    layers: tuple[Layer, ...]
    inputs: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    built: tuple[Any, Any]
    slopes: tuple[str, ...]
    moving: tuple[str, ...]

    def held(self, node: fx.Node) -> Any:
        """Return the parameter, buffer or constant that a node stands for."""
        return attribute(self.graph, str(node.target))

    def identity(self, node: fx.Node) -> str:
        """Return a name of what a node stands for: one name where two are the same tensor."""
        return self._names.get(id(self.held(node)), str(node.target))

    @cached_property
    def persistent(self) -> frozenset[str]:
        """Names of what is part of the module's state."""
        return frozenset(self.module.state_dict())

    @cached_property
    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.graph.named_parameters()}


def attribute(owner: Any, path: str) -> Any:
    """Return what is at a path of attributes."""
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def is_tensor(node: object) -> bool:
    """Whether an argument of an operator is a node that is one tensor."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def nbytes(node: fx.Node) -> int:
    """Return the bytes of the tensors that a node is."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(node.meta.get("val")))


def tensors(value: Any) -> list[Any]:
    """Return the tensors of a value that is one, or a row of them."""
    parts = value if isinstance(value, tuple | list) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def trace(
    module: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
) -> Traced:
    """Return the layers of a module; see :func:`.profile_model` for what they are.

    `inputs` and `kwargs` are those of one call, `depth` and `basic_blocks` as there.
    """
    if depth is not None and (not isinstance(depth, int) or depth < 1):
        raise InputError(f"{depth!r} levels", field="depth", remedy="give an integer of at least 1")
    odd = next((block for block in basic_blocks if not isinstance(block, type)), None)
    if odd is not None:
        raise InputError(f"{odd!r} is no class", field="basic_blocks", remedy="give classes")
    if not isinstance(inputs, tuple | list):
        raise InputError("is no tuple", field="sample_inputs", remedy="write (x,) for one input")
    _require_values((inputs, kwargs))
    found = exported(module, tuple(inputs), dict(kwargs))
    graph = found.graph
    nodes = _tidied(graph)
    blocks = basic_blocks or (_kept_whole(module) if depth is None else ())
    names = {f"{block.__module__}.{block.__qualname__}" for block in blocks}
    stacks: dict[fx.Node, list[tuple[str, str, str]]] = {}
    for node in nodes:
        stacks[node] = _stack_of(node, graph, stacks)
        _require_shape(node, stacks[node])
    parents = {path for stack in stacks.values() for _, path, _ in stack[:-1]}
    runs = _runs({node: _layer_of(stacks[node], parents, depth, names) for node in nodes})
    if not runs:
        raise InputError("runs no operators", field="module", remedy="give one that computes")
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    given = tuple(node for node in graph.graph.nodes if node.op == "placeholder")
    return Traced(
        module=module,
        graph=graph,
        layers=tuple(_layers(runs)),
        inputs=given,
        results=tuple(dict.fromkeys(output.all_input_nodes)),
        built=found.built,
        slopes=found.slopes,
        moving=found.moving,
    )


def _kept_whole(module: nn.Module) -> set[type]:
    """Return the classes of modules that a model of Transformers says are not to be cut."""
    said = {name for part in module.modules() for name in getattr(part, NOT_CUT, None) or ()}
    return {type(part) for part in module.modules() if type(part).__name__ in said}


def _require_values(given: object) -> None:
    """Refuse inputs of which no tensor has a value: a batch of no samples costs nothing."""
    tensors = [one for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]
    if tensors and not any(one.numel() for one in tensors):
        shapes = ", ".join(str(tuple(one.shape)) for one in tensors[:3])
        raise InputError(
            f"hold no values: {shapes}",
            field="sample_inputs",
            remedy="give a microbatch of one sample or more",
        )


def _tidied(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the operators, parts of a result right behind it, without guards."""
    for node in list(graph.graph.nodes):
        if node.op == "call_module" and not node.users:  # no module is left but one of guards
            graph.graph.erase_node(node)
        elif node.target is operator.getitem:
            node.args[0].append(node)
        elif _writes(node) and node.args[0].op == "get_attr":  # the next one reads the buffer
            node.replace_all_uses_with(node.args[0])
    _put_forward(graph.graph)
    graph.recompile()
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def _put_forward(graph: fx.Graph) -> None:
    """Move what export puts at the end, new values of buffers, behind their makers and readers."""
    place = {node: at for at, node in enumerate(graph.nodes)}
    (end,) = (node for node in graph.nodes if node.op == "output")
    while str(end.prev.target) == "aten.copy_.default" and end.prev.args[0].op == "get_attr":
        end = end.prev
    copies = [node for node in graph.nodes if place[node] >= place[end] and node.op != "output"]
    for copy in copies:
        buffer, value = copy.args[:2]
        readers = [user for user in _users(buffer) if user not in copies]
        writers = [user for user in _users(value) if user not in copies and _writes(user)]
        last = max([value, *readers, *writers], key=place.__getitem__)
        if last.op == "call_function":
            last.append(copy)
            copy.meta["nn_module_stack"] = last.meta.get("nn_module_stack", {})


def _users(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads a node or a view of it."""
    for user in node.users:
        yield user
        if is_view(user):
            yield from _users(user)


def is_view(node: fx.Node) -> bool:
    """Whether an operator returns other views of what it reads, or picks a part of a result."""
    said = schema(node)
    if said is None:
        return bool(node.op == "call_function")
    aliases = [result.alias_info for result in said.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def regions(graph: fx.GraphModule, node: fx.Node) -> list[fx.GraphModule]:
    """Return the graphs that an operator runs: both branches, or a region of its own."""
    if str(node.target) not in REGIONS:
        return []
    held = (attribute(graph, str(source.target)) for source in node.all_input_nodes
            if source.op == "get_attr")  # fmt: skip
    return [one for one in held if isinstance(one, fx.GraphModule)]


def calls(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the operators of a graph."""
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def written_into(graph: fx.Graph) -> set[fx.Node]:
    """Return what a graph is given or holds and its operators write into, also by views."""
    found = set()
    for node in graph.nodes:
        said = schema(node)
        for value, one in zip(node.args, said.arguments if said else (), strict=False):
            if isinstance(value, fx.Node) and one.alias_info and one.alias_info.is_write:
                found.add(base_of(value))
    return found


def base_of(node: fx.Node) -> fx.Node:
    """Return the tensor whose memory a node shows."""
    while node.op == "call_function" and node.all_input_nodes:
        said = schema(node)
        if said is not None and not any(result.alias_info for result in said.returns):
            break
        node = node.all_input_nodes[0]
    return node


def _require_shape(node: fx.Node, stack: Sequence[tuple[str, str, str]]) -> None:
    """Refuse a tensor whose shape depends on values."""
    if is_tensor(node) and not all(isinstance(size, int) for size in node.meta["val"].shape):
        path = stack[-1][1] if stack else ""
        raise InputError(
            f"makes a tensor {node.name!r} whose shape depends on values",
            field=f"module {path}" if path else "module",
            remedy="keep the shape, and mask the values that are not wanted",
        )


def _writes(node: fx.Node) -> bool:
    """Whether an operator writes into the first tensor that it reads, and returns that."""
    said = schema(node)
    if said is None or not said.returns or not node.args or not is_tensor(node.args[0]):
        return False
    alias = said.returns[0].alias_info
    return alias is not None and bool(alias.is_write)


def _runs(calls: Mapping[fx.Node, tuple[str, str]]) -> list[tuple[str, list[fx.Node]]]:
    """Return runs of operators of one layer each, with its name."""
    runs: list[tuple[str, list[fx.Node]]] = []
    called: dict[str, int] = {}
    last = ""
    for node, (call, name) in calls.items():
        if not runs or (call and call != last):
            called[name] = called.get(name, 0) + 1
            again = f" ({called[name]})" if called[name] > 1 else ""
            runs.append((f"{name}{again}", []))
            last = call
        runs[-1][1].append(node)
    return runs


def _stack_of(
    node: fx.Node, graph: fx.GraphModule, known: Mapping[fx.Node, list[tuple[str, str, str]]]
) -> list[tuple[str, str, str]]:
    """Return the calls of modules around an operator, from the outermost: call, path, class.

    A part of a result is where the result is; a region is where all of its operators are.
    """
    if node.target is operator.getitem:
        return known.get(node.args[0], _stack(node))
    inner = [_stack(one) for region in regions(graph, node) for one in calls(region)]
    common = [level[0] for level in zip(*inner, strict=False) if len(set(level)) == 1]
    return common or _stack(node)


def _stack(node: fx.Node) -> list[tuple[str, str, str]]:
    """Return the calls of modules that an operator tells of."""
    found = []
    for call, (path, kind) in node.meta.get("nn_module_stack", {}).items():
        named = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        found.append((call, path, named))
    return found


def _layer_of(
    stack: Sequence[tuple[str, str, str]], parents: set[str], depth: int | None, blocks: set[str]
) -> tuple[str, str]:
    """Return the call of the layer that an operator is part of, and its name; "" for none.

    `parents` are the modules that call others.
    """
    for level, (call, path, kind) in enumerate(stack):
        deep = depth is not None and path.count(".") + 1 >= depth
        if level and (kind in blocks or deep or path not in parents):
            return call, path
    return "", FIRST


def _layers(runs: Sequence[tuple[str, list[fx.Node]]]) -> Iterator[Layer]:
    """Yield the layers of runs, each with what it reads and writes."""
    for name, nodes in runs:
        own = set(nodes)
        read = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        written = [n for n in nodes if is_tensor(n) and any(user not in own for user in n.users)]
        yield Layer(
            name=name,
            nodes=tuple(nodes),
            inputs=tuple(n for n in read if n not in own and n.op != "get_attr"),
            outputs=tuple(written),
            held=tuple(n for n in read if n.op == "get_attr"),
        )


def extracted(
    traced: Traced,
    layers: Sequence[Layer],
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
) -> fx.GraphModule:
    """Return `layers` that follow one another as a module of their own.

    It takes and returns rows of tensors; parameters and buffers are those of the traced module, by
    their own names.  `inputs` may be handed on as `outputs`.
    """
    made, root = fx.Graph(), nn.Module()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = made.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    held = [node for layer in layers for node in layer.held]
    held += [node for node in outputs if node.op == "get_attr"]
    names = {node: str(node.target) for node in held}
    for node, name in names.items():
        hold(root, name, traced.held(node), name in traced.persistent)
        copies[node] = made.get_attr(name)
    for layer in layers:
        for node in layer.nodes:
            copies[node] = made.node_copy(node, copies.__getitem__)
    made.output(tuple(copies[node] for node in outputs))
    module = fx.GraphModule(root, made)  # all buffers of its copy are persistent
    for node, name in names.items():
        hold(module, name, traced.held(node), name in traced.persistent)
    return module


def hold(root: nn.Module, path: str, value: Any, persistent: bool) -> None:
    """Give `root` a `value` at a `path`; a buffer is part of the state if it is `persistent`."""
    *parts, last = path.split(".")
    owner = root
    for part in parts:
        if not hasattr(owner, part):
            owner.add_module(part, nn.Module())
        owner = getattr(owner, part)
    if isinstance(value, nn.Parameter):
        owner.register_parameter(last, value)
    elif not isinstance(value, torch.Tensor):
        setattr(owner, last, value)
    else:
        owner.register_buffer(last, value, persistent=persistent)
