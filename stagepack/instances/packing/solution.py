"""Placements as solutions: the offset of each buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, a
from stagepack.instances.documents import strict
from stagepack.instances.packing.data import PackingData
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST
from stagepack.shown import ShownSolution, some


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
        offsets : array_like of int, shape (n,)
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
        offsets = _by_id(data["offsets"], "offsets", instance)
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
            chosen = _by_id(data["memories"], "memories", instance)
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


def _by_id(given: Any, name: str, instance: PackingData) -> list[Any]:
    """Return the values of an object keyed by buffer ids, in the order of the buffers."""
    if not isinstance(given, Mapping):
        raise InputError("is no object", field=name, remedy="write {id: value}")
    ids = instance.ids or tuple(map(str, range(instance.n)))
    missing = next((key for key in ids if key not in given), None)
    if missing is not None:
        raise InputError("is missing", field=f"{name}.{missing}", remedy="name every buffer")
    if len(given) > len(ids):
        known = set(ids)
        extra = next(key for key in given if key not in known)
        raise InputError(
            f"is no buffer of {instance.name}",
            field=f"{name}.{extra}",
            remedy="give a solution of this instance",
        )
    return [given[key] for key in ids]
