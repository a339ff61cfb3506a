"""Tables of allocations that Arm's Vela prints (``vela --verbose-allocation``).

A table a memory area: first and last time (inclusive), addresses, size, name.  Tensors that share a
range of time and of addresses are one buffer.  Tables of constants, which share nothing, and empty
ones are passed over.  The addresses are a solution: Vela's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.documents import strict
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.words import Words

HEADER = re.compile(r"Start Time *- *End Time *: *Start Addr *- *End Addr *: *Tensor Size *:.*Name")
ROW = re.compile(
    r" *([0-9]{1,18}) *- *([0-9]{1,18}): *0x([0-9a-fA-F]{1,15}) *- *0x([0-9a-fA-F]{1,15}): *"
    r"([0-9]{1,18}):(.*)"
)
END = re.compile(r"Allocation Peak Tensor Size: *[0-9]+")


@dataclass
class Table:
    """Buffers of a memory area by what tells them apart: times, address and size."""

    name: str
    columns: int
    rows: dict[tuple[int, int, int, int], str] = field(default_factory=dict)
    ended: bool = False

    def packing(self, given: Words, file: str) -> LmemPacking:
        """Return the instance, without Vela's addresses."""
        first, last, _, size = np.array(list(self.rows), dtype=np.int64).T
        twice = len(set(self.rows.values())) < len(self.rows)
        return LmemPacking.from_arrays(
            size,
            first,
            last + 1,
            ids=[f"{name} ({at})" if twice else name for at, name in enumerate(self.rows.values())],
            alignment=16,
            capacity=given.get("capacity"),
            objective=given.get("objective"),
            name=self.name,
            source=file,
        )


def _tables(data: bytes) -> list[Table]:
    """Return the tables that have buffers to place."""
    lines = strict.text(data).splitlines()
    found: list[Table] = []
    table: Table | None = None
    for at, line in enumerate(lines):
        row = ROW.fullmatch(line)
        if HEADER.search(line):
            table = Table(_title(lines, at), line.count(":"))
            if "read-only" not in table.name:
                found.append(table)
        elif row is not None and table is not None:
            _add(table, row, at)
        elif table is not None and line.strip():
            if ROW.match(line) or re.match(r" *[0-9]+ *- *[0-9]", line):
                raise _damaged(at, "is no row of the table")
            table.ended = END.match(line) is not None
            table = None
    found = [table for table in found if table.rows]
    cut = next((table for table in found if not table.ended), None)
    if cut is not None:
        raise _damaged(len(lines) - 1, f"{cut.name[:60]!r} ends without its peak: it was cut short")
    return found


def _title(lines: list[str], header: int) -> str:
    """Return what the line before a header says: the memory area, and what is kept there."""
    title = lines[header - 1] if header and "#" * 20 not in lines[header - 1] else ""
    area = re.search(r"(?:mem_area|memory) (\w+)(.*)", title)
    if area is None:
        return title.strip(" :#")[:60] or f"table at line {header + 1}"
    told = re.search(r"\(([^)]*)\)|usage mask: ([^,:]+)", area[2])
    return f"{area[1]} {(told[1] or told[2]).strip()}" if told else area[1]


def _add(table: Table, row: re.Match[str], at: int) -> None:
    first, last, size = int(row[1]), int(row[2]), int(row[5])
    address, end = int(row[3], 16), int(row[4], 16)
    rest = row[6].split(":", table.columns - 3)
    if len(rest) < table.columns - 2 or last < first or end - address != size:
        raise _damaged(at, "has no name, or ranges that are none")
    if size:
        table.rows.setdefault((first, last, address, size), rest[-1].strip() or f"line {at + 1}")


def _damaged(at: int, problem: str) -> InputError:
    return InputError(
        problem,
        field=f"line {at + 1}",
        remedy="give the complete output of vela --verbose-allocation",
    )


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the tensors of each table, one a memory."""
    tables = _tables(data)
    if not tables:
        raise InputError(
            "holds no buffers to place", remedy="give the output of vela --verbose-allocation"
        )
    names = [table.name for table in tables]
    for at, table in enumerate(tables):
        if names.count(table.name) > 1:
            table.name = f"{table.name} {names[:at].count(table.name) + 1}"
    return [table.packing(given, file) for table in tables]


def solution(data: bytes, instance: LmemPacking) -> PackingSolution:
    """Return Vela's own addresses of the table of which the instance was made."""
    for table, own in zip(_tables(data), parse(data, {}, ""), strict=True):
        alike = all(np.array_equal(getattr(own, column), getattr(instance, column))
                    for column in ("size", "start", "end", "ids"))  # fmt: skip
        if alike:
            return PackingSolution.of(instance, np.array([row[2] for row in table.rows]))
    raise InputError(
        f"has no table of {instance.name}",
        field="solution",
        remedy="give the file from which the instance was made",
    )


CONTEXTS = {KIND: frozenset({"capacity", "objective"})}
