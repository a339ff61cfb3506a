"""Validates that the fields of a packing are consistent: pairs, records, ranges and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances.arrays import integer
from stagepack.instances.packing.data import Banks, PackingData
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BYTES = ("low", "high", "capacity", "offset", "alignment")
"""Fields of records that may be texts with units."""

RecordT = TypeVar("RecordT", bound="DataclassInstance")


def pairs(values: Any, name: str, n: int) -> Array:
    """Return `values` as pairs of different buffers of `n`, int64, each once, first < second.

    They rise: by the first buffer, then by the second. The order of a pair in `in_place` or
    `conflicts` has no meaning.  Refuses in the field `name` a buffer that there is not, or paired
    with itself.
    """
    try:
        array = np.asarray(values, dtype=np.int64).reshape(-1, 2)
    except (ValueError, TypeError, OverflowError):
        raise InputError(
            "is no list of pairs of buffers", field=name, remedy="give pairs (i, j) of indices"
        ) from None
    require_buffers(array, name, n)
    if (array[:, 0] == array[:, 1]).any():
        at = int(np.argmax(array[:, 0] == array[:, 1]))
        raise InputError(
            f"pairs buffer {array[at, 0]} with itself",
            field=f"{name}[{at}]",
            remedy="give pairs of two buffers",
        )
    array = np.unique(np.sort(array, axis=1), axis=0)
    array.setflags(write=False)
    return array


def require_buffers(array: Array, name: str, n: int) -> None:
    """Refuse, as the field `name`, an index that is none of `n` buffers."""
    if array.size and (array.min() < 0 or array.max() >= n):
        wrong = int(array.min()) if array.min() < 0 else int(array.max())
        raise InputError(
            f"{wrong} is no buffer", field=name, remedy=f"give indices from 0 to {n - 1}"
        )


def records(values: Iterable[object], shape: type[RecordT], name: str) -> Iterator[RecordT]:
    """Yield `values` as records of a `shape`, given as such or as tuples, as the field `name`.

    Fields with a default may be left out of a tuple.
    """
    columns = [(item.name, str(item.type)) for item in fields(shape)]
    least = sum(item.default is MISSING for item in fields(shape))
    wanted = "give (" + ", ".join(column for column, _ in columns) + ")"
    for at, value in enumerate(values):
        where = f"{name}[{at}]"
        if isinstance(value, tuple | list):
            entries = list(value)
        elif isinstance(value, shape):
            entries = [getattr(value, column) for column, _ in columns]
        else:
            raise InputError(f"{value!r} is no {shape.__name__}", field=where, remedy=wanted)
        if not least <= len(entries) <= len(columns):
            raise InputError(f"has {len(entries)} entries", field=where, remedy=wanted)
        yield shape(
            *(
                _entry(in_bytes(entry, where) if column in BYTES else entry, kind, where)
                for entry, (column, kind) in zip(entries, columns, strict=False)
            )
        )


def _entry(value: Any, kind: str, where: str) -> object:
    """Return an entry of a record as its field's type: a name, an integer, or ranges."""
    if kind == "str":
        if not isinstance(value, str):
            raise InputError(f"{value!r} is no name", field=where, remedy="give a string")
        return value
    if kind.startswith("tuple"):
        return ranges(value, f"{where}.reserved")
    return None if value is None and "None" in kind else integer(value, where)


def ranges(values: Iterable[Any], name: str) -> tuple[tuple[int, int], ...]:
    """Return address ranges [low, high) in ascending order, those that touch as one.

    Refuses the entry that is no pair, empty, or begins below 0.
    """
    found: list[tuple[int, int]] = []
    given = []
    for at, value in enumerate(values):
        where = f"{name}[{at}]"
        try:
            low, high = value
        except (TypeError, ValueError):
            raise InputError(
                f"{value!r} is no range", field=where, remedy="give (low, high)"
            ) from None
        low, high = (integer(in_bytes(end, where), where) for end in (low, high))
        if not 0 <= low < high:
            raise InputError(
                f"[{low}, {high}) is empty or negative", field=where, remedy="give 0 <= low < high"
            )
        given.append((low, high))
    for low, high in sorted(given):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def groups(values: Iterable[Iterable[int]], name: str, n: int) -> tuple[tuple[int, ...], ...]:
    """Return groups of buffers without overlap: groups of `values` that share one of `n` are one.

    A buffer that there is not is refused by the `name` of the field.
    """
    given = []
    for at, group in enumerate(values):
        members = [integer(i, f"{name}[{at}]") for i in group]
        require_buffers(np.array(members, dtype=np.int64), f"{name}[{at}]", n)
        given.append(members)
    if not given:
        return ()
    from stagepack.instances.joining import Joined

    joined = Joined[int]()
    for members in given:
        for other in members[1:]:
            joined.join(other, members[0])
    used = sorted({i for members in given for i in members})
    return tuple(tuple(group) for group in joined.sets(used) if len(group) > 1)


