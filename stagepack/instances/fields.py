"""A short description of an instance's fields, by which two instances can be compared later."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.instances.profile import Cluster

LABELS = frozenset({
    "name", "names", "source", "ids", "layer_names", "stage_names", "device_names", "order",
    "tensors", "time_unit", "clock",
})  # fmt: skip
"""Fields that matter to no answer."""
LONGEST = 80  # characters of a value that is written down itself


def fields_of(instance: Any) -> JsonObject:
    """Return each field that matters: short plain values themselves, others as ``#checksum``."""
    found: JsonObject = {}
    for field in dataclasses.fields(instance):
        if field.name in LABELS:
            continue
        value = getattr(instance, field.name)
        found[field.name] = _value(value)
        if isinstance(value, Cluster):
            found[f"{field.name}.memory"] = _value(tuple(d.memory for d in value.devices))
        elif isinstance(value, msgspec.Struct):
            parts = msgspec.structs.asdict(value).items()
            found |= {f"{field.name}.{name}": _value(part) for name, part in parts}
    return found


def digest_of(
    instance: Any,
    parts: Callable[[Any], Iterable[bytes]],
    later: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the fingerprint of everything that matters to an answer.

    Parameters
    ----------
    instance : instance
    parts : callable
        The bytes that tell a value of one of its fields from another one; each problem keeps its
        own way, for best-known values are filed under fingerprints.
    later : mapping of str to object
        Fields that came later, with the value that says nothing new.
    """
    whole = hashlib.sha256()
    for name in sorted(instance.__dataclass_fields__):
        value = getattr(instance, name)
        usual = later.get(name, value)
        told = name not in later or (value is not None if usual is None else value != usual)
        if name not in LABELS and told:
            whole.update(name.encode())
            for part in parts(value):
                whole.update(part)
    return whole.hexdigest()[:16]


def array_parts(value: object) -> Iterator[bytes]:
    """Yield the bytes that tell arrays by shape and content, all else by how it prints.

    Parameters
    ----------
    value : object
        What a field holds.
    """
    if isinstance(value, np.ndarray):
        yield repr(value.shape).encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield repr(value).encode()


def _value(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, tuple) and len(value) < LONGEST:
        text = repr(value)
        if len(text) <= LONGEST:
            return text
    return f"#{_checksum(value):08x}"


def _checksum(value: object, so_far: int = 0) -> int:
    """Return the CRC-32 of a value: arrays by their bytes, all else by its parts."""
    if isinstance(value, np.ndarray):
        head = repr((value.shape, value.dtype.kind)).encode()
        return zlib.crc32(np.ascontiguousarray(value).data, zlib.crc32(head, so_far))
    parts: Any = None
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        parts = [part for name, part in msgspec.structs.asdict(value).items() if name != "name"]
    elif isinstance(value, dict):
        parts = [part for item in sorted(value.items()) for part in item]
    elif isinstance(value, tuple | list):
        parts = value
    if parts is None:
        return zlib.crc32(repr(value).encode(), so_far)
    for part in parts:
        so_far = _checksum(part, so_far)
    return so_far
