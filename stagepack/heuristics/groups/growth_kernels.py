"""Kernels of groups: adding and removing operators, and the ranges that slices read.

A group grows from its last operator, readers before what they read.  The ranges that slices read of
a tensor are then final when the operator that writes it is added.  A group may shrink again, to
grow in another way.  The *age* of an operator is the number of operators of the group that run
after it.  A *track* is an axis with a number of parts; a cut consists of one track on each of n, c,
h, w.  Tensors get *slots* in the order in which they appear: rows of a single table, which is fast
to copy and to compile.  Definitions are in :mod:`stagepack.instances.groups.regions`.

Cost and source: see :mod:`.oracle`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.groups.network_state import (
    BEFORE,
    CUTTABLE,
    END_EDGE,
    EVEN,
    FIRST_EDGE,
    KERNEL,
    LINEAR,
    READ,
    READERS,
    REPEATED,
    STRIDE,
    TRANSPOSED,
    WAY,
    WINDOW,
    WINDOW_COLUMNS,
    H,
    Network,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step

RANGE = 4
"""Elementary steps of a range that is read and written; to note it takes another."""
AXIS, PARTS, BAD, COLUMN = range(4)
"""Columns of tracks: whether the group cannot be cut so, and where slots tell of the track."""
TENSOR, READ_BY, WRITTEN, FIRST, LAST, SLOT_COLUMNS = range(6)
"""Columns of slots: which tensor it is; how many operators of the group read it; the age of that
which writes it (-1: it comes from outside); the ages of the first and of the last that reads it (-1
where none does).  The columns of tracks follow."""
LONGEST, TOTAL, CONSTANT, START, LENGTH = range(5)
"""Columns of a track: the longest range, the sum of all, whether all are the same; every range."""
STRIDE_OF_RANGES = 2
OPERATORS, SLOTS, ENTRIES, KNOWN = range(4)
"""What is counted of a group; of tracks it is known behind whether they are bad."""


def columns(parts: int) -> int:
    """Return how many columns a track has."""
    return START + STRIDE_OF_RANGES * parts


class Group(NamedTuple):
    """The operators of a group, and what is known of its tensors."""

    tracks: Array  # int64 (tracks, 4): `AXIS`, `PARTS`, `BAD`, `COLUMN`
    # int64 (rows,): its operators, by age: as many rows as the largest group asked for has
    # operators.
    member: Array
    of: Array  # int64 (tensors,): the slot of a tensor; -1: not met
    # int64 (3,): how many `OPERATORS` there are, how many `SLOTS`, and how many `ENTRIES` of
    # `past`.
    met: Array
    # int64 (slots, columns): what is known of tensors: an operator meets no more than it reads and
    # its own.
    slots: Array
    # int64 (rows, 3 + tracks): by age of operators, before they were taken in: `SLOTS` and
    # `ENTRIES` that there were, and from `KNOWN` on which tracks were bad.  No rows where nothing
    # is to be remembered.
    before: Array
    # int64 (entries, columns + 1): which slot, and what was known of it before an operator was
    # taken in, to go back to: for each operator of the group no more than it reads and its own.
    past: Array


@step
def ceil(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


@step
def moved(nbytes: int, latency: int, rate: tuple[int, int]) -> int:
    """Return the cycles of a transfer of `nbytes`.

    There are `latency` cycles before the first byte; `rate` is bytes, and the cycles in which so
    many are moved.
    """
    return latency + ceil(nbytes * rate[1], rate[0])


@step
def _meet(group: Group, tensor: int) -> int:
    """Return the slot of a tensor, a new one where it was not met."""
    slot = int(group.of[tensor])
    if slot < 0:
        slot = int(group.met[SLOTS])
        group.met[SLOTS] += 1
        group.of[tensor] = slot
        # Ages are -1 where there is none yet, all else is 0: one loop compiles faster than slices.
        for column in range(group.slots.shape[1]):
            group.slots[slot, column] = -1 if WRITTEN <= column <= LAST else 0
        group.slots[slot, TENSOR] = tensor
    return slot


@step
def _cover(slots: Array, slot: int, column: int, start: int, length: int) -> None:
    """Let the range in a column and the next cover one more; a length of 0 is nothing yet."""
    known = slots[slot, column + 1]
    # The hull of both: readers need one range each, and slices load what lies between, too.
    if known > 0:
        end = max(slots[slot, column] + known, start + length)
        start = min(start, slots[slot, column])
        length = end - start
    slots[slot, column], slots[slot, column + 1] = start, length


@step
def _summed(slots: Array, slot: int, column: int, parts: int) -> None:
    """Find out what the ranges of a slot along a track amount to."""
    longest, total, constant = 0, 0, True
    first = column + START
    for at in range(first, first + STRIDE_OF_RANGES * parts, STRIDE_OF_RANGES):
        length = slots[slot, at + 1]
        longest, total = max(longest, length), total + length
        constant &= length == slots[slot, first + 1]
        constant &= slots[slot, at] == slots[slot, first]
    slots[slot, column + LONGEST], slots[slot, column + TOTAL] = longest, total
    slots[slot, column + CONSTANT] = constant


@step
def _deal(slots: Array, slot: int, column: int, parts: int, size: int) -> None:
    """Let the ranges of a slot cover those that are dealt out without overlap."""
    # The first parts get what is left over, one each.
    least, longer, start = size // parts, size % parts, 0
    for part in range(parts):
        length = least + (part < longer)
        _cover(slots, slot, column + START + STRIDE_OF_RANGES * part, start, length)
        start += length


@step
def reads(
    net: Network, k: int, edge: int, axis: int, start: int, length: int, size: int
) -> tuple[int, int]:
    """Return the range of an input that operator `k` reads, as :func:`.operators.reads`.

    `edge` is which of its inputs, among those of all operators, and `size` that of the input;
    `start` and `length` are the range of what it writes, along `axis`.
    """
    # Matrices, norms and what is of size 1 are read whole, whatever part is written.
    if net.edges[edge, axis]:
        return 0, size
    first, end = start, start + length
    if axis >= H:
        column = (axis - H) * WINDOW_COLUMNS
        way, kernel = net.operators[k, column + WAY], net.operators[k, column + KERNEL]
        stride, before = net.operators[k, column + STRIDE], net.operators[k, column + BEFORE]
        if way == WINDOW:
            # Rows of a window, which may lie in the padding: that is cut off below.
            first = start * stride - before
            end = first + (length - 1) * stride + max(kernel, stride)
        elif way == TRANSPOSED:
            # The rows of which some window reaches [start, start + length).
            first = ceil(start - before, stride)
            end = (start + length + kernel - 2 - before) // stride + 1
        elif way == REPEATED:
            first, end = start // kernel, (start + length - 1) // kernel + 1
        elif way >= LINEAR:
            # Stride is the unit of the grid here, kernel its step, before its shift.
            around, behind = way - LINEAR, start + length
            first = (start * kernel + before) // stride - around
            end = ceil((behind - 1) * kernel + before, stride) + around + 1
            # Where the next part begins on a row, this one must reach as far as that: as the rule.
            if behind < net.tensors[k, axis]:
                end = max(end, (behind * kernel + before) // stride - around)
    # At least one row, within the tensor.
    first = min(max(first, 0), size - 1)
    return first, max(min(end, size) - first, 1)


@step
def _even(
    net: Network, k: int, axis: int, slots: Array, slot: int, column: int, parts: int
) -> bool:
    """Whether the ranges of an upsampling begin and end where they must."""
    window = (axis - H) * WINDOW_COLUMNS
    if net.operators[k, EVEN] == 0 or axis < H or net.operators[k, window + WAY] != REPEATED:
        return True
    factor, size = net.operators[k, window + KERNEL], net.tensors[k, axis]
    for part in range(parts):
        at = column + START + STRIDE_OF_RANGES * part
        start, end = slots[slot, at], slots[slot, at] + slots[slot, at + 1]
        if start % factor or (end % factor and end != size):
            return False
    return True


@step
def stored(net: Network, group: Group, slot: int) -> bool:
    """Whether others than the group read what an operator of it writes, the tensor of a `slot`."""
    tensor = group.slots[slot, TENSOR]
    return bool(group.slots[slot, READ_BY] < net.tensors[tensor, READERS])


@step
def _write(net: Network, group: Group, k: int, own: int) -> None:
    """Settle the ranges of what operator k writes, and the tracks along which it cannot be cut."""
    slots, stays = group.slots, stored(net, group, own)
    for track in range(len(group.tracks)):
        axis, parts, bad, column = group.tracks[track]
        if bad:
            continue
        size = net.tensors[k, axis]
        # What others read is stored, every value once: shares that do not overlap.
        if stays and size >= parts:
            _deal(slots, own, column, parts, size)
        _summed(slots, own, column, parts)
        if (
            # Too few values to deal out; parts of unlike lengths where they must be alike; or parts
            # of an upsampling that begin between its rows.
            (stays and size < parts)
            or (
                parts > 1
                and not net.operators[k, CUTTABLE + axis]
                and not slots[own, column + CONSTANT]
            )
            or (parts > 1 and not _even(net, k, axis, slots, own, column, parts))
        ):
            group.tracks[track, BAD] = True


@step
def _remember(net: Network, group: Group, k: int) -> None:
    """Note what to take in operator k will change."""
    age = group.met[OPERATORS]
    group.before[age, SLOTS], group.before[age, ENTRIES] = group.met[SLOTS], group.met[ENTRIES]
    for track in range(len(group.tracks)):
        group.before[age, KNOWN + track] = group.tracks[track, BAD]
    begin = net.operators[k, FIRST_EDGE]
    # First what it writes, then what it reads: all that changes.
    for edge in range(begin - 1, net.operators[k, END_EDGE]):
        slot = group.of[k if edge < begin else net.edges[edge, READ]]
        if slot >= 0:
            entry = group.met[ENTRIES]
            group.met[ENTRIES] += 1
            group.past[entry, 0] = slot
            for column in range(group.slots.shape[1]):
                group.past[entry, column + 1] = group.slots[slot, column]


@step
def extend(net: Network, group: Group, k: int, remembered: bool) -> int:
    """Take operator `k` into the group, before all others; those of it that read it are there.

    Return the elementary steps, of tensors that are met, read and noted.  With `remembered` it is
    noted what changes, for :func:`retract`.
    """
    if remembered:
        _remember(net, group, k)
    slots, age = group.slots, group.met[OPERATORS]
    group.met[OPERATORS] += 1
    own = _meet(group, k)
    group.member[age], slots[own, WRITTEN] = k, age
    _write(net, group, k, own)
    for edge in range(net.operators[k, FIRST_EDGE], net.operators[k, END_EDGE]):
        tensor = net.edges[edge, READ]
        slot = _meet(group, tensor)
        # An operator may read a tensor twice, and counts once.
        if slots[slot, FIRST] != age:
            slots[slot, READ_BY] += 1
            slots[slot, FIRST] = age
        # Ages rise from the end: the first that was met is the last that runs.
        if slots[slot, LAST] < 0:
            slots[slot, LAST] = age
        for track in range(len(group.tracks)):
            axis, parts, bad, column = group.tracks[track]
            if bad:
                continue
            for part in range(parts):
                at = column + START + STRIDE_OF_RANGES * part
                start, length = slots[own, at], slots[own, at + 1]
                first, count = reads(net, k, edge, axis, start, length, net.tensors[tensor, axis])
                _cover(slots, slot, at, first, count)
            _summed(slots, slot, column, parts)
    edges = net.operators[k, END_EDGE] - net.operators[k, FIRST_EDGE] + 1
    # An upper estimate: columns that count take part, too.
    ranges = slots.shape[1] // STRIDE_OF_RANGES
    return int((RANGE + remembered) * edges * ranges)


@step
def retract(group: Group) -> None:
    """Let the operator go that was taken in last, as was remembered."""
    group.met[OPERATORS] -= 1
    age = group.met[OPERATORS]
    # Tensors that were met with it are unknown again.
    for slot in range(group.before[age, SLOTS], group.met[SLOTS]):
        group.of[group.slots[slot, TENSOR]] = -1
    group.met[SLOTS] = group.before[age, SLOTS]
    for track in range(len(group.tracks)):
        group.tracks[track, BAD] = group.before[age, KNOWN + track]
    # Backwards: a slot that was noted twice ends as it was first.
    for entry in range(group.met[ENTRIES] - 1, group.before[age, ENTRIES] - 1, -1):
        slot = group.past[entry, 0]
        for column in range(group.slots.shape[1]):
            group.slots[slot, column] = group.past[entry, column + 1]
    group.met[ENTRIES] = group.before[age, ENTRIES]


@step
def clear(group: Group) -> None:
    """Forget a group."""
    for slot in range(group.met[SLOTS]):
        group.of[group.slots[slot, TENSOR]] = -1
    for track in range(len(group.tracks)):
        group.tracks[track, BAD] = False
    for count in range(ENTRIES + 1):
        group.met[count] = 0


@step
def advance(net: Network, group: Group, k: int, age: int, remembered: bool) -> tuple[int, bool]:
    """Go a step towards the group that operator `k` completes; those before it are in.

    Return elementary steps, and whether the operator is in, too.  A step at a time, so that kernels
    can return in between.  `age` is how many of the group come after it; `remembered` is as for
    :func:`extend`.
    """
    if age == 0 and group.met[OPERATORS] > 0:
        known = int(group.met[SLOTS])
        clear(group)
        return known, False
    if group.met[OPERATORS] > age:
        retract(group)
        return KNOWN * len(group.tracks), False
    return extend(net, group, k, remembered), True
