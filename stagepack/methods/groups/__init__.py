"""Methods of layer grouping: rules of the field, exact ones by what is free, and ``auto``."""

from __future__ import annotations

from stagepack.instances.groups import KIND, GroupingSolution, LayerGrouping
from stagepack.instances.groups.problem import Objective, Order, Timesteps
from stagepack.methods import Method, Table

TABLE: Table[LayerGrouping, GroupingSolution] = Table(KIND, __name__, (Objective.CYCLES,))


def _ordered(instance: LayerGrouping) -> str:
    """Return why operators must keep their order, '' if they need not."""
    free = instance.order == Order.FREE
    return "" if free else "groups keep to the order given here; order: free lets them leave it"


def _free(instance: LayerGrouping) -> str:
    """Return why timesteps are not decided, '' if they are."""
    free = instance.timesteps == Timesteps.FREE
    return "" if free else "the model is for loads and stores that may move: set timesteps to free"


GroupingMethod = Method[LayerGrouping, GroupingSolution]


METHODS: tuple[GroupingMethod, ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="greedy-tail, then dp; dag where the order of operators is free, then cp-sat "
        "where timesteps are free",
        default=False,
    ),
    TABLE.method(
        "layerwise",
        exact=False,
        description="one operator per group, each with its best cut",
    ),
    TABLE.method(
        "greedy-tail",
        exact=False,
        description="from the tail, the longest group that fits, with as few cuts as possible "
        "(TPU-MLIR, level 1)",
    ),
    TABLE.method(
        "dp-first-fit",
        exact=False,
        description="shortest path over the first cut that fits, over clusters where there are "
        "many operators (TPU-MLIR, level 2)",
    ),
    TABLE.method(
        "seed-order",
        exact=False,
        description="as dp, but buffers are placed by TPU-MLIR's rule alone: longest first, "
        "then largest, within a bank if possible",
    ),
    TABLE.method(
        "dp",
        exact=True,
        description="shortest path over all groups of consecutive operators and all their cuts",
    ),
    TABLE.method(
        "milp",
        exact=True,
        description="MILP: one binary for each group of consecutive operators",
        engines=("highs", "cp-sat", "pyomo:highs", "pyomo:NAME"),
        limited_by_work=False,
    ),
    TABLE.method(
        "dag",
        exact=True,
        description="shortest path over ideals: groups need not be consecutive operators",
        unsupported=_ordered,
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="groups, cuts, timesteps, spills and addresses together: a lazy shortest "
        "path over bounds, CP-SAT for the groups on it",
        unsupported=_free,
        engines=("cp-sat",),
        limited_by_work=False,
    ),
)


def shared(_: LayerGrouping) -> str:
    """Return which code all methods share on which a proof rests."""
    return "all methods ask the same code what a group costs"
