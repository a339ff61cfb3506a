"""Native files of LMEM packings: ``{"problem": "lmem-packing", "version": 1, ...}``.

``buffers`` is either what people write, a list of buffer objects; or what programs write, an
object of columns with one entry a buffer.  Everything else that speaks of buffers (pairs, groups,
gaps and ranges beside columns) names them by their ids, which are "0", "1", ... where none are
given.  Fields, units and defaults are those of :class:`stagepack.instances.packing.LmemPacking`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.arrays import names
from stagepack.instances.documents.lines import Rows, unless
from stagepack.instances.packing.data import Banks, Gap, Memory, View
from stagepack.instances.packing.instance import LmemPacking, aligned, usual_objective
from stagepack.instances.packing.problem import GIVEN as GIVEN
from stagepack.instances.packing.problem import Objective
from stagepack.instances.packing.symbols import Dimensions
from stagepack.instances.profile import Bytes
from stagepack.instances.words import Words

log = logging.getLogger("stagepack")

Moment = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
Offset = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
Id = str | int
Size = Bytes | str
"""Bytes, or an expression of the dimensions: ``4*batch*seq``."""
Range = tuple[Bytes, Bytes]


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In [start, end) a buffer uses only its bytes [low, high); none: it is dead."""

    start: Moment
    end: Moment
    low: Bytes = 0
    high: Bytes = 0


class Buffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One buffer: bytes, the lifetime [start, end), and rules for its offset.

    `fixed` is a given offset, `previous` the old one, `hint` one to begin with; `allowed` are
    ranges [low, high) of addresses, one of which must hold the buffer.  `lives` are several
    lifetimes, in place of `start` and `end`; `memories` those where it may live; nobody else uses
    the bytes of one that is `exclusive`.
    """

    size: Size
    start: Moment | None = None
    end: Moment | None = None
    id: Id | None = None
    alignment: Positive = 1
    gaps: list[Span] = []
    fixed: Bytes | None = None
    allowed: list[Range] = []
    accesses: Bytes | None = None
    previous: Bytes | None = None
    hint: Bytes | None = None
    lives: list[tuple[Moment, Moment]] | None = None
    memories: list[str] | None = None
    exclusive: bool = False


class ColumnGap(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gap of the buffer named `buffer`."""

    buffer: Id


class ColumnRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range [low, high) that may hold the buffer named `buffer`."""

    buffer: Id
    low: Bytes
    high: Bytes


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Buffers by column: arrays with an entry a buffer; offsets are -1 where there is none.

    `memories` has null for a buffer that may live in any.
    """

    size: list[Size]
    start: list[Moment] | None = None
    end: list[Moment] | None = None
    ids: list[Id] | None = None
    alignment: list[Positive] | None = None
    fixed: list[Offset] | None = None
    accesses: list[Bytes] | None = None
    previous: list[Offset] | None = None
    hint: list[Offset] | None = None
    gaps: list[ColumnGap] = []
    allowed: list[ColumnRange] = []
    memories: list[list[str] | None] | None = None
    exclusive: list[Id] = []


class BankLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` banks of `nbytes`, and the pairs of buffers that should not share one.

    `weight` is how many bytes of peak a conflict is worth; without it conflicts come first.
    """

    count: Positive
    nbytes: Positive
    pairs: list[tuple[Id, Id]] = []
    weight: Bytes | None = None


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several memories: its bytes (left out: no limit) and the cost of an access.

    No buffer uses its `reserved` ranges; offsets are multiples of its `alignment`.
    """

    name: str
    cost: Bytes = 0
    capacity: Bytes | None = None
    reserved: list[Range] = []
    alignment: Positive = 1


class ViewOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The buffer named `buffer` lies inside `host`, `offset` bytes above its begin."""

    buffer: Id
    host: Id
    offset: Bytes = 0


class Extent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dimension takes all values from `least` to `most`."""

    least: Bytes
    most: Bytes


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An lmem-packing instance.

    The default objective is that of :meth:`.LmemPacking.from_arrays`.  Sizes may be expressions of
    `dimensions`, each of which has its range or a list of values.
    """

    problem: Literal["lmem-packing"]
    version: Literal[1]
    buffers: list[Buffer] | Columns
    name: str = "packing"
    source: str = ""
    objective: Objective | None = None
    capacity: Bytes | None = None
    period: Positive | None = None
    conflicts: list[tuple[Id, Id]] | None = None
    reserved: list[Range] = []
    colocated: list[list[Id]] = []
    in_place: list[tuple[Id, Id]] = []
    banks: BankLayout | None = None
    memories: list[MemoryLevel] = []
    apart: list[tuple[Id, Id]] = []
    exempt: list[tuple[Id, Id]] = []
    views: list[ViewOf] = []
    penalties: list[tuple[Id, Id, Bytes]] = []
    segment: Positive | None = None
    dimensions: dict[str, Extent | list[Bytes]] = {}


MEMORY_DEFAULTS = {"capacity": None, "alignment": 1}
COLUMNS = ("ids", "size", "start", "end", "alignment", "fixed", "accesses", "previous", "hint")


def parse(document: Document, given: Words) -> LmemPacking:
    """Return the instance of a document, changed as is `given` beside it."""
    listed = isinstance(document.buffers, list)
    columns = document.buffers if isinstance(document.buffers, Columns) else None
    buffers = _columns(document.buffers) if columns is None else _of_columns(columns)
    n = len(buffers["size"])
    if not n:
        raise InputError("no buffers", field="buffers", remedy="give at least one buffer")
    try:
        ids = names(buffers["ids"], "ids", n, "buffer", unique=True)
        index = _Index(n if ids is None else ids)
        if columns is not None:
            buffers |= _limits(columns, index)
        buffers["alignment"] = aligned(buffers["alignment"], n, given)
        fields: JsonObject = {
            **buffers,
            "name": document.name,
            "source": document.source,
            **{
                name: given.get(name, getattr(document, name))
                for name in ("objective", "capacity", "period", "segment")
            },
            "reserved": document.reserved,
            **_relations(document, index),
        }
        at = {key.removeprefix("dim."): given[key] for key in given if key.startswith("dim.")}
        if document.dimensions or at or any(isinstance(size, str) for size in buffers["size"]):
            return _largest(document, fields, at)
        return _made(fields, buffers["size"])
    except InputError as error:
        if error.field.partition("[")[0] in (*COLUMNS, "gaps", "allowed"):
            error.field = "buffers" if listed else f"buffers.{error.field}"
        raise


def _largest(document: Document, fields: JsonObject, at: Mapping[str, int]) -> LmemPacking:
    """Return the instance of `fields` with sizes as large as they can be.

    Dimensions are `at` some values; what holds for large buffers must hold for small ones, too.
    """
    dimensions = Dimensions(
        {
            name: (said.least, said.most) if isinstance(said, Extent) else said
            for name, said in document.dimensions.items()
        }
    )
    ends = dimensions.ends(fields["size"], at, fields["ids"])
    for view in fields["views"]:
        if any(ends[one][0] != ends[one][1] for one in (view.buffer, view.host)):
            raise InputError(
                "are of sizes that vary", field="views", remedy="say all dimensions (--set dim.X=N)"
            )
    least, most = zip(*ends, strict=True)
    _made(fields, least)  # may refuse windows of gaps
    made = _made(fields, most)
    values = {name: at.get(name, known[-1]) for name, known in dimensions.values.items()}
    where = ", ".join(f"{name}={value}" for name, value in values.items())
    if len(at) < len(values):
        log.warning("sizes are those at %s: the addresses hold for all smaller values, too", where)
    return made.replace(name=f"{made.name} at {where}") if at else made


def _made(fields: JsonObject, sizes: Sequence[int]) -> LmemPacking:
    """Return the instance of `fields`, with `sizes`; accesses are these where there are none."""
    own = fields["accesses"]
    told = own and [size if one is None else one for size, one in zip(sizes, own, strict=True)]
    return LmemPacking.from_arrays(**{**fields, "size": sizes, "accesses": told})


def _relations(document: Document, index: _Index) -> JsonObject:
    """Return what a document says of pairs, groups, banks and memories, by index."""
    banks = document.banks
    views = index.pairs([(view.buffer, view.host) for view in document.views], "views")
    priced = index.pairs([row[:2] for row in document.penalties], "penalties")
    return {
        "conflicts": None
        if document.conflicts is None
        else index.pairs(document.conflicts, "conflicts"),
        "colocated": [
            list(index.each(group, f"colocated[{at}][{{}}]"))
            for at, group in enumerate(document.colocated)
        ],
        "in_place": index.pairs(document.in_place, "in_place"),
        "apart": index.pairs(document.apart, "apart"),
        "exempt": index.pairs(document.exempt, "exempt"),
        "views": [
            View(*pair, view.offset) for view, pair in zip(document.views, views, strict=True)
        ],
        "penalties": [
            (*pair, row[2]) for row, pair in zip(document.penalties, priced, strict=True)
        ],
        "banks": None
        if banks is None
        else Banks(
            banks.count,
            banks.nbytes,
            np.array(index.pairs(banks.pairs, "banks.pairs"), dtype=np.int64).reshape(-1, 2),
            banks.weight,
        ),
        "memories": [
            (item.name, item.capacity, item.cost, item.reserved, item.alignment)
            for item in document.memories
        ],
    }


def _limits(columns: Columns, index: _Index) -> JsonObject:
    """Return gaps and ranges of columns, by the index of their buffer."""
    gaps = index.each((gap.buffer for gap in columns.gaps), "buffers.gaps[{}].buffer")
    allowed = index.each((item.buffer for item in columns.allowed), "buffers.allowed[{}].buffer")
    return {
        "gaps": [
            (at, gap.start, gap.end, gap.low, gap.high)
            for gap, at in zip(columns.gaps, gaps, strict=True)
        ],
        "allowed": [
            (at, item.low, item.high) for item, at in zip(columns.allowed, allowed, strict=True)
        ],
        "exclusive": list(index.each(columns.exclusive, "buffers.exclusive[{}]")),
        "homes": _homes(columns.memories or []),
    }


def _homes(memories: Iterable[list[str] | None]) -> dict[int, list[str]] | None:
    """Return the names of memories by buffer, of those that may not live anywhere."""
    return {at: chosen for at, chosen in enumerate(memories) if chosen is not None} or None


def _columns(buffers: Any) -> JsonObject:
    """Return a list of buffer objects as columns, gaps and ranges by index."""
    ids = [buffer.id for buffer in buffers]
    unnamed = [at for at, name in enumerate(ids) if name is None]
    if unnamed and len(unnamed) < len(ids):
        raise InputError(
            "is missing", field=f"buffers[{unnamed[0]}].id", remedy="name all buffers or none"
        )
    spared = any(buffer.accesses is not None for buffer in buffers)
    return {
        "ids": None if unnamed else [str(name) for name in ids],
        "size": [buffer.size for buffer in buffers],
        **_lives(buffers),
        "alignment": [buffer.alignment for buffer in buffers],
        "gaps": [
            (at, gap.start, gap.end, gap.low, gap.high)
            for at, buffer in enumerate(buffers)
            for gap in buffer.gaps
        ],
        "allowed": [
            (at, low, high) for at, buffer in enumerate(buffers) for low, high in buffer.allowed
        ],
        "accesses": [buffer.accesses for buffer in buffers] if spared else None,
        "homes": _homes([buffer.memories for buffer in buffers]),
        "exclusive": [at for at, buffer in enumerate(buffers) if buffer.exclusive],
        **{
            name: [-1 if value is None else value for value in (getattr(b, name) for b in buffers)]
            for name in ("fixed", "previous", "hint")
        },
    }


def _lives(buffers: Any) -> JsonObject:
    """Return when buffers are alive, once or several times each; nothing where none says it."""
    several = any(buffer.lives is not None for buffer in buffers)
    alive = several or any(buffer.start is not None for buffer in buffers)
    for at, buffer in enumerate(buffers):
        once = [name for name in ("start", "end") if getattr(buffer, name) is not None]
        if buffer.lives is not None and once:
            raise InputError(
                f"goes with no {once[0]}", field=f"buffers[{at}].lives", remedy="give one of them"
            )
        if len(once) == 1 or (alive and buffer.lives is None and not once):
            lacking = "end" if once == ["start"] else "start"
            raise InputError("is missing", field=f"buffers[{at}].{lacking}", remedy="add it")
    if several:
        return {"lives": [b.lives if b.lives is not None else [(b.start, b.end)] for b in buffers]}
    return {name: [getattr(b, name) for b in buffers] for name in ("start", "end")} if alive else {}


def _of_columns(columns: Columns) -> JsonObject:
    given = {name: getattr(columns, name) for name in COLUMNS}
    if columns.ids is not None:
        given["ids"] = [str(name) for name in columns.ids]
    return given


class _Index:
    """Where the buffers are, by id."""

    def __init__(self, ids: Sequence[str] | int) -> None:
        self.ids = list(map(str, range(ids))) if isinstance(ids, int) else ids
        self._at: dict[str, int] = {}

    def each(self, names: Iterable[Id], where: str) -> Iterable[int]:
        """Yield the position of each name; `where` is the field, with {} for the entry."""
        for entry, name in enumerate(names):
            if not self._at:
                self._at = {known: at for at, known in enumerate(self.ids)}
            if str(name) not in self._at:
                raise InputError(
                    f"{name!r} is no buffer",
                    field=where.format(entry),
                    remedy="name buffers by their ids",
                )
            yield self._at[str(name)]

    def pairs(self, pairs: Iterable[tuple[Id, Id]], where: str) -> list[tuple[int, int]]:
        """Return pairs of names as pairs of positions."""
        found = []
        for at, pair in enumerate(pairs):
            one, other = self.each(pair, f"{where}[{at}][{{}}]")
            found.append((one, other))
        return found


def dump(instance: LmemPacking) -> JsonObject:
    """Return what the document of an instance says: columns, defaults left out."""
    name = instance.buffer_id
    alive = instance.conflicts is None
    columns: JsonObject = {
        "ids": instance.ids,
        "size": instance.size,
        "start": instance.start if alive else None,
        "end": instance.end if alive else None,
        "alignment": unless(instance.alignment, 1),
        "fixed": unless(instance.fixed, -1),
        "accesses": unless(instance.accesses, instance.size),
        "previous": unless(instance.previous, -1),
        "hint": unless(instance.hint, -1),
        "gaps": [_gap(gap, name(gap.buffer)) for gap in instance.gaps] or None,
        "allowed": [
            {"buffer": name(item.buffer), "low": item.low, "high": item.high}
            for item in instance.allowed
        ]
        or None,
        "memories": None
        if instance.homes is None
        else [
            None
            if row.all()
            else [level.name for level, here in zip(instance.memories, row, strict=True) if here]
            for row in instance.homes
        ],
        "exclusive": [name(i) for i in instance.exclusive] or None,
    }
    usual = usual_objective(instance.capacity, instance.memories, instance.penalties)
    return {
        "objective": None if instance.objective is usual else str(instance.objective),
        "capacity": instance.capacity,
        "period": instance.period,
        "buffers": Rows(columns),
        "conflicts": None if instance.conflicts is None else _named(instance, instance.conflicts),
        "reserved": [list(span) for span in instance.reserved] or None,
        "colocated": [[name(i) for i in group] for group in instance.colocated] or None,
        "in_place": _named(instance, instance.in_place) or None,
        "banks": _banks(instance),
        "memories": [_level(memory) for memory in instance.memories] or None,
        "apart": _named(instance, instance.apart) or None,
        "exempt": _named(instance, instance.exempt) or None,
        "views": [
            {"buffer": name(view.buffer), "host": name(view.host), "offset": view.offset}
            for view in instance.views
        ]
        or None,
        "penalties": None
        if instance.penalties is None
        else [
            [*pair, cost]
            for pair, cost in zip(
                _named(instance, instance.penalties.pairs),
                instance.penalties.cost.tolist(),
                strict=True,
            )
        ],
        "segment": instance.segment,
    }


def _gap(gap: Gap, name: str) -> JsonObject:
    whole = {"buffer": name, "start": gap.start, "end": gap.end, "low": gap.low, "high": gap.high}
    return {key: value for key, value in whole.items() if value or key not in ("low", "high")}


def _level(memory: Memory) -> JsonObject:
    whole = dataclasses.asdict(memory)
    return {key: value for key, value in whole.items() if value != MEMORY_DEFAULTS.get(key, ())}


def _named(instance: LmemPacking, pairs: Iterable[Sequence[int]]) -> list[list[str]]:
    return [[instance.buffer_id(int(i)) for i in pair] for pair in pairs]


def _banks(instance: LmemPacking) -> JsonObject | None:
    banks = instance.banks
    if banks is None:
        return None
    found = {"count": banks.count, "nbytes": banks.nbytes, "weight": banks.weight}
    found = {key: value for key, value in found.items() if value is not None}
    return {**found, "pairs": _named(instance, banks.pairs)}
