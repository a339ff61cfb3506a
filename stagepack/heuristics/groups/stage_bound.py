"""Lower bounds on the groups of a part of a network, derived from the bound for the whole network.

Let operators [a, b) of an order run in groups of their own.  The operators before a and after b can
then run as in any known plan, and all of this together is a plan of the whole network, which takes
at least the bound for the whole.  So [a, b) takes at least this bound minus the cycles, in the
known plan, of the operators before a and after b; if a group of the known plan is cut, its
operators run alone.  In addition, [a, b) takes at least its compute.  O(n^2) for all ranges.
Source: own work.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.groups.least import least
from stagepack.heuristics.groups.network import machine, network
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.execution.replay import played_alone
from stagepack.instances.profile import Array


def least_compute(instance: LayerGrouping) -> Array:
    """Return the cycles that operators compute at least, in any group, shape (n,)."""
    return least(network(instance), machine(instance)).compute


def least_ranges(
    instance: LayerGrouping, solution: GroupingSolution | None, bound: float, end: int
) -> Array:
    """Return the least cycles of operators [a, b) in groups of their own, shape (end + 1, end + 1).

    Meaningless for b <= a.  `solution` is a plan of all operators, in the order given, with no
    group on both sides of `end`; `bound` is on the groups of operators [0, end) alone.
    """
    compute = np.concatenate(([0], np.cumsum(least_compute(instance)[:end])))
    found = (compute[None, :] - compute[:, None]).astype(np.float64)
    if solution is None or solution.order:
        return found
    takes = np.full(end + 1, np.inf)
    cycles = np.concatenate(([0], np.cumsum(group_cycles(instance, solution))))
    for at, taken in zip(solution.boundaries, cycles.tolist(), strict=True):
        if at <= end:
            takes[at] = taken
    alone = [
        float(played_alone(instance, at)) if instance.stands(at) else np.inf for at in range(end)
    ]
    before, behind = takes.copy(), takes[end] - takes
    behind[~np.isfinite(takes)] = np.inf
    for at in range(end):
        before[at + 1] = min(before[at + 1], before[at] + alone[at])
        behind[end - at - 1] = min(behind[end - at - 1], behind[end - at] + alone[end - at - 1])
    return np.asarray(np.maximum(found, bound - before[:, None] - behind[None, :]))
