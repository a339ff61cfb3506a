"""How plans are offered: to check and evaluate them counts as work."""

from __future__ import annotations

from stagepack.heuristics.effort import spend
from stagepack.instances.groups import GroupingSolution
from stagepack.progress import Progress

ALONE, GROUPED, GROUP = 6e-6, 5e-5, 2.5e-4
"""Seconds to check and evaluate an operator that runs from global memory, one in a group, and a
group."""

PAIR = 4e-6
"""Seconds to find a pair of buffers of a group, and to count whether it shares a bank."""


def offer(progress: Progress[GroupingSolution], found: GroupingSolution, source: str) -> None:
    """Offer a plan.

    Parameters
    ----------
    progress : Progress
    found : GroupingSolution
    source : str
        What found it.
    """
    alone = sum(not counts for counts in found.slices)
    groups = len(found.slices) - alone
    spend(ALONE * alone + GROUPED * (found.boundaries[-1] - alone) + GROUP * groups)
    progress.offer(found, source)
