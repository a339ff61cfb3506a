"""Packs all tensors that cross a cut into one, as ``torch.distributed.pipelining`` needs.

Torch sends a gradient back for every tensor that it received.  A single tensor with gradients is
sent as it is.  Anything else becomes one row of numbers: floats by value, in a type that holds all
of them exactly; integers and booleans by their bytes, without gradients.  An empty slice of the
input is also part of the output, so that there is a gradient (zeros) even if no crossing tensor has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import torch
from torch import fx, nn

from stagepack.errors import InputError
from stagepack.integrations.pytorch.tracing import attribute, base_of, is_tensor, written_into

ALIGNED = 8
"""Bytes of which those of a tensor of integers take a multiple."""
NO_SLOPES = ("wrap_with_set_grad_enabled",)
"""What runs a part of a model with gradients or, where its first argument is false, without."""


@dataclass(frozen=True)
class Piece:
    """A tensor that crosses; `slopes`: gradients go back, `written`: the next stage writes."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    slopes: bool
    written: bool

    @property
    def floats(self) -> bool:
        """Whether it travels by its values."""
        return bool(self.dtype.is_floating_point or self.dtype.is_complex)

    @property
    def numbers(self) -> int:
        """Floats that it consists of, or bytes."""
        size = 2 if self.dtype.is_complex else 1 if self.floats else self.dtype.itemsize
        return prod(self.shape) * size


@dataclass(frozen=True)
class Cut:
    """All that crosses between two stages, for one microbatch."""

    pieces: tuple[Piece, ...]

    @property
    def plain(self) -> bool:
        """Whether it is one tensor that travels as it is."""
        alone = len(self.pieces) == 1
        return alone and self.pieces[0].slopes and not self.pieces[0].dtype.is_complex

    @property
    def carrier(self) -> torch.dtype:
        """A type of floats that holds all floats exactly."""
        kinds = [piece.dtype.to_real() for piece in self.pieces if piece.floats]
        return reduce(torch.promote_types, kinds) if kinds else torch.float32

    def example(self, device: torch.device) -> torch.Tensor:
        """Return a tensor without values of the shape and type of what is sent."""
        if self.plain:
            shape, dtype = self.pieces[0].shape, self.pieces[0].dtype
        else:
            shape, dtype = (sum(self._lengths()),), self.carrier
        return torch.empty(shape, dtype=dtype, device=device, requires_grad=True)

    def packed(self, row: Sequence[torch.Tensor], ties: Iterable[torch.Tensor]) -> torch.Tensor:
        """Return what is sent for a row of tensors; `ties` are empty, and let gradients through."""
        if self.plain:
            return row[0]
        parts = [self._sent(*pair) for pair in zip(self.pieces, row, strict=True)]
        return torch.cat([*parts, *(tie.to(self.carrier).reshape(0) for tie in ties)])

    def _sent(self, piece: Piece, tensor: torch.Tensor) -> torch.Tensor:
        if piece.dtype.is_complex:
            tensor = torch.view_as_real(tensor.resolve_conj())
        if piece.floats:
            return (tensor if piece.slopes else tensor.detach()).reshape(-1).to(self.carrier)
        row = tensor.contiguous().reshape(-1).view(torch.uint8)
        return nn.functional.pad(row, (0, -len(row) % ALIGNED)).view(self.carrier)

    def unpacked(self, sent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the row of tensors of what was sent."""
        if self.plain:
            return (sent.clone() if self.pieces[0].written else sent,)
        parts = sent.split(self._lengths())
        return tuple(self._came(*pair) for pair in zip(self.pieces, parts, strict=True))

    def _came(self, piece: Piece, part: torch.Tensor) -> torch.Tensor:
        if not piece.floats:
            row = part.detach().clone().view(torch.uint8)[: piece.numbers]
            return row.view(piece.dtype).view(piece.shape)
        part = part if piece.slopes else part.detach()
        if piece.dtype.is_complex:
            pairs = part.to(piece.dtype.to_real()).view(*piece.shape, 2)
            return torch.view_as_complex(pairs.clone())
        # A copy where the stage writes: parts of what was received share one memory.
        return part.to(piece.dtype, copy=piece.written).view(piece.shape)

    def _lengths(self) -> list[int]:
        """Return how many numbers of the carrier each piece takes."""
        room = self.carrier.itemsize
        return [
            piece.numbers if piece.floats else -(-piece.numbers // ALIGNED) * ALIGNED // room
            for piece in self.pieces
        ]


def cuts(stages: Sequence[fx.GraphModule], layers: Sequence[Sequence[str]]) -> list[Cut]:
    """Return what crosses between stages, cut by cut; messages name the `layers` of each."""
    found = []
    slopes: list[bool] = []
    bases: list[str] = []  # names of the memory that each tensor shows
    for at, stage in enumerate(stages):
        places = [node for node in stage.graph.nodes if node.op == "placeholder"]
        if not at:
            slopes = [_given_slopes(node) for node in places]
            bases = [str(node.name) for node in places]
        base = dict(zip(places, bases, strict=True))
        if at:
            written = {base[node] for node in written_into(stage.graph) if node in base}
            between = f"the cut between {layers[at - 1][-1]!r} and {layers[at][0]!r}"
            _require_sendable(base, written, between)
            rows = zip(places, slopes, strict=True)
            found.append(Cut(tuple(_piece(node, s, base[node] in written) for node, s in rows)))
        slopes = list(_slopes(stage, dict(zip(places, slopes, strict=True))))
        (output,) = (node for node in stage.graph.nodes if node.op == "output")
        roots = map(base_of, output.args[0])
        bases = [base.get(root, f"{root.name} of stage {at}") for root in roots]
    return found


def _require_sendable(base: Mapping[fx.Node, str], written: set[str], between: str) -> None:
    """Refuse what cannot be sent and give the same results."""
    remedy = "cut elsewhere, or make one layer of both (depth=, basic_blocks=)"
    for node in base:
        if not is_tensor(node):
            raise InputError(
                f"{between} is crossed by {node.name!r}, which is no tensor",
                field="stages",
                remedy=remedy,
            )
    for memory in written:
        shown = [repr(node.name) for node, own in base.items() if own == memory]
        if len(shown) > 1:
            raise InputError(
                f"{between} is crossed by {' and '.join(shown)}, which share memory that the next "
                f"stage writes into",
                field="stages",
                remedy=remedy,
            )


def _piece(node: fx.Node, slopes: bool, written: bool) -> Piece:
    value = node.meta["val"]
    return Piece(str(node.name), tuple(value.shape), value.dtype, slopes, written)


def _given_slopes(node: fx.Node) -> bool:
    return is_tensor(node) and bool(node.meta["val"].requires_grad)


def _slopes(stage: fx.GraphModule, known: Mapping[fx.Node, bool]) -> Iterator[bool]:
    """Yield whether gradients go back through what a stage returns."""
    found = dict(known)
    for node in stage.graph.nodes:
        if node.op == "get_attr":
            held = attribute(stage, str(node.target))
            found[node] = isinstance(held, nn.Parameter) and held.requires_grad
        elif node.op == "call_function":
            passes = _passes_slopes(node)
            found[node] = passes and any(found[source] for source in node.all_input_nodes)
        elif node.op == "output":
            yield from (found[one] for one in node.args[0])


def _passes_slopes(node: fx.Node) -> bool:
    """Whether gradients go through an operator, if they go through what it reads."""
    called = str(node.target)
    if called.startswith("aten.detach") or (called in NO_SLOPES and node.args[0] is False):
        return False
    value = node.meta.get("val")
    return not is_tensor(node) or value.is_floating_point() or value.is_complex()
