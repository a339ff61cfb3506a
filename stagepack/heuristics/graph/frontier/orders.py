"""Narrow orders: topological orders with few live nets and blocks, the best of many greedy ones.

Cost: O(blocks * ready blocks * degree) an order.  Source: ours; greedy orders
as those for matrices of small profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier.order_kernels import Ties, greedy
from stagepack.heuristics.graph.frontier.plan import Network, Rows
from stagepack.heuristics.graph.frontier.tuning import NarrowOrderTuning
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.profile import Array


def narrow_order(
    network: Network,
    seed: int,
    pause: Callable[[], object],
    tuning: NarrowOrderTuning = TUNING.labels.order,
) -> Array:
    """Return the order with the least sum over cuts of 2 to the power of what is live there.

    All that is drawn follows from `seed`.  `pause` is called several times a second; what it raises
    ends the search.
    """
    n, members = len(network.before), _csr(network.members)
    ties = Ties(*_csr(network.before), *_csr(network.after), *members, *_turned(n, *members))
    random = np.array([2 * seed + 1], dtype=np.uint64)
    first = np.flatnonzero(np.diff(ties.before_ptr) == 0)
    order, best, least = np.empty(n, dtype=np.int64), np.arange(n), math.inf
    tries = max(tuning.least_tries, min(tuning.tries, tuning.visits // max(1, n)))
    for which in range(tries):
        noise = tuning.noise[which % len(tuning.noise)]
        order[: len(first)] = first
        seen = np.zeros(len(network.members), dtype=np.int64)
        waiting, lacks = (
            np.diff(ptr).astype(np.int64) for ptr in (ties.after_ptr, ties.before_ptr)
        )
        state, live, full = np.array([0, len(first), 0]), np.zeros(2), False
        while not full:
            most = tuning.part
            full = greedy(ties, noise, random, order, seen, waiting, lacks, state, live, most)
            effort.spend(tuning.step_price * state[2])
            pause()
        if which == 0 or live[1] < least:
            best, least = order.copy(), live[1]
    return best


def _csr(lists: Rows) -> tuple[Array, Array]:
    """Return rows as pointers and entries."""
    ptr = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in lists], out=ptr[1:])
    return ptr, np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=ptr[-1])


def _turned(n: int, ptr: Array, entries: Array) -> tuple[Array, Array]:
    """Return the rows that each of n entries is in, rising, as pointers and rows."""
    of_ptr = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.bincount(entries, minlength=n), out=of_ptr[1:])
    row = np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))
    return of_ptr, row[np.argsort(entries, kind="stable")]
