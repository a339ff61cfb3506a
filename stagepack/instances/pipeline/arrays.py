"""Arrays as users give them: read, checked, and refused by the name of their field."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.profile import Array

LARGEST = 2**62  # sums of cycles or bytes beyond this are refused


def integer(value: Any, name: str) -> int:
    """Return `value` as an int, refusing what is none by the `name` of its field."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{value!r} is no integer", field=name, remedy="give an integer") from None


def cuts(cuts: Iterable[int], name: str) -> tuple[int, ...]:
    """Return cuts in order, each once."""
    return tuple(sorted({integer(cut, name) for cut in cuts}))


def numbers(values: Any, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """Return `values` as a read-only int64 or float64 array.

    Parameters
    ----------
    values : array_like
        None: zeros, where a shape is given.
    name : str
        The field, for messages.
    shape : tuple of int, optional
        The shape wanted; any one-dimensional when absent.

    Raises
    ------
    InputError
        Naming the entry that is negative, infinite or NaN; for another shape, or 2**62 and more.
    """
    if values is None:
        if shape is None:
            raise InputError("is missing", field=name, remedy="give one number a layer")
        values = np.zeros(shape, dtype=np.int64)
    try:
        array = np.asarray(values)
        if array.dtype == object:  # Python's own numbers: integers stay integers
            items = array.ravel().tolist()
            whole = all(isinstance(item, int) for item in items)
            array = np.array(items, dtype=np.int64 if whole else np.float64).reshape(array.shape)
        if array.dtype.kind not in "biuf" and array.size:
            raise TypeError(f"holds {array.dtype.name}")
    except OverflowError:
        raise InputError("exceeds 2**62", field=name, remedy="use a coarser unit") from None
    except (TypeError, ValueError) as error:
        raise InputError(
            f"is not an array of numbers ({error})", field=name, remedy="give one number a layer"
        ) from None
    if array.ndim != (1 if shape is None else len(shape)) or (
        shape is not None and array.shape != shape
    ):
        want = "one-dimensional" if shape is None else f"of shape {shape}"
        raise InputError(f"has shape {array.shape}", field=name, remedy=f"give an array {want}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
        raise InputError(
            f"entry {_at(at)} is {array[at]}", field=name, remedy="give finite numbers"
        )
    if array.size and array.min() < 0:
        at = np.unravel_index(int(np.argmin(array)), array.shape)
        raise InputError(f"entry {_at(at)} is {array[at]}", field=name, remedy="give numbers >= 0")
    if array.dtype.kind in "iuf" and array.size and array.max() >= LARGEST:
        raise InputError("exceeds 2**62", field=name, remedy="use a coarser unit")
    if array is values and not array.flags.writeable and array.dtype in (np.int64, np.float64):
        return np.asarray(array)  # ours already
    own: Array = np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64)
    own.setflags(write=False)
    return own


def whole_bytes(values: Any, name: str, shape: tuple[int, ...]) -> Array:
    """Return `values` as a read-only int64 array of bytes.

    Parameters
    ----------
    values : array_like
        None: zeros.  Floats are taken where they are whole.
    name : str
        The field, for messages.
    shape : tuple of int
        The shape wanted.

    Raises
    ------
    InputError
        As :func:`numbers`, and for parts of a byte.
    """
    array = numbers(values, name, shape)
    if array.dtype.kind == "f":
        if (array != np.floor(array)).any() or (array.size and array.max() >= LARGEST):
            raise InputError("is not whole bytes", field=name, remedy="give integers below 2**62")
        array = array.astype(np.int64)
        array.setflags(write=False)
    return array


def table(values: Any, name: str, shape: tuple[int, ...], k: int | None = None) -> Array | None:
    """Return a table of numbers, one for all devices or one each.

    Parameters
    ----------
    values : array_like, optional
        None stays None.
    name : str
        The field, for messages.
    shape : tuple of int
        Of the table of one device.
    k : int, optional
        Number of devices; when absent there is one table of the shape as it is.

    Raises
    ------
    InputError
        As :func:`numbers`.
    """
    if values is None:
        return None
    return numbers(values, name, _table_shape(values, shape, k))


def byte_table(values: Any, name: str, shape: tuple[int, ...], k: int) -> Array | None:
    """Return a table of bytes, one for all devices or one each.

    Parameters
    ----------
    values : array_like, optional
        None stays None.
    name : str
        The field, for messages.
    shape : tuple of int
        Of the table of one device.
    k : int
        Number of devices.

    Raises
    ------
    InputError
        As :func:`whole_bytes`.
    """
    if values is None:
        return None
    return whole_bytes(values, name, _table_shape(values, shape, k))


def _table_shape(values: Any, shape: tuple[int, ...], k: int | None) -> tuple[int, ...]:
    """Return `shape`, or that of one such table a device where `values` are as deep."""
    try:
        return shape if k is None or np.ndim(values) != 3 else (k, *shape)
    except ValueError:  # ragged: said where it is read
        return shape


def _at(index: tuple[Any, ...]) -> str:
    return ", ".join(str(int(i)) for i in index)
