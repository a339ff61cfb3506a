"""Reads tables of separated cells into arrays, a million lines per second.

Separators are located in all bytes at once.  A column of integers is converted eight digits at a
time over all lines.  Cells are never quoted: a separator always ends a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

NEWLINE, MINUS, ZERO = b"\n-0"
BLANKS = b" \t\r"
MOST_DIGITS = 19  # such numbers fit 64 bits

WORD = 8
"""Bytes that are read as one number of 64 bits, the first of them the lowest."""

ALL = np.uint64(0x0101010101010101)
"""A one in each byte of a word."""

AT_ONCE, LINES = 1 << 20, 1 << 15
"""Bytes that are searched, and cells that are read, at a time: what is made in between stays near,
and takes no new pages of memory, which would cost as much again."""

POWERS = 10 ** np.arange(WORD + 1, dtype=np.uint64)


@dataclass(frozen=True)
class Cells:
    """The lines below the header of a table, those that are not blank."""

    names: tuple[str, ...]
    data: Array  # uint8: all bytes, and a word of nothing behind them
    # `start`, `end`: int64, shape (lines, columns): cell (i, j) is data[start[i, j] : end[i, j]],
    # without blanks around it.
    start: Array
    end: Array
    line: Array  # int64, shape (lines,): line of the file, from 1

    @classmethod
    def of(cls, content: bytes, separator: str = ",") -> Cells:
        """Find the cells of a table, whose lines all must have as many as the header."""
        content += bytes(WORD) if content.endswith(b"\n") else b"\n" + bytes(WORD)
        data = np.frombuffer(content, dtype=np.uint8)
        mark = ord(separator)
        parts = ((at, data[at : at + AT_ONCE]) for at in range(0, len(data), AT_ONCE))
        found = [np.flatnonzero((part == mark) | (part == NEWLINE)) + at for at, part in parts]
        end = np.concatenate(found)
        last = np.flatnonzero(data[end] == NEWLINE)  # the last cell of each line
        start = np.empty_like(end)
        start[0] = 0
        start[1:] = end[:-1] + 1
        if any(blank in content for blank in BLANKS):
            _trim(data, start, end)
        first = np.empty_like(last)
        first[0] = 0
        first[1:] = last[:-1] + 1
        count = last - first + 1
        filled = (count > 1) | (end[first] > start[first])
        line = np.flatnonzero(filled)
        columns = int(count[line[0]])
        if (count[line] != columns).any():
            at = int(line[np.argmax(count[line] != columns)])
            raise InputError(
                f"has {count[at]} cells, the header {columns}",
                field=f"line {at + 1}",
                remedy="give a cell for each column, and nothing between but what is in line 1",
            )
        if not filled.all():
            kept = np.repeat(filled, count)
            start, end = start[kept], end[kept]
        begins, ends = start.reshape(-1, columns), end.reshape(-1, columns)
        names = (
            content[a:b].decode().lower()
            for a, b in zip(begins[0].tolist(), ends[0].tolist(), strict=True)
        )
        return cls(tuple(names), data, begins[1:], ends[1:], line[1:] + 1)

    def __len__(self) -> int:
        return len(self.line)

    def texts(self, column: int) -> list[str]:
        """Return the cells of a column as text."""
        content = self.data.tobytes()
        begins, ends = self.start[:, column].tolist(), self.end[:, column].tolist()
        return [content[a:b].decode() for a, b in zip(begins, ends, strict=True)]

    def text(self, row: int, column: int) -> str:
        """Return one cell as text."""
        return self.data[self.start[row, column] : self.end[row, column]].tobytes().decode()

    def integers(self, column: int, empty: int | None = None) -> Array:
        """Return a column as int64, refusing all but integers below 2**62; an empty cell is
        `empty`.
        """
        number, fine = np.empty(len(self), dtype=np.int64), np.empty(len(self), dtype=bool)
        for at in range(0, len(self), LINES):
            lines = slice(at, at + LINES)
            number[lines], fine[lines] = self._integers(lines, column, empty)
        self.require(
            fine,
            column,
            lambda row: f"{self.text(row, column)[:40]!r} is no integer below 2**62",
            "give a whole number, without a unit",
        )
        return number

    def _integers(self, lines: slice, column: int, empty: int | None) -> tuple[Array, Array]:
        """Return the integers of some lines, and whether they are such."""
        start, end = self.start[lines, column], self.end[lines, column]
        negative = (end > start) & (self.data[start] == MINUS)
        start = start + negative
        length = end - start
        value = np.zeros(len(start), dtype=np.uint64)
        fine = (length > 0) & (length <= MOST_DIGITS)
        for position in range(0, min(int(length.max()), MOST_DIGITS), WORD):
            digits, correct = _digits(self.data, np.minimum(start + position, end), end)
            count = np.clip(length - position, 0, WORD)
            value = value * POWERS[count] + digits
            fine &= correct
        fine &= value < LARGEST
        number = value.astype(np.int64)
        number[negative] *= -1
        if empty is not None:
            blank = (length == 0) & ~negative
            number[blank] = empty
            fine |= blank
        return number, fine

    def require(self, fine: Array, column: int, problem: Callable[[int], str], remedy: str) -> None:
        """Refuse the first row that is not `fine`, naming its line, the `column`, its `problem` and
        `remedy`.
        """
        if not fine.all():
            row = int(np.argmin(fine))
            raise InputError(
                problem(row),
                field=f"line {self.line[row]}, column {self.names[column]}",
                remedy=remedy,
            )


def _digits(data: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Return the numbers of up to eight digits that begin at `start`, and whether they are such.

    All digits of a word are looked at together, then joined to pairs, fours and eight (Lemire 2018,
    Quickly parsing eight digits).
    """
    words = np.ndarray(len(data) - WORD + 1, "<u8", data, strides=(1,))  # one from each byte on
    word = words[start] ^ ALL * np.uint64(ZERO)
    word <<= np.uint64(8) * np.maximum(WORD - (end - start), 0).astype(np.uint64)  # zeros before
    correct = ((word + ALL * np.uint64(0x76)) | word) & ALL * np.uint64(0x80) == 0
    for half, base in ((8, 10), (16, 100), (32, 10_000)):
        odd = ~np.uint64(0) // (np.uint64(1 << half) + np.uint64(1))
        word = (word & odd) * np.uint64(base) + (word >> np.uint64(half) & odd)
    return word, correct


def _trim(data: Array, start: Array, end: Array) -> None:
    """Take blanks off the cells, in place."""
    for edge, step, side in ((end, -1, -1), (start, 1, 0)):
        todo = np.flatnonzero(end > start)
        while len(todo):
            byte = data[edge[todo] + side]
            todo = todo[np.isin(byte, list(BLANKS))]
            edge[todo] += step
            todo = todo[end[todo] > start[todo]]
