"""LMEM packing: where in memory each buffer lives.

Every buffer has a size and a lifetime; buffers alive together must not overlap.  An instance is
plain arrays (one entry a buffer) and the rules an allocation must respect; it knows no solver.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from stagepack.instances.answer import Answered
from stagepack.instances.documents import strict
from stagepack.instances.packing import validate
from stagepack.instances.packing.validate import LARGEST, integers
from stagepack.instances.profile import Array
from stagepack.result import InputError, Result
from stagepack.shown import ShownSolution, some

KIND = "lmem-packing"


class Objective(StrEnum):
    """What an allocation should minimise."""

    PEAK = "peak"
    """The highest address used; a capacity is not enforced."""
    FIT = "fit"
    """The highest address used, but whatever fits the capacity will do."""
    BANK_CONFLICTS = "bank-conflicts"
    """First the pairs of buffers that share a bank, then the peak (or a weighted sum)."""
    MOVES = "moves"
    """The bytes of buffers that leave their previous offset, within the capacity."""
    SPILL = "spill"
    """The cost of accesses, over which memory each buffer lives in."""


@dataclass(frozen=True)
class Gap:
    """In [start, end) a buffer uses only the bytes [low, high) above its offset (none: dead)."""

    buffer: int
    start: int
    end: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Allowed:
    """A range [low, high) of addresses that may hold a buffer, wholly."""

    buffer: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Banks:
    """Banks of equal size, and the pairs of buffers that should not share one.

    Attributes
    ----------
    count : int
        Number of banks.
    nbytes : int
        Bytes of a bank: address o lies in bank o // nbytes.
    pairs : ndarray of int64, shape (pairs, 2)
        Buffers that conflict when the banks they touch intersect, each pair once.
    weight : int or None
        Bytes of peak that one conflict is worth; None: conflicts come first.
    """

    count: int
    nbytes: int
    pairs: Array
    weight: int | None = None


@dataclass(frozen=True)
class Memory:
    """One of several memories: its capacity in bytes (None: no limit) and cost of an access."""

    name: str
    capacity: int | None
    cost: int


@dataclass(frozen=True, eq=False, repr=False)
class PackingSolution(ShownSolution):
    """An offset a buffer and, where there are several memories, the memory it lies in.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n,)
        Address of the first byte of each buffer.
    memory : ndarray of int64, shape (n,), optional
        Index of the memory each buffer lies in.
    ids, memories : tuple of str, optional
        Names of the buffers and memories, for :meth:`to_dict`.
    """

    offsets: Array
    memory: Array | None = None
    ids: tuple[str, ...] | None = field(default=None, repr=False)
    memories: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackingSolution):
            return NotImplemented
        if (self.memory is None) != (other.memory is None):
            return False
        return np.array_equal(self.offsets, other.offsets) and (
            self.memory is None or np.array_equal(self.memory, other.memory)  # type: ignore[arg-type]
        )

    def __hash__(self) -> int:
        return hash((self.offsets.tobytes(), None if self.memory is None else len(self.memory)))

    @classmethod
    def of(cls, instance: LmemPacking, offsets: Any, memory: Any = None) -> PackingSolution:
        """Return the solution of `instance` with these offsets (and memories)."""
        return cls(
            np.array(offsets, dtype=np.int64),
            None if memory is None else np.array(memory, dtype=np.int64),
            instance.ids,
            tuple(item.name for item in instance.memories),
        )

    @classmethod
    def from_dict(cls, data: Any, instance: LmemPacking) -> PackingSolution:
        """Read ``{"offsets": {id: int}}``, with ``"memories": {id: name}`` where there are several.

        Raises
        ------
        InputError
            When a buffer is missing or unknown, or a value is no integer (no memory's name).
        """
        if isinstance(data, Mapping):
            strict.require_fields(data, ("offsets", "memories"))
        if not isinstance(data, Mapping) or not isinstance(data.get("offsets"), Mapping):
            raise InputError(
                "is missing or no object", field="offsets", remedy='write {"offsets": {id: int}}'
            )
        offsets = _by_id(data["offsets"], "offsets", instance)
        for at, value in enumerate(offsets):
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= LARGEST:
                raise InputError(
                    f"{value!r} is no integer below 2**62",
                    field=f"offsets.{instance.buffer_id(at)}",
                    remedy="give a byte address",
                )
        memory = None
        if data.get("memories") is not None:
            names = [item.name for item in instance.memories]
            chosen = _by_id(data["memories"], "memories", instance)
            for at, name in enumerate(chosen):
                if name not in names:
                    raise InputError(
                        f"{name!r} is no memory of the instance",
                        field=f"memories.{instance.buffer_id(at)}",
                        remedy="there are " + (", ".join(names) or "none"),
                    )
            memory = [names.index(name) for name in chosen]
        return cls.of(instance, offsets, memory)

    def _line(self) -> str:
        return f"{len(self.offsets)} buffers, offsets {some(self.offsets)}"

    def malformed(self) -> str:
        """Return the name of a field that is no array, or ''."""
        if not isinstance(self.offsets, np.ndarray):
            return "offsets"
        return "" if self.memory is None or isinstance(self.memory, np.ndarray) else "memory"

    def by_name(self, instance: LmemPacking) -> dict[str, int]:
        """Return the offset of each buffer of `instance` by its id.

        Raises
        ------
        InputError
            When it has another number of buffers.
        """
        ids = instance.ids or tuple(map(str, range(instance.n)))
        return dict(zip(ids, instance.solution_in(self).offsets.tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the solution as JSON data: ``{"offsets": {id: int}}``."""
        ids = self.ids or tuple(map(str, range(len(self.offsets))))
        found: dict[str, Any] = {"offsets": dict(zip(ids, self.offsets.tolist(), strict=True))}
        if self.memory is not None:
            names = [self.memories[index] for index in self.memory.tolist()]
            found["memories"] = dict(zip(ids, names, strict=True))
        return found


def _by_id(given: Any, name: str, instance: LmemPacking) -> list[Any]:
    """Return the values of an object keyed by buffer ids, in the order of the buffers."""
    if not isinstance(given, Mapping):
        raise InputError("is no object", field=name, remedy="write {id: value}")
    ids = instance.ids or tuple(map(str, range(instance.n)))
    missing = next((key for key in ids if key not in given), None)
    if missing is not None:
        raise InputError("is missing", field=f"{name}.{missing}", remedy="name every buffer")
    if len(given) > len(ids):
        known = set(ids)
        extra = next(key for key in given if key not in known)
        raise InputError(
            f"is no buffer of {instance.name}",
            field=f"{name}.{extra}",
            remedy="give a solution of this instance",
        )
    return [given[key] for key in ids]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LmemPacking(Answered[PackingSolution]):
    """An instance of LMEM packing; use :meth:`from_arrays`, the fields are what it makes.

    Attributes
    ----------
    name : str
        Name for tables and reports.
    size : ndarray of int64, shape (n,)
        Bytes of each buffer, at least 1.
    start, end : ndarray of int64, shape (n,)
        Lifetimes [start, end); zeros and ones where `conflicts` replaces them.
    ids : tuple of str, optional
        Names of the buffers; "0", "1", ... when absent.
    period : int, optional
        Lifetimes are circular modulo this: 0 <= start < period, start < end <= start + period.
    conflicts : ndarray of int64, shape (pairs, 2), optional
        The pairs of buffers that must not overlap, in place of lifetimes.
    capacity : int, optional
        Bytes of the memory.
    alignment : ndarray of int64, shape (n,)
        Offsets are multiples of these.
    gaps : tuple of Gap
        Times in which a buffer is dead or shrinks to a window of itself.
    fixed : ndarray of int64, shape (n,)
        Offsets that are given; -1: free.
    allowed : tuple of Allowed
        Address ranges of a buffer, which must lie wholly in one of them.
    reserved : tuple of (int, int)
        Address ranges [low, high) that nobody may use.
    colocated : tuple of tuple of int
        Buffers that have one offset; they may overlap one another.
    in_place : tuple of (int, int)
        Pairs that may overlap, though only at equal offsets (an output born as its input dies).
    banks : Banks, optional
        Banks and conflicting pairs.
    memories : tuple of Memory
        Several memories to choose from, for the objective ``spill``.
    accesses : ndarray of int64, shape (n,)
        Accesses of each buffer, in the unit that the costs of the memories are for.
    previous : ndarray of int64, shape (n,)
        Old offsets; -1: none.
    hint : ndarray of int64, shape (n,)
        Offsets where a search may start; -1: none.
    objective : Objective
        What to minimise.
    """

    name: str
    size: Array
    start: Array
    end: Array
    ids: tuple[str, ...] | None = None
    period: int | None = None
    conflicts: Array | None = None
    capacity: int | None = None
    alignment: Array
    gaps: tuple[Gap, ...] = ()
    fixed: Array
    allowed: tuple[Allowed, ...] = ()
    reserved: tuple[tuple[int, int], ...] = ()
    colocated: tuple[tuple[int, ...], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    banks: Banks | None = None
    memories: tuple[Memory, ...] = ()
    accesses: Array
    previous: Array
    hint: Array
    objective: Objective = Objective.PEAK
    source: str = field(default="", compare=False)

    kind = KIND
    tolerance = 0.0

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_arrays(
        cls,
        size: Any,
        start: Any = None,
        end: Any = None,
        *,
        ids: Sequence[str] | None = None,
        period: int | None = None,
        conflicts: Any = None,
        capacity: int | None = None,
        alignment: Any = None,
        gaps: Iterable[Gap | tuple[int, ...]] = (),
        fixed: Any = None,
        allowed: Iterable[Allowed | tuple[int, int, int]] = (),
        reserved: Iterable[tuple[int, int]] = (),
        colocated: Iterable[Iterable[int]] = (),
        in_place: Iterable[tuple[int, int]] = (),
        banks: Banks | None = None,
        memories: Iterable[Memory | tuple[str, int | None, int]] = (),
        accesses: Any = None,
        previous: Any = None,
        hint: Any = None,
        objective: Objective | str | None = None,
        name: str = "packing",
        source: str = "",
    ) -> LmemPacking:
        """Build an instance from arrays; see the class for shapes and units.

        Parameters
        ----------
        size, start, end : array_like of int, shape (n,)
            Bytes and lifetimes [start, end); leave the lifetimes out with `conflicts`.
        alignment : int or array_like, optional
            One for all buffers or one each; 1 when absent.
        fixed, previous, hint : array_like of int, shape (n,), optional
            Offsets, -1 for none.
        accesses : array_like of int, shape (n,), optional
            The sizes when absent.
        objective : Objective or str, optional
            "fit" with a capacity, "spill" with memories, otherwise "peak" when absent.

        Raises
        ------
        InputError
            Naming the field: wrong shapes, no integers, empty lifetimes, sizes below 1, numbers
            or sums of 2**62 and more, indices of no buffer, rules that contradict each other.
        """
        sizes = integers(size, "size")
        n = len(sizes)
        if conflicts is not None:
            if start is not None and (np.any(start) or not np.array_equal(end, np.ones(n))):
                raise InputError(
                    "replaces lifetimes", field="conflicts", remedy="give start and end, or this"
                )
            start, end = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        none = np.full(n, -1, dtype=np.int64)
        one = 1 if alignment is None else alignment
        built = cls(
            name=name,
            size=sizes,
            start=integers(start, "start", n),
            end=integers(end, "end", n),
            ids=None if ids is None else tuple(map(str, ids)),
            period=None if period is None else validate.integer(period, "period"),
            conflicts=None if conflicts is None else validate.pairs(conflicts, "conflicts", n),
            capacity=None if capacity is None else validate.integer(capacity, "capacity"),
            alignment=integers(np.full(n, one) if np.ndim(one) == 0 else one, "alignment", n),
            gaps=tuple(sorted(validate.records(gaps, Gap, "gaps"), key=_by_time)),
            fixed=integers(none if fixed is None else fixed, "fixed", n),
            allowed=tuple(validate.records(allowed, Allowed, "allowed")),
            reserved=validate.ranges(reserved, "reserved"),
            colocated=validate.groups(colocated, "colocated", n),
            in_place=tuple(
                (int(i), int(j)) for i, j in validate.pairs(list(in_place), "in_place", n).tolist()
            ),
            banks=None if banks is None else validate.banks(banks, n),
            memories=tuple(validate.records(memories, Memory, "memories")),
            accesses=integers(sizes if accesses is None else accesses, "accesses", n),
            previous=integers(none if previous is None else previous, "previous", n),
            hint=integers(none if hint is None else hint, "hint", n),
            objective=_objective(objective, capacity, memories),
            source=source,
        )
        validate.instance(built)
        return built

    def replace(self, **changes: Any) -> LmemPacking:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in changes:
            if name not in known:
                raise InputError(
                    "is no field of a packing", field=name, remedy="known are " + ", ".join(known)
                )
        if changes.get("conflicts") is not None:
            known["start"] = known["end"] = None
        return type(self).from_arrays(**{**known, **changes})

    def select(self, buffers: Sequence[int], **changes: Any) -> LmemPacking:
        """Return the instance of some buffers only, in the order given, with fields changed.

        What names a buffer left out is dropped: gaps, ranges, pairs and groups of others stay.
        """
        keep = np.asarray(buffers, dtype=np.int64)
        place = {int(buffer): at for at, buffer in enumerate(keep)}

        def both(pairs: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
            groups = (tuple(place[int(i)] for i in group if int(i) in place) for group in pairs)
            return [group for group in groups if len(group) > 1]

        banks = self.banks
        if banks is not None:
            pairs = np.array(both(banks.pairs.tolist()), dtype=np.int64).reshape(-1, 2)
            banks = Banks(banks.count, banks.nbytes, pairs, banks.weight)
        columns = ("size", "start", "end", "alignment", "fixed", "accesses", "previous", "hint")
        fields: dict[str, Any] = {name: getattr(self, name)[keep] for name in columns}
        fields |= {
            "ids": None if self.ids is None else [self.ids[int(i)] for i in keep],
            "gaps": [
                replace(gap, buffer=place[gap.buffer]) for gap in self.gaps if gap.buffer in place
            ],
            "allowed": [
                replace(item, buffer=place[item.buffer])
                for item in self.allowed
                if item.buffer in place
            ],
            "colocated": both(self.colocated),
            "in_place": both(self.in_place),
            "banks": banks,
        }
        if self.conflicts is not None:
            fields["conflicts"] = np.array(both(self.conflicts.tolist())).reshape(-1, 2)
        return self.replace(**{**fields, **changes})

    # ------------------------------------------------------------------ derived figures

    @property
    def n(self) -> int:
        """Number of buffers."""
        return len(self.size)

    @property
    def ceiling(self) -> int | None:
        """The address that no buffer may exceed: the capacity where it counts, the last bank."""
        limits = [] if self.objective is Objective.PEAK else [self.capacity]
        if self.banks is not None:
            limits.append(self.banks.count * self.banks.nbytes)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def goal(self) -> int | None:
        """An objective value that is good enough: the capacity, when all must only fit."""
        return self.capacity if self.objective is Objective.FIT else None

    @cached_property
    def conflict_weight(self) -> int:
        """What one bank conflict adds to the objective: more than any peak, where they come first.

        A power of ten, so that people can read conflicts and peak off the value.
        """
        if self.banks is not None and self.banks.weight is not None:
            return self.banks.weight
        top = self.capacity
        if top is None:
            top = int(self.size.sum() + self.alignment.sum())
            top += max([0, *(high for _, high in self.reserved)])
            top += int(self.fixed.max()) + max([0, *(item.low for item in self.allowed)])
        if self.banks is not None:
            top = max(top, self.banks.count * self.banks.nbytes)
        weight = 10
        while weight <= top:
            weight *= 10
        return weight

    def buffer_id(self, index: int) -> str:
        """Name of a buffer for messages, files and plots."""
        return str(index) if self.ids is None else self.ids[index]

    @cached_property
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        whole = hashlib.sha256()
        for key, value in sorted(vars(self).items()):
            if key in ("name", "source", "ids") or key not in self.__dataclass_fields__:
                continue
            whole.update(key.encode())
            if isinstance(value, Banks):
                whole.update(repr((value.count, value.nbytes, value.weight)).encode())
                value = value.pairs
            if isinstance(value, np.ndarray):
                whole.update(repr(value.shape).encode())
                whole.update(np.ascontiguousarray(value).tobytes())
            else:
                whole.update(repr(value).encode())
        return whole.hexdigest()[:16]

    # ------------------------------------------------------------------ what an answer is worth

    def _line(self) -> str:
        return f"{self.name!r}, {self.n} buffers, {self.objective}"

    def _answer(self) -> tuple[type[PackingSolution], Callable[..., Iterable[Any]]]:
        from stagepack.instances.packing.check import shape

        return PackingSolution, shape

    def evaluate(self, solution: PackingSolution | Result[PackingSolution]) -> int:
        """Return the objective value of `solution`; see :mod:`.check`."""
        from stagepack.instances.packing.check import evaluate

        return evaluate(self, self.solution_in(solution))

    def secondary(self, solution: PackingSolution) -> int:
        """Return what decides between solutions of equal value: bytes moved, or else the peak."""
        from stagepack.instances.packing.check import measure

        found = measure(self, solution)
        if self.objective in (Objective.MOVES, Objective.SPILL):
            return found.peak
        return found.moved_bytes or 0

    def check(self, solution: PackingSolution | Result[PackingSolution]) -> tuple[Any, ...]:
        """Return the violations of `solution`, () if it is valid; see :mod:`.check`."""
        from stagepack.instances.packing.check import check

        return check(self, self.solution_in(solution, shaped=False))


def _by_time(gap: Gap) -> tuple[int, int]:
    return gap.buffer, gap.start


def _objective(given: Any, capacity: Any, memories: Any) -> Objective:
    if given is None:
        if memories:
            return Objective.SPILL
        return Objective.PEAK if capacity is None else Objective.FIT
    try:
        return Objective(given)
    except ValueError:
        raise InputError(
            f"unknown objective {given!r}",
            field="objective",
            remedy="choose one of " + ", ".join(Objective),
        ) from None
