"""LMEM packing: where in memory each buffer lives.

Every buffer has a size and a lifetime; buffers alive together must not overlap.  An instance is
plain arrays (one entry a buffer) and the rules an allocation must respect; it knows no solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject, cached
from stagepack.errors import InputError, a
from stagepack.instances.base import array_parts, digest_of
from stagepack.instances.documents import strict
from stagepack.instances.packing.problem import KIND, Objective
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST
from stagepack.shown import ShownSolution, some


@dataclass(frozen=True)
class Gap:
    """During [start, end) a buffer uses only bytes [low, high) of its own (empty: none)."""

    buffer: int
    start: int
    end: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Allowed:
    """A range [low, high) of addresses; a buffer must lie completely inside one such range."""

    buffer: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Banks:
    """Banks of equal size, and the pairs of buffers that should not share one.

    Attributes
    ----------
    count : int
        Number of banks.
    nbytes : int
        Bytes of a bank: address o lies in bank o // nbytes.
    pairs : ndarray of int64, shape (pairs, 2)
        Buffers that conflict when the banks they touch intersect, each pair once.
    weight : int or None
        Bytes of peak that one conflict is worth; None: conflicts come first.
    """

    count: int
    nbytes: int
    pairs: Array
    weight: int | None = None


@dataclass(frozen=True)
class View:
    """A buffer that lies inside another one, its host, so many bytes above the host's offset."""

    buffer: int
    host: int
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Penalties:
    """What it costs if two buffers share an address, for some pairs.

    Attributes
    ----------
    pairs : ndarray of int64, shape (pairs, 2)
        Buffers, each pair once, ascending.
    cost : ndarray of int64, shape (pairs,)
        Of each pair whose bytes [offset, offset + size) have one in common, in one memory.
    """

    pairs: Array
    cost: Array


@dataclass(frozen=True, repr=False)
class Memory:
    """One of several memories.

    Attributes
    ----------
    name : str
        For messages and files.
    capacity : int or None
        Bytes; None: no limit.
    cost : int
        Of an access.
    reserved : tuple of (int, int)
        Address ranges [low, high) that no buffer may use, ascending and apart.
    alignment : int
        What all offsets in it are multiples of.
    """

    name: str
    capacity: int | None
    cost: int = 0
    reserved: tuple[tuple[int, int], ...] = ()
    alignment: int = 1

    def __repr__(self) -> str:
        said = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
        told = [
            f"{name}={value!r}" for name, value, usual in said if value != usual or name == "cost"
        ]
        return f"Memory({', '.join(told)})"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PackingData:
    """An instance of LMEM packing; :meth:`.LmemPacking.from_arrays` says what the fields mean.

    Columns of a number a buffer are int64, shape (n,); of offsets, -1 stands for none.  Lifetimes
    are zeros and ones where `conflicts`, shape (pairs, 2), replaces them.  With a `period`,
    0 <= start < period and start < end <= start + period.  `homes` is bool, shape (n, memories).
    """

    name: str
    size: Array
    start: Array
    end: Array
    ids: tuple[str, ...] | None = None
    period: int | None = None
    conflicts: Array | None = None
    capacity: int | None = None
    alignment: Array
    gaps: tuple[Gap, ...] = ()
    fixed: Array
    allowed: tuple[Allowed, ...] = ()
    reserved: tuple[tuple[int, int], ...] = ()
    colocated: tuple[tuple[int, ...], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    banks: Banks | None = None
    memories: tuple[Memory, ...] = ()
    homes: Array | None = None
    exclusive: tuple[int, ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    exempt: tuple[tuple[int, int], ...] = ()
    views: tuple[View, ...] = ()
    penalties: Penalties | None = None
    segment: int | None = None
    accesses: Array
    previous: Array
    hint: Array
    objective: Objective = Objective.PEAK
    source: str = field(default="", compare=False)
    lifetimes: str = field(default="", compare=False)

    kind = KIND
    tolerance = 0.0

    @property
    def n(self) -> int:
        """Number of buffers."""
        return len(self.size)

    @property
    def related(self) -> bool:
        """Whether more than lifetimes or conflicts says who may overlap, or where buffers lie."""
        pairs = self.apart or self.exempt or self.exclusive
        return bool(pairs or self.views) or self.segment is not None

    @property
    def ceiling(self) -> int | None:
        """The address that no buffer may exceed: the capacity where it counts, the last bank."""
        limits = [] if self.objective is Objective.PEAK else [self.capacity]
        if self.banks is not None:
            limits.append(self.banks.count * self.banks.nbytes)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def goal(self) -> int | None:
        """An objective value that is good enough: the capacity, when all must only fit.

        In several memories it is what all of them have together.
        """
        if self.objective is not Objective.FIT:
            return None
        if self.memories:
            return sum(memory.capacity or 0 for memory in self.memories)
        return self.capacity

    @cached_property
    def bank_pairs(self) -> Array:
        """The pairs of buffers that should not share a bank; one of no bytes touches none."""
        pairs = np.zeros((0, 2), dtype=np.int64) if self.banks is None else self.banks.pairs
        return np.asarray(pairs[(self.size[pairs] > 0).all(axis=1)])

    @cached_property
    def conflict_weight(self) -> int:
        """What one bank conflict adds to the objective: more than any peak, where they come first.

        A power of ten, so that people can read conflicts and peak off the value.
        """
        if self.banks is not None and self.banks.weight is not None:
            return self.banks.weight
        top = self.capacity
        if top is None:
            top = int(self.size.sum() + self.alignment.sum())
            top += max([0, *(high for _, high in self.reserved)])
            top += int(self.fixed.max()) + max([0, *(item.low for item in self.allowed)])
        if self.banks is not None:
            top = max(top, self.banks.count * self.banks.nbytes)
        weight = 10
        while weight <= top:
            weight *= 10
        return weight

    def buffer_id(self, index: int) -> str:
        """Name of a buffer for messages, files and plots."""
        return str(index) if self.ids is None else self.ids[index]

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, _parts, _LATER)

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} buffers, {self.objective}"


