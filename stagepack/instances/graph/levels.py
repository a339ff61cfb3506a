"""Links in levels: groups of devices within larger groups, such as GPUs within machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances import arrays
from stagepack.instances.profile import Array

MOST_UNLIKE = 2**12
"""Devices of which every two may have a link of their own."""


class Level(NamedTuple):
    """A level of links, between units, of which so many are a group; devices on the innermost
    level.
    """

    units: int
    bandwidth: Number


def table_of(levels: Iterable[tuple[int, Number]], devices: int) -> Array:
    """Return bandwidths from device to device of groups within groups, from the innermost on.

    The last group may be smaller than said.
    """
    if devices > MOST_UNLIKE:
        raise InputError(
            f"of {devices:,} devices are too many to tell apart",
            field="levels",
            remedy=f"give one bandwidth, or at most {MOST_UNLIKE:,} devices",
        )
    numbers = np.arange(devices)
    table, size = np.zeros((devices, devices)), 1
    for at, level in enumerate(levels):
        try:
            count, pace = level
            table = np.where(table == 0, float(pace), table) if size == 1 else table
        except (TypeError, ValueError):
            raise InputError(
                f"{level!r} is no pair", field=f"levels[{at}]", remedy="give (devices, bandwidth)"
            ) from None
        group = numbers // size
        apart = group[:, None] != group[None, :]
        table = np.where(apart, float(pace), table)
        size *= arrays.integer(count, f"levels[{at}]", 1)
    if size < devices:
        raise InputError(
            f"have {size} devices in all, of {devices}",
            field="levels",
            remedy="add a level, or larger groups",
        )
    return table


def levels_of(table: Array) -> tuple[Level, ...]:
    """Return the levels that a table of bandwidths is made of; () where it is made of none.

    Every group of a level has as many units.
    """
    devices, size, found = len(table), 1, list[Level]()
    while size < devices:
        pace = table[0, size].item()
        slower = np.flatnonzero(table[0, size:] != pace)
        end = size + int(slower[0]) if len(slower) else devices
        if end % size:
            return ()
        found.append(Level(end // size, pace))
        size = end
    between = ~np.eye(devices, dtype=bool)
    same = np.array_equal(table_of(found, devices)[between], table[between])
    return tuple(found) if same else ()
