"""Reports plans to `Progress` and counts the work of checking and evaluating them."""

from __future__ import annotations

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.tuning import CheckTuning, GroupsTuning
from stagepack.instances.groups import GroupingSolution
from stagepack.progress import Progress


def checking(plan: GroupingSolution, tuning: CheckTuning) -> float:
    """Return the seconds that it usually takes to check and evaluate a plan."""
    alone = sum(not counts for counts in plan.slices)
    groups, grouped = len(plan.slices) - alone, plan.boundaries[-1] - alone
    seconds = tuning.alone_price * alone + tuning.grouped_price * grouped
    return seconds + tuning.group_price * groups


def offer(
    progress: Progress[GroupingSolution],
    found: GroupingSolution,
    source: str,
    tuning: GroupsTuning,
) -> None:
    """Offer a plan `found` by `source`; `tuning` says what it costs to check it."""
    spend(checking(found, tuning.check))
    progress.offer(found, source)
