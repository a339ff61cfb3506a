"""The stages of a partition as modules, to run one after the other or each on its own device.

Each stage takes the tensors that cross the cut before it and returns those that cross the cut
behind it, including those that it only passes on.  The first stage takes the inputs, the last one
returns the results.  Stages hold the parameters and buffers of the module under their own names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn

from stagepack.errors import InputError
from stagepack.integrations.pytorch.inside import pytree
from stagepack.integrations.pytorch.tracing import Layer, Traced, extracted, hold, written_into


@dataclass(frozen=True)
class _Place:
    """Where among what the last stage returns a part of the result is."""

    at: int


@dataclass(frozen=True)
class Stages(Sequence[fx.GraphModule]):
    """A module in stages.

    Attributes
    ----------
    modules : tuple of fx.GraphModule
        Each takes and returns a flat row of tensors.
    layers : tuple of tuple of str
        Names of the layers of each stage.
    inputs : tuple of str
        Names of the inputs, flat.
    constants : mapping of str to Tensor
        What stages hold beside parameters and buffers, by name.
    tied : tuple of (Parameter, tuple of int)
        Parameters that several stages use, each with these.
    """

    modules: tuple[fx.GraphModule, ...]
    layers: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    tied: tuple[tuple[nn.Parameter, tuple[int, ...]], ...]
    _given: Any
    _built: Any
    _leaves: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, at: Any) -> Any:
        return self.modules[at]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run all stages, one after the other; returns what the module does."""
        row: Any = self.flat(args, kwargs)
        for module in self.modules:
            row = module(*row)
        return self.result(row)

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return inputs as the first stage takes them; refuse those that are not built as the
        sample was.
        """
        leaves, built = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if built != self._given:
            raise InputError(
                "are not built as those of the sample",
                field="inputs",
                remedy="give inputs of the same structure as the sample",
            )
        return tuple(leaves)

    def result(self, row: Sequence[Any]) -> Any:
        """Return what the last stage returns as the module does."""
        leaves = [row[leaf.at] if isinstance(leaf, _Place) else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._built)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers of all stages, by their names in the module."""
        return {name: value for stage in self.modules for name, value in stage.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take parameters and buffers from a state of the module, or of its stages.

        Raises
        ------
        InputError
            For names that are missing or that there are not, and values of another shape.
        """
        own = self.state_dict()
        for name in (*own, *state):
            if name not in own or name not in state:
                raise InputError(
                    "is not in the state" if name in own else "is no parameter or buffer of these",
                    field=f"state {name}",
                    remedy="give the state of the same module",
                )
            if state[name].shape != own[name].shape:
                raise InputError(
                    f"has the shape {tuple(state[name].shape)}, not {tuple(own[name].shape)}",
                    field=f"state {name}",
                    remedy="give the state of the same module",
                )
        for stage in self.modules:
            stage.load_state_dict({name: state[name] for name in stage.state_dict()})

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of all stages, each once, by a name that it has in the module."""
        seen = set[int]()
        for stage in self.modules:
            for name, parameter in stage.named_parameters():
                if id(parameter) not in seen:
                    yield name, parameter
                seen.add(id(parameter))

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the buffers of all stages, by their names in the module."""
        yield from {name: x for stage in self.modules for name, x in stage.named_buffers()}.items()


def staged(traced: Traced, boundaries: Sequence[int]) -> Stages:
    """Return the layers of a module in stages: boundaries go from 0 to the number of layers."""
    if traced.slopes and torch.is_grad_enabled():
        raise InputError(
            f"has backward passes of its own, which stages do not: {', '.join(traced.slopes)}",
            field="module",
            remedy="register them by torch.library (register_autograd), checkpoint with "
            "use_reentrant=False, or build stages of inference below torch.no_grad()",
        )
    if traced.moving:
        raise InputError(
            f"counts in numbers of its own, which stages do not: {', '.join(traced.moving)}",
            field="module",
            remedy="register them as buffers; or run the module once before, if they then stay",
        )
    n, cuts = len(traced.layers), list(boundaries)
    if len(cuts) < 2 or (cuts[0], cuts[-1]) != (0, n) or any(a >= b for a, b in pairwise(cuts)):
        raise InputError(
            f"{cuts} are no stages of {n} layers",
            field="boundaries",
            remedy=f"rise from 0 to {n}",
        )
    parts = [traced.layers[a:b] for a, b in pairwise(cuts)]
    homes = _homes(traced, parts)
    crossing = _crossing(traced, parts)
    modules = []
    for at, (part, (given, left)) in enumerate(zip(parts, pairwise(crossing), strict=True)):
        made = extracted(traced, part, given, left)
        for name, value in homes[at].items():
            hold(made, name, value, name in traced.persistent)
        modules.append(made)
    (output,) = (node for node in traced.graph.graph.nodes if node.op == "output")
    place = {node: _Place(at) for at, node in enumerate(traced.results)}
    return Stages(
        modules=tuple(modules),
        layers=tuple(tuple(layer.name for layer in part) for part in parts),
        inputs=tuple(str(node.name) for node in traced.inputs),
        constants=_constants(traced, homes),
        tied=_tied(traced, parts),
        _given=traced.built[0],
        _built=traced.built[1],
        _leaves=tuple(place.get(leaf, leaf) for leaf in output.args[0]),
    )


def _crossing(traced: Traced, parts: Sequence[Sequence[Layer]]) -> list[tuple[fx.Node, ...]]:
    """Return what crosses each cut: inputs, what is used later, results."""
    stage = {node: at for at, part in enumerate(parts) for one in part for node in one.nodes}
    born = {**dict.fromkeys(traced.inputs, 0), **stage}
    last = dict(born)
    for node in stage:
        for source in node.all_input_nodes:
            if source in last:
                last[source] = max(last[source], stage[node])
    for node in traced.results:
        if node in last:
            last[node] = len(parts)
    between = [
        tuple(node for node in born if born[node] < cut <= last[node])
        for cut in range(1, len(parts))
    ]
    return [traced.inputs, *between, traced.results]


def _constants(
    traced: Traced, homes: Sequence[Mapping[str, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """Return the tensors that layers hold and that are no parameters or buffers of the module."""
    known = {name for home in homes for name in home}
    held = {str(node.target): traced.held(node) for one in traced.layers for node in one.held}
    return {
        name: value
        for name, value in held.items()
        if name not in known and isinstance(value, torch.Tensor)
    }


def _tied(
    traced: Traced, parts: Sequence[Sequence[Layer]]
) -> tuple[tuple[nn.Parameter, tuple[int, ...]], ...]:
    """Return parameters that several stages use, and these, in the order of their first use."""
    users: dict[int, tuple[nn.Parameter, dict[int, None]]] = {}
    for at, part in enumerate(parts):
        for node in (node for layer in part for node in layer.held):
            held = traced.held(node)
            if isinstance(held, nn.Parameter):
                users.setdefault(id(held), (held, {}))[1][at] = None
    return tuple((held, tuple(stages)) for held, stages in users.values() if len(stages) > 1)


def _homes(traced: Traced, parts: Sequence[Sequence[Layer]]) -> list[dict[str, torch.Tensor]]:
    """Return parameters and buffers of each stage by all their names; unused ones in the first."""
    first: dict[int, tuple[int, str]] = {}
    into = written_into(traced.graph.graph)
    moves = {id(traced.held(node)) for node in into if node.op == "get_attr"}
    for at, part in enumerate(parts):
        for layer in part:
            for node in layer.held:
                held = traced.held(node)
                stage, user = first.setdefault(id(held), (at, layer.name))
                if stage != at and id(held) in moves:
                    raise InputError(
                        f"{traced.identity(node)!r} is used by {user!r} of stage {stage} and by "
                        f"{layer.name!r} of stage {at}",
                        field="boundaries",
                        remedy="keep these layers in one stage",
                    )
    homes: list[dict[str, torch.Tensor]] = [{} for _ in parts]
    module = traced.module
    named = (*module.named_parameters(remove_duplicate=False),
             *module.named_buffers(remove_duplicate=False))  # fmt: skip
    for name, value in named:
        homes[first.get(id(value), (0, ""))[0]][name] = value
    return homes
