"""Compiled kernels of layers with alternatives: labels of what a run of layers may cost.

A label is (ticks, bytes that add up, bytes of the layer that needs most while it runs); the labels
of a run are in rising order, none as good as another one in all three.  A layer makes of every
label one for each of its options, which merge in order.  Cost: O(labels * options * log(labels)) a
layer.  Source: the list method of Nemhauser and Ullmann (1969), for knapsacks of multiple choice.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

TOO_MANY = -1
FIRST, END, COUNT, SIDE, FULL = range(5)
"""Of a state: the run [first, end) and its labels, where these are, whether they were too many."""


class Options(NamedTuple):
    """Layers and their options on one kind of devices; int64 arrays."""

    # `ticks`, `added`, `peak`: shape (options, n): of every layer in each option; bytes are 0 where
    # the device has no limit.
    ticks: Array
    added: Array
    peak: Array
    has: Array  # bool, shape (options, n): which options a layer has; one at least
    capacity: int  # bytes of the device
    held: Array  # shape (n + 1, n + 1), or (1, 1): bytes that [a, b) holds once, where any are
    base: Array  # shape (n + 1,): running sums of the least ticks of the layers on any device


class Room(NamedTuple):
    """Where labels are; int64 arrays.

    Attributes
    ----------
    labels : ndarray, shape (2, 3, most)
        Ticks, added bytes and peaks of the labels of a run and of the one that is made of it.
    stairs : ndarray, shape (2, most)
        Scratch: added bytes, rising, and peaks, falling, of the labels that matter to later ones;
        each label enters once.
    heads : ndarray, shape (options,)
        Scratch: the next label of each option.
    origin : ndarray, shape (2, most)
        Written for each label: the one of which it was made, and the option.
    """

    labels: Array
    stairs: Array
    heads: Array
    origin: Array


@step
def _extend(
    options: Options, layer: int, within: int, held: int, room: Room, side: int, count: int
) -> int:
    """Make the labels of a run with one layer more; return how many, `TOO_MANY` for no room."""
    ticks, added, peak = options.ticks, options.added, options.peak
    old, new = room.labels[side], room.labels[1 - side]
    stairs, heads, most = room.stairs, room.heads, room.labels.shape[2]
    found, steps, limit = 0, 0, options.capacity - held
    for o in range(len(heads)):
        heads[o] = 0 if options.has[o, layer] else count
    while True:
        best, t, m, p = -1, 0, 0, 0
        for o in range(len(heads)):
            at = heads[o]
            if at < count:
                ot, om = old[0, at] + ticks[o, layer], old[1, at] + added[o, layer]
                op = max(old[2, at], peak[o, layer])
                if best < 0 or ot < t or (ot == t and (om < m or (om == m and op < p))):
                    best, t, m, p = o, ot, om, op
        if best < 0 or t > within:
            break
        source = heads[best]
        heads[best] += 1
        if m + p > limit:
            continue
        # Of the labels so far, which take no more ticks: those of no more bytes, the last of which
        # has the least peak.
        low, high = 0, steps
        while low < high:
            middle = (low + high) // 2
            if stairs[0, middle] <= m:
                low = middle + 1
            else:
                high = middle
        if low > 0 and stairs[1, low - 1] <= p:
            continue
        if found == most:
            return TOO_MANY
        new[0, found], new[1, found], new[2, found] = t, m, p
        room.origin[0, found], room.origin[1, found] = source, best
        found += 1
        gone = low
        while gone < steps and stairs[1, gone] >= p:
            gone += 1
        if gone == low:  # steps < found <= most: there is room for one more
            for at in range(steps, low, -1):
                stairs[0, at], stairs[1, at] = stairs[0, at - 1], stairs[1, at - 1]
        elif gone > low + 1:
            for at in range(gone, steps):
                stairs[0, at + low + 1 - gone] = stairs[0, at]
                stairs[1, at + low + 1 - gone] = stairs[1, at]
        steps += low + 1 - gone
        stairs[0, low], stairs[1, low] = m, p
    return found


def _one(_layer: int, _within: int, count: int, options: Options, _held: int, _room: Room) -> int:
    return 8 * count * len(options.ticks)


@tiered(_one)
def extend(layer: int, within: int, count: int, options: Options, held: int, room: Room) -> int:
    """Make the labels of a run with one layer more, on side 1; return how many.

    `TOO_MANY` where there is no room for them.

    The `layer` is added to a run of `count` labels, on side 0; no label exceeds `within` ticks, and
    the longer run holds `held` bytes once.
    """
    return _extend(options, layer, within, held, room, 0, count)


def _budget(budget: int, *_: object) -> int:
    return budget


@tiered(_budget)
def fill(
    budget: int,
    options: Options,
    within: Array,
    spare: int,
    last: Array,
    room: Room,
    state: Array,
    cost: Array,
) -> bool:
    """Find the least ticks of all runs [a, b); return whether that is done.

    Goes on from where `state` is, for about `budget` labels; stops for good where these are too
    many.

    Parameters
    ----------
    budget : int64
        Labels after which to return.
    options : Options
    within : ndarray of int64, shape (n,)
        By first layer, ticks that no run exceeds.
    spare : int64
        Ticks above their least that no layers of a run take together.
    last : ndarray of int64, shape (n,)
        By first layer, the furthest end that is asked for; the layer itself for none.
    room : Room
    state : ndarray of int64, shape (5,)
        Zeros at first.
    cost : ndarray of int64, shape (n + 1, n + 1)
        Written where there are labels of fewer ticks than it says.
    """
    n, options_of = len(last), len(options.ticks)
    a, b, count, side = state[FIRST], state[END], state[COUNT], state[SIDE]
    while a < n and budget > 0:
        if count == 0:
            count, b = 1, a
            for what in range(3):
                room.labels[side, what, 0] = 0
        while b < last[a] and count > 0 and budget > 0:
            held = options.held[a, b + 1] if len(options.held) > 1 else 0
            most = min(within[a], options.base[b + 1] - options.base[a] + spare)
            budget -= 10 + count * options_of
            count = _extend(options, b, most, held, room, side, count)
            if count == TOO_MANY:
                state[FULL] = 1
                return True
            side, b = 1 - side, b + 1
            if count > 0:
                cost[a, b] = min(cost[a, b], room.labels[side, 0, 0])
        if count == 0 or b >= last[a]:
            a, count = a + 1, 0
    state[FIRST], state[END], state[COUNT], state[SIDE] = a, b, count, side
    return bool(a == n)