def banks(given: Banks, n: int) -> Banks:
    """Return banks with their pairs read and their numbers checked."""
    count = integer(given.count, "banks.count")
    nbytes = integer(in_bytes(given.nbytes, "banks.nbytes"), "banks.nbytes")
    weight = None if given.weight is None else integer(given.weight, "banks.weight")
    for name, value, least in (("count", count, 1), ("nbytes", nbytes, 1), ("weight", weight, 0)):
        if value is not None and value < least:
            raise InputError(
                f"is {value}", field=f"banks.{name}", remedy=f"give an integer >= {least}"
            )
    found = pairs(given.pairs, "banks.pairs", n)
    return replace(given, count=count, nbytes=nbytes, pairs=found, weight=weight)


def instance(given: PackingData) -> None:
    """Refuse what does not fit together, with the field, the buffer and the remedy."""
    n = given.n
    if n == 0:
        raise InputError("no buffers", field="size", remedy="give at least one buffer")
    _each(given, given.size >= 0, "size", "is negative", "give a number of bytes")
    _each(given, given.end > given.start, "end", "is not after its start", "give start < end")
    _each(given, given.alignment >= 1, "alignment", "is not positive", "give at least 1")
    _each(given, given.accesses >= 0, "accesses", "is negative", "give a number >= 0")
    for name in ("fixed", "previous", "hint"):
        _each(given, getattr(given, name) >= -1, name, "is negative", "give an offset, or -1")
    if float(given.size.sum(dtype=np.float64)) + float(given.fixed.max()) >= LARGEST / 2:
        raise InputError("the sum exceeds 2**61", field="size", remedy="use a coarser unit")
    if float(given.alignment.max()) * n >= LARGEST / 2:
        raise InputError("the sum exceeds 2**61", field="alignment", remedy="use a coarser unit")
    if given.capacity is not None and given.capacity < 0:
        raise InputError("is negative", field="capacity", remedy="give a number of bytes")
    if given.period is not None:
        _circular(given)
    _gaps(given)
    _places(given)
    _objectives(given)


def _each(given: PackingData, fine: Array, name: str, problem: str, remedy: str) -> None:
    if not fine.all():
        at = int(np.argmin(fine))
        value = int(getattr(given, name)[at])
        raise InputError(
            f"{value} of buffer {given.buffer_id(at)} {problem}", field=name, remedy=remedy
        )


def _circular(given: PackingData) -> None:
    period = given.period or 0
    if period < 1:
        raise InputError(f"is {period}", field="period", remedy="give at least 1")
    if given.conflicts is not None:
        raise InputError("needs lifetimes", field="period", remedy="leave out the conflicts")
    inside = (given.start >= 0) & (given.start < period)
    _each(given, inside, "start", f"is outside [0, {period})", "take it modulo the period")
    _each(
        given,
        given.end <= given.start + period,
        "end",
        f"is more than a period ({period}) after its start",
        "give a lifetime of at most one period",
    )


