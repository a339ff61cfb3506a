"""Kernels of groups: what [a, b) costs in every way of cutting it, for all a at once.

Groups that end at b are grown from b downwards: the ranges that slices read of a tensor are final
once the operator that writes it is reached.  A *track* is an axis and a number of parts; a way to
cut is one track on each of n, c, h, w.  Tensors get *slots* as they are met.  All as defined in
:mod:`stagepack.instances.groups.regions` and :mod:`.timesteps`, by the rule ``nearest``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.groups.network_state import (
    DENSE,
    GIVEN,
    LANES,
    REPEATED,
    TRANSPOSED,
    WINDOW,
    Machine,
    Network,
)
from stagepack.instances.compiled import compiled, step
from stagepack.instances.profile import Array

N, C, D, H, W = 0, 1, 2, 3, 4
AXES = 5
NONE = np.iinfo(np.int64).max
"""Cycles of what cannot be."""


class Tracks(NamedTuple):
    """Axes and numbers of parts, and what is known of every slot along each.

    Attributes
    ----------
    axis, parts : ndarray of int64, shape (tracks,)
    start, length : ndarray of int64, shape (tracks, slots, most parts)
        Ranges of the slices.
    longest, total : ndarray of int64, shape (tracks, slots)
        The longest range, and the sum of all.
    constant : ndarray of bool, shape (tracks, slots)
        Whether all are the same range.
    bad : ndarray of bool, shape (tracks,)
        Whether the group cannot be cut so.
    """

    axis: Array
    parts: Array
    start: Array
    length: Array
    longest: Array
    total: Array
    constant: Array
    bad: Array


class Slots(NamedTuple):
    """The tensors of a group.

    Attributes
    ----------
    of : ndarray of int64, shape (tensors,)
        The slot of a tensor; -1: not met.
    tensor : ndarray of int64, shape (slots,)
    met : ndarray of int64, shape (1,)
        How many there are.
    first, last : ndarray of int64, shape (slots,)
        The first and the last operator of the group that reads it; last is -1 where none does.
    """

    of: Array
    tensor: Array
    met: Array
    first: Array
    last: Array


@step
def ceil(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


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


# ---------------------------------------------------------------------- ranges


@step
def _meet(slots: Slots, tensor: int) -> int:
    """Return the slot of a tensor, a new one where it was not met."""
    slot = int(slots.of[tensor])
    if slot < 0:
        slot = int(slots.met[0])
        slots.met[0] += 1
        slots.of[tensor], slots.tensor[slot] = slot, tensor
        slots.first[slot], slots.last[slot] = -1, -1
    return slot


@step
def _cover(tracks: Tracks, track: int, slot: int, part: int, start: int, length: int) -> None:
    """Let a range of a slot cover one more; a length of 0 is nothing yet."""
    known = tracks.length[track, slot, part]
    if known > 0:
        end = max(tracks.start[track, slot, part] + known, start + length)
        start = min(start, tracks.start[track, slot, part])
        length = end - start
    tracks.start[track, slot, part], tracks.length[track, slot, part] = start, length


@step
def _summed(tracks: Tracks, track: int, slot: int) -> None:
    """Find out what the ranges of a slot amount to."""
    parts = tracks.parts[track]
    longest, total, constant = 0, 0, True
    for part in range(parts):
        length = tracks.length[track, slot, part]
        longest, total = max(longest, length), total + length
        constant &= length == tracks.length[track, slot, 0]
        constant &= tracks.start[track, slot, part] == tracks.start[track, slot, 0]
    tracks.longest[track, slot], tracks.total[track, slot] = longest, total
    tracks.constant[track, slot] = constant


@step
def _deal(tracks: Tracks, track: int, slot: int, size: int) -> None:
    """Let the ranges of a slot cover those that are dealt out without overlap."""
    parts = tracks.parts[track]
    if size < parts:
        tracks.bad[track] = True
        return
    least, longer, start = size // parts, size % parts, 0
    for part in range(parts):
        length = least + (part < longer)
        _cover(tracks, track, slot, part, start, length)
        start += length


@step
def _reads(
    net: Network, k: int, edge: int, axis: int, start: int, length: int, size: int
) -> tuple[int, int]:
    """Return the range of an input that operator k reads, as :func:`.operators.reads`."""
    if net.whole[edge, axis]:
        return 0, size
    first, end = start, start + length
    if axis >= H:
        way, kernel, stride, before = net.window[k, axis - H]
        if way == WINDOW:
            first = start * stride - before
            end = first + (length - 1) * stride + max(kernel, stride)
        elif way == TRANSPOSED:
            first = ceil(start - before, stride)
            end = (start + length + kernel - 2 - before) // stride + 1
        elif way == REPEATED:
            first, end = start // kernel, (start + length - 1) // kernel + 1
    first = min(max(first, 0), size - 1)
    return first, max(min(end, size) - first, 1)


@step
def _even(net: Network, tracks: Tracks, track: int, k: int, slot: int) -> bool:
    """Whether the ranges of an upsampling begin and end where they must."""
    axis = tracks.axis[track]
    if not net.even[k] or axis < H or net.window[k, axis - H, 0] != REPEATED:
        return True
    factor, size = net.window[k, axis - H, 1], net.size[k, axis]
    for part in range(tracks.parts[track]):
        start = tracks.start[track, slot, part]
        end = start + tracks.length[track, slot, part]
        if start % factor or (end % factor and end != size):
            return False
    return True


@step
def extend(net: Network, tracks: Tracks, slots: Slots, k: int, b: int) -> None:
    """Take operator k = a - 1 into the group [a, b)."""
    own = _meet(slots, k)
    for track in range(len(tracks.parts)):
        if tracks.bad[track]:
            continue
        axis, parts = tracks.axis[track], tracks.parts[track]
        if net.last[k] >= b:
            _deal(tracks, track, own, net.size[k, axis])
        _summed(tracks, track, own)
        if parts > 1 and not (net.cuttable[k, axis] or tracks.constant[track, own]):
            tracks.bad[track] = True
        if parts > 1 and not _even(net, tracks, track, k, own):
            tracks.bad[track] = True
    for edge in range(net.edge[k], net.edge[k + 1]):
        tensor = net.read[edge]
        slot = _meet(slots, tensor)
        slots.first[slot] = k
        slots.last[slot] = max(slots.last[slot], k)
        for track in range(len(tracks.parts)):
            if tracks.bad[track]:
                continue
            axis = tracks.axis[track]
            for part in range(tracks.parts[track]):
                start, length = tracks.start[track, own, part], tracks.length[track, own, part]
                first, count = _reads(net, k, edge, axis, start, length, net.size[tensor, axis])
                _cover(tracks, track, slot, part, first, count)
            _summed(tracks, track, slot)


@step
def clear(tracks: Tracks, slots: Slots) -> None:
    """Forget a group."""
    for slot in range(slots.met[0]):
        slots.of[slots.tensor[slot]] = -1
        for track in range(len(tracks.parts)):
            for part in range(tracks.parts[track]):
                tracks.length[track, slot, part] = 0
    for track in range(len(tracks.parts)):
        tracks.bad[track] = False
    slots.met[0] = 0


# ---------------------------------------------------------------------- rows


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
    group: tuple[int, int],
    k: int,
    last: int,
    turn: tuple[int, bool],
) -> bool:
    """Whether operator k may write over its first input, as :func:`.lmem.in_place`; sizes apart.

    Parameters
    ----------
    group : (int, int)
        The operators [a, b).
    last : int
        The row, counted like operators, in which what it writes is used last.
    turn : (int, bool)
        The period, and whether there are several slices.
    """
    if not net.in_place[k] or net.edge[k] == net.edge[k + 1]:
        return False
    (a, b), (period, several) = group, turn
    tensor = net.read[net.edge[k]]
    old = slots.of[tensor]
    if a <= tensor < b:
        born, stays = tensor, net.last[tensor] >= b
    else:
        born, stays = slots.first[old] - 1, several and _constant(tracks, cut, old)
    return not stays and slots.last[old] == k and (period == 0 or last - born < period)


@step
def price(
    net: Network,
    machine: Machine,
    tracks: Tracks,
    slots: Slots,
    rows: Rows,
    cut: Array,
    a: int,
    b: int,
) -> tuple[int, int]:
    """Return the cycles of the group [a, b) in one cut, and the bytes that a lane must hold.

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
    count = b - a
    slices = tracks.parts[tn] * tracks.parts[tc] * tracks.parts[th] * tracks.parts[tw]
    rounds = ceil(slices, machine.cores)
    period = count if rounds > 1 else 0
    _empty(rows, count)
    always = 0
    for k in range(a, b):
        own = slots.of[k]
        n, c = tracks.longest[tn, own], tracks.longest[tc, own]
        h, w = tracks.longest[th, own], tracks.longest[tw, own]
        d, at = net.size[k, D], count + k - a
        rows.compute[k - a] = compute(net, machine, k, n, c, d, h, w)
        nbytes = lane_bytes(machine, n, c, d, h * w * net.width[k])
        last = at if slots.last[own] < 0 else count + slots.last[own] - a
        if net.last[k] >= b:
            last = max(last, at + 1)
            whole = ceil(net.size[k, N], tracks.parts[tn]) * ceil(net.size[k, C], tracks.parts[tc])
            whole *= ceil(net.size[k, H], tracks.parts[th]) * ceil(net.size[k, W], tracks.parts[tw])
            whole *= d
            cycles = moved(whole * net.width[k], machine.store_latency, machine.store)
            _place(rows, count, at + 1, cycles, False)
        always += _live(rows, period, at, last, nbytes)
        if net.buffer[k] > 0:
            share = ceil(net.buffer[k] * (n * c * d * h * w), _values(net, k))
            always += _live(rows, period, at, at, lane_bytes(machine, 1, 1, 1, share))
        if _over(net, tracks, slots, cut, (a, b), k, last - count + a, (period, slices > 1)):
            old = slots.of[net.read[net.edge[k]]]
            if nbytes == _bytes(net, machine, tracks, slots, cut, old):
                always += _live(rows, period, at, at, -nbytes)  # not twice
        for weight in range(net.weight[k], net.weight[k + 1]):
            channels, values = net.weights[weight, 0], net.weights[weight, 1]
            width, given = net.weights[weight, 2], net.weights[weight, 3]
            share = ceil(channels * c, net.size[k, C])
            resident = slices > 1 and tracks.constant[tc, own]
            cycles = moved(share * values * width, machine.load_latency, machine.load)
            _place(rows, count, at - 1, cycles, resident)
            if given < 0:
                nbytes = lane_bytes(machine, 1, share, 1, values * width)
            else:
                lanes = ceil(share, machine.lanes), ceil(channels, machine.lanes)
                nbytes = lane_bytes(machine, 1, 1, 1, ceil(given * lanes[0], lanes[1]))
            if resident and period:
                always += nbytes
            else:
                always += _live(rows, period, at - 1, at, nbytes)
    for slot in range(slots.met[0]):
        tensor = slots.tensor[slot]
        if a <= tensor < b:
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
        first, last = count + slots.first[slot] - a - 1, count + slots.last[slot] - a
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


