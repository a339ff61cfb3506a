"""Methods of graph partitioning: a rule of thumb, searches along orders and over sets of blocks."""

from __future__ import annotations

from stagepack.formulations.graph import model
from stagepack.heuristics.graph.metis import unavailable
from stagepack.instances.graph import KIND, GraphPartition, GraphSolution
from stagepack.methods import Deferred, Method

GraphMethod = Method[GraphPartition, GraphSolution]


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.graph.searches", name)


def _no_metis(instance: GraphPartition) -> str:
    return unavailable()


def _no_recurrence(instance: GraphPartition) -> str:
    """Return why PipeDream has no recurrence for an instance, or ""."""
    if not instance.contiguous or not instance.uniform:
        return "PipeDream has contiguous stages, on links of one bandwidth"
    alike = len(set(instance.speeds.tolist())) == 1 and not instance.cpus
    if not alike or (instance.capacity is not None and len(set(instance.capacity.tolist())) > 1):
        return "PipeDream has devices of one kind"
    return ""


def _unsupported(instance: GraphPartition) -> str:
    """Return why sets of blocks and kinds of devices do not tell what a stage costs, or ""."""
    if not instance.contiguous:
        return "stages need not be contiguous, but ideals are"
    if not instance.uniform:
        return "links are unlike: traffic depends on the devices at both ends"
    return ""


def _no_labels(instance: GraphPartition) -> str:
    """Return why labels do not tell what a stage costs, or ""."""
    from stagepack.heuristics.graph import frontier_model

    return frontier_model.unsupported(instance)


METHODS: tuple[GraphMethod, ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=True,
        description="linear-dp and dp; local-search, then frontier, or cp-sat where that is none",
        run=_run("auto"),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="equal-work",
        kind=KIND,
        exact=False,
        description="stages of equal work, or of equal bytes, along one topological order",
        run=_run("equal-work"),
    ),
    Method(
        name="local-search",
        kind=KIND,
        exact=False,
        description="annealing: blocks move with what stands in their way and what heavy tensors "
        "join to them",
        run=_run("local-search"),
        limited_by_work=True,
    ),
    Method(
        name="metis",
        kind=KIND,
        exact=False,
        description="METIS: parts of equal work, sorted into stages and cut again (extra metis)",
        run=_run("metis"),
        unsupported=_no_metis,
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="pipedream",
        kind=KIND,
        exact=False,
        description="PipeDream's own recurrence over antichains, as its authors wrote it",
        run=_run("pipedream"),
        unsupported=_no_recurrence,
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="milp",
        kind=KIND,
        exact=True,
        description="MILP: which blocks are on which stage, which tensors it receives and sends",
        run=_run("milp"),
        unsupported=model.GraphModel.unsupported,
        engines=("highs", "pyomo:highs", "pyomo:NAME"),
        limited_by_work=True,
        default=False,
    ),
    Method(
        name="cp-sat",
        kind=KIND,
        exact=True,
        description="CP-SAT: the same program in integers; also without contiguous stages",
        run=_run("cp-sat"),
        unsupported=model.GraphModel.unsupported,
        engines=("cp-sat",),
        limited_by_work=True,
    ),
    Method(
        name="linear-dp",
        kind=KIND,
        exact=False,
        description="the best cuts of many topological orders, of which the best is changed",
        run=_run("linear-dp"),
        limited_by_work=True,
    ),
    Method(
        name="dp",
        kind=KIND,
        exact=True,
        description="dynamic program over ideals: all sets of blocks that can come last",
        run=_run("dp"),
        limited_by_work=True,
        unsupported=_unsupported,
    ),
    Method(
        name="frontier",
        kind=KIND,
        exact=True,
        description="window search, and bounds from labels over live tensors: for graphs with too "
        "many ideals",
        run=_run("frontier"),
        limited_by_work=True,
        unsupported=_no_labels,
    ),
)
