"""What is to be known of pipeline partitions: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.pipeline.words import KIND, WORDS, Objective
from stagepack.instances.problem import Change, Problem

PROBLEM = Problem(
    kind=KIND,
    instance="PipelinePartition",
    objectives=tuple(Objective),
    solution_fields=("boundaries",),
    words=WORDS,
    changes=(
        Change("fixed_cuts", "--fix-cut", "layer", "a stage begins here; repeatable"),
        Change("forbidden_cuts", "--forbid-cut", "layer", "no stage begins here; repeatable"),
    ),
    becomes={"pipeline-schedule": "PipelineSchedule.from_partition"},
    public={
        "Objective": "",
        "PipelinePartition": "",
        "PipelineSolution": "",
        "Variable": "",
        "estimate": "estimate",
        "read_measured": "estimate",
    },
)
