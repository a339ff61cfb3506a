"""Plans whose buffers share few banks: of equal cycles, those are preferred."""

from __future__ import annotations

from dataclasses import replace

from stagepack.heuristics.groups.placement import place_apart
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.banks import group_conflicts
from stagepack.progress import Progress

MOST = 500
"""Groups that are placed anew."""


def spread(instance: LayerGrouping, progress: Progress[GroupingSolution]) -> None:
    """Place the groups of the best plan anew where fewer pairs of buffers then share a bank.

    Parameters
    ----------
    instance : LayerGrouping
    progress : Progress
        Keeps what is better, the cycles being equal.
    """

    def keep_going() -> bool:
        return progress.remaining > 0 and not progress.interrupted

    plan = progress.solution
    if plan is None or instance.chip.banks == 1 or plan.groups > MOST:
        return
    offsets = list(plan.offsets)
    for group, table in plan.timetables(instance):
        if not keep_going():
            return
        conflicts = 0 if table is None else group_conflicts(table, offsets[group])
        if table is None or not conflicts:
            continue
        found = place_apart(table, keep_going)
        if found is not None and group_conflicts(table, found) < conflicts:
            offsets[group] = found
    if tuple(offsets) != plan.offsets:
        progress.offer(replace(plan, offsets=tuple(offsets)), "fewer pairs in one bank")
