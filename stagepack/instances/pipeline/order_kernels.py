"""Compiled kernel that judges the orders of a graph's layers: one stage more of a chain."""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled

INFINITE = 2**61
PLAIN, SUM, OVERLAP, TRANSFER, LATENCY = range(5)
"""What counts of a stage: compute, with its transfers added, the largest of them, these alone.

Of all stages the dearest; for `LATENCY` their sum, of compute and transfers without the host."""


class Stage(NamedTuple):
    """What the stages [a, b) of one device cost, in ticks."""

    work: Array  # int64, shape (n + 1,): running sum of compute
    # `recv`, `send`: int64, shape (n + 1,): ticks to receive at a, to send at b.
    recv: Array
    send: Array
    # int64, shape (n + 1,): the furthest end of a stage that begins at each cut, non-decreasing.
    reach: Array
    allowed: Array  # bool, shape (n + 1,): cuts where a stage may begin or end
    host: int  # ticks added to every transfer


@compiled
def extend(
    counted: int, stage: Stage, most_compute: int, most_transfer: int, before: Array, after: Array
) -> None:
    """Set after[b] to the least of max(before[a], cost of [a, b)), or of the sum, over all a.

    Walks back from b until compute alone costs more.  O(n**2) at most.  What is `counted` is
    `PLAIN`, `SUM`, `OVERLAP`, `TRANSFER` or `LATENCY`; `most_compute` and `most_transfer` limit
    every stage.  The least so far that ends at each cut is in `before`, int64 (n + 1,), without the
    stage; with it, in `after`, which is written.
    """
    n = len(before) - 1
    after[0] = INFINITE
    for b in range(1, n + 1):
        least, send = INFINITE, stage.send[b]
        if stage.allowed[b]:
            for a in range(b - 1, -1, -1):
                compute, recv = stage.work[b] - stage.work[a], stage.recv[a]
                # Both get worse going back: no earlier beginning will do.
                if compute > most_compute or stage.reach[a] < b:
                    break
                # Compute counts in all of these, and rises.
                if counted != TRANSFER and compute >= least:
                    break
                transfer = recv + send + stage.host
                # Transfers neither rise nor fall: an earlier cut may yet be cheap.
                if before[a] >= least or transfer > most_transfer or not stage.allowed[a]:
                    continue
                cost = compute
                if counted == SUM:
                    cost += transfer
                elif counted == OVERLAP:
                    cost = max(compute, recv, send)
                elif counted == TRANSFER:
                    cost = transfer
                elif counted == LATENCY:
                    cost += recv + send + before[a]
                least = min(least, max(before[a], cost))
        after[b] = least
