"""Buffers of XLA: ``*-live-range.txt`` with ``*-buffer-assignment.txt`` (``--xla_dump_to``).

The one says when values live (``name{}:8-35``, both ends inclusive), the other how many bytes they
have and where XLA puts them; the second is appended to the first, or named beside it
(``assignment``).  Buffers are the values that XLA allocates for the run: no parameters, constants
or locals of threads, which are not its to place.  Values that XLA lets follow one another in one
place, the second written as the first is read, are in place of each other here, too.

What a loop hands from turn to turn, and what branches give back (``(phi)``), must lie where that is
written of which it is made.  The dumps do not say what that is, but XLA has it in the same place
with as many bytes: all such values have one place here, too.

XLA's own places are a solution, with its allocations one behind the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from stagepack.errors import InputError
from stagepack.formats.known import ASSIGNMENT, LIVE_RANGES, stem_of
from stagepack.instances.documents import strict
from stagepack.instances.packing import KIND, LmemPacking, PackingSolution
from stagepack.instances.words import Words

RANGE = re.compile(r" *(\S+\{[0-9,]*\}):([0-9]{1,15})-([0-9]{1,15})")
ALLOCATION = re.compile(r"allocation ([0-9]{1,9}): (?:0x\w+, )?size ([0-9]{1,18})(.*)")
VALUE = re.compile(
    r" *value: <[0-9]+ ([^\s>]+)( \(phi\))? @[0-9]+> "
    r"\(size=([0-9]{1,18}),offset=([0-9]{1,18})\).*"
)
ELSEWHERE = re.compile(r"parameter [0-9]|constant|thread-local")
ALIGNMENT = 64


@dataclass(frozen=True)
class Value:
    """A buffer: its lifetime, both ends inclusive, its bytes, and where XLA has it."""

    name: str
    first: int
    last: int
    nbytes: int
    allocation: int
    offset: int
    phi: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        """Its allocation, where in that it begins, and its bytes."""
        return self.allocation, self.offset, self.nbytes


@dataclass(frozen=True)
class Dump:
    """The values of a module, and where each allocation would begin, one behind the other."""

    values: list[Value]
    begin: dict[int, int]


def _read(text: str) -> Dump:
    """Return what live ranges and assignment say together."""
    if LIVE_RANGES not in text or ASSIGNMENT not in text:
        missing = "*-buffer-assignment.txt" if LIVE_RANGES in text else "*-live-range.txt"
        raise InputError(
            f"holds one of two files that XLA writes: {missing} is missing",
            field="assignment",
            remedy="append it, or say --set assignment=FILE beside the live ranges",
        )
    lives: dict[str, tuple[int, int]] = {}
    values: list[Value] = []
    told: set[str] = set()
    begin: dict[int, int] = {}
    end, allocation = 0, -1
    section = ""
    for at, line in enumerate(text.splitlines()):
        if line.startswith((LIVE_RANGES, ASSIGNMENT)):
            section = line.split(" ")[0]
            continue
        alive = RANGE.fullmatch(line)
        if section == LIVE_RANGES and alive is not None:
            lives[alive[1]] = int(alive[2]), int(alive[3])
            if int(alive[3]) < int(alive[2]):
                raise _damaged(at, "ends before it begins")
        if section != ASSIGNMENT:
            continue
        block, value = ALLOCATION.fullmatch(line), VALUE.fullmatch(line)
        if block is not None:
            allocation = -1 if ELSEWHERE.search(block[3]) else int(block[1])
            if allocation >= 0:
                begin[allocation] = end
                end += -(-int(block[2]) // ALIGNMENT) * ALIGNMENT
        elif value is not None:
            name = value[1] if value[1].endswith("}") else f"{value[1]}{{}}"
            told.add(name)
            if allocation < 0:
                continue
            phi = value[2] is not None
            values.append(Value(name, 0, -1, int(value[3]), allocation, int(value[4]), phi))
        elif line.lstrip().startswith(("allocation ", "value: ")) and value is None:
            raise _damaged(at, "is no allocation and no value")
        elif line and not line.startswith(" "):
            section = ""
    lost = next((name for name in lives if name not in told), None)
    if lost is not None and values:
        raise InputError(
            f"tells when {lost} lives, and not where it is: it was cut short",
            field="assignment",
            remedy="give the complete dumps of XLA",
        )
    return Dump([_alive(value, lives) for value in values if value.nbytes], begin)


def _alive(value: Value, lives: dict[str, tuple[int, int]]) -> Value:
    """Return a value with its lifetime: the whole run where it has none."""
    whole = (0, max((last for _, last in lives.values()), default=0))
    first, last = lives.get(value.name, whole)
    return replace(value, first=first, last=last)


def _damaged(at: int, problem: str) -> InputError:
    return InputError(problem, field=f"line {at + 1}", remedy="give the complete dumps of XLA")


def _carried(dump: Dump) -> list[list[int]]:
    """Return values that have one place and size with what a loop carries or branches give."""
    carrying = {value.place for value in dump.values if value.phi}
    found: dict[tuple[int, int, int], list[int]] = {}
    for at, value in enumerate(dump.values):
        if value.place in carrying:
            found.setdefault(value.place, []).append(at)
    return [group for group in found.values() if len(group) > 1]


def _in_place(dump: Dump) -> list[tuple[int, int]]:
    """Return pairs that XLA has in one place although the one is read as the other is written."""
    ends: dict[tuple[int, int, int], int] = {}  # values of one place do not end together
    for at, value in enumerate(dump.values):
        if value.first < value.last:
            ends.setdefault((value.allocation, value.offset, value.last), at)
    found = []
    for at, value in enumerate(dump.values):
        before = ends.get((value.allocation, value.offset, value.first))
        if before is not None:
            found.append((before, at))
    return found


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return the values of a module."""
    text = strict.text(data)
    if "assignment" in given and ASSIGNMENT not in text:
        with strict.located(given["assignment"]):
            text += "\n" + strict.text(strict.load(given["assignment"]))
    dump = _read(text)
    if not dump.values:
        raise InputError("holds no buffers to place", remedy="give the complete dumps of XLA")
    names = [value.name for value in dump.values]
    twice = len(set(names)) < len(names)
    return [
        LmemPacking.from_arrays(
            [value.nbytes for value in dump.values],
            [value.first for value in dump.values],
            [value.last + 1 for value in dump.values],
            ids=[f"{name} ({at})" for at, name in enumerate(names)] if twice else names,
            alignment=ALIGNMENT,
            colocated=_carried(dump),
            in_place=_in_place(dump),
            capacity=given.get("capacity"),
            objective=given.get("objective"),
            name=stem_of(file).removesuffix("-live-range"),
            source=file,
        )
    ]


def solution(data: bytes, instance: LmemPacking) -> PackingSolution:
    """Return XLA's own places."""
    dump = _read(strict.text(data))
    if [value.nbytes for value in dump.values] != instance.size.tolist():
        raise InputError(
            f"has not the buffers of {instance.name}",
            field="solution",
            remedy="give the dumps of which the instance was made",
        )
    places = [dump.begin[value.allocation] + value.offset for value in dump.values]
    return PackingSolution.of(instance, np.array(places, dtype=np.int64))


CONTEXTS = {KIND: frozenset({"capacity", "objective", "assignment"})}
BESIDE = {"assignment": ("-live-range.txt", "-buffer-assignment.txt")}
