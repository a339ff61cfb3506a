"""Reads bytes from files and strict JSON from bytes; every fault becomes one `InputError`."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from stagepack import files, memory
from stagepack.errors import InputError, suggest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
DataT = TypeVar("DataT", bound="DataclassInstance")

UTF8_MARK = b"\xef\xbb\xbf"
CHUNK = 4096  # bytes that settle most questions


def load(path: str | Path, max_bytes: int | str | None = None) -> bytes:
    """Return the content of a file, unpacked if it is gzip, without the mark of UTF-8.

    Refuses what :func:`stagepack.files.read` does, and empty files.
    """
    data = files.read(path, max_bytes).removeprefix(UTF8_MARK)
    if not data[:CHUNK].strip() and not data.strip():
        raise InputError("is empty", file=path, remedy="give one that holds something")
    return data


@contextlib.contextmanager
def located(path: str | Path) -> Iterator[None]:
    """Give errors of the block their place, `path`; too little memory is one of them."""
    try:
        yield
    except InputError as error:
        raise error.at(path) from None
    except MemoryError:
        raise InputError(
            memory.TOO_LITTLE, file=path, remedy="split it, or use a larger machine"
        ) from None


def decode(data: bytes, shape: type[T]) -> T:
    """Return JSON decoded as `shape`, with nothing missing, misspelt or out of range.

    The ``ELSEWHERE`` of a shape says of names that people expect where that is said.  Messages name
    the field, of broken JSON line and column; the file is the caller's to add.
    """
    try:
        decoded: T = msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise _mismatch(str(error), shape, lambda: msgspec.json.decode(data)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text(data)  # what is no text is refused as such
        raise _malformed(str(error), data) from None
    except RecursionError:
        raise InputError("is nested too deeply", remedy="give a flat document") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"has a number that cannot be read ({error})", remedy=_SMALLER) from None
    return decoded


def decode_file(path: str, shape: type[T], field: str) -> T:
    """Return what the JSON file `path`, which is named in `field`, holds, decoded as `shape`."""
    try:
        return decode(files.read(path), shape)
    except InputError as error:
        where = ": ".join(filter(None, (path, error.field)))
        remedy = error.remedy
        raise InputError(f"{where}: {error.problem}", field=field, remedy=remedy) from None


def convert(given: object, shape: type[DataT]) -> DataT:
    """Return plain data as the dataclass `shape`, as strictly as :func:`decode`."""
    if isinstance(given, Mapping):
        require_fields(given, [field.name for field in dataclasses.fields(shape)])
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise _mismatch(str(error), shape, lambda: msgspec.to_builtins(given)) from None


def require_fields(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first of some names that is not known, with the one that it is most like."""
    for name in given:
        if name not in known:
            raise _unknown(str(name), str(name), known, known)


ANOTHER = "give a solution of this instance, read with the same options"
FEW = 1000  # names among which a misspelt one is looked for


def by_id(given: Any, name: str, ids: Sequence[str], what: str, whose: str) -> list[Any]:
    """Return the values of an object, `given` as `name`, in the order of its keys, `ids`.

    Messages say `what` has ids, and in `whose` instance.
    """
    if not isinstance(given, Mapping):
        raise InputError("is no object", field=name, remedy="write {id: value}")
    known = set(ids)
    extra = next((str(key) for key in given if key not in known), None)
    if extra is not None:
        raise InputError(
            f"is no {what} of {whose}",
            field=f"{name}.{extra}",
            remedy=suggest(extra, ids) if len(ids) <= FEW else ANOTHER,
        )
    missing = next((key for key in ids if key not in given), None)
    if missing is not None:
        raise InputError("is missing", field=f"{name}.{missing}", remedy=f"name every {what}")
    return [given[key] for key in ids]


def require_end(boundaries: Sequence[int], instance: Any) -> None:
    """Refuse boundaries that do not end where the layers of `instance` do."""
    end = boundaries[-1] if boundaries else 0
    if end != instance.n:
        raise InputError(
            f"ends at layer {end} but {instance.name} has {instance.n} layers",
            field="boundaries",
            remedy=ANOTHER,
        )


_SMALLER = "use numbers below 2**62"


def _malformed(message: str, data: bytes) -> InputError:
    found = re.search(r"\(byte (\d+)\)", message)
    if found is None:
        return InputError(
            f"is cut short: the JSON ends at {_place(data, len(data))}",
            remedy="write or download it again",
        )
    at = int(found[1])
    what = re.sub(r"^JSON is malformed: ", "", message[: found.start()]).strip()
    start = at
    while start > 0 and (data[start - 1 : start].isalpha() or data[start - 1 : start] == b"-"):
        start -= 1
    word = re.match(rb"-?(NaN|Infinity|nan|inf)", data[start : start + 16])
    if word:
        return InputError(
            f"{word[0].decode()} at {_place(data, start)} is not a JSON number",
            remedy="give finite numbers",
        )
    return InputError(f"is not valid JSON: {what} at {_place(data, at)}", remedy="correct it there")