@compiled
def sweep(
    net: Network,
    machine: Machine,
    tracks: Tracks,
    slots: Slots,
    rows: Rows,
    cuts: Array,
    b: int,
    low: int,
    banned: Array,
    eager: bool,
    cycles: Array,
    chosen: Array,
) -> None:
    """Find the best cut of every group [a, b) with low <= a < b.

    Parameters
    ----------
    cuts : ndarray of int64, shape (cuts, 4)
        Tracks along n, c, h and w, in the order in which they are tried.
    banned : ndarray of bool, shape (b - low, cuts) or (0, 0)
        What is not to be taken, by a - low.
    eager : bool
        Whether the first cut that fits will do; else the quickest.
    cycles, chosen : ndarray of int64, shape (b - low,)
        By a - low, cycles (`NONE`: no cut fits) and the cut: replaced by what is better.
    """
    for a in range(b - 1, low - 1, -1):
        at = a - low
        extend(net, tracks, slots, a, b)
        for which in range(len(cuts)):
            if len(banned) > 0 and banned[at, which]:
                continue
            bad = False
            for track in cuts[which]:
                bad |= tracks.bad[track]
            if bad:
                continue
            found, held = price(net, machine, tracks, slots, rows, cuts[which], a, b)
            if held <= machine.memory and found < cycles[at]:
                cycles[at], chosen[at] = found, which
                if eager:
                    break
    clear(tracks, slots)
