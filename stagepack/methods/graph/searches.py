"""What the methods of graph partitioning do; loaded when one runs."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.formulations.graph import CpSat, Milp
from stagepack.heuristics.graph.baselines import equal_work, work_bound
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.effort import counted
from stagepack.methods.graph.exact import auto, dp, linear_dp
from stagepack.methods.graph.explain import impossible
from stagepack.methods.graph.improve import local_search, on_engine
from stagepack.methods.starts import offer_start
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


def _start(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> Compact | None:
    """Offer a first solution as the settings want it, and a bound; None: nothing fits."""
    compact = Compact.of(instance)
    reason = impossible(compact)
    if reason:
        progress.prove_infeasible(reason)
        return None
    progress.raise_bound(compact.bound(work_bound(compact)), "work bound")

    def quick() -> None:
        _equal_work(instance, progress, settings)
        local_search(compact, progress, settings.seed, rounds=1)
        progress.reason = ""

    offer_start(
        instance,
        progress,
        settings,
        {"auto": quick, "equal-work": lambda: _equal_work(instance, progress, settings)},
    )
    return compact


def _local_search(instance: GraphPartition, progress: GraphProgress, settings: Settings) -> None:
    """Improve the partition of a rule by annealing."""
    compact = _start(instance, progress, settings)
    if compact is not None:
        local_search(compact, progress, settings.seed)


RUNS: dict[str, Run] = {
    name: counted(run)
    for name, run in {
        "auto": auto,
        "equal-work": _equal_work,
        "local-search": _local_search,
        "linear-dp": linear_dp,
        "dp": dp,
        "milp": on_engine(Milp, "highs", _start),
        "cp-sat": on_engine(CpSat, "cp-sat", _start),
    }.items()
}
