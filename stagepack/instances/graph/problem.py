"""The registration of graph partitioning: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.graph.words import KIND, WORDS, Objective
from stagepack.instances.problem import Export, Problem

PROBLEM = Problem(
    kind=KIND,
    instance="GraphPartition",
    objectives=tuple(Objective),
    solution_fields=("assignment",),
    needs_instance=True,
    words=WORDS,
    export=Export(".dot", texts={".dot": "partition_dot", ".graphml": "partition_graphml"}),
    becomes={
        "pipeline-partition": "chain",
        "pipeline-schedule": "PipelineSchedule.from_graph",
    },
    public={
        "GraphPartition": "",
        "GraphSolution": "",
        "chain": "chains.chain",
        "partition_dot": "viewers",
        "partition_graphml": "viewers",
    },
)
