"""What the methods of graph partitioning do; loaded when one runs."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.graph.baselines import equal_work, work_bound
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.graph.explain import impossible
from stagepack.progress import Progress

GraphProgress = Progress[GraphSolution]
Run = Callable[[GraphPartition, GraphProgress, Settings], None]


def _equal_work(instance: GraphPartition, progress: GraphProgress, _: Settings) -> None:
    """Give every accelerator its share."""
    compact = Compact.of(instance)
    reason = impossible(compact)
    if reason:
        progress.prove_infeasible(reason)
        return
    progress.raise_bound(compact.bound(work_bound(compact)), "work bound")
    broken: tuple[object, ...] = ()
    for solution in equal_work(compact):
        broken = progress.offer_if_valid(solution, "equal-work") or broken
    if progress.solution is None:
        progress.reason = f"equal-work: {'; '.join(map(str, broken[:3]))}"


RUNS: dict[str, Run] = {"auto": _equal_work, "equal-work": _equal_work}
