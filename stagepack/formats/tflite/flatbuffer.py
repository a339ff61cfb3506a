"""Reads flatbuffers with every access checked, since files may be truncated or malicious.

Source: the FlatBuffers internals document (flatbuffers.dev): tables begin with the signed distance
back to their vtable, whose entries say where fields are; all other references point forward.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stagepack.errors import InputError


def broken(problem: str) -> InputError:
    """Return what is said of bytes that are no such model."""
    return InputError(problem, field="flatbuffer", remedy="give the model as it was converted")


class Bytes:
    """The bytes of a file, and how many of them were looked at."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = 16 * len(data) + 1024  # however often everything refers to a few bytes

    def require(self, at: int, size: int) -> None:
        """Refuse to look beyond the end, or at the same bytes for ever."""
        if at < 0 or at + size > len(self.data):
            raise broken(f"is cut short or damaged: byte {at + size} of {len(self.data)} is needed")
        self._left -= size
        if self._left < 0:
            raise broken("refers to the same bytes over and over")

    def number(self, code: str, at: int) -> int:
        """Return the integer at a place."""
        self.require(at, struct.calcsize(code))
        found: int = struct.unpack_from(f"<{code}", self.data, at)[0]
        return found

    def root(self) -> Table:
        """Return the table with which the file begins."""
        return Table(self, self.number("I", 0))


@dataclass(frozen=True)
class Table:
    """A table of the file, at a place in it."""

    file: Bytes
    at: int

    def place(self, field: int) -> int:
        """Return where a field is; 0 where it is absent."""
        vtable = self.at - self.file.number("i", self.at)
        if 4 + 2 * field + 2 > self.file.number("H", vtable):
            return 0
        within = self.file.number("H", vtable + 4 + 2 * field)
        return self.at + within if within else 0

    def fields(self) -> int:
        """Return the number of fields that the table can have."""
        return (self.file.number("H", self.at - self.file.number("i", self.at)) - 4) // 2

    def number(self, field: int, code: str = "i", default: int = 0) -> int:
        """Return the integer in a `field`, a `code` of :mod:`struct`, or the `default`."""
        at = self.place(field)
        return self.file.number(code, at) if at else default

    def table(self, field: int) -> Table | None:
        """Return the table that a field refers to."""
        at = self.target(field)
        return Table(self.file, at) if at else None

    def target(self, field: int) -> int:
        """Return the place that a field refers to; 0 where it is absent."""
        at = self.place(field)
        return at + self.file.number("I", at) if at else 0

    def vector(self, field: int, size: int) -> tuple[int, int]:
        """Return where the items of a vector begin, each of `size` bytes, and how many they are."""
        at = self.target(field)
        if not at:
            return 0, 0
        count = self.file.number("I", at)
        self.file.require(at + 4, size * count)
        return at + 4, count

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a vector of 32-bit integers."""
        at, count = self.vector(field, 4)
        return struct.unpack_from(f"<{count}i", self.file.data, at)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        at, count = self.vector(field, 4)
        return [
            Table(self.file, place + self.file.number("I", place))
            for place in range(at, at + 4 * count, 4)
        ]

    def data(self, field: int) -> bytes:
        """Return a vector of bytes."""
        at, count = self.vector(field, 1)
        return self.file.data[at : at + count]

    def text(self, field: int) -> str:
        """Return a string."""
        return self.data(field).decode(errors="backslashreplace")
