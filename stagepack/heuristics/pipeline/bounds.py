"""Lower bounds that need no search."""

from __future__ import annotations

from stagepack.instances.pipeline import Objective
from stagepack.instances.pipeline.ranges import RangeCosts


def objective_bound(costs: RangeCosts) -> int:
    """Return a lower bound on the objective value, in ticks, from compute and host.  O(n)."""
    share = costs.instance.objective in (Objective.TRANSFER_BOUNDED, Objective.SUM)
    return costs.compute_bound() + (costs.host if share else 0)
