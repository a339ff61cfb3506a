"""What the methods of layer grouping do; loaded, with its compiled kernels, when one runs."""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.groups import dp as search
from stagepack.heuristics.groups.dp import Partition
from stagepack.heuristics.groups.oracle import load_kernels
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.words import Timesteps
from stagepack.methods import Settings
from stagepack.methods.groups.explain import explain
from stagepack.methods.packing.attempt import warm_up
from stagepack.methods.starts import offer_start
from stagepack.progress import Progress, Stopped

GroupingProgress = Progress[GroupingSolution]
Run = Callable[[LayerGrouping, GroupingProgress, Settings], None]
Rule = Callable[[Partition], GroupingSolution | None]

RULES: dict[str, tuple[Rule, bool]] = {
    "layerwise": (search.layerwise, False),
    "greedy-tail": (search.greedy_tail, True),
    "dp-first-fit": (search.clustered, True),
}
"""What partitions by each rule, and whether the first cut that fits will do."""


def _by_rule(name: str) -> Run:
    """Return the `run` of a rule."""

    def run(instance: LayerGrouping, progress: GroupingProgress, _: Settings) -> None:
        rule, eager = RULES[name]
        try:
            found = rule(_partition(instance, progress, eager))
        except Stopped:
            return
        if found is not None:
            progress.offer(found, name)
        else:
            progress.reason = f"{name}: {explain(instance)}"

    return run


def dp(instance: LayerGrouping, progress: GroupingProgress, settings: Settings) -> None:
    """Prove the least cycles of groups of consecutive operators, loads and stores by the rule."""
    given = settings.warm_start
    if isinstance(given, str | None) and all(map(instance.stands, range(instance.n))):
        progress.offer(GroupingSolution.from_global_memory(instance.n), "global memory")
    starts = {name: lambda name=name: RUNS[name](instance, progress, settings) for name in RULES}
    offer_start(instance, progress, settings, {"auto": starts["greedy-tail"], **starts})
    partition = _partition(instance, progress)
    ruled = instance.timesteps == Timesteps.NEAREST

    def bound(cycles: int) -> None:
        if ruled:
            progress.raise_bound(cycles, "shortest path")

    try:
        found = search.solve(partition, bound)
    except Stopped:
        return
    if found is not None:
        progress.offer(found, "dp")
    elif partition.decided and ruled:
        progress.prove_infeasible(explain(instance))


def _partition(
    instance: LayerGrouping, progress: GroupingProgress, eager: bool = False
) -> Partition:
    """Return the groups of an instance, kernels loaded outside of the time limit."""

    def load(*parts: str) -> None:
        with progress.setup("loading kernels"):
            warm_up(*parts)

    def before_search(rigid: bool) -> None:
        load("exact" if rigid else "general")

    with progress.setup("loading kernels"):
        load_kernels()
    load("greedy", "lists")
    return Partition(instance, progress.keep_going, eager, before_search)


RUNS: dict[str, Run] = {
    "auto": dp,
    "dp": dp,
    **{name: _by_rule(name) for name in RULES},
}
