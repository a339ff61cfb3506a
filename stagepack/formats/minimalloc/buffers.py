"""Buffers as CSV, the format of *MiniMalloc* (github.com/google/minimalloc) and its kin.

A header names the columns, in any order: ``id``, ``lower`` and ``upper`` (the lifetime, upper
exclusive), ``size``, and where needed ``alignment``, ``hint``, ``gaps`` and ``offset``; see
:data:`.known.BUFFER_ALIASES` for other names of these.  ``end`` (as in MiniMalloc) and those with
``last`` are *inclusive*: the lifetime, and the ends of gaps, are one longer.  Names that leave
this open (``free``) are asked for, as is any name that is not known: ``columns`` says which is
which, and leaves out the others; where there is no header, by numbers from 1.  Cells are separated
by commas, semicolons, tabs or blanks.

Gaps are separated by spaces: ``a-b`` (dead in [a, b)) or ``a-b@w0:w1`` (in [a, b) only the bytes
[w0, w1) of the buffer are in use).  An ``offset`` is a placement: a hint, unless it is said
that it is ``fixed`` or the ``previous`` one; :func:`offsets` reads it as a solution.  A hint may
be -1 or empty, an offset empty: none.

A file has no place for the capacity: its name has, as in ``A.1048576.csv``.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import msgspec
import numpy as np

from stagepack import files
from stagepack.errors import InputError, suggest
from stagepack.formats.known import (
    BUFFER_ALIASES,
    BUFFERS,
    column_name,
    has_no_header,
    is_minimalloc,
    stem_of,
    table_head,
)
from stagepack.instances.base import require_instance
from stagepack.instances.documents import strict
from stagepack.instances.documents.cells import Cells
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.packing.instance import aligned
from stagepack.instances.packing.problem import GIVEN
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST, Words

log = logging.getLogger("stagepack")

NEEDED = ("lower", "upper", "size")
INCLUSIVE = ("end", "last", "last_op", "last_use")
OPEN = ("free", "stop", "death", "end_time", "lifetime_end")
"""Names of columns that do not tell whether the lifetime includes its end."""

GAP = re.compile(r"(-?[0-9]{1,19})-(-?[0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?")
NAMED = re.compile(r"(.+)\.([0-9]{1,19})\.[^.]*")


@dataclass(frozen=True)
class Table:
    """The columns of a file as arrays (memories by name); None where there is no such column."""

    ids: tuple[str, ...] | None
    size: Array
    start: Array
    end: Array
    alignment: Array | None
    hint: Array | None
    offset: Array | None
    gaps: list[tuple[int, int, int, int, int]]
    lifetimes: str
    memory: list[str] | None = None


def _read_table(data: bytes, columns: str = "") -> Table:
    """Return the columns of a file; `columns` says which is which."""
    strict.text(data)
    cells = _cells(data)
    at, inclusive = _header(cells.names, _mapping(columns))
    if not len(cells):
        raise InputError("no buffers", remedy="give a line for each buffer below the header")

    def column(name: str, empty: int | None = None) -> Array | None:
        return cells.integers(at[name], empty) if name in at else None

    size, start = cells.integers(at["size"]), cells.integers(at["lower"])
    end = cells.integers(at["upper"]) + inclusive
    alignment = column("alignment", empty=1)
    hint, offset = column("hint", empty=-1), column("offset", empty=-1)
    cells.require(size >= 0, at["size"], lambda i: f"is {size[i]}", "give a number of bytes")
    cells.require(
        end > start,
        at["upper"],
        lambda i: f"{end[i] - inclusive} is not after the begin, {start[i]}",
        "give a lifetime that is not empty",
    )
    for name, values, least in (("alignment", alignment, 1), ("hint", hint, -1)):
        if values is not None:
            _require_least(cells, at[name], values, least)
    if offset is not None:
        _require_least(cells, at["offset"], offset, -1)
    gaps: list[tuple[int, int, int, int, int]] = []
    if "gaps" in at:
        column_of = at["gaps"]
        for row in np.flatnonzero(cells.end[:, column_of] > cells.start[:, column_of]).tolist():
            gaps += _gaps(cells, row, column_of, inclusive, (start, end, size))
    ids = _ids(cells, at["id"]) if "id" in at else None
    ends = (cells.names[at["lower"]], cells.names[at["upper"]])
    begin, stop = (f"column {end}" if has_no_header([end]) else end for end in ends)
    lifetimes = f"from {begin} to {stop} (included)" if inclusive else f"in [{begin}, {stop})"
    memory = cells.texts(at["memory"]) if "memory" in at else None
    return Table(ids, size, start, end, alignment, hint, offset, gaps, lifetimes, memory)


def _cells(data: bytes) -> Cells:
    """Return the cells of a table; columns without a header are named by numbers from 1."""
    apart, names = table_head(data)
    if apart == " ":
        data, apart = re.sub(rb"[ \t]+", b"\t", re.sub(rb"(?m)^[ \t]+|[ \t\r]+$", b"", data)), "\t"
    if not has_no_header(names):
        return Cells.of(data, apart)
    numbers = apart.join(map(str, range(1, len(names) + 1)))
    cells = Cells.of(f"{numbers}\n".encode() + data, apart)
    return replace(cells, line=cells.line - 1)


def _require_least(cells: Cells, column: int, values: Array, least: int) -> None:
    cells.require(values >= least, column, lambda i: f"is {values[i]}", f"give at least {least}")


def _mapping(columns: str) -> dict[str, str]:
    """Return which column is which: the names in a file by what they are, as ``last``."""
    roles = [name for name in (*BUFFERS, *BUFFER_ALIASES) if name != "end"]
    found = {}
    for part in filter(None, columns.split(",")):
        role, equals, name = (word.strip().lower() for word in part.partition("="))
        if role not in roles or not equals:
            raise InputError(
                f"{part[:40]!r} is no role=name",
                field="columns",
                remedy="write size=bytes,lower=first,upper=free, or last=free where the end is "
                f"included; roles are last, {', '.join(BUFFERS)}",
            )
        found[role] = name
    return found


def _header(names: tuple[str, ...], said: dict[str, str]) -> tuple[dict[str, int], int]:
    """Return where each column is, and what to add to ends: 1 when they are inclusive.

    What is `said` comes first; then columns are known by their names, and others left out.
    """
    looked_up = list(map(column_name, names))
    at: dict[str, int] = {}
    told: dict[str, str] = {}  # by what name: whether ends are inclusive
    unknown = []
    for role, name in said.items():
        if name not in names:
            raise InputError(
                f"{name[:40]!r} is no column of the file",
                field="columns",
                remedy=suggest(name, names),
            )
        own = BUFFER_ALIASES.get(role, role)
        at[own], told[own] = names.index(name), role
    for position, (given, alias) in enumerate(zip(names, looked_up, strict=True)):
        name = BUFFER_ALIASES.get(alias, alias)
        unsaid = not alias or (said and (name in told or name not in BUFFERS))
        if position in at.values() or unsaid:  # or without a name, as an index
            continue
        if name not in BUFFERS:
            unknown.append(given)
        elif name in at:
            raise InputError(
                f"columns {names[at[name]]} and {given} are the same",
                field="line 1",
                remedy="leave one out",
            )
        else:
            at[name], told[name] = position, alias
    missing = [name for name in NEEDED if name not in at]
    if unknown or missing:
        raise _unlike(names, at, unknown, missing)
    return at, int(told["upper"] in INCLUSIVE)


def _unlike(
    names: tuple[str, ...], at: dict[str, int], unknown: list[str], missing: list[str]
) -> InputError:
    """Return what is not known of a header, all at once, and the option that says it."""
    headless = has_no_header(names)
    left, guessed = list(unknown), []
    for number, role in enumerate(("id", *NEEDED), start=len(names) - 3):
        words = [role, *(alias for alias, name in BUFFER_ALIASES.items() if name == role)]
        words += OPEN if role == "upper" else ()
        near = next((u for u in left if get_close_matches(column_name(u), words, 1, 0.7)), None)
        if role in at:
            near = names[at[role]]
        elif near is not None:
            left.remove(near)
        elif headless:  # as most tables have them
            near = str(number) if number >= 1 and len(names) < 5 else None
        if near is not None or role != "id":
            inclusive = role == "upper" and near is not None and ("last" in near or near == "end")
            guessed.append(f"{'last' if inclusive else role}={near or 'NAME'}")
    told = {"unknown": unknown, "missing": missing}
    problem = " and ".join(f"{what}: {', '.join(some)}" for what, some in told.items() if some)
    return InputError(
        f"{len(names)} columns of numbers and no header" if headless else problem,
        field="line 1",
        remedy=f"say which column is which, and leave out the others: --columns {','.join(guessed)}"
        + (" (last=NAME if the lifetime includes its end)" if "upper" in missing else ""),
    )


def _ids(cells: Cells, column: int) -> tuple[str, ...] | None:
    """Return the ids, or None where they are just the numbers "0", "1", ... in order."""
    n = len(cells)
    length = cells.end[:, column] - cells.start[:, column]
    usual = np.searchsorted(10 ** np.arange(1, 19), np.arange(n), side="right") + 1
    if (length == usual).all():
        try:
            if np.array_equal(cells.integers(column), np.arange(n)):
                return None
        except InputError:
            pass  # words as long as the numbers would be
    cells.require(length > 0, column, lambda i: "is empty", "give each buffer a name")
    ids = [files.unguarded(name) for name in cells.texts(column)]
    if len(set(ids)) < len(ids):
        seen: dict[str, int] = {}
        for row, name in enumerate(ids):
            if name in seen:
                raise InputError(
                    f"{name[:40]!r} is the name in line {cells.line[seen[name]]} too",
                    field=f"line {cells.line[row]}, column {cells.names[column]}",
                    remedy="give each buffer a name of its own",
                )
            seen[name] = row
    return tuple(ids)


def _gaps(
    cells: Cells, row: int, column: int, inclusive: int, lives: tuple[Array, Array, Array]
) -> Iterable[tuple[int, int, int, int, int]]:
    """Return the gaps of one buffer, inside its lifetime, ascending, none over another."""
    start, end, size = (int(values[row]) for values in lives)
    found = []

    def refuse(problem: str, remedy: str) -> InputError:
        where = f"line {cells.line[row]}, column {cells.names[column]}"
        return InputError(problem, field=where, remedy=remedy)

    for word in cells.text(row, column).split():
        match = GAP.fullmatch(word)
        if match is None:
            raise refuse(f"{word[:40]!r} is no gap", "write a-b or a-b@w0:w1, with spaces between")
        first, last = int(match[1]), int(match[2]) + inclusive
        low, high = int(match[3] or 0), int(match[4] or 0)
        if not start <= first < last <= end:
            raise refuse(
                f"{word} does not lie in the lifetime [{start}, {end})",
                "give a < b inside the lifetime",
            )
        if not 0 <= low <= high <= size:
            raise refuse(f"{word} does not lie in the {size} bytes", "give w0 <= w1 <= size")
        found.append((row, first, last, low, high))
    found.sort()
    for one, other in itertools.pairwise(found):
        if other[1] < one[2]:
            raise refuse(f"[{one[1]}, {one[2]}) overlaps [{other[1]}, {other[2]})", "part the gaps")
    return found


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the one instance of a file, its name and capacity from the file's name."""
    table = _read_table(data, given.get("columns", ""))
    chosen = [name for name in ("fixed", "previous") if given.get(name)]
    if len(chosen) == 2:
        raise InputError(
            "the offsets are either fixed or the previous ones",
            field="fixed",
            remedy="leave out fixed or previous",
        )
    if chosen and table.offset is None:
        raise InputError(
            "needs offsets, and there is no such column", field=chosen[0], remedy="leave it out"
        )
    if table.memory is not None:
        log.warning(
            "column memory is where a solution has buffers, and is passed over: --only says where "
            "they may live"
        )
    placed, as_hint = table.offset, None if chosen else table.offset
    name, capacity = _name_and_capacity(file)
    return [
        LmemPacking.from_arrays(
            table.size,
            table.start,
            table.end,
            ids=table.ids,
            gaps=table.gaps,
            alignment=aligned(table.alignment, len(table.size), given),
            fixed=placed if given.get("fixed") else None,
            previous=placed if given.get("previous") else None,
            hint=as_hint if table.hint is None else table.hint,
            period=given.get("period"),
            segment=given.get("segment"),
            capacity=given.get("capacity", capacity),
            objective=given.get("objective"),
            name=name,
            source=file,
            lifetimes=table.lifetimes,
        )
    ]


