"""What the groups of a part of a network take at least, told from the whole network's.

Whatever the groups and their cuts, operators compute.  And where operators [a, b) of an order run
in groups of their own, those before a and behind b can run as in any plan known: all of that is a
plan of the whole network, which takes no less than its bound.  So [a, b) takes at least the bound
less what operators before a, and behind b, take in the plan known, cut there; operators of a group
that is cut run by themselves.  O(n^2) for all ranges.
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

    Meaningless for b <= a.

    Parameters
    ----------
    instance : LayerGrouping
    solution : GroupingSolution or None
        A plan of all operators, in the order given.
    bound : float
        On the groups of operators [0, end) alone.
    end : int
        Operators that are looked at; the plan has no group on both sides.
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
