"""Two rounds of stages, device by device: how far the second one gets for every end of the first.

It is the probe of :mod:`.rounds`.  Cost: O(states * longest stage) for a device.  Source: own work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import tiered


class Fronts(NamedTuple):
    """Where two rounds begin, and how they grow: the first one forward from `first`.

    Attributes
    ----------
    first, second : int
        Spans before the first stage of each round; where the second one is read backwards, those
        before its end.
    sign : int
        1: the second round grows forward; -1: backwards.
    most, others : int
        Spans that the rounds have at most.
    both : int
        Spans that they have together at most.
    """

    first: int
    second: int
    sign: int
    most: int
    others: int
    both: int


class Device(NamedTuple):
    """What a device has room for.

    Attributes
    ----------
    work : ndarray of int64, shape (spans + 1,)
        Running sums of ticks on it.
    room : int
        Ticks.
    held, also : ndarray of int64, shape (spans + 1,)
        Running sums of bytes that spans hold in its stage of the first round and of the second.
    bytes : int
        Room for these and the largest peak; negative: without a limit.
    peak : int
        Bytes of the largest peak of its other stages.
    least : int
        Spans that each of its stages has at least.
    left : int
        Spans that each round keeps for the devices after it.
    """

    work: Array
    room: int
    held: Array
    also: Array
    bytes: int
    peak: int
    least: int
    left: int


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
<<<<<<< HEAD


class Rounds(NamedTuple):
    """A chain whose devices have stages of several rounds.

    Attributes
    ----------
    place : ndarray of int64, shape (stages,)
        Of the device of each stage, in the first round.
    work : ndarray of int64, shape (places, spans + 1)
        Running sums of ticks on each.
    held : ndarray of int64, shape (stages, spans + 1)
        Running sums of bytes that spans hold in each stage; without rows: no device is limited.
    bytes : ndarray of int64, shape (places,)
        Room for these and the largest peak of the device; negative: without a limit.
    least : int
        Spans that a stage has at least.
    """

    place: Array
    work: Array
    held: Array
    bytes: Array
    least: int


def _steps_of_windows(
    rounds: Rounds, stops: Stops, ends: Array, loads: Array, target: int, *rest: Any
) -> int:
    """Return the elementary steps of :func:`move`: its budget."""
    budget: int = rest[-2]
    return budget


@tiered(_steps_of_windows)
def move(
    rounds: Rounds,
    stops: Stops,
    ends: Array,
    loads: Array,
    target: int,
    best: Array,
    random: Array,
    scratch: Array,
    budget: int,
    most: int,
) -> tuple[int, int]:
    """Cut two or three neighbouring devices anew, over and over, until no load is above a target.

    Where they meet in every round, cuts may lie anywhere between the stages of other devices.  They
    go where least is above the target in all; where that is possible in several ways, any will do.
    Return the largest load of `best` and the places looked at: a few more than `budget`.

    Parameters
    ----------
    rounds, stops : Rounds, Stops
        What is cut.
    ends : ndarray of int64, shape (stages + 1,)
        Spans before each stage and behind the last one, within the rooms; changed.
    loads : ndarray of int64, shape (places,)
        Ticks of each device with these stages; changed.
    target : int
        Ticks.
    best : ndarray of int64, shape (stages + 1,)
        Written: ends of the least largest load.
    random : ndarray of uint64, shape (1,)
        State of the random numbers.
    scratch : ndarray of int64, shape (7, stages + 1)
        Cuts that move, and for each the least place, how many there are, the first to be looked at,
        how many have been, the excess before it, and the place that is best so far.
    budget, most : int
        Places looked at, of all cuts together, and for the cuts of one window.
    """
    place, work, least = rounds.place, rounds.work, rounds.least
    cuts, low, size, start, tried, excess, chosen = scratch
    stages, k = len(place), len(loads)
    value, looked = loads.max(), 0
    best[:] = ends
    while looked < budget and value > target:
        looked += 1
        at, first = draw(random, k), draw(random, k)
        if draw(random, 5) > 0:
            for j in range(k):
                if loads[(first + j) % k] > target:
                    at = (first + j) % k
                    break
        width = min(k, 2 + draw(random, 2))
        first = max(0, min(k - width, at - draw(random, width)))
        m = 0
        for j in range(1, stages):
            one, other = place[j - 1] - first, place[j] - first
            if one != other and 0 <= one < width and 0 <= other < width:
                cuts[m] = j
                m += 1
        while m > 8:  # not all of many rounds
            m -= 1
            drop = draw(random, m)
            cuts[drop:m] = cuts[drop + 1 : m + 1]
        if m == 0:
            continue
        fewest = np.int64(0)
        for j in range(k):
            fewest += max(0, loads[j] - target)
        for q in range(m):
            j = cuts[q]
            chosen[q] = ends[j]
            loads[place[j - 1]] -= work[place[j - 1], ends[j]] - work[place[j - 1], ends[j - 1]]
            if q + 1 == m or cuts[q + 1] > j + 1:
                loads[place[j]] -= work[place[j], ends[j + 1]] - work[place[j], ends[j]]
        excess[0] = 0
        for j in range(k):
            excess[0] += max(0, loads[j] - target)
        q, enters, left, found = 0, True, most, False
        while q >= 0:
            j = cuts[q]
            a, b = place[j - 1], place[j]
            closes = q + 1 == m or cuts[q + 1] > j + 1
            if enters:
                follow = 1
                while q + follow < m and cuts[q + follow] == j + follow:
                    follow += 1
                low[q] = ends[j - 1] + least
                size[q] = ends[j + follow] - follow * least - low[q] + 1
                tried[q] = 0
                if size[q] > 0:
                    start[q] = draw(random, size[q])
                enters = False
            elif tried[q] > 0:  # take the last place back
                loads[a] -= work[a, ends[j]] - work[a, ends[j - 1]]
                if closes:
                    loads[b] -= work[b, ends[j + 1]] - work[b, ends[j]]
            if tried[q] >= size[q] or left <= 0 or (found and fewest == 0):
                ends[j] = chosen[q]
                q -= 1
                continue
            ends[j] = low[q] + (start[q] + tried[q]) % size[q]
            tried[q] += 1
            left -= 1
            more = excess[q] - max(0, loads[a] - target)
            loads[a] += work[a, ends[j]] - work[a, ends[j - 1]]
            more += max(0, loads[a] - target)
            fits = ends[j] == ends[j - 1] or ends[j] <= stops.ends[ends[j - 1]]
            if closes:
                more -= max(0, loads[b] - target)
                loads[b] += work[b, ends[j + 1]] - work[b, ends[j]]
                more += max(0, loads[b] - target)
                fits = fits and (ends[j] == ends[j + 1] or ends[j + 1] <= stops.ends[ends[j]])
            if not fits or more > fewest:
                continue
            if q + 1 < m:
                q += 1
                excess[q] = more
                enters = True
            elif holds(rounds, stops, ends, first, width) and (
                more < fewest or not found or draw(random, 4) == 0
            ):
                fewest, found = more, True
                for i in range(m):
                    chosen[i] = ends[cuts[i]]
        looked += most - left
        for q in range(m):
            j = cuts[q]
            loads[place[j - 1]] += work[place[j - 1], ends[j]] - work[place[j - 1], ends[j - 1]]
            if q + 1 == m or cuts[q + 1] > j + 1:
                loads[place[j]] += work[place[j], ends[j + 1]] - work[place[j], ends[j]]
        if loads.max() < value:
            value = loads.max()
            best[:] = ends
    return value, looked


@step
def holds(rounds: Rounds, stops: Stops, ends: Array, first: int, width: int) -> bool:
    """Return whether the stages of `width` devices from the place `first` on fit their memory.

    `rounds`, `stops` and `ends` are those of the search that calls.
    """
    if len(rounds.held) == 0:
        return True
    for at in range(first, first + width):
        if rounds.bytes[at] < 0:
            continue
        need, top = np.int64(0), np.int64(0)
        for stage in range(len(rounds.place)):
            if rounds.place[stage] == at:
                need += rounds.held[stage, ends[stage + 1]] - rounds.held[stage, ends[stage]]
                for span in range(ends[stage], ends[stage + 1]):
                    top = max(top, stops.peak[span])
        if need + top > rounds.bytes[at]:
            return False
    return True
=======
>>>>>>> placed