def _place(data: bytes, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    column = at - (data.rfind(b"\n", 0, at) + 1) + 1
    return f"line {line}, column {column} (byte {at})"


def _unknown(field: str, name: str, known: Iterable[str], here: Iterable[str]) -> InputError:
    """Refuse a field; name the one of all `known` it is most like, or all that may stand `here`."""
    near = get_close_matches(name, [word for word in known if word != name], n=1)
    others = ", ".join(here)
    remedy = f"known here are {others}" if others else "remove it"
    if near:
        remedy = f"did you mean {near[0]}?"
    return InputError("unknown field", field=field, remedy=remedy)


def _mismatch(message: str, shape: type, load: Callable[[], Any]) -> InputError:
    """Turn msgspec's "Expected `int` >= 0 - at `$.a.b[3]`" into our words and field path."""
    what, _, where = message.partition(" - at ")
    path = where.strip("`").removeprefix("$")
    path = _name_keys(path, message, shape, load)
    field = path.removeprefix(".")
    lacking = re.match(r"Object (contains unknown|missing required) field `(.*)`", what)
    if lacking:
        field = f"{field}.{lacking[2]}" if field else lacking[2]
        if lacking[1].startswith("missing"):
            return InputError("is missing", field=field, remedy="add it")
        elsewhere: Mapping[str, str] = getattr(shape, "ELSEWHERE", {})
        if field in elsewhere:
            return InputError("unknown field", field=field, remedy=elsewhere[field])
        here = [name for owner in _at(shape, path) for name in _own_fields(owner)]
        return _unknown(field, lacking[2], dict.fromkeys(_fields(shape)), dict.fromkeys(here))
    if what == "Number out of range":
        return InputError("is a number out of range", field=field, remedy=_SMALLER)
    what = what.replace("`", "")
    what = what[:1].lower() + what[1:]
    shown = _shown(path, load)
    if what.startswith("invalid enum value"):
        return InputError(what, field=field, remedy=_choices(shape, path))
    problem = f"is {shown}: {what}" if shown else what
    return InputError(problem, field=field, remedy="correct the value")


def _fields(shape: Any) -> Iterator[str]:
    """Yield the names of all fields of a type and, within it, of its parts."""
    for name, kind in _own_fields(shape).items():
        yield name
        yield from _fields(kind)
    for part in get_args(shape):
        yield from _fields(part)


def _own_fields(shape: Any) -> dict[str, Any]:
    """Return the types of the fields of a type by their names; none where it is no object."""
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(shape)}


def _steps(path: str) -> list[str | int]:
    """Split ``.a.b[3]`` into its steps."""
    return [
        int(index) if index else key for key, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path)
    ]


def _shown(path: str, load: Callable[[], Any]) -> str:
    """Return the value at a path, short, or "" when it cannot be shown."""
    try:
        value = load()
        for step in _steps(path):
            value = value[step]
    except (ValueError, LookupError, TypeError, RecursionError, msgspec.MsgspecError):
        return ""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:37] + "..."


def _name_keys(path: str, message: str, shape: type, load: Callable[[], Any]) -> str:
    """Replace the first ``[...]`` of a path, msgspec's "some key", by the key itself.

    Documents with the first i keys alone fail in the same way from the wrong key on: bisection.
    """
    before, dots, after = path.partition("[...]")
    if not dots:
        return path
    try:
        document = load()
        holder = document
        for step in _steps(before):
            holder = holder[step]
        items = list(holder.items())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return path

    def fails(count: int) -> bool:
        holder.clear()
        holder.update(items[:count])
        try:
            msgspec.convert(document, shape)
        except msgspec.ValidationError as error:
            return str(error) == message
        return False

    at = bisect.bisect_left(range(len(items)), True, lo=1, key=fails)
    return f"{before}.{items[at - 1][0]}{after}" if items else path


def _choices(shape: type, path: str) -> str:
    """Return a remedy that lists the words that are taken at a path in `shape`."""
    words: list[object] = []
    for kind in _at(shape, path):
        if get_origin(kind) is Literal:
            words += get_args(kind)
        elif isinstance(kind, type) and issubclass(kind, Enum):
            words += [member.value for member in kind]
    return f"choose one of {', '.join(map(str, words))}" if words else "correct the value"


def _at(shape: Any, path: str) -> list[Any]:
    """Return the types that a value may have at a path in `shape`."""
    kinds = [*_within(shape)]
    for step in _steps(path):
        if isinstance(step, str):
            fields = [_own_fields(owner) for owner in kinds]
            kinds = [kind for own in fields if step in own for kind in _within(own[step])]
    return kinds


def _within(shape: Any) -> Iterator[Any]:
    """Yield a type, and those that it has as arguments: of items, of a union."""
    yield shape
    for part in get_args(shape):
        yield from _within(part)


def text(data: bytes) -> str:
    """Return `data` as UTF-8 text; refuse what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte 0x{data[error.start]:02x} at {_place(data, error.start)})",
            remedy="save it as UTF-8",
        ) from None


def holds_text(data: bytes) -> bool:
    """Tell text from binary junk by the first bytes."""
    head = data[:1024]
    return b"\0" not in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def first_byte(data: bytes) -> bytes:
    """Return the first byte that is not blank."""
    return data[:4096].lstrip()[:1]
