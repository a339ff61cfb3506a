"""Methods of layer grouping: an operator a group, TPU-MLIR's rules, the exact one, and ``auto``."""

from __future__ import annotations

from stagepack.instances.groups import KIND, GroupingSolution, LayerGrouping
from stagepack.instances.groups.words import Order, Timesteps
from stagepack.methods import Deferred, Method


def _ordered(instance: LayerGrouping) -> str:
    free = instance.order == Order.FREE
    return "" if free else "groups keep to the order given here; order: free lets them leave it"


def _free(instance: LayerGrouping) -> str:
    free = instance.timesteps == Timesteps.FREE
    return "" if free else "loads and stores keep to the rule here; timesteps: free lets them move"


GroupingMethod = Method[LayerGrouping, GroupingSolution]


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.groups.searches", name)


METHODS: tuple[GroupingMethod, ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="greedy-tail, then dp; dag where the order of operators is free, then cp-sat "
        "where timesteps are free",
        run=_run("auto"),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="layerwise",
        kind=KIND,
        exact=False,
        description="an operator a group, each cut as suits it best",
        run=_run("layerwise"),
        limited_by_work=True,
    ),
    Method(
        name="greedy-tail",
        kind=KIND,
        exact=False,
        description="from the tail the longest group that fits, cut as little as will do "
        "(TPU-MLIR, level 1)",
        run=_run("greedy-tail"),
        limited_by_work=True,
    ),
    Method(
        name="dp-first-fit",
        kind=KIND,
        exact=False,
        description="shortest path over the first cut that fits, over clusters where there are "
        "many operators (TPU-MLIR, level 2)",
        run=_run("dp-first-fit"),
        limited_by_work=True,
    ),
    Method(
        name="dp",
        kind=KIND,
        exact=True,
        description="shortest path over all groups of consecutive operators and all their cuts",
        run=_run("dp"),
        limited_by_work=True,
    ),
    Method(
        name="milp",
        kind=KIND,
        exact=True,
        description="MILP: one binary a group of consecutive operators",
        run=_run("milp"),
        engines=("highs", "cp-sat", "pyomo:highs", "pyomo:NAME"),
    ),
    Method(
        name="dag",
        kind=KIND,
        exact=True,
        description="shortest path over ideals: groups of any operators that can run one after "
        "the other",
        run=_run("dag"),
        limited_by_work=True,
        unsupported=_ordered,
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=False,
        description="dp or dag, then rows of transfers, spills and addresses inside every group",
        run=_run("cp-sat"),
        unsupported=_free,
        engines=("cp-sat",),
    ),
)
