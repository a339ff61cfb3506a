"""Flatbuffers for tests: a model of TensorFlow Lite from a few words."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

FLOAT, INT8, STRING = 0, 9, 5


class Written:
    """A flatbuffer in the making: what is referred to comes behind what refers.

    Equal tuples are one vector, behind all others.
    """

    def __init__(self, root: dict[int, Any]) -> None:
        self.out = bytearray(struct.pack("<I4s", 0, b"TFL3"))
        self.shared: dict[tuple[int, ...], list[int]] = {}
        self._refer(0, root)
        for value, places in self.shared.items():
            target = self._put(list(value))
            for at in places:
                struct.pack_into("<I", self.out, at, target - at)

    def _refer(self, at: int, value: Any) -> None:
        if isinstance(value, tuple):
            self.shared.setdefault(value, []).append(at)
            return
        self.out += bytes(-len(self.out) % 8)
        target = self._put(value)
        struct.pack_into("<I", self.out, at, target - at)

    def _put(self, value: Any) -> int:
        """Append a table (a dictionary by number), a list of tables or integers, or bytes."""
        at = len(self.out)
        if isinstance(value, dict):
            return self._table(value)
        if isinstance(value, bytes):
            self.out += bytes(-(at + 4) % 16)
            at = len(self.out)
            self.out += struct.pack("<I", len(value)) + value + b"\0"
        elif value and isinstance(value[0], dict):
            self.out += struct.pack(f"<{1 + len(value)}I", len(value), *([0] * len(value)))
            for number, each in enumerate(value):
                self._refer(at + 4 + 4 * number, each)
        else:
            self.out += struct.pack(f"<I{len(value)}i", len(value), *value)
        return at

    def _table(self, value: dict[int, Any]) -> int:
        count = max(value, default=-1) + 1
        places = [4 + 8 * number if number in value else 0 for number in range(count)]
        vtable = struct.pack(f"<{2 + count}H", 4 + 2 * count, 4 + 8 * count, *places)
        start = len(self.out)
        self.out += vtable + bytes(-len(vtable) % 8)
        at = len(self.out)
        self.out += struct.pack("<i", at - start) + bytes(8 * count)
        for number, each in value.items():
            place = at + 4 + 8 * number
            if isinstance(each, int):
                struct.pack_into("<q", self.out, place, each)
            else:
                self._refer(place, each)
        return at


def graph(
    sizes: Sequence[int],
    operators: Sequence[tuple[Any, ...]],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[int] = (),
) -> dict[int, Any]:
    """Return a subgraph: tensors of so many bytes, operators (code, reads, writes, *runs)."""
    tensors = [
        {0: [size], 1: INT8, 2: int(at in constants), 3: f"t{at}".encode()}
        for at, size in enumerate(sizes)
    ]
    steps = []
    for code, reads, writes, *runs in operators:
        step = {0: code, 1: list(reads), 2: list(writes)}
        if runs:
            step[4] = dict(enumerate(runs))
        steps.append(step)
    return {0: tensors, 1: list(inputs), 2: list(outputs), 3: steps}


def model(*graphs: dict[int, Any], metadata: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Return a model of subgraphs; operators are ADD, a custom one, IF, WHILE, VAR_HANDLE."""
    codes = [{3: 0}, {0: 32, 1: b"Unheard"}, {3: 118}, {3: 119}, {3: 142}]
    buffers: list[dict[int, Any]] = [{}, {0: b"constant"}, *({0: held} for _, held in metadata)]
    entries = [{0: name, 1: 2 + at} for at, (name, _) in enumerate(metadata)]
    root: dict[int, Any] = {0: 3, 1: codes, 2: list(graphs), 4: buffers}
    return bytes(Written(root | ({6: entries} if entries else {})).out)
