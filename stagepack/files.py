"""Files: read up to a limit, written whole or not at all, as JSON or CSV."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import math
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stagepack import memory
from stagepack.errors import InputError

LIMIT = 256 * 2**20
"""Bytes of one file, unpacked, that are read unless more are allowed: ten million buffers."""
VARIABLE = "STAGEPACK_MAX_BYTES"
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 2**20

MARK = "store.json"
"""The file that says that a folder is a store, of what, and of which version."""

_SCRATCH = ".stagepack-"
_RAISE = f"raise the limit with --max-bytes, max_bytes= or {VARIABLE}"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ELSEWHERE = "choose a writable place"
_DESCRIPTORS = re.compile(r"/proc/(self|thread-self|\d+)(/task/\d+)?/fd|/dev/fd")


def size_of(text: str) -> int:
    """Return a number of bytes: digits, 1e9, or with KiB, MiB, GiB, TiB (kB, MB, ...).

    Raises ValueError for anything else; half a byte is a unit forgotten.
    """
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    if match is None or len(match[0]) > 40:
        raise ValueError(f"{text!r} is no number of bytes; write 1e9 or 16GiB")
    try:
        value = float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " ")
        if not match[2] and value != int(value):
            raise ValueError
        return int(match[1]) if match[1].isdigit() and not match[2] else int(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no number of bytes; write 1e9 or 16GiB") from None


def in_bytes(values: Any, name: str) -> Any:
    """Return `values`, texts among them as the bytes that they say: "12KiB", as in the shell.

    Refuses other texts by the `name` of the field.
    """
    if isinstance(values, str):
        try:
            return size_of(values)
        except ValueError:
            raise InputError(
                f"{values[:40]!r} is no number of bytes", field=name, remedy="write 1e9 or 16GiB"
            ) from None
    if isinstance(values, list | tuple):
        said = any(isinstance(value, str) for value in values)
    else:
        said = getattr(getattr(values, "dtype", None), "kind", "") in ("O", "U")
    return [in_bytes(value, name) for value in values] if said else values


def limit_of(max_bytes: int | str | None) -> int:
    """Return how many bytes a file may hold: `max_bytes`, the environment's limit, or `LIMIT`."""
    if max_bytes is not None:
        max_bytes = in_bytes(max_bytes, "max_bytes")
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
            raise InputError(
                f"is {max_bytes!r}", field="max_bytes", remedy="give a number of bytes, at least 1"
            )
        return max_bytes
    given = os.environ.get(VARIABLE, "")
    if not given:
        return LIMIT
    try:
        return max(1, size_of(given))
    except ValueError as error:
        raise InputError(str(error), field=VARIABLE, remedy="correct it or unset it") from None


def require_path(given: object) -> Path:
    """Return what names a file as a path."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{type(given).__name__} is no path", field="path", remedy="name the file")
    return Path(given)


# ---------------------------------------------------------------------- reading


def read(path: str | Path, max_bytes: int | str | None = None) -> bytes:
    """Return the content of a file, unpacked if it is gzip.

    Pipes are read as they come; no more than the limit is ever held.
    More than :func:`limit_of` says is refused, packed or unpacked.
    """
    path, limit = require_path(path), limit_of(max_bytes)
    looked_at = _PEEKED.get(_pipe(path)) if _PEEKED else None
    if looked_at is not None:
        if len(looked_at) > limit:
            raise _too_large(path, f"{len(looked_at):,} bytes", limit)
        return looked_at
    try:
        with path.open("rb", buffering=0) as stream:
            kind = os.fstat(stream.fileno())
            if stat.S_ISBLK(kind.st_mode) or (
                stat.S_ISCHR(kind.st_mode) and not os.isatty(stream.fileno())
            ):
                raise InputError("is a device", file=path, remedy="give a file")
            if stat.S_ISREG(kind.st_mode) and kind.st_size > limit:
                raise _too_large(path, f"{kind.st_size:,} bytes", limit)
            data = _capped(stream, limit, max(CHUNK, kind.st_size + 1))
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except IsADirectoryError:
        raise InputError("is a directory", file=path, remedy="give a file in it") from None
    except PermissionError:
        raise InputError(
            "may not be read", file=path, remedy="change the file's permissions"
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot be read ({why})", file=path, remedy="give a readable file"
        ) from None
    except MemoryError:
        raise InputError(memory.TOO_LITTLE, file=path, remedy="use a larger machine") from None
    if data is None:
        raise _too_large(path, "more", limit)
    return _unpacked(data, path, limit) if data.startswith(GZIP_MAGIC) else data


_PEEKED: dict[tuple[int, int] | None, bytes] = {}
"""What pipes gave, which they do once, by device and inode."""


def peek(path: str | Path, count: int) -> bytes:
    """Return the first bytes of a file; none where it cannot be read, which :func:`read` explains.

    What a pipe gives, unpacked, is kept for :func:`read`.
    """
    path = require_path(path)
    pipe = _pipe(path)
    if pipe is not None:
        _PEEKED[pipe] = read(path)
        return _PEEKED[pipe][:count]
    with contextlib.suppress(OSError, ValueError), path.open("rb") as stream:
        return stream.read(count)
    return b""


def _pipe(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a pipe; None for anything else, which may have the same later."""
    with contextlib.suppress(OSError, ValueError):
        found = path.stat()
        if stat.S_ISFIFO(found.st_mode):
            return found.st_dev, found.st_ino
    return None