def _name_and_capacity(file: str) -> tuple[str, int | None]:
    """Return the name and the capacity that a file's name tells: ``A.1048576.csv``."""
    found = NAMED.fullmatch(file.removesuffix(".gz"))
    if found is None or int(found[2]) >= LARGEST:
        return stem_of(file), None
    return found[1], int(found[2])


def solution(data: bytes, instance: LmemPacking) -> PackingSolution:
    """Return the placement in a file of the same buffers with a column of offsets."""
    table = _read_table(data)
    if table.offset is None:
        raise InputError(
            "column offset is missing", field="line 1", remedy="give a solution: an offset a buffer"
        )
    ids = table.ids or tuple(map(str, range(len(table.size))))
    row_of = {name: row for row, name in enumerate(ids)}
    own = instance.ids or tuple(map(str, range(instance.n)))
    for name in own:
        if name not in row_of:
            raise InputError(
                "has no line", field=f"buffer {name}", remedy="give a solution of this instance"
            )
    if len(ids) > len(own):
        extra = next(name for name in ids if name not in set(own))
        raise InputError(
            f"is no buffer of {instance.name}",
            field=f"buffer {extra}",
            remedy="give a solution of this instance",
        )
    rows = np.array([row_of[name] for name in own])
    for field, here, there in (
        ("size", table.size, instance.size),
        ("lower", table.start, instance.start),
        ("upper", table.end, instance.end),
    ):
        if instance.conflicts is None or field == "size":
            unlike = here[rows] != there
            if unlike.any():
                at = int(np.argmax(unlike))
                raise InputError(
                    f"{field} is {here[rows][at]}, in {instance.name} {there[at]}",
                    field=f"buffer {own[at]}",
                    remedy="give a solution of this instance",
                )
    placed = table.offset[rows]
    if (placed < 0).any():
        raise InputError(
            "has no offset", field=f"buffer {own[int(np.argmin(placed))]}", remedy="give one"
        )
    return PackingSolution.of(instance, placed, _memories(table, rows, instance))


