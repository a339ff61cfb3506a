"""Compiled greedy topological orders with few live nets and blocks.

The next block is the one that makes labels grow least, with some noise.  `order` is the answer and
the list of what may be next in one: `order[:done]` is fixed, `order[done:ready]` waits, and each
block enters it once.  All arrays belong to :func:`.orders.narrow_order`.

Cost: O(blocks * ready blocks * degree) an order.  Source: see :mod:`.orders`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.random_kernels import draw
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

GRAIN = 2**20
"""Steps of a random number between 0 and 1."""
DRAWN = 8
"""Steps of a block that may be next, beside its ties."""


class Ties(NamedTuple):
    """Blocks and what ties them, int32 CSR: see :class:`.plan.Network`."""

    before_ptr: Array
    before: Array
    after_ptr: Array
    after: Array
    net_ptr: Array
    net: Array
    of_ptr: Array
    of: Array


@step
def _change(ties: Ties, seen: Array, waiting: Array, v: int) -> float:
    """Return by how much the fields of a label grow when v is next; an anchor is half a net."""
    change = 0.0
    for q in range(ties.of_ptr[v], ties.of_ptr[v + 1]):
        t = ties.of[q]
        # A label gets a field with the first member of a net, and loses it with the last.
        if seen[t] == 0:
            change += 1.0
        if seen[t] + 1 == ties.net_ptr[t + 1] - ties.net_ptr[t]:
            change -= 1.0
    if ties.after_ptr[v] < ties.after_ptr[v + 1]:
        change += 0.5
    for q in range(ties.before_ptr[v], ties.before_ptr[v + 1]):
        # The last of its successors: nobody asks for that block's stage any more.
        if waiting[ties.before[q]] == 1:
            change -= 0.5
    return change


@compiled
def greedy(
    ties: Ties,
    noise: float,
    random: Array,
    order: Array,
    seen: Array,
    waiting: Array,
    lacks: Array,
    state: Array,
    live: Array,
    most: int,
) -> bool:
    """Go on filling `order` for about `most` steps; True: it is full.

    A call ends between two blocks.  `order`, int64 (n,), begins with the blocks that wait for none;
    each of the others is added once, when it lacks none any more.  `waiting` and `lacks`, int64
    (n,), are the successors and predecessors to come; `seen`, int64 (nets,), the swept members, 0
    at first.  `state`, int64 (3,): how many are in order, how many are or may be next (at first
    those that wait for none), and the steps since the call began.  `live`, float64 (2,): live
    fields, and the sum over blocks of 2 to the power of them; 0 at first.  `noise` is the most that
    chance adds to what is compared, `random`, uint64 (1,), the state of the generator.
    """
    done, ready, steps = state[0], state[1], 0
    width, score = live[0], live[1]
    # Ready blocks are order[done:ready]; the latest to become ready are the last.
    while done < len(order) and steps < most:
        best, least = done, 1e18
        for at in range(done, ready):
            v = order[at]
            steps += DRAWN + ties.of_ptr[v + 1] - ties.of_ptr[v]
            steps += ties.before_ptr[v + 1] - ties.before_ptr[v]
            value = _change(ties, seen, waiting, v)
            value += noise * draw(random, GRAIN) / GRAIN
            # Of equal ones the latest, which keeps to the branch at hand.
            if value <= least:
                best, least = at, value
        v = order[best]
        width += _change(ties, seen, waiting, v)
        # Labels may double with each field, so cuts count by powers of two.
        score += 2.0**width
        # Moved up one by one: the others stay in the order in which they became ready.
        for at in range(best, done, -1):
            order[at] = order[at - 1]
        order[done] = v
        for q in range(ties.of_ptr[v], ties.of_ptr[v + 1]):
            seen[ties.of[q]] += 1
        for q in range(ties.before_ptr[v], ties.before_ptr[v + 1]):
            waiting[ties.before[q]] -= 1
        for q in range(ties.after_ptr[v], ties.after_ptr[v + 1]):
            w = ties.after[q]
            lacks[w] -= 1
            if lacks[w] == 0:
                order[ready] = w
                ready += 1
        done += 1
    state[0], state[1], state[2] = done, ready, steps
    live[0], live[1] = width, score
    return bool(done == len(order))
