"""Layers as CSV, a line each in the order they run: a spreadsheet, or what a script wrote.

A header names the columns, in any order: ``forward``, and where known ``name``, ``backward`` (both
times in nanoseconds, or in what ``unit`` says; a cycle of the instance is a nanosecond), and in
bytes ``exclusive`` (parameters), ``temporary``, ``carry``, ``stash``, ``input`` and ``output``
(what a layer receives from the one before and sends to the next).  One of input and output is
enough.
Aliases: ``layer`` for name, ``time``, ``cycles``, ``fwd`` and ``forward_time`` for forward, ``bwd``
and ``backward_time`` for backward, ``parameters``, ``params`` and ``weights`` for exclusive.  An
empty number is 0.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stagepack.errors import InputError, suggest
from stagepack.files import unguarded
from stagepack.formats.known import FORWARD, stem_of
from stagepack.instances import clusters
from stagepack.instances.documents import strict
from stagepack.instances.pipeline import KIND, PipelinePartition
from stagepack.instances.pipeline.native import GIVEN, job
from stagepack.instances.words import LARGEST, Parameter, Words

TIMES = ("forward", "backward")
BYTES = ("exclusive", "temporary", "carry", "stash", "input", "output")
COLUMNS = ("name", *TIMES, *BYTES)
ALIASES = {
    **FORWARD, "layer": "name", "backward_time": "backward", "bwd": "backward",
    "parameters": "exclusive", "params": "exclusive", "weights": "exclusive",
}  # fmt: skip
MEMORY = (
    "say which bytes: exclusive (parameters, which stay with the layer), temporary (while it runs) "
    "or output (sent to the next layer)"
)
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}
"""Nanoseconds of what times may be in."""


def _named(line: Sequence[str]) -> list[str]:
    """Return the columns that a header names, by their own names."""
    lower = [name.strip().lower() for name in line]
    return [ALIASES.get(name, name) for name in lower]


@dataclass(frozen=True)
class Table:
    """A table of layers: a name a line where it says them, and of each figure a cell a line.

    `cells` are as they are written, with the number of their line; `numbers` have 0 for none.
    """

    cells: Mapping[str, Sequence[tuple[int, str]]]
    numbers: Mapping[str, list[int | float]]

    @property
    def names(self) -> list[str]:
        """Names of the layers, or none."""
        return [unguarded(cell) for _, cell in self.cells.get("name", ())]


def table(data: bytes, unit: str = "ns", needed: str = "forward") -> Table:
    """Return the columns of a table, times in nanoseconds.

    Parameters
    ----------
    data : bytes
    unit : str
        Of its times.
    needed : str
        The column that it must have.
    """
    text = strict.text(data).removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    names = _header(rows[0][1] if rows else [], needed)
    if len(rows) == 1:
        raise InputError("no layers", remedy="give a line for each layer below the header")
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"has {len(row)} cells, the header {len(names)}",
                field=f"line {line}",
                remedy="separate the cells by commas, one for each column",
            )
    column = {name: [(line, row[at].strip()) for line, row in rows[1:]] for name, at in names}
    number = {
        name: _numbers(name, column[name], rows[0][1][at].strip())
        for name, at in names
        if name != "name"
    }
    scale = UNITS[unit]
    for name in TIMES:
        if name in number and scale > 1:
            number[name] = _scaled(number[name], scale)
    return Table(column, number)


def parse(data: bytes, given: Words, file: str) -> list[PipelinePartition]:
    """Return the one instance of a table, named after its file."""
    read = table(data, given.get("unit", "ns"))
    number = read.numbers
    inputs, outputs = number.get("input"), number.get("output")
    if outputs is None:
        outputs = None if inputs is None else [*inputs[1:], 0]
    elif inputs is None:
        inputs = [0, *outputs[:-1]]
    return [
        PipelinePartition.from_arrays(
            number["forward"],
            backward=number.get("backward"),
            cluster=clusters.asked(given, 1_000_000_000),
            exclusive=number.get("exclusive"),
            temporary=number.get("temporary"),
            carry=number.get("carry"),
            stash=number.get("stash"),
            in_bytes=None if inputs is None else [*inputs, 0],
            out_bytes=None if outputs is None else [0, *outputs],
            layer_names=read.names or None,
            name=stem_of(file),
            source="table of layers",
            **job(given),
        )
    ]


def _header(line: list[str], needed: str) -> list[tuple[str, int]]:
    """Return every column of a header `line` and its place; one is `needed`."""
    names = _named(line)
    for at, name in enumerate(names):
        if name not in COLUMNS:
            near = MEMORY if name in ("memory", "mem", "bytes", "size") else None
            near = near or suggest(name[:40], [*COLUMNS, *ALIASES])
            _, _, unit = name.rpartition("_")
            raise InputError(
                f"unknown column {line[at].strip()[:40]!r}",
                field="line 1",
                remedy=f"{near} --unit {unit} says what times are in" if unit in UNITS else near,
            )
        if name in names[:at]:
            raise InputError(
                f"columns {line[names.index(name)].strip()} and {line[at].strip()} are the same",
                field="line 1",
                remedy="leave one out",
            )
    if needed not in names:
        what = "times" if needed == "forward" else "names"
        raise InputError(
            f"no {what} of layers",
            field="line 1",
            remedy=f"name the column that has them {needed}",
        )
    return [(name, at) for at, name in enumerate(names)]


def _numbers(name: str, cells: Sequence[tuple[int, str]], own: str) -> list[int | float]:
    """Return a column, in the file by its `own` name: whole numbers, or times with fractions."""
    found: list[int | float] = []
    whole = name in BYTES or all(_is_whole(cell) for _, cell in cells)
    kind, unit = ("a whole number", "whole bytes") if name in BYTES else ("a number", "a number")
    for line, cell in cells:
        try:
            value = (int if whole else float)(cell or 0)
        except ValueError:
            value = -1
        if not (0 <= value < LARGEST and math.isfinite(value)):
            raise InputError(
                f"{cell[:40]!r} is not {kind} from 0 to 2**62",
                field=f"line {line}, column {own}",
                remedy=f"give {unit}, without a unit",
            )
        found.append(value)
    return found


def _scaled(times: list[int | float], scale: int) -> list[int | float]:
    """Return times as so many of another unit, as they are written; whole ones if all are."""
    found = [Fraction(str(time)) * scale for time in times]
    whole = all(time.denominator == 1 for time in found)
    return [int(time) if whole else float(time) for time in found]


def _is_whole(cell: str) -> bool:
    return not cell or cell.isdecimal()


CONTEXTS = {KIND: GIVEN - {"tied"} | {"unit"}}
WORDS = {"unit": Parameter("unit", str, "unit of the times in a table", choices=tuple(UNITS))}
