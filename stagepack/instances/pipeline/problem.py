"""What is to be known of pipeline partitions: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.pipeline.data import KIND, Objective
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.problem import Change, Problem
from stagepack.instances.words import Parameter

WORDS = (
    Parameter(
        "host_transfer",
        bool,
        "every device waits for the exchange with the host",
        option="machine",
    ),
    Parameter("fewer_stages", bool, "devices may stay unused", option="freedom"),
    Parameter("free_order", bool, "stages may run on the devices in any order", option="freedom"),
)

PROBLEM = Problem(
    kind=KIND,
    instance=PipelinePartition,
    solution=PipelineSolution,
    objectives=tuple(Objective),
    solution_fields=("boundaries",),
    words=WORDS,
    changes=(
        Change("fixed_cuts", "--fix-cut", "layer", "a stage begins here; repeatable"),
        Change("forbidden_cuts", "--forbid-cut", "layer", "no stage begins here; repeatable"),
    ),
    public={
        "Objective": "",
        "PipelinePartition": "",
        "PipelineSolution": "",
        "Variable": "",
        "estimate": "estimate",
        "read_measured": "estimate",
    },
)
