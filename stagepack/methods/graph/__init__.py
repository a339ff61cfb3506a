"""Methods of graph partitioning: a rule of thumb, and ``auto``."""

from __future__ import annotations

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
)
