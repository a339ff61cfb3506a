"""Compiled kernels of local search: the effect of moving blocks, and annealing over such moves.

What is fixed is in :class:`Blocks`, where blocks are in :class:`Placed`; both belong to
:class:`.local_search.PartitionSearch`, which allocates them.  Between two moves `inside`, `spread`,
`time`, `received`, `sent`, `held` and `blocks` are what follows from `stage` alone, so that a move
is undone by moving its blocks back.  `queue` and `origin` say what one move did; `best` is the best
`stage` so far, worth `state[BEST]`.

Cost and source: see :mod:`.local_search`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stagepack.heuristics.graph.stage_kernels import FORBIDDEN
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, inlined

POWER = 8
"""Of the norm of loads that stands for their largest; a constant, as it becomes multiplications."""

MODULUS, FACTOR, ADDEND = 2**31 - 1, 48_271, 11
SEED, BEST, STAMP, STEPS = range(4)
"""Entries of the state: random number, ticks of the best stages so far, mark of the last move,
elementary steps of the last call."""
SUM, OVERLAP, MEMORY = range(3)


class Blocks(NamedTuple):
    """What never changes: blocks, nets and stages; see :class:`.local_search.PartitionSearch`."""

    time: Array  # int64 (passes, stages, blocks): ticks of each block on the device of each stage
    # int64 (blocks,): bytes, and bytes for each microbatch in flight.
    size: Array
    stash: Array
    # int32: direct predecessors and successors, as CSR.
    before_ptr: Array
    before: Array
    after_ptr: Array
    after: Array
    # int32: the producer first.
    net_ptr: Array
    net: Array
    cost: Array  # int64 (nets,): ticks
    which: Array  # int8 (nets,): pass of each net
    # int32: nets of each block, as CSR.
    of_ptr: Array
    of_net: Array
    pays: Array  # bool (stages,): whether traffic costs the stage anything
    # int64 (stages,): bytes, and microbatches whose stashes are held.
    room: Array
    flying: Array


class Draws(NamedTuple):
    """How often chance decides one way: once in so many moves."""

    exchanges: int  # two blocks take each other's stage
    anywhere: int  # a block goes to any stage, not to one that shares a net
    together: int  # what heavy nets join to the block comes along


class Placed(NamedTuple):
    """Where blocks are, and what follows; int64 arrays."""

    # (blocks,): the stage of each block now, and in the best partition so far.
    stage: Array
    best: Array
    inside: Array  # (nets, stages): blocks of each net on each stage
    spread: Array  # (nets,): stages that hold blocks of each net
    # (passes, stages): ticks of the blocks of each stage, and of its traffic.
    time: Array
    received: Array
    sent: Array
    # (stages,): bytes and blocks.
    held: Array
    blocks: Array
    # (most blocks that move at once,): blocks that move together, and where they were; where there
    # is no room for another one they are too many to move.
    queue: Array
    origin: Array
    mark: Array  # (blocks,): the last move for which each was looked at
    state: Array  # (4,): `SEED`, `BEST`, `STAMP`, `STEPS`


@inlined
def _shift(v: int, b: int, blocks: Blocks, placed: Placed) -> None:
    """Move block v to stage b."""
    # Loads first, then nets: each net changes what stages a and b, and that of its producer, pay.
    a = placed.stage[v]
    for q in range(len(blocks.time)):
        placed.time[q, a] -= blocks.time[q, a, v]
        placed.time[q, b] += blocks.time[q, b, v]
    placed.held[a] -= blocks.size[v] + blocks.flying[a] * blocks.stash[v]
    placed.held[b] += blocks.size[v] + blocks.flying[b] * blocks.stash[v]
    placed.blocks[a] -= 1
    placed.blocks[b] += 1
    placed.state[STEPS] += 5 + 3 * (blocks.of_ptr[v + 1] - blocks.of_ptr[v])
    for at in range(blocks.of_ptr[v], blocks.of_ptr[v + 1]):
        n = blocks.of_net[at]
        q, cost = blocks.which[n], blocks.cost[n]
        producer = blocks.net[blocks.net_ptr[n]]
        home, wide = placed.stage[producer], placed.spread[n]
        inside = placed.inside[n]
        # `inside[b]` is counted last: 0 means that b has no member but v.
        inside[a] -= 1
        if inside[a] == 0:
            placed.spread[n] -= 1
        if inside[b] == 0:
            placed.spread[n] += 1
        if producer == v:
            # The sender itself moves: a sends no more, b receives no more, a may begin to.
            if wide > 1:
                placed.sent[q, a] -= cost
            if inside[b] > 0:
                placed.received[q, b] -= cost
            if inside[a] > 0:
                placed.received[q, a] += cost
            if placed.spread[n] > 1:
                placed.sent[q, b] += cost
        else:
            # A reader moves: the last one of a frees it, the first one on b makes it pay.
            if inside[a] == 0:
                placed.received[q, a] -= cost
            if inside[b] == 0:
                placed.received[q, b] += cost
            # What leaves the sender's stage for the first time, or for the last time, the sender
            # pays for.
            if wide == 1 and placed.spread[n] > 1:
                placed.sent[q, home] += cost
            elif wide > 1 and placed.spread[n] == 1:
                placed.sent[q, home] -= cost
        inside[b] += 1
    placed.stage[v] = b


@inlined
def _gather(begin: int, v: int, b: int, heavy: int, blocks: Blocks, placed: Placed) -> int:
    """Write to `queue` what must move to stage b with block v; return its end, 0: too many.

    It is written from `begin` on.  What comes after a block that moves up must be on b or later,
    what comes before one that moves down on b or earlier; blocks of its stage that share a net of
    at least `heavy` ticks come along.  `queue` may be of any length: before each write it is asked
    whether that is too many.
    """
    most = len(placed.queue)
    if begin == most:
        return 0
    # A stamp instead of clearing marks: those of earlier moves are stale by being lower.
    placed.state[STAMP] += 1
    stamp, a = placed.state[STAMP], placed.stage[v]
    placed.queue[begin], placed.mark[v] = v, stamp
    size, at = begin + 1, begin
    while at < size:
        u = placed.queue[at]
        at += 1
        up = b > placed.stage[u]
        # Up: what reads u must not stay behind; down: what u reads must not stay ahead.
        ptr, near = blocks.before_ptr, blocks.before
        if up:
            ptr, near = blocks.after_ptr, blocks.after
        mine = blocks.of_ptr[u + 1] - blocks.of_ptr[u]
        placed.state[STEPS] += 2 + ptr[u + 1] - ptr[u] + mine
        for i in range(ptr[u], ptr[u + 1]):
            w = near[i]
            # Only what would break the order has to come along.
            behind = placed.stage[w] < b if up else placed.stage[w] > b
            if behind and placed.mark[w] != stamp:
                if size == most:
                    return 0
                placed.queue[size], placed.mark[w] = w, stamp
                size += 1
        for i in range(blocks.of_ptr[u], blocks.of_ptr[u + 1]):
            n = blocks.of_net[i]
            # Light nets may be cut; FORBIDDEN as `heavy` skips all of them.
            if blocks.cost[n] < heavy:
                continue
            for j in range(blocks.net_ptr[n], blocks.net_ptr[n + 1]):
                placed.state[STEPS] += 1
                w = blocks.net[j]
                if placed.stage[w] == a and placed.mark[w] != stamp:
                    if size == most:
                        return 0
                    placed.queue[size], placed.mark[w] = w, stamp
                    size += 1
    return size


@inlined
def _bring(v: int, w: int, b: int, heavy: int, keep: bool, blocks: Blocks, placed: Placed) -> int:
    """Move block v to stage b and block w, if it is another one, from there to where v was.

    Returns how many blocks were moved with that, as `queue` and `origin` tell; 0: nothing, as
    memory, a device, an order of the two or, with `keep`, an empty stage forbids it, or they are
    too many.  `origin` is as long as `queue`, and is written no further.
    """
    a, moved, fits = placed.stage[v], 0, True
    # A single block that does not fit needs no look at what hangs on it.
    if w == v:
        held = placed.held[b] + blocks.size[v] + blocks.flying[b] * blocks.stash[v]
        fits = held <= blocks.room[b]
    for turn in range(1 if w == v else 2):
        first, to = (v, b) if turn == 0 else (w, a)
        end = _gather(moved, first, to, heavy, blocks, placed) if fits else 0
        # Where what moves back includes v, the two exchanges contradict each other.
        back = turn == 1 and placed.mark[v] == placed.state[STAMP]
        fits = end > 0 and not back
        while fits and moved < end:
            u = placed.queue[moved]
            # Forbidden in one pass is forbidden in all.
            fits = blocks.time[0, to, u] < FORBIDDEN
            if fits:
                placed.origin[moved] = placed.stage[u]
                _shift(u, to, blocks, placed)
                moved += 1
    # All that moved is on a or b now: other stages only lost blocks.
    fits = fits and placed.held[a] <= blocks.room[a] and placed.held[b] <= blocks.room[b]
    if fits and keep:
        for at in range(moved):
            fits = fits and placed.blocks[placed.origin[at]] > 0
    if not fits:
        _undo(moved, blocks, placed)
        moved = 0
    return moved


@inlined
def _undo(size: int, blocks: Blocks, placed: Placed) -> None:
    """Move the first `size` blocks in `queue` back to where they were."""
    # Last moved, first back: so each goes back to where it was when it moved.
    for at in range(size - 1, -1, -1):
        _shift(placed.queue[at], placed.origin[at], blocks, placed)


@inlined
def _weigh(kind: int, reference: float, blocks: Blocks, placed: Placed) -> tuple[float, int]:
    """Return a norm of the loads, over `reference`, and the objective, which is little less.

    A maximum does not tell moves apart that do not touch the fullest stage: a norm does.
    """
    norm, value = 0.0, 0
    for q in range(len(placed.time)):
        summed, most = 0.0, 0
        for s in range(len(placed.blocks)):
            load = placed.time[q, s]
            if kind == MEMORY:
                load = placed.held[s]
            elif blocks.pays[s]:
                received, sent = placed.received[q, s], placed.sent[q, s]
                if kind == SUM:
                    load += received + sent
                else:
                    summed += (received / reference) ** POWER
                    summed += (sent / reference) ** POWER
                    most = max(most, received, sent)
            summed += (load / reference) ** POWER
            most = max(most, load)
        norm += summed ** (1 / POWER)
        value += most
    return norm, value


@inlined
def _drawn(placed: Placed, below: int) -> int:
    """Return a random number below `below`."""
    state = placed.state
    # The generator is part of the state, so that pauses change nothing.
    state[SEED] = (state[SEED] * FACTOR + ADDEND) % MODULUS
    return int(state[SEED] % below)


@compiled
def anneal(
    kind: int,
    moves: int,
    budget: int,
    heat: float,
    reference: float,
    keep: bool,
    draws: Draws,
    blocks: Blocks,
    placed: Placed,
) -> int:
    """Try so many moves at one heat; keep the best stages; return the moves that were tried.

    A block goes where one is that shares a net with it, seldom anywhere, with what must move with
    it and, sometimes, what heavy nets join to it; one of that stage may take its place.  O(nets of
    what moves + stages) a move.

    At most `moves` are tried, and none after `budget` elementary steps; a call ends between two
    moves, and the energy is that of `placed`, which changes.  `kind` is `SUM`, `OVERLAP` or
    `MEMORY`.  A move that adds `heat` to the energy, in units of `reference` ticks, is made with
    probability 1 / e.  With `keep` no stage may be left empty.
    """
    count, stages, tried = len(placed.stage), len(placed.blocks), 0
    nets, loads = len(blocks.cost), 3 * len(blocks.time) * stages
    placed.state[STEPS] = 0
    now, _ = _weigh(kind, reference, blocks, placed)
    while tried < moves and placed.state[STEPS] < budget:
        tried += 1
        placed.state[STEPS] += 5
        v = _drawn(placed, count)
        a = placed.stage[v]
        mine = blocks.of_ptr[v + 1] - blocks.of_ptr[v]
        b = _drawn(placed, stages)
        # Where a net of v has another member, which is likely to lower traffic.
        if mine > 0 and _drawn(placed, draws.anywhere) > 0:
            n = blocks.of_net[blocks.of_ptr[v] + _drawn(placed, mine)]
            first = blocks.net_ptr[n]
            other = blocks.net[first + _drawn(placed, blocks.net_ptr[n + 1] - first)]
            b = placed.stage[other]
        if b == a:
            continue
        # A threshold drawn from the nets' own costs: as heavy as a random one, or more.
        heavy = FORBIDDEN
        if nets > 0 and _drawn(placed, draws.together) == 0:
            heavy = max(1, blocks.cost[_drawn(placed, nets)])
        w = v
        if _drawn(placed, draws.exchanges) == 0:
            # A block of stage b by rejection; after so many misses v moves alone.
            for _ in range(2 * stages):
                u = _drawn(placed, count)
                if placed.stage[u] == b:
                    w = u
                    break
            placed.state[STEPS] += stages
        size = _bring(v, w, b, heavy, keep, blocks, placed)
        if size == 0:
            continue
        placed.state[STEPS] += loads
        then, value = _weigh(kind, reference, blocks, placed)
        worse = then - now
        # What lowers the energy is always done, the rest by chance (Metropolis).
        if worse > 0 and _drawn(placed, MODULUS) >= MODULUS * math.exp(-worse / heat):
            _undo(size, blocks, placed)
            continue
        now = then
        if value < placed.state[BEST]:
            placed.state[BEST] = value
            # Copies count as work, too.
            placed.state[STEPS] += count // 4
            for at in range(count):
                placed.best[at] = placed.stage[at]
    return tried
