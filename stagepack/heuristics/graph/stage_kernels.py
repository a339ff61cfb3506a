"""The cost of a stage that grows block by block: kernels that all searches share.

Blocks are placed from the tail of the graph to its head, so that the number of microbatches that a
stage stashes is known when it is placed.  The growing stage is a row of numbers: traffic, work and
bytes of its blocks.  For each net the number of members `inside` the stage is kept, and of those
`outside` for good, which are in stages placed before or excluded by the search.  The traffic of
nets with both is *sure*: it remains whatever is added to the stage.  Work and sure traffic
therefore never decrease, and when they reach the limit, no further block needs to be tried.

Cost: O(nets of the block) steps to add, remove or exclude it.  Source: ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import inlined

SUM, OVERLAP, REPLICATED, FORWARD_BACKWARD, MEMORY = range(5)
FAR = 2**62
FORBIDDEN = 2**60

# Columns of a row; of two kinds of traffic the first is that of the forward pass, or received, the
# other that of the backward pass, or sent.
TRAFFIC, SURE, SIZE, STASH, PARAMETERS, WORK = 0, 2, 4, 5, 6, 7


class Blocks(NamedTuple):
    """Blocks and nets as the kernels see them; int64 arrays unless stated otherwise."""

    mode: int  # what a stage is worth: one of the five above
    # (passes, classes, n): ticks on a device of a class, `FORBIDDEN` where it must not be.
    work: Array
    # (n,): bytes.
    size: Array
    stash: Array
    parameters: Array
    # int32: nets of block v are of[of_first[v]:of_first[v + 1]].
    of_first: Array
    of: Array
    # (nets,): how many blocks a net has, which one sends, the ticks it costs, and which traffic it
    # is.
    members: Array
    producer: Array
    cost: Array
    kind: Array
    pays: Array  # bool (classes,): whether traffic costs a device of the class anything
    memory: Array  # (classes,): bytes of a device
    sync: float  # ticks of synchronising a byte of parameters among very many replicas


class Cut(NamedTuple):
    """How nets lie to the stage that grows; int32 arrays of one entry a net."""

    # Members in the stage, and those that will never be.
    inside: Array
    outside: Array
    sender: Array  # int8; 1: the producer is inside, -1: outside, 0: neither yet


def unmarked(nets: int) -> Cut:
    """Return what is known of nets before any block has joined or stays out."""
    inside, outside = np.zeros((2, nets), dtype=np.int32)
    return Cut(inside, outside, np.zeros(nets, dtype=np.int8))


@inlined
def join(blocks: Blocks, cut: Cut, rows: Array, at: int, v: int) -> None:
    """Let block `v`, which is not in it, join the stage of row `at`; `rows` and `cut` change.

    `rows` is int64 of shape (stages, columns).
    """
    # Work is capped at FORBIDDEN: sums of several forbidden blocks would overflow.
    passes, classes = blocks.work.shape[0], blocks.work.shape[1]
    column = WORK
    for p in range(passes):
        for c in range(classes):
            rows[at, column] = min(FORBIDDEN, rows[at, column] + blocks.work[p, c, v])
            column += 1
    rows[at, SIZE] += blocks.size[v]
    rows[at, STASH] += blocks.stash[v]
    rows[at, PARAMETERS] += blocks.parameters[v]
    directed = blocks.mode == OVERLAP or blocks.mode == REPLICATED
    # Undirected, a net is paid for as long as it has members on both sides; directed, the sender
    # pays once for it (second column) and each stage that reads it once (first column).
    for place in range(blocks.of_first[v], blocks.of_first[v + 1]):
        t = blocks.of[place]
        cost, inside = blocks.cost[t], cut.inside[t]
        cut.inside[t] = inside + 1
        if not directed:
            column = TRAFFIC + blocks.kind[t]
            if inside == 0:
                rows[at, column] += cost
                # A member that is out for good: this net will cross whatever joins.
                if cut.outside[t] > 0:
                    rows[at, SURE + blocks.kind[t]] += cost
            # All members are in: nothing of it crosses any more.
            if inside + 1 == blocks.members[t]:
                rows[at, column] -= cost
        elif blocks.producer[t] == v:
            cut.sender[t] = 1
            # What its readers here would have received comes from here.
            if inside > 0:
                rows[at, TRAFFIC] -= cost
            if inside + 1 < blocks.members[t]:
                rows[at, TRAFFIC + 1] += cost
                if cut.outside[t] > 0:
                    rows[at, SURE + 1] += cost
        # The sender is here already; with its last reader nothing leaves.
        elif cut.sender[t] == 1:
            if inside + 1 == blocks.members[t]:
                rows[at, TRAFFIC + 1] -= cost
        # The first reader here; the net comes from elsewhere unless its sender joins later.
        elif inside == 0:
            rows[at, TRAFFIC] += cost
            if cut.sender[t] == -1:
                rows[at, SURE] += cost


@inlined
def leave(blocks: Blocks, cut: Cut, v: int) -> None:
    """Take block `v`, which joined last, out of the stage again; the caller drops its row."""
    for place in range(blocks.of_first[v], blocks.of_first[v + 1]):
        t = blocks.of[place]
        cut.inside[t] -= 1
        # Neither inside nor out for good: the caller may count it out next.
        if blocks.producer[t] == v:
            cut.sender[t] = 0


@inlined
def stay_out(blocks: Blocks, cut: Cut, rows: Array, at: int, v: int) -> None:
    """Decide that block `v` is never in the stage of row `at`; `rows` and `cut` change."""
    directed = blocks.mode == OVERLAP or blocks.mode == REPLICATED
    for place in range(blocks.of_first[v], blocks.of_first[v + 1]):
        t = blocks.of[place]
        outside = cut.outside[t]
        cut.outside[t] = outside + 1
        # Only the first member that stays out makes traffic of the others sure.
        if not directed:
            if outside == 0 and cut.inside[t] > 0:
                rows[at, SURE + blocks.kind[t]] += blocks.cost[t]
        elif blocks.producer[t] == v:
            cut.sender[t] = -1
            if cut.inside[t] > 0:
                rows[at, SURE] += blocks.cost[t]
        elif cut.sender[t] == 1 and outside == 0:
            rows[at, SURE + 1] += blocks.cost[t]


@inlined
def shift(blocks: Blocks, cut: Cut, v: int, by: int) -> None:
    """Count block `v`, of no stage under way, outside for good (`by` 1), or not any more (-1)."""
    for place in range(blocks.of_first[v], blocks.of_first[v + 1]):
        t = blocks.of[place]
        cut.outside[t] += by
        if blocks.producer[t] == v:
            # -1 where it is counted out, 0 again where it is not.
            cut.sender[t] = min(0, -by)


@inlined
def price(
    blocks: Blocks, rows: Array, at: int, c: int, devices: int, stashes: int, first_limit: int
) -> int:
    """Return what the stage of row `at` costs on devices of class `c`; `FAR` if it does not fit.

    The stage, a row of `rows`, is replicated on so many `devices` and holds the stash of `stashes`
    microbatches.  `first_limit` is the greatest load of the forward pass, where the two count
    apart.
    """
    # Memory and forbidden blocks first: a price of FAR is none.
    held = rows[at, SIZE] + stashes * rows[at, STASH]
    work = rows[at, WORK + c]
    if held > blocks.memory[c] or work >= FORBIDDEN:
        return FAR
    first, second = rows[at, TRAFFIC], rows[at, TRAFFIC + 1]
    if not blocks.pays[c]:
        first = second = 0
    cost: int = work + first + second
    if blocks.mode == MEMORY:
        cost = held
    elif blocks.mode == OVERLAP:
        cost = max(work, first, second)
    elif blocks.mode == FORWARD_BACKWARD:
        later = rows[at, WORK + blocks.work.shape[1] + c]
        fits = work + first <= first_limit and later < FORBIDDEN
        cost = later + second if fits else FAR
    elif blocks.mode == REPLICATED:
        # Each of m replicas exchanges (m - 1) / m of the gradients, and takes 1 / m of the rest.
        waiting = round(blocks.sync * rows[at, PARAMETERS] * (devices - 1) / devices)
        cost = max(work + waiting, first, second) // devices
    return cost


@inlined
def least_price(
    blocks: Blocks, rows: Array, at: int, least_work: Array, devices: int, first_limit: int
) -> int:
    """Return what the stage of row `at` will cost at least, whatever joins it; `FAR`: nowhere.

    `rows` and `first_limit` are as for :func:`price`.  `least_work`, int64 (passes * classes,), is
    what the whole stage will compute at least on a device of each class; it is replicated on at
    most so many `devices`.
    """
    classes, best = blocks.work.shape[1], FAR
    # One stash at least, as every stage holds one microbatch.
    held = rows[at, SIZE] + rows[at, STASH]
    for c in range(classes):
        # The stage must grow to `least_work` in any case, so its price may be judged by that
        # already.
        work = max(rows[at, WORK + c], least_work[c])
        if held > blocks.memory[c] or work >= FORBIDDEN:
            continue
        # Traffic may fall as members join; only what is sure counts.
        first, second = rows[at, SURE], rows[at, SURE + 1]
        if not blocks.pays[c]:
            first = second = 0
        if blocks.mode == MEMORY:
            least = held
        elif blocks.mode == SUM:
            least = work + first + second
        elif blocks.mode == FORWARD_BACKWARD:
            later = max(rows[at, WORK + classes + c], least_work[classes + c])
            far = work + first > first_limit or later >= FORBIDDEN
            least = FAR if far else later + second
        else:
            least = max(work, first, second) // devices
        best = min(best, least)
    return best


class Ways(NamedTuple):
    """An automaton over devices: a transition places one stage before those placed so far."""

    # int32 (states + 1,): transitions out of state q are those from first[q] up to first[q + 1];
    # state 0 has placed nothing, and transitions lead to higher states.
    first: Array
    # int32 (transitions,): `devices` is on how many the stage is replicated.
    target: Array
    device_class: Array
    devices: Array
    stashes: Array
    # bool (states,): whether the first stage of all may be placed with the transition into it.
    accepting: Array


VALUE, FIRST, BYTES = range(3)


class Rooms(NamedTuple):
    """How much the devices in use can hold, and those left.

    A room is a way to weigh blocks so that no device holds more than its share of a limit.  Weights
    are whole numbers, of which float64 holds every sum; shares are safe up to `SLACK`.
    """

    # int64 (rooms,): what the shares are of: `VALUE` or `FIRST`, a limit on a load, or `BYTES`, of
    # 1.
    limit: Array
    weight: Array  # float64 (rooms, n): of each block
    # int64 (rooms,): traffic across a cut that is held on both sides of it, too; -1: none.
    kind: Array
    scale: Array  # float64 (rooms,): least weight of a tick of traffic
    # float64 (rooms, states): share of the devices in use in a state, and of the others; infinite
    # where the room says nothing.
    used: Array
    left: Array


SLACK = 1 + 1e-9


@inlined
def possible(
    rooms: Rooms, sums: Array, crossing: Array, at: int, last: int, q: int, limits: Array
) -> bool:
    """Return whether what is placed fits into the devices of state `q`, and the rest elsewhere.

    `sums`, float64 (rooms, positions), has the weight of the blocks placed at each position, and
    `crossing`, int64 (2, positions), the traffic of each kind between these and the others.  `at`
    is a position, `last` the one where all are placed.  `limits`, int64 (3,): the greatest value
    wanted, the greatest first load, and 1.
    """
    for r in range(len(rooms.limit)):
        limit = limits[rooms.limit[r]] * SLACK
        # What crosses this cut is paid for by a stage on each side of it.
        both = 0.0
        if rooms.kind[r] >= 0:
            both = rooms.scale[r] * crossing[rooms.kind[r], at]
        # SLACK times and plus: sums are whole, but shares and scales are rounded.
        if sums[r, at] + both > rooms.used[r, q] * limit + SLACK:
            return False
        if sums[r, last] - sums[r, at] + both > rooms.left[r, q] * limit + SLACK:
            return False
    return True


@inlined
def set_least_work(
    blocks: Blocks,
    ways: Ways,
    rooms: Rooms,
    sums: Array,
    at: int,
    last: int,
    live: Array,
    count: int,
    limits: Array,
    least_work: Array,
) -> None:
    """Write how much the next stage has to compute, so that the devices left can hold the rest.

    It goes to `least_work`, int64 (passes * classes,): ticks on a device of each class.  The stage
    is added to the first `count` states of `live`, int64; `sums`, `crossing`, `at`, `last` and
    `limits` are as for :func:`possible`.
    """
    passes, classes = blocks.work.shape[0], blocks.work.shape[1]
    for column in range(passes * classes):
        least_work[column] = FORBIDDEN
    for index in range(count):
        q = live[index]
        for t in range(ways.first[q], ways.first[q + 1]):
            reached = ways.target[t]
            for p in range(passes):
                need = 0.0
                for r in range(len(rooms.limit)):
                    kind = rooms.limit[r]
                    # The room that this transition adds, for each of its devices.
                    share = (rooms.used[r, reached] - rooms.used[r, q]) / ways.devices[t]
                    left = rooms.left[r, reached]
                    # The last pass is limited by the value, the first one by its own limit where
                    # there are two.
                    mine = (kind == VALUE and p == passes - 1) or (kind == FIRST and p == 0)
                    if mine and 0 < share < FAR and left < FAR:
                        rest = sums[r, last] - sums[r, at] - SLACK
                        # What the devices left cannot hold must be on this stage.
                        need = max(need, (rest - left * limits[kind] * SLACK) / share)
                column = p * classes + ways.device_class[t]
                # The least over all states and transitions, as it is not known which one the stage
                # takes.
                least_work[column] = min(least_work[column], int(need / SLACK))
