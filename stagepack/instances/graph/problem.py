"""What is to be known of graph partitions: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.graph.words import KIND, WORDS, Objective
from stagepack.instances.problem import Problem

PROBLEM = Problem(
    kind=KIND,
    instance="GraphPartition",
    objectives=tuple(Objective),
    solution_fields=("assignment",),
    needs_instance=True,
    words=WORDS,
    public=dict.fromkeys(("GraphPartition", "GraphSolution"), ""),
)
