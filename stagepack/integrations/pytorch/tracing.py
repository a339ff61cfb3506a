"""A module as the layers that run: one graph of operators by torch.export, cut where modules end.

Every operator belongs to the module that calls it.  A run of operators of one call of one layer is
a layer; what containers do between their children joins the layer before it.
"""

from __future__ import annotations

import io
import logging
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from stagepack.errors import InputError

FAILURES = (
    RuntimeError, TypeError, ValueError, AttributeError, LookupError, NotImplementedError,
    AssertionError,
)  # fmt: skip
"""What the code of a module may end with; torch's own are RuntimeErrors."""
GUARDS = "_guards_fn"
FIRST = "(inputs)"
"""Name of what runs before the first layer."""
LONGEST = 300


@dataclass(frozen=True)
class Layer:
    """Operators that run one after the other.

    Attributes
    ----------
    name : str
        Of the module, with a number where it runs again.
    nodes : tuple of fx.Node
    inputs : tuple of fx.Node
        What they read of layers before and of the inputs.
    outputs : tuple of fx.Node
        What others read, or the module returns.
    held : tuple of fx.Node
        Parameters, buffers and constants that they read.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    held: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Traced:
    """A module that was traced.

    Attributes
    ----------
    module : nn.Module
        As it was given.
    graph : fx.GraphModule
        All operators; it shares the module's parameters and buffers.
    layers : tuple of Layer
    inputs : tuple of fx.Node
    results : tuple of fx.Node
        What is returned, flat.
    """

    module: nn.Module
    graph: fx.GraphModule
    layers: tuple[Layer, ...]
    inputs: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]

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
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else [value]
    tensors = (part for part in parts if isinstance(part, torch.Tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def trace(
    module: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
) -> Traced:
    """Return the layers of a module; see :func:`.profile_model` for what they are.

    Parameters
    ----------
    module : nn.Module
    inputs, kwargs : sequence, mapping
        Of one call.
    depth : int, optional
    basic_blocks : sequence of type

    Raises
    ------
    InputError
        For a module that cannot be traced, naming layer and reason; for one that does nothing.
    """
    if depth is not None and depth < 1:
        raise InputError(f"{depth} levels", field="depth", remedy="give at least 1")
    if not isinstance(inputs, tuple | list):
        raise InputError("is no tuple", field="sample_inputs", remedy="write (x,) for one input")
    graph = _exported(module, tuple(inputs), dict(kwargs))
    nodes = _tidied(graph)
    names = {f"{block.__module__}.{block.__qualname__}" for block in basic_blocks}
    stacks = {node: _stack(node) for node in nodes}
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
    )


def _exported(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.GraphModule:
    """Return the graph of a module.

    Raises
    ------
    InputError
        Naming the module that was running, and why it could not go on.
    """
    running: list[str] = []
    names = {id(part): name for name, part in module.named_modules()}

    def enter(part: nn.Module, _: Any) -> None:
        running.append(names[id(part)])

    def leave(_: nn.Module, __: Any, ___: Any) -> None:
        running.pop()

    hooks = [part.register_forward_pre_hook(enter) for part in module.modules()]
    hooks += [part.register_forward_hook(leave) for part in module.modules()]
    try:
        with _held_back():
            found = torch.export.export(module, inputs, kwargs, strict=False).module()
    except FAILURES as error:
        place = (running[-1] if running else "") or type(module).__name__
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        raise InputError(
            f"cannot be traced: {reason}",
            field=f"module {place}",
            remedy="take control flow that depends on data out of it, or give other inputs",
        ) from None
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextmanager
def _held_back() -> Iterator[None]:
    """Show what torch logs when all went well; before a refusal it says the same once more.

    The same goes for the graph that torch prints.  Where ``TORCH_LOGS`` asks for logs all is shown.
    """
    if "TORCH_LOGS" in os.environ:
        yield
        return
    kept: list[tuple[logging.Handler, logging.LogRecord]] = []

    def keeper(handler: logging.Handler) -> Callable[[logging.LogRecord], bool]:
        def keep(record: logging.LogRecord) -> bool:
            kept.append((handler, record))
            return False

        return keep

    filters = [(handler, keeper(handler)) for handler in _handlers_of("torch")]
    for handler, keep in filters:
        handler.addFilter(keep)
    printed, graph = io.StringIO(), ""
    try:
        with redirect_stderr(printed):
            yield
    except FAILURES as error:
        kept.clear()
        if hasattr(error, "partial_fx_graph"):
            graph = f"{error.partial_fx_graph}\n"
        raise
    finally:
        for handler, keep in filters:
            handler.removeFilter(keep)
        for handler, record in kept:
            handler.handle(record)
        sys.stderr.write(printed.getvalue().replace(graph, ""))


def _handlers_of(package: str) -> set[logging.Handler]:
    """Return the handlers of all loggers of a package."""
    loggers = [logging.getLogger(package)]
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith(f"{package}.") and isinstance(logger, logging.Logger):
            loggers.append(logger)
    return {handler for logger in loggers for handler in logger.handlers}


def _tidied(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the operators, parts of a result right behind it, without guards."""
    for node in list(graph.graph.nodes):
        if node.op == "call_module" and node.target == GUARDS:
            graph.graph.erase_node(node)
        elif node.target is operator.getitem:
            node.args[0].append(node)
        elif _writes(node) and node.args[0].op == "get_attr":  # the next one reads the buffer
            node.replace_all_uses_with(node.args[0])
    graph.recompile()
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def _writes(node: fx.Node) -> bool:
    """Whether an operator writes into the first tensor that it reads, and returns that."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.returns or not node.args or not is_tensor(node.args[0]):
        return False
    alias = schema.returns[0].alias_info
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


def _stack(node: fx.Node) -> list[tuple[str, str, str]]:
    """Return the calls of modules around an operator, from the outermost: call, path, class."""
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
    """Return layers that follow one another as a module of their own.

    It takes and returns rows of tensors; parameters and buffers are those of the traced module, by
    their own names.

    Parameters
    ----------
    traced : Traced
    layers : sequence of Layer
    inputs, outputs : sequence of fx.Node
        What crosses into and out of them; what it takes it may hand on.
    """
    made, root = fx.Graph(), nn.Module()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = made.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    held = [node for layer in layers for node in layer.held]
    held += [node for node in outputs if node.op == "get_attr"]
    for node in dict.fromkeys(held):
        name = str(node.target)
        hold(root, name, traced.held(node), name in traced.persistent)
        copies[node] = made.get_attr(name)
    for layer in layers:
        for node in layer.nodes:
            copies[node] = made.node_copy(node, copies.__getitem__)
    made.output(tuple(copies[node] for node in outputs))
    return fx.GraphModule(root, made)


def hold(root: nn.Module, path: str, value: Any, persistent: bool) -> None:
    """Give a module a parameter, buffer or module at a path.

    Parameters
    ----------
    root : nn.Module
    path : str
    value : Parameter, Tensor or Module
    persistent : bool
        Whether a buffer is part of the state.
    """
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
    elif last not in owner._buffers:
        owner.register_buffer(last, value, persistent=persistent)
