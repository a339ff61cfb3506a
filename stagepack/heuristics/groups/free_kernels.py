"""Kernels of lower bounds on groups with free loads and stores, for many groups and all their cuts.

The bounds hold for all timesteps, spills and addresses of a group of T rows that is cut into L
slices per core.  Iterations run one after the other.  In those that compute, row r takes at least
its compute c_r, and at least its transfers.  With several slices the cycles are at least

    the first two    sum of c_r + what of the first slice's loads cannot hide beside compute
    the last two     sum of c_r + what of the last slice's stores cannot
    L - 2 others     sum of c_r + what of all that moves with every slice cannot

and a single slice is like the first two and the last two with one compute between them.  The part
that cannot hide is the largest of these three bounds:

    ahead     the loads that operator k and those before it need can hide only in the rows before
              k, and stores only in later rows
    whole     transfers are not divided: the j longest are in at most j rows, so that at most the
              j longest computes hide them
    near      if memory is short, loads cannot be far ahead of their use, see :func:`_windows`

The bytes counted are those that are alive whatever is spilled: the inputs and outputs of an
operator, the inputs in the row before, the outputs in the row after, and resident bytes.

Cost and source: see :mod:`.free`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stagepack.heuristics.groups.group_kernels import (
    COMPUTE,
    MOVING,
    NONE,
    Rows,
    _again,
    _bad,
    _brought,
    _bytes,
    _constant,
    _empty,
    _first_read,
    _live,
    _loaded,
    _longest,
    _slices,
    _steady,
    _work,
    _written,
)
from stagepack.heuristics.groups.growth_kernels import (
    LAST,
    OPERATORS,
    SLOTS,
    WRITTEN,
    Group,
    advance,
    ceil,
    stored,
)
from stagepack.heuristics.groups.network_state import (
    ALONE,
    END_EDGE,
    END_WEIGHT,
    FIRST_EDGE,
    FIRST_WEIGHT,
    IN_PLACE,
    READ,
    C,
    Machine,
    Network,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

PRICED = 12
"""Elementary steps of an operator, or of a tensor, where a bound is found."""
FAR = 2**61
FINE = 2**10
"""Parts of a cycle that prices of a byte are in."""


class Falling(NamedTuple):
    """Room for what is known of a group."""

    rows: Array  # int64 (rows,): compute, the longest first
    # int64 (moves,): transfers of one kind, and of both, the longest first.  A group loads each
    # weight and each tensor once at most, and stores each tensor once at most.
    moves: Array
    every: Array
    head: Array  # int64 (rows,): what cannot hide of the loads that operators up to each row need
    # int64 (tensors,): the last position in which a tensor is known to be alive, by slot; -1: none.
    known: Array
    # int64 (3, moves): of every load the position that needs it first, rising, cycles, and bytes;
    # -1: it stays.
    loads: Array
    free: Array  # int64 (rows,): bytes in a row beside those that are alive in any case
    # int64 (prices, rows): see :func:`_windows`: the price of what a row needs first, and of what
    # is free in it.
    late: Array
    paid: Array
    # int64 (prices, 2): at a price: what loads up to the row cost, and the best window that begins
    # before it.
    state: Array
    # int64 (6,): how many are in `moves` and in `every`; cycles that move with every slice, and
    # with the first alone; bytes that are alive all the time; how many are in `loads`.
    totals: Array


@step
def _insert(falling: Array, count: int, value: int) -> None:
    """Insert a value into so many in falling order."""
    at = count
    while at > 0 and falling[at - 1] < value:
        falling[at] = falling[at - 1]
        at -= 1
    falling[at] = value


@step
def _unhidden(moves: Array, count: int, rows: Array, many: int) -> int:
    """Return the cycles of so many transfers that cannot hide in so many rows."""
    # The j longest of both, for every j: compute beyond `many` rows hides nothing.
    most = open_ = 0
    for at in range(count):
        open_ += moves[at]
        if at < many:
            open_ -= rows[at]
        most = max(most, open_)
    return int(most)


@step
def _load(
    room: Falling, rows: Rows, way: tuple[int, bool], at: int, cycles: int, held: int
) -> None:
    """Take a load into account that the operator at a position is the first to need.

    `way` is the period, and whether it is resident; `cycles` and `held`, bytes in every lane, are
    its own.
    """
    period, resident = way
    # What comes with the first slice alone hides beside that one only.
    _insert(room.moves, room.totals[0], cycles)
    room.totals[0] += 1
    if resident:
        room.totals[3] += cycles
    else:
        room.totals[2] += cycles
        _insert(room.every, room.totals[1], cycles)
        room.totals[1] += 1
    load = room.totals[5]
    room.loads[0, load], room.loads[1, load], room.loads[2, load] = at, cycles, held
    room.totals[5] += 1
    if resident and period:
        room.totals[4] += held
        # It is there all the time, however far ahead it is loaded.
        room.loads[2, load] = -1
    else:
        room.totals[4] += _live(rows, period, at - 1, at, held)


@step
def _read(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    room: Falling,
    cut: Array,
    way: tuple[int, int, bool],
) -> bool:
    """Take what an operator reads into account; return whether the group may be cut so.

    `way`: its age, the period, and whether there are several slices.
    """
    age, period, several = way
    k, at = group.member[age], 2 * group.met[OPERATORS] - 1 - age
    for edge in range(net.operators[k, FIRST_EDGE], net.operators[k, END_EDGE]):
        slot = group.of[net.edges[edge, READ]]
        # What an operator of the group writes is no load, unless spilled: the bound need not care.
        outside = group.slots[slot, WRITTEN] < 0
        resident = outside and several and _constant(group, cut, slot)
        nbytes = _bytes(net, machine, group, cut, slot)
        if room.known[slot] < 0:
            again = _again(net, machine, group, cut[2], slot)
            if again or _again(net, machine, group, cut[3], slot):
                return False
            cycles = _brought(net, machine, group, cut, slot)
            _load(room, rows, (period, resident), at, cycles, nbytes)
        # Alive in the row before and in its own: between it may have been spilled.
        elif room.known[slot] < at and not (resident and period):
            first = max(room.known[slot] + 1, at - 1)
            room.totals[4] += _live(rows, period, first, at, nbytes)
        room.known[slot] = max(at, room.known[slot])
    return True


@step
def _write(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    room: Falling,
    cut: Array,
    way: tuple[int, int, bool],
) -> None:
    """Take what an operator writes, its working bytes and its weights into account."""
    age, period, several = way
    k, at = group.member[age], 2 * group.met[OPERATORS] - 1 - age
    own, row = group.of[k], group.met[OPERATORS] - 1 - age
    rows.cycles[row, COMPUTE], nbytes, working = _work(net, machine, group, cut, own)
    room.totals[4] += _live(rows, period, at, at + 1, nbytes)
    room.known[own] = at + 1
    if net.operators[k, IN_PLACE] and net.operators[k, FIRST_EDGE] < net.operators[k, END_EDGE]:
        old = _first_read(net, group, k)
        # As :func:`.group_kernels._over`: it may write over what nobody needs any more.
        if group.slots[old, WRITTEN] >= 0:
            stays = stored(net, group, old)
        else:
            stays = several and _constant(group, cut, old)
        alike = nbytes == _bytes(net, machine, group, cut, old)
        if alike and not stays and group.slots[old, LAST] == age:
            working -= nbytes  # not twice
    room.totals[4] += _live(rows, period, at, at, working)
    resident, channels = several and _steady(group, cut[1], own), _longest(group, cut[1], own)
    for weight in range(net.operators[k, FIRST_WEIGHT], net.operators[k, END_WEIGHT]):
        cycles, held = _loaded(net, machine, weight, channels, net.tensors[k, C])
        _load(room, rows, (period, resident), at, cycles, held)


@step
def _heads(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    room: Falling,
    cut: Array,
    way: tuple[int, bool],
) -> bool:
    """Go through the rows of a group; return whether it may be cut so."""
    period, several = way
    count = group.met[OPERATORS]
    for at in range(6):
        room.totals[at] = 0
    for slot in range(group.met[SLOTS]):
        room.known[slot] = -1
    for row in range(count):
        age = count - 1 - row
        if not _read(net, machine, group, rows, room, cut, (age, period, several)):
            return False
        _write(net, machine, group, rows, room, cut, (age, period, several))
        # Loads up to here against rows before: `rows` gets this one after that.
        room.head[row] = _unhidden(room.moves, room.totals[0], room.rows, row)
        _insert(room.rows, row, rows.cycles[row, COMPUTE])
    return True


@step
def _late(machine: Machine, room: Falling, count: int) -> None:
    """Find what loads for every row cost, at a few prices of a byte ahead of it."""
    # Cycles of a byte in every lane, in parts; half, once and twice as much are tried.
    usual = ceil(machine.lanes * machine.load[1] * FINE, machine.load[0])
    for which in range(len(room.state)):
        price = usual << which >> 1
        for row in range(count):
            room.late[which, row] = 0
            room.paid[which, row] = ceil(price * room.free[row], FINE)
        for load in range(room.totals[5]):
            row, held = room.loads[0, load] - count, room.loads[2, load]
            if held >= 0:
                # Late it costs its cycles at most, or its bytes at that price.
                room.late[which, row] += min(room.loads[1, load], price * held // FINE)


@step
def _windows(rows: Rows, room: Falling, count: int, first: bool) -> int:
    """Return what cannot hide beside the rows of a slice, since loads cannot be far ahead.

    Let some of what operators p + 1 to k need first be loaded ahead of row p + 1: it is alive in
    row p, in the bytes that are free there.  The rest hides in rows p + 1 to k - 1.  Whatever the
    price of a byte, what is ahead takes no more cycles than all free bytes at that price, and what
    loads take beyond the price of their own bytes.  Windows (p, k] that do not overlap add up.

    `first`: whether it is the first slice, of which `head` is known; it is raised.
    """
    best, work = 0, 0
    for which in range(len(room.state)):
        room.state[which, 0], room.state[which, 1] = 0, -FAR
    for row in range(count):
        for which in range(len(room.state)):
            room.state[which, 0] += room.late[which, row]
            best = max(best, room.state[which, 1] + room.state[which, 0] - work)
        if first:
            best = max(best, room.head[row])
            room.head[row] = best
        work += rows.cycles[row, COMPUTE]
        for which in range(len(room.state)):
            since = best + work - room.state[which, 0] - room.paid[which, row]
            room.state[which, 1] = max(room.state[which, 1], since)
    return int(best)


@step
def least(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    room: Falling,
    cut: Array,
) -> tuple[int, int]:
    """Return the least cycles of the group in one cut, and the least bytes that a lane must hold.

    They are `NONE` cycles where slices read more again than the limit allows.  What is known of the
    group is in `net`, `machine` and `group`, see :mod:`.growth_kernels`; `rows` and `room` are
    room.  `cut`, int64 (4,), is its tracks along n, c, h and w.
    """
    count, slices = group.met[OPERATORS], _slices(group, cut)
    rounds = ceil(slices, machine.cores)
    period = count if rounds > 1 else 0
    _empty(rows, count)
    if not _heads(net, machine, group, rows, room, cut, (period, slices > 1)):
        return NONE, 0
    work = 0
    for row in range(count):
        work += rows.cycles[row, COMPUTE]
        own = group.of[group.member[count - 1 - row]]
        if stored(net, group, own):
            cycles = _written(net, machine, group, cut, group.member[count - 1 - row])
            _insert(room.every, room.totals[1], cycles)
            room.totals[1] += 1
            room.totals[2] += cycles
            rows.cycles[row, MOVING + 2] = cycles
    held = _free(machine, rows, room, count, period)
    if held > machine.memory:
        return NONE, held
    _late(machine, room, count)
    every = _windows(rows, room, count, False)
    head = _windows(rows, room, count, True)
    kernel = max(every, _unhidden(room.every, room.totals[1], room.rows, count))
    # With one slice, loads and stores share the same compute: see `both`.
    tail = 0 if rounds == 1 else every
    head = max(head, _split(rows, room, count, False))
    # The rows are inserted anew from the end: `rows` was used up to here.
    head, tail, both = _ends(rows, room, count, (head, tail))
    if rounds == 1:
        both = max(both, _split(rows, room, count, True))
    found = _span(machine, (rounds, work), room.totals, (kernel, head, tail, both))
    return found, held


@step
def _ends(rows: Rows, room: Falling, count: int, open_: tuple[int, int]) -> tuple[int, int, int]:
    """Return what cannot hide of loads before compute, of stores behind, and of both at once.

    `open_`: of the first two as far as is known; and of every row up to it, in `head`.
    """
    head, tail = open_
    both = stores = 0
    for row in range(count - 1, -1, -1):
        if rows.cycles[row, MOVING + 2] > 0:
            _insert(room.moves, stores, rows.cycles[row, MOVING + 2])
            stores += 1
            tail = max(tail, _unhidden(room.moves, stores, room.rows, count - 1 - row))
        both = max(both, room.head[row] + tail)
        _insert(room.rows, count - 1 - row, rows.cycles[row, COMPUTE])
    return head, tail, both


@step
def _split(rows: Rows, room: Falling, count: int, stores: bool) -> int:
    """Return what cannot hide where loads are few and long, or rows are.

    All loads up to operator k, and compute of all rows before it; with the longest of other loads
    (and `stores`, perhaps) beside the longest of other rows.
    """
    moves = best = 0
    for row in range(count if stores else 0):
        if rows.cycles[row, MOVING + 2] > 0:
            _insert(room.moves, moves, rows.cycles[row, MOVING + 2])
            moves += 1
    # Goes back from the last operator: what it needs first leaves `ahead` and joins `moves`.
    ahead, load = 0, room.totals[5] - 1
    for at in range(load + 1):
        ahead += room.loads[1, at]
    for row in range(count):
        ahead -= rows.cycles[row, COMPUTE]
    for row in range(count - 1, -1, -1):
        ahead += rows.cycles[row, COMPUTE]
        _insert(room.rows, count - 1 - row, rows.cycles[row, COMPUTE])
        while load >= 0 and room.loads[0, load] > count + row:
            ahead -= room.loads[1, load]
            _insert(room.moves, moves, room.loads[1, load])
            moves += 1
            load -= 1
        best = max(best, ahead + _unhidden(room.moves, moves, room.rows, count - row))
    return int(best)


@step
def _free(machine: Machine, rows: Rows, room: Falling, count: int, period: int) -> int:
    """Find the bytes that are free in every row; return those that a lane must hold."""
    # Without a period compute is in the second third of the positions.
    peak, alive, first = 0, 0, 0 if period else count
    for row in range(first + count if period else 3 * count):
        alive += rows.alive[row]
        peak = max(peak, alive)
        if first <= row < first + count:
            room.free[row - first] = machine.memory - alive - room.totals[4]
    for load in range(room.totals[5]):
        if room.loads[0, load] > count and room.loads[2, load] >= 0:
            # Its own bytes in the row before are what it may be loaded ahead in.
            room.free[room.loads[0, load] - count - 1] += room.loads[2, load]
    return int(peak + room.totals[4])


@step
def _span(
    machine: Machine, way: tuple[int, int], totals: Array, open_: tuple[int, int, int, int]
) -> int:
    """Return the least cycles of a group.

    `way` is the slices of a core, and the compute of one; `totals` is as in :class:`Falling`.
    `open_` is what cannot hide: of all that moves with a slice; of loads before compute and of
    stores behind it, each alone, and both beside the same compute.
    """
    (rounds, work), (kernel, head, tail, both) = way, open_
    every, once = totals[2], totals[3]
    if rounds == 1:
        best = work + max(both, kernel)
    else:
        ends = max(2 * work + head + tail, 2 * every + once)
        best = ends + (rounds - 2) * (work + kernel)
    # Hidden cycles count as much as the chip overlaps them.
    whole = rounds * (work + every) + once
    hidden = whole - best
    return int(whole - machine.overlap[0] * hidden // machine.overlap[1])


def _steps(*given: Any) -> int:
    """Return the most steps of :func:`floors`: its last argument."""
    return int(given[-1])


@tiered(_steps)
def floors(
    net: Network,
    machine: Machine,
    group: Group,
    rows: Rows,
    room: Falling,
    cuts: Array,
    steps: Array,
    below: Array,
    found: Array,
    place: Array,
    most: int,
) -> int:
    """Find what some cuts of many groups take at least, each group grown from the one before.

    Return the elementary steps; after about `most` of them it is to be called again, until all
    groups are done.  `net`, `machine`, `group`, `rows` and `room` are as in :func:`least`, `steps`
    as in :func:`.group_kernels.sweep`.  `cuts`, int64 (cuts, 4), are tracks along n, c, h and w;
    `below`, int64 (groups,), cycles from which on groups are of no use.  `found`, int64 (groups,
    cuts), gets the cycles of every cut that is of use and may fit; else it is left as it is.
    `place`, int64 (2,), is the group and the cut to go on with; -1 for a cut: its operator is not
    taken in yet.
    """
    done = 0
    while place[0] < len(steps) and done < most:
        at, which = place[0], place[1]
        operator, age = steps[at, 0], steps[at, 1]
        if which < 0:
            taken, entered = advance(net, group, operator, age, steps[at, 2] > 0)
            done += taken
            if entered:
                place[1] = 0 if steps[at, 3] and not net.operators[operator, ALONE] else len(cuts)
        elif which == len(cuts):
            place[0], place[1] = at + 1, -1
        else:
            place[1] += 1
            done += 1
            # Ranges do not allow it: no need for prices.
            if _bad(group, cuts[which]):
                continue
            done += PRICED * (group.met[OPERATORS] + group.met[SLOTS])
            cycles, held = least(net, machine, group, rows, room, cuts[which])
            if held <= machine.memory and cycles < below[at]:
                found[at, which] = cycles
    return done
