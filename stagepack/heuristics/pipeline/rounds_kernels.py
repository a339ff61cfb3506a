"""Two rounds of stages, device by device: how far the second one gets for every end of the first.

It is the probe of :mod:`.rounds`.  Cost: O(states * longest stage) for a device.  Source: own work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import tiered


class Fronts(NamedTuple):
    """Where two rounds begin, and how they grow: the first one forward from `first`."""

    # Spans before the first stage of each round; where the second one is read backwards, those
    # before its end.
    first: int
    second: int
    sign: int  # 1: the second round grows forward; -1: backwards
    # Spans that the rounds have at most.
    most: int
    others: int
    both: int  # spans that they have together at most


class Device(NamedTuple):
    """What a device has room for."""

    work: Array  # (spans + 1,): running sums of ticks on it
    room: int  # ticks
    # (spans + 1,): running sums of bytes that spans hold in its stage of the first round and of the
    # second.
    held: Array
    also: Array
    bytes: int  # room for these and the largest peak; negative: without a limit
    peak: int  # bytes of the largest peak of its other stages
    least: int  # spans that each of its stages has at least
    left: int  # spans that each round keeps for the devices after it


class Stops(NamedTuple):
    """Bytes of the peak of each span; where stages end at the latest and begin at the earliest."""

    peak: Array
    ends: Array
    starts: Array


def _steps_of_growth(
    fronts: Fronts, device: Device, stops: Stops, begin: int, end: int, *_: object
) -> int:
    """Return the elementary steps of :func:`grow`: a guess at the length of stages."""
    return (end - begin) * 32


@tiered(_steps_of_growth)
def grow(
    fronts: Fronts,
    device: Device,
    stops: Stops,
    begin: int,
    end: int,
    furthest: Array,
    lowest: Array,
    here: Array,
    after: Array,
    then: Array,
    marks: Array,
    highest: Array,
) -> None:
    """Give a device its stages after all ends of the first round in [begin, end).

    A state is how many spans the two rounds have so far.  Two pointers: the longer the stage of the
    first round, the shorter is the longest of the second.

    Parameters
    ----------
    fronts, device, stops : Fronts, Device, Stops
        Where and how it grows.
    begin, end : int
        Spans of the first round.
    furthest : ndarray of int64, shape (most + 1,)
        By the spans of the first round, the most of the second; -1: no state.
    lowest : ndarray of int64, shape (most + 1,)
        The fewest of the second round that are looked at.
    here : ndarray of bool, shape (most + 1, width)
        All states, where those of `furthest` are not enough: column c is `lowest` + c, and no
        `furthest` is beyond the last one.  Otherwise without columns.
    after : ndarray of int64, shape (most + 1,)
        Written: that of `furthest` with the device.
    then : ndarray of int64, shape (most + 1,)
        That of `lowest` with the device.
    marks : ndarray of int32, shape (most + 1, width + 1), or without rows
        Written where there is `here`: differences along a row, of how often a state is reached.
        Column c is `then` + c; what is reached is no further than the last but one.
    highest : ndarray of int64, shape (others + 1,)
        Scratch: the largest peak of the stage of the second round.
    """
    a0, b0, sign, most, others, both = fronts
    work, room, held, also, nbytes, other, least, left = device
    peak, ends, starts = stops
    every = here.shape[1] > 0
    for x in range(begin, end):
        if furthest[x] < 0:
            continue
        low = lowest[x] if every else furthest[x]
        a = a0 + x
        last_x = min(most - left, ends[a] - a0)
        for y in range(low, furthest[x] + 1):
            if every and not here[x, y - lowest[x]]:
                continue
            b = b0 + sign * y
            last_y = others - left
            if sign > 0:
                last_y = min(last_y, ends[b] - b0)
            else:
                last_y = min(last_y, b0 - starts[b])
            y2 = y
            highest[y] = 0
            while y2 < last_y and abs(work[b + sign * (y2 + 1 - y)] - work[b]) <= room:
                span = b + y2 - y if sign > 0 else b - (y2 - y) - 1
                highest[y2 + 1] = max(highest[y2], peak[span])
                y2 += 1
            top = other
            for x2 in range(x, last_x + 1):
                if x2 > x:
                    top = max(top, peak[a0 + x2 - 1])
                spent = work[a0 + x2] - work[a]
                holds = held[a0 + x2] - held[a]
                while y2 >= y:
                    t = b + sign * (y2 - y)
                    fits = spent + abs(work[t] - work[b]) <= room
                    fits = fits and x2 + y2 <= both - 2 * left
                    if nbytes >= 0:
                        need = holds + abs(also[t] - also[b]) + max(top, highest[y2])
                        fits = fits and need <= nbytes
                    if fits:
                        break
                    y2 -= 1
                if y2 < y + least:
                    break
                if x2 >= x + least:
                    after[x2] = max(after[x2], y2)
                    if every and y2 >= then[x2]:
                        marks[x2, max(0, y + least - then[x2])] += np.int32(1)
                        marks[x2, y2 + 1 - then[x2]] -= np.int32(1)
