"""Reading and writing instances: a module a format, one door for all.

A format is recognised by the content of a file, and says which kinds of problem it can hold.
What a file does not say (devices, capacity, objective, ...) is given beside it as keyword
arguments: words of the vocabulary.  To add a format, write a module that is a
:class:`.known.Reader` and list it in :data:`.known.FORMATS`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

from stagepack import files
from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError
from stagepack.formats import known
from stagepack.formats.foreign import refuse_foreign
from stagepack.formats.known import Format
from stagepack.instances.base import require_instance
from stagepack.instances.documents import strict
from stagepack.instances.problem import VOCABULARY, coerce
from stagepack.instances.profile import Cluster
from stagepack.instances.words import Words
from stagepack.kinds import kind_of

if TYPE_CHECKING:
    from stagepack.instances import types

SHOWN = 8
"""Names of instances told in a message."""


def formats() -> tuple[Format, ...]:
    """Return the formats there are: names, kinds, extensions, descriptions, context."""
    return known.FORMATS


@overload
def read(
    path: str | Path, *, kind: types.PipelineKind, format: str | None = None, **context: Any
) -> types.PipelinePartition: ...
@overload
def read(
    path: str | Path, *, kind: types.PackingKind, format: str | None = None, **context: Any
) -> types.LmemPacking: ...
@overload
def read(
    path: str | Path, *, kind: types.ScheduleKind, format: str | None = None, **context: Any
) -> types.PipelineSchedule: ...
@overload
def read(
    path: str | Path, *, kind: types.PhaseKind, format: str | None = None, **context: Any
) -> types.PhaseSchedule: ...
@overload
def read(
    path: str | Path, *, kind: types.GroupingKind, format: str | None = None, **context: Any
) -> types.LayerGrouping: ...
@overload
def read(
    path: str | Path, *, kind: types.GraphKind, format: str | None = None, **context: Any
) -> types.GraphPartition: ...
@overload
def read(
    path: str | Path, *, kind: str | None = None, format: str | None = None, **context: Any
) -> Any: ...
def read(
    path: str | Path,
    *,
    kind: str | None = None,
    format: str | None = None,
    max_bytes: int | str | None = None,
    **context: Any,
) -> Any:
    """Read the instance of a file; ``FILE#name`` selects one of several.

    If `kind` is given, type checkers know the returned type.  Without it, the type is ``Any``,
    since it depends on the content of the file.

    Parameters
    ----------
    path : str or Path
        The file; after ``#`` the name of an instance in it (or its position, from 0).
    kind : str, optional
        The kind of problem (or its family: "packing"); a file with another kind is refused.
    format : str, optional
        Name of the format; otherwise recognised by content.
    max_bytes : int or str, optional
        Refuse files of more bytes, packed or unpacked; by default ``STAGEPACK_MAX_BYTES`` of the
        environment, or 256 MiB.
    **context
        Parameters that the file does not contain, or that replace those of the file: ``devices``,
        ``bandwidth`` (``"10GB/s"``; a plain number is in GiB/s), ``capacity`` (bytes), ``cluster``
        (a name of the catalog, or a `Cluster`), ``objective``, ...: words of
        :data:`stagepack.instances.problem.VOCABULARY`, of which each format understands its
        ``context``.  None: not given.

    Raises
    ------
    InputError
        Naming file, field and remedy.
    """
    found = read_all(path, kind=kind, format=format, max_bytes=max_bytes, **context)
    if len(found) > 1:
        raise InputError(
            f"holds {len(found)} instances",
            file=path,
            remedy=f"choose one, for example {path}#{found[0].name}; there are "
            + _listed([instance.name for instance in found]),
        )
    return found[0]


@overload
def read_all(
    path: str | Path, *, kind: types.PipelineKind, format: str | None = None, **context: Any
) -> list[types.PipelinePartition]: ...
@overload
def read_all(
    path: str | Path, *, kind: types.PackingKind, format: str | None = None, **context: Any
) -> list[types.LmemPacking]: ...
@overload
def read_all(
    path: str | Path, *, kind: types.ScheduleKind, format: str | None = None, **context: Any
) -> list[types.PipelineSchedule]: ...
@overload
def read_all(
    path: str | Path, *, kind: types.PhaseKind, format: str | None = None, **context: Any
) -> list[types.PhaseSchedule]: ...
@overload
def read_all(
    path: str | Path, *, kind: types.GroupingKind, format: str | None = None, **context: Any
) -> list[types.LayerGrouping]: ...
@overload
def read_all(
    path: str | Path, *, kind: types.GraphKind, format: str | None = None, **context: Any
) -> list[types.GraphPartition]: ...
@overload
def read_all(
    path: str | Path, *, kind: str | None = None, format: str | None = None, **context: Any
) -> list[Any]: ...
def read_all(
    path: str | Path,
    *,
    kind: str | None = None,
    format: str | None = None,
    max_bytes: int | str | None = None,
    **context: Any,
) -> list[Any]:
    """Read all instances of a file, or the one that ``FILE#name`` selects.

    Parameters
    ----------
    path, kind, format, max_bytes, **context
        As :func:`read` takes them.

    Raises
    ------
    InputError
        Naming file, field and remedy.
    """
    file, name = _split(path)
    if kind is not None:
        kind = kind_of(kind)
    chosen = None if format is None else known.by_name(format)
    data = strict.load(file, max_bytes)
    with strict.located(file):
        if not strict.holds_text(data):
            possible = known.FORMATS if chosen is None else (chosen,)
            if not any(other.binary and other.sniff(data) for other in possible):
                _refuse_bytes(data, file.name, chosen)
        chosen = chosen or known.by_content(data, columns=bool(context.get("columns")))
        found = chosen.kind_of(data, kind)
        reader = chosen.reader
        parse = getattr(reader, "PARSERS", {}).get(found, reader.parse)
        instances = parse(data, _beside(file, reader) | said(context, chosen, found), file.name)
    return list(instances) if name is None else [_select(instances, name, file)]


def write(
    instance: Instance,
    path: str | Path,
    format: str | None = None,
) -> None:
    """Write an instance, whole or not at all; names that end in ``.gz`` are compressed.

    Parameters
    ----------
    format : str, optional
        Name of the format; otherwise the one whose extension `path` has.

    Raises
    ------
    InputError
        When the file cannot be written, or no format that writes has its extension.
    """
    files.write(path, dump(instance, path, format))


def dump(
    instance: Instance,
    path: str | Path,
    format: str | None = None,
) -> bytes:
    """Return what :func:`write` writes; the end of `path` tells a `format` that is not given."""
    require_instance(instance, remedy="write results and plans with their to_json(path)")
    path = files.require_path(path)
    writers = [one for one in known.FORMATS if one.writes and instance.kind in one.kinds]
    if format is None:
        chosen = max(writers, key=lambda writer: writer.ending(path.name))
        if not chosen.ending(path.name):
            ends = sorted({end for writer in writers for end in writer.extensions})
            raise InputError(
                f"no format for {instance.kind} is written to files named like {path.name!r}",
                file=path,
                remedy=f"end the name in {' or '.join(ends)}, or name the format (format=, --to)",
            )
    else:
        chosen = known.by_name(format)
    if not chosen.writes or instance.kind not in chosen.kinds:
        raise InputError(
            f"{chosen.name} files "
            + (f"hold no {instance.kind}" if chosen.writes else "can only be read"),
            field="format",
            remedy="write " + " or ".join(writer.name for writer in writers),
        )
    try:
        data: bytes = chosen.reader.dump(instance, path.name)
    except InputError as error:
        raise error.at(path) from None
    if path.name.lower().endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)
    return data


def _refuse_bytes(data: bytes, name: str, chosen: Format | None) -> NoReturn:
    """Refuse what is no text, nor a file of a format of another kind."""
    known_as = known.FORMATS if chosen is None else (chosen,)
    named = [one for one in known_as if one.binary and (chosen or one.ending(name))]
    if named:
        raise InputError(
            f"is no {named[0].name} file: its first bytes are not those of one",
            field="format",
            remedy="write or fetch it again",
        )
    refuse_foreign(data)
    raise InputError("is not text", remedy="give a text file, ONNX or TensorFlow Lite")


def said(given: Words, chosen: Format, kind: str) -> JsonObject:
    """Return what was `given` beside a file of a `kind` in the format `chosen`, checked and
    converted; None: nothing.
    """
    understood, own = chosen.contexts[kind], getattr(chosen.reader, "WORDS", {})
    what = chosen.name if len(chosen.kinds) == 1 else f"{chosen.name} {kind}"
    values: JsonObject = {}
    for name, value in _by_name(given).items():
        word = name.partition(".")[0] if name not in VOCABULARY else name
        if word not in understood:
            said = name in VOCABULARY
            if value is None and said:
                continue
            others = [other for other, words in chosen.contexts.items() if name in words]
            instead = f"say --kind {' or '.join(others)}; " if others and not chosen.tells else ""
            raise InputError(
                f"{what} files do not understand {name!r}" if said else f"unknown option {name!r}",
                field=name,
                remedy=f"{instead}known here are " + ", ".join(sorted(understood)),
            )
        if value is None:
            continue
        if name in own:
            values[name] = own[name].of(value)
        else:
            values[name] = value if isinstance(value, Cluster) else coerce(word, value, kind)
    return values


def _by_name(given: Words) -> JsonObject:
    """Return what is given, what has a value for each of several names as ``dim.seq``."""
    found: JsonObject = {}
    for name, value in given.items():
        known = VOCABULARY.get(name)
        if known is None or not known.named or value is None:
            found[name] = value
        elif isinstance(value, Mapping):
            found |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            raise InputError(
                f"{str(value)[:60]!r} is for no name",
                field=name,
                remedy=f"say for which: --set {name}.NAME=..., in Python {name}={{...}}",
            )
    for name, value in found.items():
        known = VOCABULARY.get(name.partition(".")[0])
        if known is not None and known.named and known.type is str:
            many = value if isinstance(value, list | tuple) else [value]
            found[name] = "x".join(map(str, many))
    return found


def _beside(file: Path, reader: Any) -> JsonObject:
    """Return the second files of a format that lie beside the first."""
    found = {}
    for word, (own, other) in getattr(reader, "BESIDE", {}).items():
        second = file.with_name(file.name.removesuffix(own) + other)
        if file.name.endswith(own) and second.is_file():
            found[word] = str(second)
    return found


def _split(path: str | Path) -> tuple[Path, str | None]:
    """Split ``FILE#name``; a file whose own name has a ``#`` wins."""
    text = str(files.require_path(path))
    file, mark, name = text.rpartition("#")
    if not mark or not file:
        return Path(text), None
    try:
        exists = Path(text).exists()
    except (OSError, ValueError):
        exists = False
    return (Path(text), None) if exists else (Path(file), name)


def _select(instances: Sequence[Instance], name: str, file: Path) -> Instance:
    names = [instance.name for instance in instances]
    found = [instance for instance in instances if instance.name == name]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        at = [str(index) for index, known in enumerate(names) if known == name]
        raise InputError(
            f"{len(found)} instances are named {name!r}",
            file=file,
            remedy=f"choose by position: {file}#{f' or {file}#'.join(at[:3])}",
        )
    if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(instances):
        return instances[int(name)]
    raise InputError(f"has no instance {name!r}", file=file, remedy="there are " + _listed(names))


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
