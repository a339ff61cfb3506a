"""JSON that people can read: one line for each entry of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np


def lines(data: Mapping[str, Any], opened: str, indent: str = "") -> str:
    """Encode an object with a line for each entry that is not None, and so its entry `opened`."""
    rows = []
    for key, value in data.items():
        if value is None:
            continue
        if key == opened and isinstance(value, dict):
            text = lines(value, opened, indent + " ")
        else:
            text = msgspec.json.encode(value, enc_hook=_plain).decode()
        rows.append(f'{indent} "{key}": {text}')
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value)} is not JSON data")
