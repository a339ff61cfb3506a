"""Readable JSON: one line for each entry of an object, without default values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.instances.profile import Array


class Rows(JsonObject):
    """An object of which each entry has a line."""


class Items(list[object]):
    """A list of which each item has a line."""


def lines(data: Mapping[str, object], indent: str = "") -> str:
    """Encode an object with a line for each entry that is not None, and so entries of `Rows`."""
    rows = []
    for key, value in data.items():
        if value is None:
            continue
        if isinstance(value, Rows):
            text = lines(value, indent + " ")
        elif isinstance(value, Items):
            items = [f"{indent}  {_line(item)}" for item in value]
            text = "[\n" + ",\n".join(items) + f"\n{indent} ]"
        else:
            text = _line(value)
        rows.append(f'{indent} "{key}": {text}')
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _line(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value)} is not JSON data")


def unless(column: Array, usual: int | Array = 0) -> Array | None:
    """Return a column, or None where its default, integers `usual`, says the same."""
    same = column.dtype.kind == "i" and bool((column == usual).all())
    return None if same else column


def unusual(instance: object, document: type[msgspec.Struct], names: Iterable[str]) -> JsonObject:
    """Return the fields `names` of `instance`, None for defaults of the struct `document`."""
    usual = {field.name: field.default for field in msgspec.structs.fields(document)}
    values = {name: getattr(instance, name) for name in names}
    return {name: None if value == usual[name] else value for name, value in values.items()}
