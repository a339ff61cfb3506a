"""Methods of graph partitioning: a rule of thumb, and ``auto``."""

from __future__ import annotations

from stagepack.formulations.graph import model
from stagepack.instances.graph import KIND, GraphPartition, GraphSolution
from stagepack.methods import Deferred, Method

GraphMethod = Method[GraphPartition, GraphSolution]


def _run(name: str) -> Deferred:
    return Deferred("stagepack.methods.graph.searches", name)


METHODS: tuple[GraphMethod, ...] = (
    Method(
        name="auto",
        kind=KIND,
        exact=False,
        description="equal-work",
        run=_run("auto"),
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
)
