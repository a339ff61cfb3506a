"""Methods of graph partitioning: rules, dynamic programs, local search and models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.graph.peers.metis import unavailable
from stagepack.instances.graph import KIND, GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.levels import levels_of
from stagepack.methods import Method, Settings, Table
from stagepack.progress import Progress

TABLE: Table[GraphPartition, GraphSolution] = Table(
    KIND,
    __name__,
    (
        Objective.SUM,
        Objective.OVERLAP,
        Objective.REPLICATED,
        Objective.FORWARD_BACKWARD,
        Objective.MEMORY,
        Objective.LATENCY,
    ),
)

GraphMethod = Method[GraphPartition, GraphSolution]


def _in_stages(instance: GraphPartition) -> str:
    """Return why stages that follow one another are no answer, or ""."""
    if instance.objective == Objective.LATENCY:
        return "knows no latency, in which devices run side by side: use auto, cp-sat, local-search"
    return ""


def _no_metis(instance: GraphPartition) -> str:
    """Return why METIS cannot be asked, or ""."""
    return _in_stages(instance) or unavailable()


def _no_recurrence(instance: GraphPartition) -> str:
    """Return why PipeDream has no recurrence for an instance, or ""."""
    if _in_stages(instance):
        return _in_stages(instance)
    if not instance.contiguous:
        return "PipeDream has contiguous stages"
    if isinstance(instance.bandwidth, np.ndarray) and not levels_of(instance.bandwidth):
        return "PipeDream has links of one bandwidth, or in levels of groups as large as each other"
    alike = len(set(instance.speeds.tolist())) == 1 and not instance.cpus
    if not alike or (instance.capacity is not None and len(set(instance.capacity.tolist())) > 1):
        return "PipeDream has devices of one kind"
    return ""


def _unsupported(instance: GraphPartition) -> str:
    """Return why sets of blocks and kinds of devices do not tell what a stage costs, or ""."""
    if _in_stages(instance):
        return _in_stages(instance)
    if not instance.contiguous:
        return "this method finds contiguous stages only, but the instance allows others"
    if not instance.uniform:
        return "links are unlike: traffic depends on the devices at both ends"
    return ""


def _no_labels(instance: GraphPartition) -> str:
    """Return why labels do not tell what a stage costs, or ""."""
    from stagepack.heuristics.graph.frontier import model

    return _in_stages(instance) or model.unsupported(instance)


def _only_bounds(instance: GraphPartition) -> str:
    """Return why labels may end without proof, or ""."""
    from stagepack.heuristics.graph.frontier import model

    return model.unproved(instance)


def strengthen(
    instance: GraphPartition,
    progress: Progress[GraphSolution],
    settings: Settings,
    keep_going: Callable[[], bool],
) -> None:
    """Look for evidence that others can verify, where a proof rests on a search or an engine."""
    from stagepack.methods.graph import evidence

    evidence.strengthen(instance, progress, settings, keep_going)


METHODS: tuple[GraphMethod, ...] = (
    TABLE.method(
        "auto",
        exact=True,
        description="linear-dp and dp; then metis, local-search and frontier for large graphs, "
        "cp-sat for small ones and where dp does not apply; of a few blocks, every partition",
        default=False,
    ),
    TABLE.method(
        "equal-work",
        exact=False,
        description="stages of equal work, or of equal bytes, along one topological order",
        unsupported=_in_stages,
        limited_by_work=False,
    ),
    TABLE.method(
        "local-search",
        exact=False,
        description="simulated annealing: moves and exchanges blocks, together with those that "
        "depend on them",
    ),
    TABLE.method(
        "metis",
        exact=False,
        description="METIS: parts of equal work, sorted into stages and cut again (extra metis)",
        unsupported=_no_metis,
        default=False,
    ),
    TABLE.method(
        "pipedream",
        exact=False,
        description="PipeDream's own recurrence over antichains, level by level of links",
        unsupported=_no_recurrence,
        default=False,
    ),
    TABLE.method(
        "milp",
        exact=True,
        description="MILP: which blocks are on which stage, which tensors it receives and sends",
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
        unsupported=_in_stages,
        default=False,
    ),
    TABLE.method(
        "cp-sat",
        exact=True,
        description="CP-SAT: the same model in integers; also without contiguous stages",
        engines=("cp-sat",),
    ),
    TABLE.method(
        "linear-dp",
        exact=False,
        description="the best cuts of many topological orders; the best order is improved",
        unsupported=_in_stages,
    ),
    TABLE.method(
        "dp",
        exact=True,
        description="dynamic program over all ideals (sets of blocks closed under dependencies)",
        unsupported=_unsupported,
    ),
    TABLE.method(
        "frontier",
        exact=True,
        description="label search over live tensors with bounds, for graphs with too many ideals",
        unsupported=_no_labels,
        unproved=_only_bounds,
    ),
    TABLE.method(
        "beam",
        exact=False,
        description="beam search along a narrow order",
        unsupported=_no_labels,
        default=False,
    ),
)
