"""Validates numbers and arrays given by users; errors name the field.

One rule holds for all problems: integers stay integers, floats become integers if they are whole,
and magnitudes of 2**62 or more are refused.
"""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

Given = npt.ArrayLike | None
"""What is taken for an array: nested lists, numbers, arrays; None where it may be left out."""


def freeze(given: object) -> None:
    """Let none change the arrays in fields of a dataclass, or among the values of a mapping."""
    if isinstance(given, np.ndarray):
        given.setflags(write=False)
    elif isinstance(given, Mapping):
        for value in given.values():
            freeze(value)
    elif is_dataclass(given):
        for field in fields(given):
            freeze(getattr(given, field.name))


def integer(value: object, name: str, least: int | None = None) -> int:
    """Return `value` as an int of at least `least`, refused by the `name` of its field.

    A float is taken where it is whole; no bool, and nothing from 2**62 on.
    """
    try:
        if isinstance(value, float) and value.is_integer():
            number = int(value)
        elif isinstance(value, SupportsIndex) and not isinstance(value, bool | np.bool_):
            number = operator.index(value)
        else:
            raise TypeError
    except TypeError:  # of an array, too
        raise InputError(f"{value!r} is no integer", field=name, remedy="give an integer") from None
    if least is not None and number < least:
        raise InputError(f"is {number}", field=name, remedy=f"give an integer of at least {least}")
    if abs(number) >= LARGEST:
        raise _too_large(name)
    return number


def distinct(values: Array) -> Array:
    """Return values in order, each once.

    As ``np.unique``, which hashes: ten times slower where almost all of millions are different.
    Values that rise already are returned themselves.
    """
    if (values[1:] > values[:-1]).all():
        return values
    ordered = np.sort(values)
    keep = np.ones(len(ordered), dtype=bool)
    keep[1:] = ordered[1:] != ordered[:-1]
    found: Array = ordered if keep.all() else ordered[keep]  # room that is new costs more than work
    return found


def cuts(cuts: Iterable[int], name: str) -> tuple[int, ...]:
    """Return cuts in order, each once."""
    return tuple(sorted({integer(cut, name) for cut in cuts}))


def names(
    given: object, name: str, n: int, per: str, *, unique: bool = False
) -> tuple[str, ...] | None:
    """Return what is `given` as `n` names, one `per` stage or buffer; None where nothing is.

    Messages name the field, `name`.  If `unique`, no two may be the same.
    """
    if given is None:
        return None
    remedy = f"give one name for each {per}"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{given!r} is no list", field=name, remedy=remedy)
    found = tuple(map(str, given))
    if len(found) != n:
        raise InputError(f"{len(found):,} names for {n:,} {per}s", field=name, remedy=remedy)
    if unique and len(set(found)) < n:
        twice = next(one for one, times in Counter(found).items() if times > 1)
        raise InputError(
            f"two {per}s are named {twice!r}", field=name, remedy="give each a name of its own"
        )
    return found


def integers(
    values: Given,
    name: str,
    per: str,
    n: int | None = None,
    *,
    least: int | None = None,
    spread: bool = False,
) -> Array:
    """Return `values` as a read-only int64 array of shape (n,), of any length where `n` is absent.

    Floats are taken where they are whole, a lone number for all if `spread`, none below `least`.
    Messages name the field (`name`), the entry, and what there is one number `per`: "stage".
    """
    wanted = f"give a one-dimensional array, one integer for each {per}"
    wanted += "" if n is None else f", {n:,} in all"
    if values is None:
        raise InputError("is missing", field=name, remedy=wanted)
    return _checked(values, name, (n,), wanted, whole=True, least=least, spread=spread)