_LATER: dict[str, object] = {
    **dict.fromkeys(("exclusive", "apart", "exempt", "views"), ()),
    **dict.fromkeys(("homes", "penalties", "segment")),
}
"""Fields that digests of the first version did not know, with what says nothing."""


def _parts(value: object) -> Iterator[bytes]:
    """Yield the bytes that tell a value from another one."""
    if isinstance(value, Penalties):
        yield from array_parts(value.pairs)
        yield from array_parts(value.cost)
    elif isinstance(value, Banks):
        yield repr((value.count, value.nbytes, value.weight)).encode()
        yield from array_parts(value.pairs)
    else:
        yield from array_parts(value)


@dataclass(frozen=True, eq=False, repr=False)
class PackingSolution(ShownSolution):
    """A placement: the offset of each buffer and, if there are several memories, its memory.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n,)
        Address of the first byte of each buffer.
    memory : ndarray of int64, shape (n,), optional
        Index of the memory of each buffer.
    ids, memories : tuple of str, optional
        Names of the buffers and memories, for :meth:`to_dict`.
    """

    offsets: Array
    memory: Array | None = None
    ids: tuple[str, ...] | None = field(default=None, repr=False)
    memories: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackingSolution):
            return NotImplemented
        if not np.array_equal(self.offsets, other.offsets):
            return False
        if self.memory is None or other.memory is None:
            return self.memory is other.memory
        return np.array_equal(self.memory, other.memory)

    def __hash__(self) -> int:
        return hash((self.offsets.tobytes(), None if self.memory is None else len(self.memory)))

    @classmethod
    def of(cls, instance: PackingData, offsets: Any, memory: Any = None) -> PackingSolution:
        """Return the solution of `instance` with these offsets (and memories).

        Parameters
        ----------
        instance : PackingData
            What is solved.
        offsets : array_like of int, shape (n,)
            Addresses of the buffers.
        memory : array_like of int, shape (n,), optional
            Index of each buffer's memory, where the instance has several.
        """
        return cls(
            np.array(offsets, dtype=np.int64),
            None if memory is None else np.array(memory, dtype=np.int64),
            instance.ids,
            tuple(item.name for item in instance.memories),
        )

    @classmethod
    def from_dict(cls, data: object, instance: PackingData) -> PackingSolution:
        """Read ``{"offsets": {id: int}}``, with ``"memories": {id: name}`` where there are several.

        Raises
        ------
        InputError
            When a buffer is missing or unknown, or a value is no integer (no memory's name).
        """
        if isinstance(data, Mapping):
            strict.require_fields(data, ("offsets", "memories"))
        if not isinstance(data, Mapping) or not isinstance(data.get("offsets"), Mapping):
            raise InputError(
                "is missing or no object", field="offsets", remedy='write {"offsets": {id: int}}'
            )
        ids = instance.ids or tuple(map(str, range(instance.n)))
        offsets = strict.by_id(data["offsets"], "offsets", ids, "buffer", instance.name)
        for at, value in enumerate(offsets):
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= LARGEST:
                raise InputError(
                    f"{value!r} is no integer below 2**62",
                    field=f"offsets.{instance.buffer_id(at)}",
                    remedy="give a byte address",
                )
        memory = None
        if data.get("memories") is not None:
            names = [item.name for item in instance.memories]
            chosen = strict.by_id(data["memories"], "memories", ids, "buffer", instance.name)
            for at, name in enumerate(chosen):
                if name not in names:
                    raise InputError(
                        f"{name!r} is no memory of the instance",
                        field=f"memories.{instance.buffer_id(at)}",
                        remedy="there are " + (", ".join(names) or "none"),
                    )
            memory = [names.index(name) for name in chosen]
        return cls.of(instance, offsets, memory)

    def _line(self) -> str:
        return f"{len(self.offsets):,} buffers, offsets {some(self.offsets)}"

    def malformed(self) -> str:
        """Return the name of a field that is not an array, or ''."""
        if not isinstance(self.offsets, np.ndarray):
            return "offsets"
        return "" if self.memory is None or isinstance(self.memory, np.ndarray) else "memory"

    def by_name(self, instance: PackingData) -> dict[str, int]:
        """Return the offset of each buffer of `instance` by its id.

        Raises
        ------
        InputError
            When `instance` is no packing, or has another number of buffers.
        """
        if not isinstance(instance, PackingData):
            raise InputError(
                f"{a(type(instance).__name__)} is no packing",
                field="instance",
                remedy="give the packing that it solves",
            )
        ids = instance.ids or tuple(map(str, range(instance.n)))
        if len(self.offsets) != instance.n:
            raise InputError(
                f"does not fit: {len(self.offsets):,} offsets for {instance.n:,} buffers",
                field="offsets",
                remedy="give a solution of this instance",
            )
        return dict(zip(ids, self.offsets.tolist(), strict=True))

    def to_dict(self) -> JsonObject:
        """Return the solution as JSON data: ``{"offsets": {id: int}}``."""
        ids = self.ids or tuple(map(str, range(len(self.offsets))))
        found: JsonObject = {"offsets": dict(zip(ids, self.offsets.tolist(), strict=True))}
        if self.memory is not None:
            names = [self.memories[index] for index in self.memory.tolist()]
            found["memories"] = dict(zip(ids, names, strict=True))
        return found