def _unpacked(data: bytes, path: Path, limit: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            plain = _capped(stream, limit, CHUNK)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"is broken gzip ({error})", file=path, remedy="write or download it again"
        ) from None
    if plain is None:
        raise _too_large(path, "more when it is unpacked", limit)
    return plain


def _capped(stream: io.RawIOBase | gzip.GzipFile, limit: int, chunk: int) -> bytes | None:
    """Return all that a stream gives, or None when that is more than `limit`."""
    parts: list[bytes] = []
    total = 0
    while total <= limit:
        part = stream.read(min(chunk, limit + 1 - total))
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        total += len(part)
    return None


def _too_large(path: Path, what: str, limit: int) -> InputError:
    return InputError(f"holds {what}, the limit is {limit:,} bytes", file=path, remedy=_RAISE)


# ---------------------------------------------------------------------- cells of CSV


def guarded(name: str) -> str:
    """Return a name as a cell that no spreadsheet takes for a formula.

    What begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return gets an apostrophe in
    front; so does what begins with apostrophes before one of these, so that :func:`unguarded`
    gives back the name exactly.
    """
    return f"'{name}" if _FORMULA.match(name) else name


def unguarded(cell: str) -> str:
    """Return the name that :func:`guarded` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


# ---------------------------------------------------------------------- writing


def write(path: str | Path, content: str | bytes) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never half.

    Links are followed.  Pipes, devices and descriptors (``/dev/stdout``, ``/dev/fd/N``) are
    written to.
    """
    require_path(path)
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    scratch = None
    try:
        descriptor = _descriptor(path)
        if descriptor is not None:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            _pour(descriptor, data)
            return
        target = _target(path)
        before = target.stat() if target.exists() else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            with target.open("wb", buffering=0) as sink:
                _pour(sink.fileno(), data)
            return
        handle, scratch = tempfile.mkstemp(prefix=_SCRATCH, dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(scratch, 0o666 & ~umask if before is None else before.st_mode & 0o777)
        os.replace(scratch, target)
        scratch = None
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    finally:
        if scratch is not None:
            with contextlib.suppress(OSError):
                os.unlink(scratch)


def require_writable(path: str | Path) -> None:
    """Refuse a path that :func:`write` could not write to; nothing is changed."""
    try:
        descriptor = _descriptor(path)
        if descriptor is not None:
            os.fstat(descriptor)
            return
        target = _target(path)
        if not target.name:
            raise IsADirectoryError("it names no file")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError("no permission")
        if not target.exists() or target.is_file():
            _probe(target.parent)
            with contextlib.suppress(FileNotFoundError):
                target.lstat()  # says so when the name is too long
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def is_stdout(path: str | Path) -> bool:
    """Return whether what is written to a path is printed: ``/dev/stdout``, ``/dev/fd/1``."""
    return _descriptor(path) == 1


def require_directory(path: str | Path, *files: str) -> None:
    """Refuse a directory that cannot be made, or in which `files` cannot be written."""
    path = Path(path)
    try:
        if path.exists():
            if not path.is_dir():
                raise NotADirectoryError("it is no directory")
            for name in files:
                require_writable(path / name)
        else:
            above = path.resolve().parent
            while not above.exists():
                above = above.parent
            _probe(above)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


GOES_ON = {
    "plans": "stagepack tune MODEL ... --store FOLDER (-o FILE, which report reads)",
    "results": "stagepack results FOLDER",
}
"""Commands that read a store, by what it holds."""


def require_store(path: str | Path, holds: str, version: int, *, new: bool = True) -> Path:
    """Make a folder a store, unless none may be `new`, or see that it can be read; return it.

    It says what it `holds`, in which `version`: the newest that is known.
    """
    folder = require_path(path)
    mark = folder / MARK
    if not mark.exists():
        # What another process is writing beside its place is not yet there.
        inside = os.listdir(folder) if folder.is_dir() else []
        if not new or any(not name.startswith(_SCRATCH) for name in inside):
            raise InputError(f"is no store of {holds}", file=path, remedy="name another folder")
        require_directory(folder)
        folder.mkdir(parents=True, exist_ok=True)
        said = {"store": "stagepack", "holds": holds, "version": version}
        write(mark, json.dumps(said) + "\n")
    try:
        said = json.loads(mark.read_text(encoding="utf-8"))
        found = said["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("cannot be read", file=mark, remedy="name another folder") from None
    held = said.get("holds", holds)
    if held != holds:
        raise InputError(
            f"is no store of {holds} but of {held}",
            file=path,
            remedy=f"go on with it: {GOES_ON[held]}" if held in GOES_ON else "name another folder",
        )
    if not isinstance(found, int) or found > version:
        raise InputError(
            f"version {found} is newer than {version}, the newest known here",
            file=mark,
            remedy="update Stagepack",
        )
    return folder


def _probe(directory: Path) -> None:
    """Make a file in a directory and take it away: permissions alone do not tell."""
    handle, scratch = tempfile.mkstemp(prefix=_SCRATCH, dir=directory)
    os.close(handle)
    os.unlink(scratch)


def _target(path: str | Path) -> Path:
    """Return the file that a path leads to; links are followed even where they dangle."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError("it is a directory")
    if target.is_symlink():
        raise OSError("its links lead in a circle")
    if target.is_socket():
        raise OSError("it is a socket")
    return target if target.exists() else Path(path) if Path(path).exists() else target


def _descriptor(path: str | Path) -> int | None:
    """Return the open descriptor of this process that a path means, if it means one."""
    step = os.path.abspath(path)
    for _ in range(40):
        folder, name = os.path.split(step)
        folder = os.path.realpath(folder)
        found = _DESCRIPTORS.fullmatch(folder)
        if found and name.isdecimal():
            own = found[1] in (None, "self", "thread-self", str(os.getpid()))
            return int(name) if own else None
        step = os.path.join(folder, name)
        if not os.path.islink(step):
            return None
        step = os.path.join(folder, os.readlink(step))
    return None


def _pour(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _unwritable(path: str | Path, error: Exception) -> InputError:
    why = getattr(error, "strerror", None) or error
    return InputError(f"cannot be written ({why})", file=path, remedy=_ELSEWHERE)


# ---------------------------------------------------------------------- text of plain data


def finite(data: Any) -> Any:
    """Return `data` with NaN and infinities as None, NumPy scalars and arrays as plain data."""
    if type(data) is dict and _flat(data.values()) and set(map(type, data)) == {str}:
        return dict(data)
    if type(data) is list and _flat(data):
        return list(data)
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if hasattr(data, "tolist"):
        return finite(data.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def _flat(values: Iterable[object]) -> bool:
    """Tell whether all values are integers, strings or None: millions of them at once."""
    return {int, str, bool, type(None)}.issuperset(map(type, values))


def json_text(data: object) -> str:
    """Return what :func:`finite` returned as ``json.dumps(data, indent=2)`` does, but sooner."""
    from msgspec.json import format  # the standard library indents in Python

    return format(json.dumps(data, allow_nan=False), indent=2)


def csv_text(header: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    """Return rows as CSV with a header and Unix line ends; names are :func:`guarded`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(
        tuple(guarded(cell) if isinstance(cell, str) else cell for cell in row) for row in rows
    )
    return stream.getvalue()