def numbers(values: Given, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """Return `values` >= 0 as a read-only int64 or float64 array of a `shape`, else
    one-dimensional.

    None: zeros, where a shape is given.  Infinite ones, NaN, and 2**62 and more are refused, with
    the field (`name`) and the entry.
    """
    if shape is not None:
        values = np.zeros(shape, dtype=np.int64) if values is None else values
        return _checked(values, name, shape, f"give an array of shape {shape}")
    wanted = "give a one-dimensional array, one number for each layer"
    if values is None:
        raise InputError("is missing", field=name, remedy=wanted)
    return _checked(values, name, (None,), wanted)


def whole_bytes(values: Given, name: str, shape: tuple[int, ...]) -> Array:
    """Return `values` as :func:`numbers` does, but int64: bytes, of which there are no parts.

    Texts among them say so many: "12KiB".  They have a `shape`; None: zeros.  `name` is that of the
    field.
    """
    values = np.zeros(shape, dtype=np.int64) if values is None else in_bytes(values, name)
    return _checked(values, name, shape, f"give an array of shape {shape}", whole=True)


def table(
    values: Given, name: str, shape: tuple[int, ...], k: int | None = None, *, whole: bool = False
) -> Array | None:
    """Return `values` of a `shape`, a table of numbers for all of `k` devices or one each; None
    stays.

    Refuses what :func:`numbers` does, by the `name` of the field; if `whole`, :func:`whole_bytes`.
    """
    if values is None:
        return None
    with contextlib.suppress(ValueError):  # ragged: said where it is read
        shape = shape if k is None or np.ndim(values) != 3 else (k, *shape)
    return (whole_bytes if whole else numbers)(values, name, shape)


def _checked(
    values: npt.ArrayLike,
    name: str,
    shape: tuple[int | None, ...],
    wanted: str,
    *,
    whole: bool = False,
    least: int | None = 0,
    spread: bool = False,
) -> Array:
    """Return an array of int64, or of float64 where it need not be `whole`, that none can change.

    None in `shape` stands for any length; with `spread` a lone number stands for all.
    """
    array, noun = _numeric(values, name, wanted), "integer" if whole else "number"
    if spread and array.ndim == 0:
        array = np.full([n or 0 for n in shape], array)
    if array.ndim != len(shape) or any(
        n not in (None, has) for n, has in zip(shape, array.shape, strict=True)
    ):
        raise InputError(f"has shape {array.shape}", field=name, remedy=wanted)
    if array.dtype.kind == "f":
        odd = ~np.isfinite(array)
        finer = ": choose a finer unit" if whole else ""
        if whole:
            odd |= array != np.floor(array)
        _refuse(array, odd, name, f", no {noun}", f"give finite {noun}s{finer}")
    if least is not None:
        _refuse(array, array < least, name, "", f"give {noun}s of at least {least}")
    if array.size and (array.max() >= LARGEST or array.min() <= -LARGEST):
        raise _too_large(name)
    # Of no numbers at all, nobody sees what they would be.
    own = np.float64 if array.dtype.kind == "f" and array.size and not whole else np.int64
    if array is values and not array.flags.writeable and array.dtype == own:
        return array  # ours already
    copy = np.array(array, dtype=own)
    copy.setflags(write=False)
    return copy


def _numeric(values: npt.ArrayLike, name: str, wanted: str) -> Array:
    """Return `values` as an array of integers or floats; Python's own integers stay such."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # ragged
        raise InputError("is no array of numbers", field=name, remedy=wanted) from None
    if array.dtype.kind in "iuf":
        return array
    items = array.ravel().tolist()
    for at, item in enumerate(items):
        if isinstance(item, bool) or not isinstance(item, int | float | np.integer | np.floating):
            where = np.unravel_index(at, array.shape)
            raise InputError(
                f"{_entry(where)}is {item!r}, no integer", field=name, remedy="give numbers"
            )
    try:
        whole = all(isinstance(item, int | np.integer) for item in items)
        return np.array(items, dtype=np.int64 if whole else np.float64).reshape(array.shape)
    except OverflowError:
        raise _too_large(name) from None


def _refuse(array: Array, wrong: Array, name: str, why: str, remedy: str) -> None:
    """Refuse the first entry that is `wrong`."""
    if wrong.any():
        at = np.unravel_index(int(np.argmax(wrong)), array.shape)
        raise InputError(f"{_entry(at)}is {array[at]}{why}", field=name, remedy=remedy)


def _entry(index: tuple[np.intp, ...]) -> str:
    return f"entry {', '.join(str(int(i)) for i in index)} " if index else ""


def _too_large(name: str) -> InputError:
    return InputError("exceeds 2**62", field=name, remedy="use a coarser unit")