def _memories(table: Table, rows: Array, instance: LmemPacking) -> list[int] | None:
    """Return the index of each buffer's memory, by the names in its row; None: there is one."""
    if not instance.memories:
        return None
    if table.memory is None:
        raise InputError(
            "column memory is missing",
            field="line 1",
            remedy=f"give a solution of {instance.name}, with the memory of each buffer",
        )
    names = {memory.name: at for at, memory in enumerate(instance.memories)}
    found = [files.unguarded(table.memory[row]) for row in rows.tolist()]
    for at, name in enumerate(found):
        if name not in names:
            raise InputError(
                f"{name[:40]!r} is no memory",
                field=f"buffer {instance.buffer_id(at)}",
                remedy="there are " + ", ".join(names),
            )
    return [names[name] for name in found]


class _Offsets(msgspec.Struct, frozen=True):
    offsets: dict[str, int]


class _Placed(msgspec.Struct, frozen=True):
    """A placement, or a result that holds one."""

    solution: _Offsets | None = None
    offsets: dict[str, int] | None = None

    def all_offsets(self) -> dict[str, int]:
        found = self.offsets if self.solution is None else self.solution.offsets
        if found is None:
            raise InputError("is missing", field="offsets", remedy='write {"offsets": {id: int}}')
        return found


