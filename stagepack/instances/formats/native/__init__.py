"""Native files: one instance as JSON, ``{"problem": kind, "version": 1, ...}``.

Each kind of problem has its own fields, described in its module and, as JSON Schema, by
:func:`schema`.  Unknown fields are errors.  Files whose name ends in ``.gz`` are gzip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stagepack.errors import suggest
from stagepack.instances.formats import strict
from stagepack.instances.formats.context import JOB, MACHINE, PACKING, PHASES, SCHEDULE, Context
from stagepack.instances.formats.native import packing, phases, pipeline, schedule
from stagepack.instances.formats.registry import Format, Instance
from stagepack.instances.packing import KIND as LMEM
from stagepack.instances.phases import KIND as PHASED
from stagepack.instances.pipeline import KIND as PIPELINE
from stagepack.instances.schedule import KIND as TIMED
from stagepack.kinds import kind_of
from stagepack.result import InputError

VERSION = 1
KINDS: dict[str, tuple[type, Callable[..., Any], Callable[..., str]]] = {
    PIPELINE: (pipeline.Document, pipeline.parse, pipeline.dump),
    LMEM: (packing.Document, packing.parse, packing.dump),
    TIMED: (schedule.Document, schedule.parse, schedule.dump),
    PHASED: (phases.Document, phases.parse, phases.dump),
}
FOREIGN = (b'"connection"', b'"cycles"', b'"timestep_table"')  # words of other formats in JSON


class _Header(msgspec.Struct, frozen=True):
    problem: Any = None
    version: Any = None


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of the native files of a kind of problem (or family: "packing").

    Raises
    ------
    InputError
        For an unknown kind.
    """
    kind = kind_of(kind)
    plain: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Stagepack {kind}, version {VERSION}",
        **msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(KINDS[kind][0]))),
    }
    return plain


def sniff(data: bytes) -> bool:
    """Whether `data` is JSON that says which problem it is (or nothing better)."""
    if strict.first_byte(data) not in (b"{", b"["):
        return False
    return b'"problem"' in data or not any(word in data for word in FOREIGN)


def tell(data: bytes) -> str:
    """Return the kind of problem that a native file holds.

    Raises
    ------
    InputError
        Naming the field: no kind, an unknown one, a version that is not known here.
    """
    header = strict.decode(data, _Header)
    known = " or ".join(KINDS)
    if not isinstance(header.problem, str):
        raise InputError(
            "is missing" if header.problem is None else "is no word",
            field="problem",
            remedy=f'write "problem": "KIND", where KIND is {known}',
        )
    if header.problem not in KINDS:
        raise InputError(
            f"unknown problem {header.problem[:60]!r}",
            field="problem",
            remedy=suggest(header.problem, KINDS),
        )
    version = header.version
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError(
            "is missing" if version is None else f"is {version!r}"[:60],
            field="version",
            remedy=f'write "version": {VERSION}',
        )
    if version > VERSION:
        raise InputError(
            f"version {str(version)[:20]} is newer than {VERSION}, the newest known here",
            field="version",
            remedy="update Stagepack",
        )
    return header.problem


def parse(data: bytes, context: Context, file: str) -> list[Any]:
    """Return the one instance of a native file.

    Raises
    ------
    InputError
        Naming the field.
    """
    del file  # the instance says its name
    _, parse_kind, _ = KINDS[tell(data)]
    return [parse_kind(data, context)]


def dump(instance: Instance, file: str) -> bytes:
    """Return the native file of an instance: columns, a line each, defaults left out.

    Raises
    ------
    InputError
        When two things have one name.
    """
    del file
    _, _, dump_kind = KINDS[instance.kind]
    return dump_kind(instance).encode() + b"\n"


FORMAT = Format(
    name="native",
    contexts={PIPELINE: MACHINE | JOB, LMEM: PACKING, TIMED: SCHEDULE, PHASED: PHASES},
    extensions=(".json", ".json.gz"),
    description="Stagepack's own JSON: objects or columns, with a published schema",
    sniff=sniff,
    parse=parse,
    dump=dump,
    tell=tell,
)
