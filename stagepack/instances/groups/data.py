"""Layer grouping: which operators run together inside local memory, in which slices, and when.

A network's operators, in topological order, are dealt out to groups.  A group loads what it reads
from global memory, computes inside local memory, and stores what others read; only that passes
between groups.  Its operators are cut into slices (:mod:`.regions`), which run one after the other
through a table of timesteps (:mod:`.timesteps`), loads and stores beside compute; at every moment
what is alive has an address in every lane (:mod:`.lmem`).

The model is that of TPU-MLIR's LayerGroup; see its developer's manual, chapter *LayerGroup*.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from stagepack.contracts import cached
from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.operators import Few, Operator, Shape, Size, five
from stagepack.instances.groups.problem import (
    KIND,
    Coordinates,
    Interpolation,
    Objective,
    OperatorKind,
    Order,
    Slicing,
    Standalone,
    Timesteps,
)

HALF = 0.5
"""Part of an input's rows that slices may read again, where nothing else is said."""

SAMPLING = {"interpolation": Interpolation.LINEAR, "coordinates": Coordinates.HALF_PIXEL}
LATER = {"timesteps": Timesteps.NEAREST, "order": Order.GIVEN, "rates": {}, **SAMPLING}
"""Younger fields, and their defaults.  A fingerprint leaves out a field with its default, so that
instances from before the field keep theirs."""
BACKWARD = "adds"
"""What matters to the backward pass alone, and to no answer."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input of the network: its shape, (n, c, h, w) or (n, c, d, h, w), and bytes per value."""

    name: str
    shape: tuple[Size, ...]
    dtype_bytes: Size = 1


@dataclass(frozen=True)
class Tensor:
    """What an operator writes or, without a `writer`, the network is given; its readers rise."""

    name: str
    shape: Shape
    dtype_bytes: int
    writer: int | None
    readers: tuple[int, ...]

    def nbytes(self, part: Shape) -> int:
        """Return the bytes in global memory of a part."""
        n, c, d, h, w = part
        return n * c * d * h * w * self.dtype_bytes


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GroupingData:
    """An instance of layer grouping; :meth:`.LayerGrouping.from_arrays` says what the fields mean.

    Operators are in topological order.
    """

    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[Source, ...]
    outputs: tuple[str, ...]
    chip: LaneChip
    slicing: Slicing = Slicing.N_THEN_H
    standalone: Standalone = Standalone.ANY
    timesteps: Timesteps = Timesteps.NEAREST
    order: Order = Order.GIVEN
    max_slices: Few = 64
    max_group: Few = 64
    overlap_limit: float | None = HALF
    objective: Objective = Objective.CYCLES
    source: str = field(default="", compare=False)

    kind = KIND
    tolerance = 0.0

    @property
    def n(self) -> int:
        """Number of operators."""
        return len(self.operators)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """What operators write, in their order, then the inputs."""
        readers: list[list[int]] = [[] for _ in range(self.n + len(self.inputs))]
        for at, reads in enumerate(self.reads):
            for tensor in dict.fromkeys(reads):
                readers[tensor].append(at)
        parts = [(op.name, op.full, op.dtype_bytes) for op in self.operators]
        parts += [(given.name, five(given.shape), given.dtype_bytes) for given in self.inputs]
        return tuple(
            Tensor(*part, writer=at if at < self.n else None, readers=tuple(readers[at]))
            for at, part in enumerate(parts)
        )

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The tensors that each operator reads, in the order of its inputs."""
        return tuple(tuple(self._index[name] for name in op.inputs) for op in self.operators)

    @cached_property
    def _index(self) -> dict[str, int]:
        names = [*(op.name for op in self.operators), *(given.name for given in self.inputs)]
        return {name: at for at, name in enumerate(names)}

    @cached_property
    def kept(self) -> frozenset[int]:
        """Tensors that are results of the network."""
        return frozenset(self._index[name] for name in self.outputs)

    def sources(self, operator: int) -> tuple[Shape, ...]:
        """Return the shapes of what an operator reads."""
        tensors = self.tensors
        return tuple([tensors[tensor].shape for tensor in self.reads[operator]])

    def overwrites(self, operator: int) -> bool:
        """Whether an operator may write over its first input, value by value."""
        if not self.operators[operator].in_place or not self.reads[operator]:
            return False
        own, read = self.tensors[operator], self.tensors[self.reads[operator][0]]
        return (own.shape, own.dtype_bytes) == (read.shape, read.dtype_bytes)

    def alone(self, operator: int) -> bool:
        """Whether an operator can only run by itself, from and to global memory."""
        return self.operators[operator].kind == OperatorKind.OTHER

    def stands(self, operator: int) -> bool:
        """Whether an operator may run by itself, from and to global memory."""
        return self.standalone == Standalone.ANY or self.alone(operator)

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        whole = hashlib.sha256()
        for key in sorted(self.__dataclass_fields__):
            value = getattr(self, key)
            if key not in ("name", "source") and not _usual(key, value):
                told = msgspec.json.encode(_told(value), enc_hook=str, order="sorted")
                whole.update(key.encode() + told)
        return whole.hexdigest()[:16]

    @cached_property
    def linear(self) -> bool:
        """Whether the operators can run in one order only."""
        return all(at in self.reads[at + 1] for at in range(self.n - 1))

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} operators on {self.chip.name or 'a chip'}"


def _usual(key: str, value: object) -> bool:
    return key in LATER and value == LATER[key]


def _told(value: object) -> object:
    """Return what a fingerprint is made of: structs without what is usual of what came later."""
    if isinstance(value, tuple):
        return [_told(part) for part in value]
    if isinstance(value, msgspec.Struct):
        told = msgspec.structs.asdict(value)
        told.pop(BACKWARD, None)
        for key, usual in LATER.items():
            if key in told and told[key] == usual:
                del told[key]
        return told
    return value
