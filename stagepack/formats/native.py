"""Native files: one instance as JSON, ``{"problem": kind, "version": 1, ...}``.

Each kind of problem has its own fields, described in its module ``native`` and, as JSON Schema, by
:func:`schema`.  Unknown fields are errors.  Files whose name ends in ``.gz`` are gzip.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection

import msgspec

from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError, suggest
from stagepack.instances.documents import keys, strict
from stagepack.instances.documents.lines import lines
from stagepack.instances.problem import PROBLEMS, word
from stagepack.instances.words import Words
from stagepack.kinds import ByKind, kind_of

VERSION = 1
BEGINNING = (
    f'begin with {{"problem": "KIND", "version": {VERSION}; stagepack schema KIND prints the fields'
)
ACCOUNTS = (
    (
        ("problem", "points"),
        "a front",
        "give its instance to: stagepack pareto INSTANCE --plot FILE",
    ),
    (
        ("critical", "changes"),
        "an explanation",
        "give its instance or plan to: stagepack explain FILE",
    ),
    (
        ("problem", "evaluations"),
        "a tuning",
        "give it to: stagepack report FILE -o PAGE",
    ),
)
"""Fields of documents that are made of instances, what these are, and which command made them."""


class _Header(msgspec.Struct, frozen=True):
    problem: object = None
    version: object = None
    status: object = None
    points: object = None
    evaluations: object = None
    critical: object = None
    changes: object = None


def schema(kind: str) -> JsonObject:
    """Return the JSON Schema of the native files of a kind of problem (or family: "packing").

    Raises
    ------
    InputError
        For an unknown kind.
    """
    kind = kind_of(kind)
    native = PROBLEMS[kind].native
    made: JsonObject = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Stagepack {kind}, version {VERSION}",
        **msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(native.Document))),
    }
    for shape in made["$defs"].values():
        if "description" in shape:
            shape["description"] = inspect.cleandoc(shape["description"])
    for name, field in made["$defs"]["Document"]["properties"].items():
        if name in native.GIVEN:
            field.setdefault("description", word(name, kind).description)
    return made


def refuse_account(fields: Collection[str]) -> None:
    """Refuse a document that holds neither an instance nor one solution, but what both led to."""
    for needed, what, command in ACCOUNTS:
        if all(name in fields for name in needed):
            raise InputError(f"holds {what}, no instance and no solution", remedy=command)


def tell(data: bytes) -> str:
    """Return the kind of problem that a native file holds."""
    if strict.first_byte(data) == b"[":
        raise InputError(
            "is an array; a native file is an object",
            remedy=f"{BEGINNING}; tables of layers or of buffers are read from CSV",
        )
    header = strict.decode(data, _Header)
    refuse_account([name for name in header.__struct_fields__ if getattr(header, name) is not None])
    if header.status is not None and header.version is None:
        raise InputError("holds a result, no instance", remedy="give the instance that it is of")
    known = " or ".join(PROBLEMS)
    if not isinstance(header.problem, str):
        raise InputError(
            "is missing" if header.problem is None else "is no name of a kind",
            field="problem",
            remedy=f"{BEGINNING}; KIND is {known}",
        )
    if header.problem not in PROBLEMS:
        raise InputError(
            f"unknown problem {header.problem[:60]!r}",
            field="problem",
            remedy=suggest(header.problem, PROBLEMS),
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


def parse(data: bytes, given: Words, file: str) -> list[Instance]:
    """Return the one instance of a native file."""
    del file  # the instance says its name
    native = PROBLEMS[tell(data)].native
    document: msgspec.Struct = strict.decode(data, native.Document)
    keys.require_single(data)
    return [native.parse(document, given)]


def dump(instance: Instance, file: str) -> bytes:
    """Return the native file of an instance: columns, a line each, defaults left out."""
    del file
    head = {
        "problem": instance.kind,
        "version": VERSION,
        "name": instance.name,
        "source": instance.source or None,
    }
    return lines({**head, **PROBLEMS[instance.kind].native.dump(instance)}).encode() + b"\n"


CONTEXTS = ByKind(lambda kind: PROBLEMS[kind].native.GIVEN)
