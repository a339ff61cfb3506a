"""Kernels of groups: what sets of operators cost in every way of cutting them, many at once.

Groups grow and shrink as said in :mod:`.growth_kernels`, which knows their ranges; here are their
rows, as defined in :mod:`stagepack.instances.groups.timesteps`, by the rule ``nearest``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.groups.growth_kernels import (
    Past,
    Slots,
    Tracks,
    ceil,
    clear,
    extend,
    remember,
    retract,
    stored,
)
from stagepack.heuristics.groups.network_state import DENSE, GIVEN, LANES, Machine, Network
from stagepack.instances.compiled import compiled, step
from stagepack.instances.profile import Array

N, C, D, H, W = 0, 1, 2, 3, 4
NONE = np.iinfo(np.int64).max
"""Cycles of what cannot be."""
PRICED = 5
"""Elementary steps of an operator, or of a tensor, where a group is priced,"""
SETTLED = 3
"""and of a cut where an operator is taken in."""


@step
def moved(nbytes: int, latency: int, rate: tuple[int, int]) -> int:
    """Return the cycles of a transfer; the rate is a fraction."""
    return latency + ceil(nbytes * rate[1], rate[0])


@step
def row_cycles(machine: Machine, compute: int, transfers: int) -> int:
    """Return the cycles of a row."""
    less = min(compute, transfers)
    return max(compute, transfers) + less - machine.overlap[0] * less // machine.overlap[1]


@step
def lane_bytes(machine: Machine, n: int, c: int, d: int, plane: int) -> int:
    """Return the bytes in every lane of n * c * d planes of so many bytes."""
    return n * d * ceil(c, machine.lanes) * ceil(plane, machine.eu_bytes) * machine.eu_bytes


@step
def _values(net: Network, k: int) -> int:
    """Return how many values operator k writes."""
    return int(net.size[k, N] * net.size[k, C] * net.size[k, D] * net.size[k, H] * net.size[k, W])


@step
def compute(net: Network, machine: Machine, k: int, n: int, c: int, d: int, h: int, w: int) -> int:
    """Return the cycles in which operator k computes a part of n, c, d, h, w values."""
    model, taps, work = net.model[k], net.taps[k], 0
    if net.spread[k, 0] > 0:
        h, w = net.spread[k, 0], net.spread[k, 1]
    if model == GIVEN:
        work = ceil(taps * (n * c * d * h * w), _values(net, k))
    elif model == DENSE:
        work = n * d * ceil(c, machine.lanes) * taps * ceil(h * w, machine.pixels)
    elif model == LANES:
        wide = ceil(h * w * net.width[k], machine.eu_bytes)
        work = n * d * ceil(c, machine.lanes) * taps * wide
    else:
        work = n * d * c * ceil(h, machine.lanes) * taps * ceil(w, machine.pixels)
    return machine.startup + work


class Rows(NamedTuple):
    """Room for the rows of a group.

    Attributes
    ----------
    compute : ndarray of int64, shape (rows,)
    moving, once : ndarray of int64, shape (3, rows)
        Transfers of every slice, and with the first alone, by stage.
    alive : ndarray of int64, shape (3 * rows + 1,)
        Changes of the bytes that are alive.
    """

    compute: Array
    moving: Array
    once: Array
    alive: Array


@step
def _empty(rows: Rows, count: int) -> None:
    """Empty the rows of a group; one by one, which compiles in half the time of slices."""
    for row in range(count):
        rows.compute[row] = 0
        for stage in range(3):
            rows.moving[stage, row] = 0
            rows.once[stage, row] = 0
    for position in range(3 * count + 1):
        rows.alive[position] = 0


@step
def _live(rows: Rows, period: int, first: int, last: int, nbytes: int) -> int:
    """Count bytes that are alive from a position to another; return those alive all the time."""
    if period == 0:
        rows.alive[first] += nbytes
        rows.alive[last + 1] -= nbytes
        return 0
    length = last - first + 1
    if length > period:
        return ceil(length, period) * nbytes
    start = first % period
    end = start + length
    rows.alive[start] += nbytes
    if end <= period:
        rows.alive[end] -= nbytes
    else:
        rows.alive[0] += nbytes
        rows.alive[end - period] -= nbytes
        rows.alive[period] -= nbytes
    return 0


@step
def _iteration(machine: Machine, rows: Rows, count: int, low: int, high: int, first: int) -> int:
    """Return the cycles of all rows when stages low to high run, the first slice in `first`."""
    total = 0
    for row in range(count):
        moving = rows.once[first, row] if first >= 0 else 0
        for stage in range(low, high + 1):
            moving += rows.moving[stage, row]
        total += row_cycles(machine, rows.compute[row] if low <= 1 <= high else 0, moving)
    return total


@step
def _span(machine: Machine, rows: Rows, count: int, rounds: int) -> int:
    """Return the cycles of a group of so many rows and rounds: fill, kernels, drain."""
    total = 0
    for part in range(6):  # three iterations to fill, one for all kernels, two to drain
        iteration = part if part <= 3 else rounds + part - 4
        times = rounds - 3 if part == 3 else int(part < 3 or iteration >= 3)
        if times > 0:
            low, high = max(iteration - rounds + 1, 0), min(iteration, 2)
            first = part if part < 3 else -1
            total += times * _iteration(machine, rows, count, low, high, first)
    return total


@step
def _place(rows: Rows, count: int, position: int, cycles: int, resident: bool) -> None:
    """Put a transfer at a position."""
    if resident:
        rows.once[position // count, position % count] += cycles
    else:
        rows.moving[position // count, position % count] += cycles


@step
def _constant(tracks: Tracks, cut: Array, slot: int) -> bool:
    """Whether all slices need the same part of a tensor."""
    found = True
    for track in cut:
        found &= tracks.constant[track, slot]
    return found


@step
def _bytes(
    net: Network, machine: Machine, tracks: Tracks, slots: Slots, cut: Array, slot: int
) -> int:
    """Return the bytes in every lane of the part of a tensor that slices need."""
    tn, tc, th, tw = cut[0], cut[1], cut[2], cut[3]
    tensor = slots.tensor[slot]
    plane = tracks.longest[th, slot] * tracks.longest[tw, slot] * net.width[tensor]
    n, c = tracks.longest[tn, slot], tracks.longest[tc, slot]
    return lane_bytes(machine, n, c, net.size[tensor, D], plane)


@step
def _over(
    net: Network,
    tracks: Tracks,
    slots: Slots,
    cut: Array,
    age: int,
    last: int,
    turn: tuple[int, bool],
) -> bool:
    """Whether an operator may write over its first input, as :func:`.lmem.in_place`; sizes apart.

    Parameters
    ----------
    age : int
        Of the operator.
    last : int
        The position in which what it writes is used last.
    turn : (int, bool)
        The period, and whether there are several slices.
    """
    k = slots.member[age]
    if not net.in_place[k] or net.edge[k] == net.edge[k + 1]:
        return False
    period, several = turn
    old, latest = slots.of[net.read[net.edge[k]]], 2 * slots.met[0] - 1
    if slots.written[old] >= 0:
        born, stays = latest - slots.written[old], stored(net, slots, old)
    else:
        born, stays = latest - slots.first[old] - 1, several and _constant(tracks, cut, old)
    return not stays and slots.last[old] == age and (period == 0 or last - born < period)


@step
def _loaded(net: Network, machine: Machine, weight: int, c: int, size: int) -> tuple[int, int]:
    """Return cycles and bytes in every lane of the share of a weight for c of `size` channels."""
    channels, values = net.weights[weight, 0], net.weights[weight, 1]
    width, given = net.weights[weight, 2], net.weights[weight, 3]
    share = ceil(channels * c, size)
    cycles = moved(share * values * width, machine.load_latency, machine.load)
    if given < 0:
        return cycles, lane_bytes(machine, 1, share, 1, values * width)
    lanes = ceil(share, machine.lanes), ceil(channels, machine.lanes)
    return cycles, lane_bytes(machine, 1, 1, 1, ceil(given * lanes[0], lanes[1]))


@step
def _written(net: Network, machine: Machine, tracks: Tracks, cut: Array, k: int) -> int:
    """Return the cycles in which a slice stores what operator k writes."""
    tn, tc, th, tw = cut[0], cut[1], cut[2], cut[3]
    whole = ceil(net.size[k, N], tracks.parts[tn]) * ceil(net.size[k, C], tracks.parts[tc])
    whole *= ceil(net.size[k, H], tracks.parts[th]) * ceil(net.size[k, W], tracks.parts[tw])
    whole *= net.size[k, D]
    return moved(whole * net.width[k], machine.store_latency, machine.store)


@step
def price(
    net: Network,
    machine: Machine,
    tracks: Tracks,
    slots: Slots,
    rows: Rows,
    cut: Array,
) -> tuple[int, int]:
    """Return the cycles of the group in one cut, and the bytes that a lane must hold.

    Parameters
    ----------
    cut : ndarray of int64, shape (4,)
        Its tracks along n, c, h and w.

    Returns
    -------
    (int, int)
        `NONE` cycles where slices read more again than the limit allows.
    """
    tn, tc, th, tw = cut[0], cut[1], cut[2], cut[3]
    count = slots.met[0]
    slices = tracks.parts[tn] * tracks.parts[tc] * tracks.parts[th] * tracks.parts[tw]
    rounds = ceil(slices, machine.cores)
    period = count if rounds > 1 else 0
    _empty(rows, count)
    always = 0
    for age in range(count):
        k = slots.member[age]
        own, row = slots.of[k], count - 1 - age
        n, c = tracks.longest[tn, own], tracks.longest[tc, own]
        h, w = tracks.longest[th, own], tracks.longest[tw, own]
        d, at = net.size[k, D], count + row
        rows.compute[row] = compute(net, machine, k, n, c, d, h, w)
        nbytes = lane_bytes(machine, n, c, d, h * w * net.width[k])
        last = at if slots.last[own] < 0 else 2 * count - 1 - slots.last[own]
        if stored(net, slots, own):
            last = max(last, at + 1)
            _place(rows, count, at + 1, _written(net, machine, tracks, cut, k), False)
        always += _live(rows, period, at, last, nbytes)
        if net.buffer[k] > 0:
            share = ceil(net.buffer[k] * (n * c * d * h * w), _values(net, k))
            always += _live(rows, period, at, at, lane_bytes(machine, 1, 1, 1, share))
        if _over(net, tracks, slots, cut, age, last, (period, slices > 1)):
            old = slots.of[net.read[net.edge[k]]]
            if nbytes == _bytes(net, machine, tracks, slots, cut, old):
                always += _live(rows, period, at, at, -nbytes)  # not twice
        for weight in range(net.weight[k], net.weight[k + 1]):
            resident = slices > 1 and tracks.constant[tc, own]
            cycles, nbytes = _loaded(net, machine, weight, c, net.size[k, C])
            _place(rows, count, at - 1, cycles, resident)
            if resident and period:
                always += nbytes
            else:
                always += _live(rows, period, at - 1, at, nbytes)
    for slot in range(slots.met[1]):
        tensor = slots.tensor[slot]
        if slots.written[slot] >= 0:
            continue
        for track in (th, tw):
            size = net.size[tensor, tracks.axis[track]]
            again = tracks.total[track, slot] - size
            if (
                machine.limit[0] >= 0
                and again * machine.limit[1] > machine.limit[0] * size
                and not tracks.constant[track, slot]
            ):
                return NONE, 0
        resident = slices > 1 and _constant(tracks, cut, slot)
        first, last = 2 * count - 2 - slots.first[slot], 2 * count - 1 - slots.last[slot]
        n, c = tracks.longest[tn, slot], tracks.longest[tc, slot]
        h, w = tracks.longest[th, slot], tracks.longest[tw, slot]
        whole = n * c * net.size[tensor, D] * h * w * net.width[tensor]
        _place(rows, count, first, moved(whole, machine.load_latency, machine.load), resident)
        nbytes = _bytes(net, machine, tracks, slots, cut, slot)
        if resident and period:
            always += nbytes
        else:
            always += _live(rows, period, first, last, nbytes)
    peak, alive = 0, 0
    for row in range(period if period else 3 * count):
        alive += rows.alive[row]
        peak = max(peak, alive)
    return _span(machine, rows, count, rounds), peak + always


class Floors(NamedTuple):
    """What a group takes at least in every cut, and whatever it grows into.

    Attributes
    ----------
    compute, moving : ndarray of int64, shape (rows or 1, cuts)
        Cycles of compute of a slice, and of transfers of all slices: of weights, and of what is
        stored.
    least : ndarray of int64, shape (rows or 1, cuts)
        Cycles of the whole group: of compute of all slices, or of transfers.
    kept, widest : ndarray of int64, shape (rows or 1, cuts)
        Bytes in every lane of resident weights, and of the operator that takes the most beside
        them.
    closed : ndarray of bool, shape (rows or 1, cuts)
        Whether it cannot be cut so.
    """

    compute: Array
    moving: Array
    least: Array
    kept: Array
    widest: Array
    closed: Array


@step
def _bad(tracks: Tracks, cut: Array) -> bool:
    """Whether the group cannot be cut so."""
    bad = False
    for track in cut:
        bad |= tracks.bad[track]
    return bad


@step
def _settle(
    net: Network, machine: Machine, tracks: Tracks, slots: Slots, floors: Floors, cuts: Array
) -> None:
    """Find out what the group takes at least; that of the operators before the last is known."""
    age = slots.met[0] - 1
    k, level = slots.member[age], age if len(floors.kept) > 1 else 0
    own, before, d = slots.of[k], max(level - 1, 0), net.size[k, D]
    for which in range(len(cuts)):
        cut = cuts[which]
        tn, tc, th, tw = cut[0], cut[1], cut[2], cut[3]
        cycles, moving, kept, widest = 0, 0, 0, 0
        closed = _bad(tracks, cut)
        if age > 0:
            cycles, moving = floors.compute[before, which], floors.moving[before, which]
            kept, widest = floors.kept[before, which], floors.widest[before, which]
            closed |= floors.closed[before, which]
        if not closed:
            slices = tracks.parts[tn] * tracks.parts[tc] * tracks.parts[th] * tracks.parts[tw]
            rounds = ceil(slices, machine.cores)
            n, c = tracks.longest[tn, own], tracks.longest[tc, own]
            h, w = tracks.longest[th, own], tracks.longest[tw, own]
            cycles += compute(net, machine, k, n, c, d, h, w)
            if stored(net, slots, own):
                moving += rounds * _written(net, machine, tracks, cut, k)
            width = lane_bytes(machine, n, c, d, h * w * net.width[k])
            resident = slices > 1 and tracks.constant[tc, own]
            for weight in range(net.weight[k], net.weight[k + 1]):
                loading, nbytes = _loaded(net, machine, weight, c, net.size[k, C])
                moving += loading if resident else rounds * loading
                if resident and rounds > 1:
                    kept += nbytes
                else:
                    width += nbytes
            widest = max(widest, width)
            closed = kept + widest > machine.memory
            floors.least[level, which] = max(rounds * cycles, moving)
        floors.compute[level, which], floors.moving[level, which] = cycles, moving
        floors.kept[level, which], floors.widest[level, which] = kept, widest
        floors.closed[level, which] = closed


@step
def _arrive(
    net: Network, tracks: Tracks, slots: Slots, past: Past, operator: int, remembered: bool
) -> int:
    """Take an operator in; return the elementary steps of it."""
    if remembered:
        remember(net, tracks, slots, past, operator)
    extend(net, tracks, slots, operator)
    edges, ranges = net.edge[operator + 1] - net.edge[operator] + 1, 0
    for track in range(len(tracks.parts)):
        ranges += tracks.parts[track]
    return int((1 + remembered) * edges * (ranges + 1))


@compiled
def sweep(
    net: Network,
    machine: Machine,
    tracks: Tracks,
    slots: Slots,
    past: Past,
    rows: Rows,
    floors: Floors,
    cuts: Array,
    first: int,
    steps: Array,
    banned: Array,
    eager: bool,
    cycles: Array,
    chosen: Array,
    place: Array,
    most: int,
) -> int:
    """Find the best of some cuts of many groups, each grown from the one before.

    Parameters
    ----------
    cuts : ndarray of int64, shape (cuts, 4)
        Tracks along n, c, h and w, in the order in which they are tried.
    first : int
        The number of the first of them.
    steps : ndarray of int64, shape (groups, 4)
        An operator; its age in the group that it completes; whether a later step goes back behind
        this one; whether the group is asked for.
    banned : ndarray of bool, shape (groups, all cuts) or (0, 0)
        What is not to be taken.
    eager : bool
        Whether the first cut that fits will do; else the quickest.
    cycles, chosen : ndarray of int64, shape (groups,)
        Cycles (`NONE`: no cut fits) and the cut: replaced by what is better.
    place : ndarray of int64, shape (3,)
        The group and the cut to go on with; -1 for a cut: its operator is not taken in yet.  And
        the age of a group that fits in no cut whatever it grows into; -1: there is none.
    most : int
        Elementary steps after which to return, to be called again until all groups are done.

    Returns
    -------
    int
        Elementary steps: one for every range.
    """
    done = 0
    while place[0] < len(steps) and done < most:
        at, which = place[0], place[1]
        operator, age = steps[at, 0], steps[at, 1]
        level = age if len(floors.kept) > 1 else 0
        if which < 0 and 0 <= place[2] < age:
            place[0] += 1
            done += 1
        elif which < 0:
            place[2] = -1
            if age == 0 and slots.met[0] > 0:
                done += slots.met[1]
                clear(tracks, slots)
            elif slots.met[0] > age:
                done += past.slot.shape[1] * len(tracks.parts)
                retract(tracks, slots, past)
            else:
                done += _arrive(net, tracks, slots, past, operator, steps[at, 2] > 0)
                done += SETTLED * len(cuts)
                _settle(net, machine, tracks, slots, floors, cuts)
                asked = steps[at, 3] and not net.alone[operator]
                place[1] = 0 if asked and not (eager and chosen[at] >= 0) else len(cuts)
        elif which == len(cuts):
            place[0], place[1], place[2] = at + 1, -1, age
            for other in range(len(cuts)):
                if not floors.closed[level, other]:
                    place[2] = -1
        else:
            place[1] += 1
            done += 1
            if floors.closed[level, which] or (len(banned) > 0 and banned[at, first + which]):
                continue
            if floors.least[level, which] >= cycles[at]:
                continue
            done += PRICED * (slots.met[0] + slots.met[1])
            found, held = price(net, machine, tracks, slots, rows, cuts[which])
            if held <= machine.memory and found < cycles[at]:
                cycles[at], chosen[at] = found, first + which
                if eager:
                    place[1] = len(cuts)
            if held > machine.memory and first + which == 0:
                floors.closed[level, which] = True  # one slice: nothing is ever alive for shorter
    return done
