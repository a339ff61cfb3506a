"""Compiled greedy orders in which few nets and blocks wait for others.

Cost: O(blocks * ready blocks * degree) an order.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.schedule.random_kernels import draw
from stagepack.instances.compiled import compiled, step
from stagepack.instances.profile import Array

GRAIN = 2**20
"""Steps of a random number between 0 and 1."""


class Ties(NamedTuple):
    """Blocks and what ties them, int32 CSR: see :class:`.frontier_plan.Network`."""

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
        if seen[t] == 0:
            change += 1.0
        if seen[t] + 1 == ties.net_ptr[t + 1] - ties.net_ptr[t]:
            change -= 1.0
    if ties.after_ptr[v] < ties.after_ptr[v + 1]:
        change += 0.5
    for q in range(ties.before_ptr[v], ties.before_ptr[v + 1]):
        if waiting[ties.before[q]] == 1:
            change -= 0.5
    return change


@compiled
def greedy(
    ties: Ties, noise: float, random: Array, order: Array, seen: Array, waiting: Array, lacks: Array
) -> float:
    """Fill `order` and return the sum over steps of 2 to the power of the live fields.

    Parameters
    ----------
    ties : Ties
    noise : float
        The most that chance adds to what is compared.
    random : ndarray of uint64, shape (1,)
        State of the generator.
    order : ndarray of int64, shape (n,)
    seen : ndarray of int64, shape (nets,)
        Scratch: swept members.
    waiting, lacks : ndarray of int64, shape (n,)
        Scratch: successors and predecessors to come.
    """
    n = len(order)
    for t in range(len(seen)):
        seen[t] = 0
    ready = 0
    for v in range(n):
        waiting[v] = ties.after_ptr[v + 1] - ties.after_ptr[v]
        lacks[v] = ties.before_ptr[v + 1] - ties.before_ptr[v]
        if lacks[v] == 0:
            order[ready] = v
            ready += 1
    # Ready blocks are order[done:ready]; the latest to become ready are the last.
    width, score = 0.0, 0.0
    for done in range(n):
        best, least = done, 1e18
        for at in range(done, ready):
            value = _change(ties, seen, waiting, order[at])
            value += noise * draw(random, GRAIN) / GRAIN
            if value <= least:
                best, least = at, value
        v = order[best]
        width += _change(ties, seen, waiting, v)
        score += 2.0**width
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
    return score
