"""Lower bounds that need no search."""

from __future__ import annotations

import math
from fractions import Fraction

from stagepack.instances.pipeline import Objective
from stagepack.instances.pipeline.ranges import RangeCosts


def compute_bound(costs: RangeCosts) -> int:
    """Return a lower bound on the largest compute (with the host's share for ``sum``), in ticks.

    The larger of: all work spread over all devices without loss; the costliest span that no cut
    may split, on the fastest device.  0 for explicit tables, whose ranges need not add up.  O(n).
    """
    if costs.instance.compute_table is not None:
        return 0
    speed = sum(Fraction(1, int(costs.weight[c])) for c in costs.device_class.tolist())
    spread = math.ceil(int(costs.prefix[-1]) / speed)
    cuts = costs.prefix[costs.allowed]
    span = int((cuts[1:] - cuts[:-1]).max()) * int(costs.weight.min())
    share = costs.host if costs.instance.objective is Objective.SUM else 0
    return max(spread, span) + share


def objective_bound(costs: RangeCosts) -> int:
    """Return a lower bound on the objective value, in ticks.  O(n)."""
    bound = compute_bound(costs)
    return bound + costs.host if costs.instance.objective is Objective.TRANSFER_BOUNDED else bound
