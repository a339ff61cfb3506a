"""Lower bounds that need no search.

All work spread over all devices without loss, the costliest span that no cut may split, and the
dearest of the cuts that cannot be spared.  Cost: O(n).  Source: the usual bounds of
chains-on-chains partitioning; spans and cuts are own work.
"""

from __future__ import annotations

from stagepack.instances.pipeline import Objective
from stagepack.instances.pipeline.ranges import RangeCosts


def objective_bound(costs: RangeCosts) -> int:
    """Return a lower bound on the objective value, in ticks, from what cuts and layers cost.  O(n).

    All devices together compute for all layers, and some stage meets the dearest of the cuts that
    cannot be spared; see :meth:`.RangeCosts.compute_bound` and :meth:`.RangeCosts.transfer_bound`.
    """
    compute = costs.compute_bound()
    match costs.instance.objective:
        case Objective.TRANSFER_BOUNDED:
            return compute + costs.transfer_bound() + costs.host
        case Objective.SUM:
            return max(compute, costs.transfer_bound()) + costs.host
        case Objective.OVERLAP:
            return max(compute, costs.cut_bound())
        case _:
            return compute