def read_previous(path: str | Path, instance: LmemPacking) -> list[int]:
    """Read an old placement for an instance that has changed since: -1 for buffers not named in it.

    Files are those of :func:`.read_solution`; buffers are told by their names alone.
    """
    require_instance(instance, KIND)
    data = strict.load(path)
    with strict.located(path):
        table = is_minimalloc(data)
        old = _named_offsets(data) if table else strict.decode(data, _Placed).all_offsets()
        previous = [old.get(instance.buffer_id(i), -1) for i in range(instance.n)]
        if max(previous) < 0:
            raise InputError(
                f"names no buffer of {instance.name}",
                field="offsets",
                remedy="give an old placement of this instance",
            )
    return previous


def _named_offsets(data: bytes) -> dict[str, int]:
    """Return the offsets of a file by the names of its buffers, whatever instance they are of."""
    (instance,) = parse(data, {"previous": True}, "")
    return {instance.buffer_id(i): at for i, at in enumerate(instance.previous.tolist())}


def dump(instance: LmemPacking, file: str) -> bytes:
    """Return an instance as CSV."""
    named = _name_and_capacity(file)[1]
    if instance.capacity is not None and instance.capacity != named:
        stem = file.removesuffix(".gz").removesuffix(".csv")
        raise InputError(
            f"the capacity of {instance.capacity} would be lost",
            field="capacity",
            remedy=f"name the file {stem}.{instance.capacity}.csv, which tells it",
        )
    if instance.capacity is None and named is not None:
        raise InputError(
            f"the name tells a capacity of {named}, but there is none",
            field="capacity",
            remedy="choose another name",
        )
    unsaid = {
        "period": instance.period is not None,
        "conflicts": instance.conflicts is not None,
        "fixed": bool((instance.fixed >= 0).any()),
        "previous": bool((instance.previous >= 0).any()),
        "accesses": not np.array_equal(instance.accesses, instance.size),
        **{
            name: bool(getattr(instance, name))
            for name in (
                *("allowed", "reserved", "colocated", "in_place", "banks", "memories", "exclusive"),
                *("apart", "exempt", "views", "penalties", "segment"),
            )
        },
    }
    for name, there in unsaid.items():
        if there:
            raise InputError(
                "cannot be said in CSV", field=name, remedy="write .json, or leave it out"
            )
    columns: dict[str, Iterable[object]] = {}
    if (instance.hint >= 0).any():
        columns["hint"] = instance.hint.tolist()
    return _csv(instance, columns)