def _gaps(given: PackingData) -> None:
    if given.gaps and given.conflicts is not None:
        raise InputError("needs lifetimes", field="gaps", remedy="leave out the conflicts")
    last: dict[int, int] = {}
    order = sorted(
        range(len(given.gaps)), key=lambda g: (given.gaps[g].buffer, given.gaps[g].start)
    )
    for at in order:
        gap, where = given.gaps[at], f"gaps[{at}]"
        require_buffers(np.array([gap.buffer]), f"{where}.buffer", given.n)
        who = f"buffer {given.buffer_id(gap.buffer)}"
        begin, end = int(given.start[gap.buffer]), int(given.end[gap.buffer])
        if not begin <= gap.start < gap.end <= end:
            raise InputError(
                f"[{gap.start}, {gap.end}) does not lie in the lifetime [{begin}, {end}) of {who}",
                field=where,
                remedy="give start < end inside the lifetime",
            )
        if gap.start < last.get(gap.buffer, gap.start):
            raise InputError(
                f"overlaps another gap of {who}", field=where, remedy="give gaps that do not"
            )
        last[gap.buffer] = gap.end
        if not 0 <= gap.low <= gap.high <= given.size[gap.buffer]:
            raise InputError(
                f"window [{gap.low}, {gap.high}) does not lie in the "
                f"{given.size[gap.buffer]} bytes of {who}",
                field=where,
                remedy="give 0 <= low <= high <= size",
            )


def _places(given: PackingData) -> None:
    for at, item in enumerate(given.allowed):
        require_buffers(np.array([item.buffer]), f"allowed[{at}].buffer", given.n)
        if not 0 <= item.low < item.high:
            raise InputError(
                f"[{item.low}, {item.high}) is empty or negative",
                field=f"allowed[{at}]",
                remedy="give 0 <= low < high",
            )
    off = (given.fixed >= 0) & (given.fixed % given.alignment != 0)
    if off.any():
        at = int(np.argmax(off))
        raise InputError(
            f"{given.fixed[at]} of buffer {given.buffer_id(at)} is no multiple of its "
            f"alignment {given.alignment[at]}",
            field="fixed",
            remedy="correct one of them",
        )


def _objectives(given: PackingData) -> None:
    """Refuse an objective without what it needs, memories that do not go with it, and overflows."""
    objective = str(given.objective)
    needs = {
        "capacity": (
            ("fit", "moves", "penalties"),
            given.capacity is None and not given.memories,
            "give a capacity (--capacity), or minimise the peak",
        ),
        "penalties": (("penalties",), given.penalties is None, "give some, or minimise the peak"),
        "banks": (("bank-conflicts",), given.banks is None, "give banks, or minimise the peak"),
        "previous": (("moves",), not (given.previous >= 0).any(), "give the old offsets"),
    }
    for field, (needing, missing, remedy) in needs.items():
        if objective in needing and missing:
            raise InputError(
                f"is missing, and the objective {objective} needs it", field=field, remedy=remedy
            )
    _memories(given)
    if given.banks is not None:
        total = float(given.conflict_weight) * (len(given.banks.pairs) + 1)
        if total >= LARGEST:
            raise InputError(
                "weight times pairs exceeds 2**62", field="banks", remedy="use a coarser unit"
            )


def _memories(given: PackingData) -> None:
    """Refuse memories without the objective that chooses among them, and the other way round."""
    if given.memories and given.capacity is not None:
        raise InputError(
            "goes with one memory", field="capacity", remedy="give each memory its own capacity"
        )
    objective = str(given.objective)
    if given.memories and objective in ("moves", "bank-conflicts"):
        raise InputError(
            f"{objective} knows one memory",
            field="objective",
            remedy="use fit, peak, penalties or spill, or leave out the memories",
        )
    without = [memory.name for memory in given.memories if memory.capacity is None]
    if without and objective == "fit":
        raise InputError(
            f"memory {without[0]!r} has no capacity, and all would fit into it",
            field="memories",
            remedy="give it one, or minimise the peak",
        )
    if objective == "spill" and not given.memories:
        raise InputError(
            "is missing, and the objective spill needs it",
            field="memories",
            remedy="give at least two memories",
        )
    for at, memory in enumerate(given.memories):
        if memory.cost < 0 or (memory.capacity is not None and memory.capacity < 0):
            raise InputError(
                "has a negative number", field=f"memories[{at}]", remedy="give numbers >= 0"
            )
        if float(memory.cost) * float(given.accesses.sum(dtype=np.float64)) >= LARGEST:
            raise InputError(
                "cost times accesses exceeds 2**62",
                field=f"memories[{at}].cost",
                remedy="use a coarser unit",
            )
    if len({memory.name for memory in given.memories}) < len(given.memories):
        raise InputError(
            "two have one name", field="memories", remedy="give each a name of its own"
        )
