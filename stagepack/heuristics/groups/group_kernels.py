"""Kernels of groups: the cost of sets of operators for every way to cut them, many at once.

Groups grow and shrink as in :mod:`.growth_kernels`, which computes their ranges.  This module
computes their rows, as defined in :mod:`stagepack.instances.groups.timesteps`, by the rule
``nearest``.

Cost and source: see :mod:`.oracle`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stagepack.heuristics.groups.growth_kernels import (
    AXIS,
    BAD,
    COLUMN,
    CONSTANT,
    FIRST,
    LAST,
    LONGEST,
    OPERATORS,
    PARTS,
    SLOTS,
    TENSOR,
    TOTAL,
    WRITTEN,
    Group,
    advance,
    ceil,
    moved,
    stored,
)
from stagepack.heuristics.groups.network_state import (
    ALONE,
    BUFFER,
    CHANNELS,
    END_EDGE,
    END_WEIGHT,
    FIRST_EDGE,
    FIRST_WEIGHT,
    GIVEN,
    GIVEN_BYTES,
    IN_PLACE,
    MATRIX,
    MODEL,
    PER,
    READ,
    TALL,
    TIMES,
    TURNS,
    VALUE_BYTES,
    VALUES,
    WIDE,
    WIDTH,
    C,
    D,
    Machine,
    Network,
    W,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

NONE = np.iinfo(np.int64).max
"""Cycles of what cannot be."""
PRICED = 20
"""Elementary steps of an operator, or of a tensor, where a group is priced."""
SETTLED, CLOSE = 32, 1
"""Elementary steps of a cut where an operator is taken in: it may still be cut so; it may not."""
LOOKED = 8
"""Elementary steps of a cut that is looked at."""
COMPUTE, MOVING, ONCE = 0, 1, 4
"""Columns of rows: cycles of compute, and of transfers of every slice, and with the first alone,
each by stage."""
CYCLES, TRANSFERS, LEAST, KEPT, WIDEST, CLOSED = range(6)
"""Columns of floors, which are what a group takes at least in a cut, and whatever it grows into:
cycles of compute of a slice; of transfers of all slices (of weights, and of what is stored); of the
whole group (of compute of all slices, or of transfers).  Bytes in every lane of resident weights,
and of the operator that takes the most beside them.  Whether the group cannot be cut so."""


@step
def _row_cycles(machine: Machine, compute: int, transfers: int) -> int:
    """Return the cycles of a row."""
    less = min(compute, transfers)
    return max(compute, transfers) + less - machine.overlap[0] * less // machine.overlap[1]


@step
def _lane_bytes(machine: Machine, n: int, c: int, d: int, plane: int) -> int:
    """Return the bytes in every lane of n * c * d planes of so many bytes."""
    # Channels are dealt out to lanes; a lane holds whole planes, each padded.
    return n * d * ceil(c, machine.lanes) * ceil(plane, machine.eu_bytes) * machine.eu_bytes


@step
def _values(net: Network, k: int) -> int:
    """Return how many values operator k writes."""
    found = 1
    for axis in range(W + 1):
        found *= net.tensors[k, axis]
    return found


@step
def compute(net: Network, machine: Machine, k: int, n: int, c: int, d: int, h: int, w: int) -> int:
    """Return the cycles in which operator `k` computes a part of `n`, `c`, `d`, `h`, `w` values."""
    model, turns = net.operators[k, MODEL], int(net.operators[k, TURNS])
    if model == GIVEN:
        return machine.startup + ceil(turns * (n * c * d * h * w), _values(net, k))
    if net.operators[k, TALL] > 0:
        h, w = net.operators[k, TALL], net.operators[k, WIDE]
    planes, values = ceil(c, machine.lanes), h * w
    if model == MATRIX:
        # Rows of matrices, not channels, are dealt out to lanes.
        planes, values = c * ceil(h, machine.lanes), w
    plane = ceil(values * net.operators[k, TIMES], net.operators[k, PER])
    return machine.startup + n * d * planes * turns * plane


class Rows(NamedTuple):
    """Room for the rows of a group."""

    cycles: Array  # int64 (rows, 7): `COMPUTE`, `MOVING` and `ONCE` by stage
    # int64 (3 * rows + 2,): changes of the bytes that are alive, and not any more in the position
    # after: what is stored last goes in the first position of the third stage.
    alive: Array


@step
def _empty(rows: Rows, count: int) -> None:
    """Empty the rows of a group; one by one, which compiles in half the time of slices."""
    for row in range(count):
        for column in range(rows.cycles.shape[1]):
            rows.cycles[row, column] = 0
    for position in range(3 * count + 1):
        rows.alive[position] = 0


@step
def _live(rows: Rows, period: int, first: int, last: int, nbytes: int) -> int:
    """Count bytes that are alive from a position to another; return those alive all the time."""
    if period == 0:
        rows.alive[first] += nbytes
        rows.alive[last + 1] -= nbytes
        return 0
    # Rows come round after a period: what is alive for longer is there several times.
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
def _span(machine: Machine, rows: Rows, count: int, rounds: int) -> int:
    """Return the cycles of a group of so many rows and rounds: fill, kernels, drain.

    Row by row, and stages without a loop: compilers make a lot of inner loops that they can count.
    """
    total = 0
    for row in range(count):
        iteration = 0
        while iteration < rounds + 2:
            # Loads run an iteration ahead of compute, stores one behind: rounds + 2 in all.
            times = max(rounds - 3, 1) if iteration == 3 else 1  # those that are alike at once
            moving = rows.cycles[row, ONCE + iteration] if iteration < 3 else 0
            if iteration < rounds:
                moving += rows.cycles[row, MOVING]
            runs = 1 <= iteration <= rounds
            if runs:
                moving += rows.cycles[row, MOVING + 1]
            if iteration > 1:
                moving += rows.cycles[row, MOVING + 2]
            computing = rows.cycles[row, COMPUTE] if runs else 0
            total += times * _row_cycles(machine, computing, moving)
            iteration += times
    return int(total)


@step
def _place(rows: Rows, count: int, position: int, cycles: int, resident: bool) -> None:
    """Put a transfer at a position."""
    column = position // count + (ONCE if resident else MOVING)
    rows.cycles[position % count, column] += cycles


@step
def _steady(group: Group, track: int, slot: int) -> bool:
    """Whether all slices need the same part of a tensor along a track."""
    return bool(group.slots[slot, group.tracks[track, COLUMN] + CONSTANT] > 0)


@step
def _constant(group: Group, cut: Array, slot: int) -> bool:
    """Whether all slices need the same part of a tensor."""
    return (
        _steady(group, cut[0], slot)
        and _steady(group, cut[1], slot)
        and _steady(group, cut[2], slot)
        and _steady(group, cut[3], slot)
    )


@step
def _longest(group: Group, track: int, slot: int) -> int:
    """Return how much of a tensor a slice needs at most along a track."""
    return int(group.slots[slot, group.tracks[track, COLUMN] + LONGEST])


@step
def _box(group: Group, cut: Array, slot: int) -> tuple[int, int, int, int]:
    """Return how much of a tensor a slice needs at most, along n, c, h and w."""
    return (
        _longest(group, cut[0], slot),
        _longest(group, cut[1], slot),
        _longest(group, cut[2], slot),
        _longest(group, cut[3], slot),
    )


@step
def _slices(group: Group, cut: Array) -> int:
    """Return how many slices there are."""
    many = group.tracks[cut[0], PARTS] * group.tracks[cut[1], PARTS]
    return int(many * group.tracks[cut[2], PARTS] * group.tracks[cut[3], PARTS])


@step
def _first_read(net: Network, group: Group, k: int) -> int:
    """Return the slot of the first input of an operator."""
    return int(group.of[net.edges[net.operators[k, FIRST_EDGE], READ]])


@step
def _bytes(net: Network, machine: Machine, group: Group, cut: Array, slot: int) -> int:
    """Return the bytes in every lane of the part of a tensor that slices need."""
    tensor = group.slots[slot, TENSOR]
    n, c, h, w = _box(group, cut, slot)
    return _lane_bytes(machine, n, c, net.tensors[tensor, D], h * w * net.tensors[tensor, WIDTH])


@step
def _over(
    net: Network,
    group: Group,
    cut: Array,
    age: int,
    last: int,
    turn: tuple[int, bool],
) -> bool:
    """Whether an operator may write over its first input, as :func:`.lmem.in_place`; sizes apart.

    It has an `age`, and what it writes is used last in position `last`.  `turn` is the period, and
    whether there are several slices.
    """
    k = group.member[age]
    if not net.operators[k, IN_PLACE] or net.operators[k, FIRST_EDGE] == net.operators[k, END_EDGE]:
        return False
    period, several = turn
    old, latest = _first_read(net, group, k), 2 * group.met[OPERATORS] - 1
    if group.slots[old, WRITTEN] >= 0:
        born, stays = latest - group.slots[old, WRITTEN], stored(net, group, old)
    else:
        # A tensor from outside is born where it is loaded; what all slices share must stay.
        born, stays = latest - group.slots[old, FIRST] - 1, several and _constant(group, cut, old)
    return not stays and group.slots[old, LAST] == age and (period == 0 or last - born < period)


@step
def _loaded(net: Network, machine: Machine, weight: int, c: int, size: int) -> tuple[int, int]:
    """Return cycles and bytes in every lane of the share of a weight for c of `size` channels."""
    channels, values = net.weights[weight, CHANNELS], net.weights[weight, VALUES]
    width, given = net.weights[weight, VALUE_BYTES], net.weights[weight, GIVEN_BYTES]
    share = ceil(channels * c, size)
    cycles = moved(share * values * width, machine.load_latency, machine.load)
    if given < 0:
        return cycles, _lane_bytes(machine, 1, share, 1, values * width)
    # The bytes that are given are of all channels: a share has its part, by lanes.
    lanes = ceil(share, machine.lanes), ceil(channels, machine.lanes)
    return cycles, _lane_bytes(machine, 1, 1, 1, ceil(given * lanes[0], lanes[1]))


@step
def _share(net: Network, group: Group, track: int, k: int) -> int:
    """Return how much of what operator k writes a slice stores at most along a track."""
    return ceil(net.tensors[k, group.tracks[track, AXIS]], group.tracks[track, PARTS])


@step
def _written(net: Network, machine: Machine, group: Group, cut: Array, k: int) -> int:
    """Return the cycles in which a slice stores what operator k writes."""
    nbytes = net.tensors[k, D] * net.tensors[k, WIDTH]
    nbytes *= _share(net, group, cut[0], k) * _share(net, group, cut[1], k)
    nbytes *= _share(net, group, cut[2], k) * _share(net, group, cut[3], k)
    return moved(nbytes, machine.store_latency, machine.store)


@step
def _again(net: Network, machine: Machine, group: Group, track: int, slot: int) -> bool:
    """Whether slices read more of a tensor again along a track than the limit allows."""
    size = net.tensors[group.slots[slot, TENSOR], group.tracks[track, AXIS]]
    more = group.slots[slot, group.tracks[track, COLUMN] + TOTAL] - size
    over = more * machine.limit[1] > machine.limit[0] * size
    return bool(machine.limit[0] >= 0 and over and not _steady(group, track, slot))


@step
def _brought(net: Network, machine: Machine, group: Group, cut: Array, slot: int) -> int:
    """Return the cycles in which a slice loads its part of a tensor."""
    tensor = group.slots[slot, TENSOR]
    n, c, h, w = _box(group, cut, slot)
    nbytes = n * c * net.tensors[tensor, D] * h * w * net.tensors[tensor, WIDTH]
    return moved(nbytes, machine.load_latency, machine.load)


@step
def _work(
    net: Network, machine: Machine, group: Group, cut: Array, slot: int
) -> tuple[int, int, int]:
    """Return cycles of compute of the operator that writes a slot, bytes of it and of its buffer.

    Bytes in every lane.
    """
    k = group.slots[slot, TENSOR]
    (n, c, h, w), d = _box(group, cut, slot), net.tensors[k, D]
    cycles = compute(net, machine, k, n, c, d, h, w)
    own = _lane_bytes(machine, n, c, d, h * w * net.tensors[k, WIDTH])
    if net.operators[k, BUFFER] == 0:
        return cycles, own, 0
    # Working bytes are given for the whole of what it writes.
    share = ceil(net.operators[k, BUFFER] * (n * c * d * h * w), _values(net, k))
    return cycles, own, _lane_bytes(machine, 1, 1, 1, share)


@step
def price(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    cut: Array,
) -> tuple[int, int]:
    """Return the cycles of the group in one cut, and the bytes that a lane must hold.

    They are `NONE` cycles where slices read more again than the limit allows.  `cut`, int64 (4,),
    is its tracks along n, c, h and w; `rows` are overwritten.
    """
    count, slices = group.met[OPERATORS], _slices(group, cut)
    rounds = ceil(slices, machine.cores)
    period = count if rounds > 1 else 0
    _empty(rows, count)
    always = 0
    # Operators with what they write and their weights: positions are stage * count + row,
    # loads in the first stage, compute in the second, stores in the third.
    for age in range(count):
        k = group.member[age]
        own, row = group.of[k], count - 1 - age
        at = count + row
        rows.cycles[row, COMPUTE], nbytes, working = _work(net, machine, group, cut, own)
        # The age of the last reader, as a position; nobody in the group: its own.
        last = at if group.slots[own, LAST] < 0 else 2 * count - 1 - group.slots[own, LAST]
        if stored(net, group, own):
            # What is stored is alive until the row after.
            last = max(last, at + 1)
            _place(rows, count, at + 1, _written(net, machine, group, cut, k), False)
        always += _live(rows, period, at, last, nbytes)
        over = _over(net, group, cut, age, last, (period, slices > 1))
        if over and nbytes == _bytes(net, machine, group, cut, _first_read(net, group, k)):
            working -= nbytes  # not twice
        always += _live(rows, period, at, at, working)
        for weight in range(net.operators[k, FIRST_WEIGHT], net.operators[k, END_WEIGHT]):
            resident = slices > 1 and _steady(group, cut[1], own)
            channels = _longest(group, cut[1], own)
            cycles, nbytes = _loaded(net, machine, weight, channels, net.tensors[k, C])
            _place(rows, count, at - 1, cycles, resident)
            # It stays for all slices: no row of its own.
            if resident and period:
                always += nbytes
            else:
                always += _live(rows, period, at - 1, at, nbytes)
    for slot in range(group.met[SLOTS]):
        if group.slots[slot, WRITTEN] >= 0:
            continue
        if _again(net, machine, group, cut[2], slot) or _again(net, machine, group, cut[3], slot):
            return NONE, 0
        resident = slices > 1 and _constant(group, cut, slot)
        first = 2 * count - 2 - group.slots[slot, FIRST]
        _place(rows, count, first, _brought(net, machine, group, cut, slot), resident)
        nbytes = _bytes(net, machine, group, cut, slot)
        if resident and period:
            always += nbytes
        else:
            always += _live(rows, period, first, 2 * count - 1 - group.slots[slot, LAST], nbytes)
    # Changes add up to what is alive; slices that overlap are there at the same time.
    peak, alive = 0, 0
    for row in range(period if period else 3 * count):
        alive += rows.alive[row]
        peak = max(peak, alive)
    return _span(machine, rows, count, rounds), peak + always


@step
def _bad(group: Group, cut: Array) -> bool:
    """Whether the group cannot be cut so."""
    return bool(
        group.tracks[cut[0], BAD]
        or group.tracks[cut[1], BAD]
        or group.tracks[cut[2], BAD]
        or group.tracks[cut[3], BAD]
    )


@step
def _settle(net: Network, machine: Machine, group: Group, floors: Array, cuts: Array) -> int:
    """Find out what the group takes at least; that of the operators before the last is known.

    Returns elementary steps.
    """
    done = 0
    age = group.met[OPERATORS] - 1
    k, level = group.member[age], age if len(floors) > 1 else 0
    own, before = group.of[k], max(level - 1, 0)
    for which in range(len(cuts)):
        cut = cuts[which]
        # What operators before it took is of the level before: it grows by one operator.
        cycles, moving, kept, widest = 0, 0, 0, 0
        closed = _bad(group, cut)
        if age > 0:
            cycles, moving = floors[before, which, CYCLES], floors[before, which, TRANSFERS]
            kept, widest = floors[before, which, KEPT], floors[before, which, WIDEST]
            closed |= floors[before, which, CLOSED] > 0
        done += CLOSE if closed else SETTLED
        if not closed:
            slices = _slices(group, cut)
            rounds = ceil(slices, machine.cores)
            work, width, _ = _work(net, machine, group, cut, own)
            cycles += work
            if stored(net, group, own):
                moving += rounds * _written(net, machine, group, cut, k)
            resident = slices > 1 and _steady(group, cut[1], own)
            channels = _longest(group, cut[1], own)
            for weight in range(net.operators[k, FIRST_WEIGHT], net.operators[k, END_WEIGHT]):
                loading, nbytes = _loaded(net, machine, weight, channels, net.tensors[k, C])
                moving += loading if resident else rounds * loading
                if resident and rounds > 1:
                    kept += nbytes
                else:
                    width += nbytes
            widest = max(widest, width)
            # Neither gets less as the group grows: so cut it never fits again.
            closed = kept + widest > machine.memory
            floors[level, which, LEAST] = max(rounds * cycles, moving)
        floors[level, which, CYCLES], floors[level, which, TRANSFERS] = cycles, moving
        floors[level, which, KEPT], floors[level, which, WIDEST] = kept, widest
        floors[level, which, CLOSED] = closed
    return done


def _steps(*given: Any) -> int:
    """Return the most steps of :func:`sweep`: its last argument."""
    return int(given[-1])


@tiered(_steps)
def sweep(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    floors: Array,
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

    Return the elementary steps; after about `most` of them it is to be called again, until all
    groups are done.  The group is empty at first, then as the call before left it; `rows` are
    overwritten.

    Parameters
    ----------
    floors : ndarray of int64, shape (rows or 1, cuts, 6)
        Room for `CYCLES`, ...
    cuts, first : ndarray of int64, shape (cuts, 4), and int
        Tracks along n, c, h and w, in the order in which they are tried; the number of the first.
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
    """
    done = 0
    while place[0] < len(steps) and done < most:
        at, which = place[0], place[1]
        operator, age = steps[at, 0], steps[at, 1]
        level = age if len(floors) > 1 else 0
        # It holds one that fits in no cut: neither does this one.
        if which < 0 and 0 <= place[2] < age:
            place[0] += 1
            done += 1
        elif which < 0:
            place[2] = -1
            taken, entered = advance(net, group, operator, age, steps[at, 2] > 0)
            done += taken
            if entered:
                done += _settle(net, machine, group, floors, cuts)
                # Where none is asked for, or a cut is known and will do, all cuts count as tried.
                asked = steps[at, 3] and not net.operators[operator, ALONE]
                place[1] = 0 if asked and not (eager and chosen[at] >= 0) else len(cuts)
        elif which == len(cuts):
            # Unless some cut is open, whatever this group grows into fits in none.
            place[0], place[1], place[2] = at + 1, -1, age
            for other in range(len(cuts)):
                done += LOOKED
                if not floors[level, other, CLOSED]:
                    place[2] = -1
                    break
        else:
            place[1] += 1
            done += LOOKED
            if floors[level, which, CLOSED] or (len(banned) > 0 and banned[at, first + which]):
                continue
            # It takes at least as long as the best so far: its price does not matter.
            if floors[level, which, LEAST] >= cycles[at]:
                continue
            done += PRICED * (group.met[OPERATORS] + group.met[SLOTS])
            found, held = price(net, machine, group, rows, cuts[which])
            if held <= machine.memory and found < cycles[at]:
                cycles[at], chosen[at] = found, first + which
                if eager:
                    place[1] = len(cuts)
            if held > machine.memory and first + which == 0:
                floors[level, which, CLOSED] = 1  # one slice: nothing is ever alive for shorter
    return done