def dump_solution(solution: PackingSolution, instance: LmemPacking) -> bytes:
    """Return the buffers of an instance as CSV, with the offsets (and memories) of a solution."""
    columns: dict[str, Iterable[object]] = {"offset": solution.offsets.tolist()}
    if solution.memory is not None:
        names = [memory.name for memory in instance.memories]
        _require_cells(names, "memories", "memory")
        columns["memory"] = [files.guarded(names[at]) for at in solution.memory.tolist()]
    return _csv(instance, columns)


def _require_cells(names: Iterable[str], field: str, what: str) -> None:
    """Refuse names, of the `field` of an instance, that cannot stand in a table."""
    for name in names:
        if not name or set(name) & set(",\r\n\0") or name != name.strip():
            raise InputError(
                f"{name[:40]!r} cannot stand in CSV",
                field=field,
                remedy=f"write .json, or rename the {what}",
            )


def _csv(instance: LmemPacking, more: dict[str, Iterable[object]]) -> bytes:
    _require_cells(instance.ids or (), "ids", "buffer")
    columns: dict[str, Iterable[object]] = {
        "id": map(files.guarded, instance.ids) if instance.ids else range(instance.n),
        "lower": instance.start.tolist(),
        "upper": instance.end.tolist(),
        "size": instance.size.tolist(),
    }
    if (instance.alignment > 1).any():
        columns["alignment"] = instance.alignment.tolist()
    if instance.gaps:
        words: list[list[str]] = [[] for _ in range(instance.n)]
        for gap in instance.gaps:
            window = f"@{gap.low}:{gap.high}" if gap.high else ""
            words[gap.buffer].append(f"{gap.start}-{gap.end}{window}")
        columns["gaps"] = [" ".join(row) for row in words]
    columns |= more
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return ("\n".join(lines) + "\n").encode()


CONTEXTS = {KIND: GIVEN - {"dim"} | {"columns", "fixed", "previous"}}
