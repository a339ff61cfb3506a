"""Compiled kernels of linear orders: topological orders, and the best cuts of one.

`value[row, q]` is the least bottleneck of stages that contain the first blocks of an order and end
in state q of the automaton.  There is a row for each position where a segment may begin or end.
Segments [a, b) grow block by block as long as their certain cost is under the limit, which falls
with each better partition found.

Cost: O(n * longest segment * (nets of a block + transitions)) steps, O(n / grain * states) bytes.
Source: see :mod:`.linear`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.graph.stage_kernels import (
    TRAFFIC,
    Blocks,
    Cut,
    Rooms,
    Ways,
    join,
    least_price,
    leave,
    possible,
    price,
    set_least_work,
    shift,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import inlined, tiered

# The fields of a search's state, an array of int64:
(
    AT,  # the segment's begin with which it goes on; `BEFORE` until sums are written
    LIMIT,  # partitions must be better
    FIRST_LIMIT,  # and their first loads at most this
    MOST_DEVICES,  # that a stage is replicated on
    STEPS,  # elementary ones since the last call
    GRAIN,  # segments begin and end at multiples of this
) = range(6)
BEFORE = -1
"""The first entry of states before the first call: what that one sets up, no other does again."""
JOINED, PRICED = 8, 2
"""Elementary steps of a block that joins a stage and leaves it, beside nets and further classes,
and of a stage that is priced, beside that it is looked at."""


class Segments(NamedTuple):
    """What segments cost, and what is known of the one that grows."""

    blocks: Blocks  # what prices a segment
    ways: Ways  # which stage may follow which
    rooms: Rooms  # what the devices in use, and those left, can hold
    sums: Array  # float64 (rooms, n + 1): weight of the first blocks, for each room
    crossing: Array  # int64 (2, n + 1): traffic of each kind across each cut
    cut: Cut  # how nets lie to it
    rows: Array  # int64 (1, columns): the segment, as a stage
    limits: Array  # int64 (3,): see :func:`.stage_kernels.possible`
    live: Array  # int64 (states,): the states that the segment may be added to, each once
    least_work: Array  # int64 (passes * classes,): see :func:`.stage_kernels.least_price`


class Table(NamedTuple):
    """The best partitions of the first blocks; arrays of shape (ceil(n / grain) + 1, states)."""

    value: Array  # int64: the least bottleneck
    # int32: the row at which the last segment begins, and its transition.
    origin: Array
    way: Array


@inlined
def _set_limits(state: Array, limits: Array) -> None:
    """Write the limits that :func:`possible` asks for."""
    limits[0], limits[1], limits[2] = state[LIMIT] - 1, state[FIRST_LIMIT], 1


@inlined
def _empty(rows: Array) -> None:
    """Begin a segment, without blocks."""
    for column in range(rows.shape[1]):
        rows[0, column] = 0


@inlined
def _sum_up(order: Array, line: Segments) -> None:
    """Write the weights of the first blocks of the order, and the traffic across its cuts."""
    _empty(line.rows)
    # All blocks join one stage, and leave it again: its traffic after each is that across the cut.
    for a in range(len(order)):
        v = order[a]
        join(line.blocks, line.cut, line.rows, 0, v)
        for r in range(len(line.rooms.limit)):
            line.sums[r, a + 1] = line.sums[r, a] + line.rooms.weight[r, v]
        for kind in range(2):
            line.crossing[kind, a + 1] = line.rows[0, TRAFFIC + kind]
    for a in range(len(order)):
        leave(line.blocks, line.cut, order[a])


@inlined
def _add(state: Array, line: Segments, table: Table, count: int, begin: int, b: int) -> int:
    """Add the segment from row `begin` to block b to all live states; return how many ways it took.

    What is left of the limit after the last block is what the partition costs.
    """
    n, ways, priced = line.sums.shape[1] - 1, line.ways, 0
    # The last row stands for all blocks, whether or not their number is a multiple.
    end = (b + state[GRAIN] - 1) // state[GRAIN]
    for index in range(count):
        q = line.live[index]
        # A segment that cannot be better than what is before it needs no price.
        before = table.value[begin, q]
        for t in range(ways.first[q], ways.first[q + 1]):
            reached = ways.target[t]
            if before >= min(state[LIMIT], table.value[end, reached]):
                continue
            priced += 1
            if b == n and not ways.accepting[reached]:
                continue
            on, devices, stashes = ways.device_class[t], ways.devices[t], ways.stashes[t]
            cost = price(line.blocks, line.rows, 0, on, devices, stashes, state[FIRST_LIMIT])
            cost = max(cost, before)
            if cost < min(state[LIMIT], table.value[end, reached]) and possible(
                line.rooms, line.sums, line.crossing, b, n, reached, line.limits
            ):
                table.value[end, reached], table.way[end, reached] = cost, t
                table.origin[end, reached] = begin
                # A whole partition: from now on others must be better.
                if b == n:
                    state[LIMIT] = cost
                    _set_limits(state, line.limits)
    return priced


def _steps_of_cutting(state: Array, budget: int, order: Array, line: Segments, table: Table) -> int:
    """Return the most steps of :func:`cut_order`, which places a segment of any length at once."""
    del state, table
    return budget + PRICED * len(order) * len(line.ways.target)


@tiered(_steps_of_cutting)
def cut_order(state: Array, budget: int, order: Array, line: Segments, table: Table) -> bool:
    """Go on placing segments of `order`; return whether all are placed, else call again.

    A call ends after `budget` elementary steps, between two begins of segments, where the cut of
    `line`, which changes, is that of the blocks before.  `state`, int64, see above, has `AT` =
    `BEFORE` at first.  `order`, int32 (n,), has all blocks, each after those before it.
    `line.live` has an entry a state of the table, each of which is entered once a begin.  Rows of
    the table of places that are not reached hold `FAR`, and so does all of the first but state 0.
    """
    n, a, whole, grain = len(order), state[AT], budget, state[GRAIN]
    blocks, ways, rooms, states = line.blocks, line.ways, line.rooms, table.value.shape[1]
    columns = blocks.work.shape[0] * blocks.work.shape[1]
    if a == BEFORE:
        a = 0
        _sum_up(order, line)
        budget -= (JOINED + columns) * n + 2 * len(blocks.of)  # each block joins, and leaves
    while a < n and budget > 0:
        _set_limits(state, line.limits)
        count, leads, begin, b = 0, 0, a // grain, a
        # States from which the rest can still be done within the limit; only at a multiple of the
        # grain may a segment begin.
        for q in range(states if a % grain == 0 else 0):
            if table.value[begin, q] < state[LIMIT] and possible(
                rooms, line.sums, line.crossing, a, n, q, line.limits
            ):
                line.live[count] = q
                count += 1
                leads += ways.first[q + 1] - ways.first[q]
        if count > 0:
            budget -= leads * (1 + len(rooms.limit))
            # The rest that later devices cannot hold must be on this segment, which cuts its growth
            # early.
            set_least_work(
                blocks, ways, rooms, line.sums, a, n, line.live, count, line.limits,
                line.least_work,
            )  # fmt: skip
            _empty(line.rows)
            while b < n:
                v = order[b]
                join(blocks, line.cut, line.rows, 0, v)
                b += 1
                nets = blocks.of_first[v + 1] - blocks.of_first[v]
                budget -= JOINED + 2 * nets + columns // 2  # it joins, and leaves
                most, first = state[MOST_DEVICES], state[FIRST_LIMIT]
                # What is sure is over the limit: so are all longer segments.
                if least_price(blocks, line.rows, 0, line.least_work, most, first) >= state[LIMIT]:
                    break
                if b % grain == 0 or b == n:
                    budget -= leads + PRICED * _add(state, line, table, count, begin, b)
        # The segment is undone, and its first block is out for good for those that begin later.
        for place in range(a, b):
            leave(blocks, line.cut, order[place])
        shift(blocks, line.cut, order[a], 1)
        budget -= states + blocks.of_first[order[a] + 1] - blocks.of_first[order[a]]
        a += 1
    state[AT], state[STEPS] = a, whole - budget
    return bool(a == n)


class Nets(NamedTuple):
    """What of :class:`.stage_kernels.Blocks` matters to an order."""

    of_first: Array
    of: Array
    members: Array
    cost: Array


@inlined
def _opened(nets: Nets, placed: Array, v: int) -> int:
    """Return by how much traffic across the cut grows when block v is placed next."""
    grows = 0
    for place in range(nets.of_first[v], nets.of_first[v + 1]):
        t = nets.of[place]
        # The first member opens a net, the last one closes it.
        if placed[t] == 0:
            grows += nets.cost[t]
        if placed[t] + 1 == nets.members[t]:
            grows -= nets.cost[t]
    return grows


PLACED, SCORED = 6, 3
"""Elementary steps of a block that is put in order, and of one that might be, beside its nets."""


def _steps_of_arranging(state: Array, budget: int, order: Array, *rest: object) -> int:
    """Return the most steps of :func:`arrange`."""
    del state, rest
    return budget + len(order)


@tiered(_steps_of_arranging)
def arrange(
    state: Array,
    budget: int,
    order: Array,
    missing: Array,
    after_first: Array,
    after: Array,
    nets: Nets,
    placed: Array,
    ready: Array,
    begin: Array,
    end: Array,
    rank: Array,
    noise: Array,
    weights: Array,
    scored: int,
) -> bool:
    """Go on writing a topological order: of the ready blocks of least rank, the best by `weights`.

    Return whether it is written, else call again.  O(n * scored * nets of a block) steps.  A call
    ends after `budget` elementary steps, between two blocks, and the least rank of those that are
    ready is found anew.

    Parameters
    ----------
    state : ndarray of int64, shape (2,)
        How many places are filled (`BEFORE` at first: then those that nothing comes before become
        ready), and the elementary steps since the call began.
    order, missing : ndarray of int32, shape (n,)
        Where the kernel writes; how many blocks come directly before each, which is used up.
    after_first, after : ndarray of int32
        The blocks directly after each.
    placed : ndarray of int32, shape (nets,)
        Zeros.
    ready, rank : ndarray of int32, shape (n,)
        Blocks of rank r, from 0 on, that are ready are ready[begin[r]:end[r]]: the kernel writes.
        Each block becomes ready once, so those of a rank never go beyond its part.
    begin, end : ndarray of int64, shape (ranks,)
        At first how many blocks are of lower rank, both.
    noise, weights : ndarray of float64, shapes (n,), (3,)
        What chance adds to each block; how much noise, depth first, and little traffic across the
        cut count.
    scored : int
        Ready blocks that are compared, the latest ones.
    """
    filled, steps, least = state[0], 0, 0
    if filled == BEFORE:
        filled = 0
        for v in range(len(order)):
            if missing[v] == 0:
                ready[end[rank[v]]] = v
                end[rank[v]] += 1
        steps = len(order)
    while filled < len(order) and steps < budget:
        # Some rank has ready blocks, as the graph has no circle: `least` never runs beyond the
        # last.
        while end[least] == begin[least]:
            least += 1
        best, chosen = 0.0, -1
        stop = max(begin[least], end[least] - scored) - 1
        for place in range(end[least] - 1, stop, -1):  # the latest first
            v = ready[place]
            # A later place means that the block became ready later: depth first.
            score = weights[0] * noise[v] - weights[1] * place
            steps += SCORED
            if weights[2] > 0:
                score += weights[2] * _opened(nets, placed, v)
                steps += nets.of_first[v + 1] - nets.of_first[v]
            if chosen < 0 or score < best:
                best, chosen = score, place
        v = ready[chosen]
        order[filled] = v
        filled += 1
        steps += PLACED + nets.of_first[v + 1] - nets.of_first[v]
        end[least] -= 1
        # The others keep their order: who became ready later is later.
        for place in range(chosen, end[least]):
            ready[place] = ready[place + 1]
        for place in range(nets.of_first[v], nets.of_first[v + 1]):
            placed[nets.of[place]] += 1
        for place in range(after_first[v], after_first[v + 1]):
            w = after[place]
            missing[w] -= 1
            if missing[w] == 0:
                ready[end[rank[w]]] = w
                end[rank[w]] += 1
                # A block of lower rank goes first as soon as it is ready.
                least = min(least, rank[w])
    state[0], state[1] = filled, steps
    return bool(filled == len(order))
