"""Buffers as CSV, the format of *MiniMalloc* (github.com/google/minimalloc) and its kin.

A header names the columns, in any order: ``id``, ``lower`` and ``upper`` (the lifetime, upper
exclusive), ``size``, and where needed ``alignment``, ``hint``, ``gaps`` and ``offset``.  Aliases:
``start``, ``begin`` and ``first`` for lower, ``name``, ``buffer``, ``buffer_id`` and ``tensor`` for
id, ``bytes`` for size, ``align`` for alignment, and ``end`` and ``last`` for upper.  These two are
*inclusive* (``end`` as in MiniMalloc): the lifetime, and the ends of gaps, are one longer.

Gaps are separated by spaces: ``a-b`` (dead in [a, b)) or ``a-b@w0:w1`` (in [a, b) only the bytes
[w0, w1) of the buffer are in use).  An ``offset`` is a placement: a hint, unless it is said
that it is ``fixed`` or the ``previous`` one; :func:`offsets` reads it as a solution.  A hint may
be -1 or empty, an offset empty: none.

A file has no place for the capacity: its name has, as in ``A.1048576.csv``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from stagepack import files
from stagepack.errors import InputError, suggest
from stagepack.formats.known import BUFFER_ALIASES, BUFFERS, is_minimalloc, stem_of
from stagepack.instances.base import require_instance
from stagepack.instances.documents import strict
from stagepack.instances.documents.cells import Cells
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.packing.instance import aligned
from stagepack.instances.packing.native import GIVEN
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST, Words

NEEDED = ("id", "lower", "upper", "size")
INCLUSIVE = ("end", "last")
GAP = re.compile(r"(-?[0-9]{1,19})-(-?[0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?")
NAMED = re.compile(r"(.+)\.([0-9]{1,19})\.[^.]*")


@dataclass(frozen=True)
class Table:
    """The columns of a file as arrays; None where there is no such column."""

    ids: tuple[str, ...] | None
    size: Array
    start: Array
    end: Array
    alignment: Array | None
    hint: Array | None
    offset: Array | None
    gaps: list[tuple[int, int, int, int, int]]


def _read_table(data: bytes) -> Table:
    """Return the columns of a file."""
    strict.text(data)
    cells = Cells.of(data)
    at, inclusive = _header(cells.names)
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
    return Table(_ids(cells, at["id"]), size, start, end, alignment, hint, offset, gaps)


def _require_least(cells: Cells, column: int, values: Array, least: int) -> None:
    cells.require(values >= least, column, lambda i: f"is {values[i]}", f"give at least {least}")


def _header(names: tuple[str, ...]) -> tuple[dict[str, int], int]:
    """Return where each column is, and what to add to ends: 1 when they are inclusive."""
    at: dict[str, int] = {}
    for position, given in enumerate(names):
        name = BUFFER_ALIASES.get(given, given)
        if given.lstrip("-").isdigit():
            raise InputError(
                f"begins with the number {given[:40]}: it has no header",
                field="line 1",
                remedy="begin the file with id,lower,upper,size",
            )
        if name not in BUFFERS:
            raise InputError(
                f"unknown column {given[:40]!r}",
                field="line 1",
                remedy=suggest(given[:40], [*BUFFERS, *BUFFER_ALIASES]),
            )
        if name in at:
            raise InputError(
                f"columns {names[at[name]]} and {given} are the same",
                field="line 1",
                remedy="leave one out",
            )
        at[name] = position
    for name in NEEDED:
        if name not in at:
            raise InputError(f"column {name} is missing", field="line 1", remedy="add it")
    return at, int(names[at["upper"]] in INCLUSIVE)


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
    table = _read_table(data)
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
            capacity=given.get("capacity", capacity),
            objective=given.get("objective"),
            name=name,
            source=file,
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
    return PackingSolution.of(instance, placed)


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


# ---------------------------------------------------------------------- writing


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
            for name in ("allowed", "reserved", "colocated", "in_place", "banks", "memories")
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
    """Return the buffers of an instance as CSV, with the offsets of a solution."""
    if solution.memory is not None:
        raise InputError("cannot be said in CSV", field="memories", remedy="write .json")
    return _csv(instance, {"offset": solution.offsets.tolist()})


def _csv(instance: LmemPacking, more: dict[str, Iterable[object]]) -> bytes:
    for name in instance.ids or ():
        if not name or set(name) & set(",\r\n\0") or name != name.strip():
            raise InputError(
                f"{name[:40]!r} cannot stand in CSV",
                field="ids",
                remedy="write .json, or rename the buffer",
            )
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


CONTEXTS = {KIND: GIVEN | {"fixed", "previous"}}
