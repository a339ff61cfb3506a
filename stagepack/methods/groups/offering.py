"""Reports plans to `Progress` and counts the work of checking and evaluating them."""

from __future__ import annotations

from stagepack.heuristics.effort import spend
from stagepack.instances.groups import GroupingSolution
from stagepack.progress import Progress

ALONE, GROUPED, GROUP = 6e-6, 5e-5, 2.5e-4
"""Seconds to check and evaluate an operator that runs from global memory, one in a group, and a
group."""

PAIR = 4e-6
"""Seconds to find a pair of buffers of a group, and to count whether it shares a bank."""


def checking(plan: GroupingSolution) -> float:
    """Return the seconds that it usually takes to check and evaluate a plan."""
    alone = sum(not counts for counts in plan.slices)
    groups = len(plan.slices) - alone
    return ALONE * alone + GROUPED * (plan.boundaries[-1] - alone) + GROUP * groups


def offer(progress: Progress[GroupingSolution], found: GroupingSolution, source: str) -> None:
    """Offer a plan.

    Parameters
    ----------
    progress : Progress
    found : GroupingSolution
    source : str
        What found it.
    """
    spend(checking(found))
    progress.offer(found, source)
