"""Kernels of groups: operators that are taken in and let go, and the ranges that slices read.

A group is grown from its last operator on, readers before what they read: the ranges that slices
read of a tensor are final once the operator that writes it is reached.  It may shrink again, to
grow another way.  The *age* of an operator says how many of the group run after it.  A *track* is
an axis and a number of parts; a way to cut is one track on each of n, c, h, w.  Tensors get *slots*
as they are met.  All as defined in :mod:`stagepack.instances.groups.regions`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.groups.network_state import REPEATED, TRANSPOSED, WINDOW, Network
from stagepack.instances.compiled import step
from stagepack.instances.profile import Array

H = 3
"""The first axis with windows: n, c, d, h, w."""


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
    """The operators and tensors of a group.

    Attributes
    ----------
    member : ndarray of int64, shape (rows,)
        Its operators, by age.
    of : ndarray of int64, shape (tensors,)
        The slot of a tensor; -1: not met.
    met : ndarray of int64, shape (3,)
        How many operators there are, how many slots, and how many entries of :class:`Past`.
    tensor, readers : ndarray of int64, shape (slots,)
        Which tensor it is, and how many operators of the group read it.
    written : ndarray of int64, shape (slots,)
        Age of the operator that writes it; -1: it comes from outside.
    first, last : ndarray of int64, shape (slots,)
        Ages of the first and the last operator that reads it; -1 where none does.
    """

    member: Array
    of: Array
    met: Array
    tensor: Array
    readers: Array
    written: Array
    first: Array
    last: Array


class Past(NamedTuple):
    """What was known of slots before operators were taken in, to go back to.

    Attributes
    ----------
    entries, met : ndarray of int64, shape (rows,)
        By age, how many entries and slots there were before.
    bad : ndarray of bool, shape (rows, tracks)
    slot : ndarray of int64, shape (entries, 5)
        Which, and its readers, written, first and last.
    ranges : ndarray of int64, shape (entries, tracks, 2, most parts)
        Starts and lengths.
    sums : ndarray of int64, shape (entries, tracks, 2)
        The longest range, and the sum of all.
    constant : ndarray of bool, shape (entries, tracks)
    """

    entries: Array
    met: Array
    bad: Array
    slot: Array
    ranges: Array
    sums: Array
    constant: Array


@step
def ceil(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


@step
def _meet(tracks: Tracks, slots: Slots, tensor: int) -> int:
    """Return the slot of a tensor, a new one where it was not met."""
    slot = int(slots.of[tensor])
    if slot < 0:
        slot = int(slots.met[1])
        slots.met[1] += 1
        slots.of[tensor], slots.tensor[slot], slots.readers[slot] = slot, tensor, 0
        slots.written[slot], slots.first[slot], slots.last[slot] = -1, -1, -1
        for track in range(len(tracks.parts)):
            for part in range(0 if tracks.bad[track] else tracks.parts[track]):
                tracks.length[track, slot, part] = 0
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
def reads(
    net: Network, k: int, edge: int, axis: int, start: int, length: int, size: int
) -> tuple[int, int]:
    """Return the range of an input that an operator reads, as :func:`.operators.reads`.

    Parameters
    ----------
    net : Network
    k : int
        The operator.
    edge : int
        Which of its inputs, among those of all operators.
    axis : int
    start, length : int
        The range of what it writes.
    size : int
        Of the input.
    """
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
def stored(net: Network, slots: Slots, slot: int) -> bool:
    """Whether others than the group read what an operator of it writes."""
    return bool(slots.readers[slot] < net.readers[slots.tensor[slot]])


@step
def extend(net: Network, tracks: Tracks, slots: Slots, k: int) -> None:
    """Take operator k into the group, before all others; those of it that read it are there."""
    age = slots.met[0]
    slots.met[0] += 1
    own = _meet(tracks, slots, k)
    slots.member[age], slots.written[own] = k, age
    for track in range(len(tracks.parts)):
        if tracks.bad[track]:
            continue
        axis, parts = tracks.axis[track], tracks.parts[track]
        if stored(net, slots, own):
            _deal(tracks, track, own, net.size[k, axis])
        _summed(tracks, track, own)
        if parts > 1 and not (net.cuttable[k, axis] or tracks.constant[track, own]):
            tracks.bad[track] = True
        if parts > 1 and not _even(net, tracks, track, k, own):
            tracks.bad[track] = True
    for edge in range(net.edge[k], net.edge[k + 1]):
        tensor = net.read[edge]
        slot = _meet(tracks, slots, tensor)
        if slots.first[slot] != age:
            slots.readers[slot] += 1
            slots.first[slot] = age
        if slots.last[slot] < 0:
            slots.last[slot] = age
        for track in range(len(tracks.parts)):
            if tracks.bad[track]:
                continue
            axis = tracks.axis[track]
            for part in range(tracks.parts[track]):
                start, length = tracks.start[track, own, part], tracks.length[track, own, part]
                first, count = reads(net, k, edge, axis, start, length, net.size[tensor, axis])
                _cover(tracks, track, slot, part, first, count)
            _summed(tracks, track, slot)


@step
def remember(net: Network, tracks: Tracks, slots: Slots, past: Past, k: int) -> None:
    """Note what :func:`extend` by operator k will change."""
    age = slots.met[0]
    past.met[age], past.entries[age] = slots.met[1], slots.met[2]
    for track in range(len(tracks.parts)):
        past.bad[age, track] = tracks.bad[track]
    for edge in range(net.edge[k] - 1, net.edge[k + 1]):
        slot = slots.of[k if edge < net.edge[k] else net.read[edge]]
        if slot < 0:
            continue
        entry = slots.met[2]
        slots.met[2] += 1
        past.slot[entry, 0], past.slot[entry, 1] = slot, slots.readers[slot]
        past.slot[entry, 2] = slots.written[slot]
        past.slot[entry, 3], past.slot[entry, 4] = slots.first[slot], slots.last[slot]
        for track in range(len(tracks.parts)):
            if tracks.bad[track]:
                continue
            past.sums[entry, track, 0] = tracks.longest[track, slot]
            past.sums[entry, track, 1] = tracks.total[track, slot]
            past.constant[entry, track] = tracks.constant[track, slot]
            for part in range(tracks.parts[track]):
                past.ranges[entry, track, 0, part] = tracks.start[track, slot, part]
                past.ranges[entry, track, 1, part] = tracks.length[track, slot, part]


@step
def retract(tracks: Tracks, slots: Slots, past: Past) -> None:
    """Let the operator go that was taken in last, as was remembered."""
    slots.met[0] -= 1
    age = slots.met[0]
    for slot in range(past.met[age], slots.met[1]):
        slots.of[slots.tensor[slot]] = -1
    slots.met[1] = past.met[age]
    for track in range(len(tracks.parts)):
        tracks.bad[track] = past.bad[age, track]
    while slots.met[2] > past.entries[age]:
        slots.met[2] -= 1
        entry = slots.met[2]
        slot = past.slot[entry, 0]
        slots.readers[slot], slots.written[slot] = past.slot[entry, 1], past.slot[entry, 2]
        slots.first[slot], slots.last[slot] = past.slot[entry, 3], past.slot[entry, 4]
        for track in range(len(tracks.parts)):
            if tracks.bad[track]:
                continue
            tracks.longest[track, slot] = past.sums[entry, track, 0]
            tracks.total[track, slot] = past.sums[entry, track, 1]
            tracks.constant[track, slot] = past.constant[entry, track]
            for part in range(tracks.parts[track]):
                tracks.start[track, slot, part] = past.ranges[entry, track, 0, part]
                tracks.length[track, slot, part] = past.ranges[entry, track, 1, part]


@step
def clear(tracks: Tracks, slots: Slots) -> None:
    """Forget a group."""
    for slot in range(slots.met[1]):
        slots.of[slots.tensor[slot]] = -1
    for track in range(len(tracks.parts)):
        tracks.bad[track] = False
    slots.met[0], slots.met[1], slots.met[2] = 0, 0, 0
