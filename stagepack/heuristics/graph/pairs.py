"""Minimises the sum of two loads (forward and backward pass), with a limit on the first.

The least backward load falls as the limit on the forward load rises.  Solving for one forward limit
therefore also bounds the backward load for all smaller ones.  Intervals of forward limits are
halved until none can contain a better sum.  Cost: two solves for each step of this staircase that
comes near the best sum.  Source: as :mod:`stagepack.heuristics.pipeline.staircase`.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Found

Probe = Callable[[int, int], Found | None]
"""``probe(limit, first_limit)``: the partition of the least backward load if that is under the
limit, among those that take at most so long forward."""


def least_sum(probe: Probe, first: int, value: int, known: int, most: int = FAR) -> Found | None:
    """Return the partition of the least sum if that is less than `known`, else None.

    No partition takes less than `first` forward, or `value` backward; `known` is `FAR` where no
    partition is known.  With fewer than `most` probes than it takes, the answer may be none or not
    the least.
    """
    best = None
    if known >= FAR:
        best = probe(FAR, FAR)
        if best is None:
            return None
        known, value = best.whole, max(value, best.value)
    waiting = [(first, known - 1 - value, value)]
    while waiting and most > 0:
        low, high, value = waiting.pop()
        high = min(high, known - 1 - value)
        if high < low:
            continue
        most -= 1
        found = probe(known - low, high)
        if found is None:
            continue
        if found.whole < known:
            best, known = found, found.whole
        high = min(high, known - 1 - found.value)
        middle = (low + high) // 2
        if low < high:
            waiting.append((middle + 1, high, found.value))
            waiting.append((low, middle, found.value))
        elif low == high:
            waiting.append((low, high, found.value))
    return best
