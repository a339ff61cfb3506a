"""What is to be known of pipeline schedules: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem, Tool
from stagepack.instances.schedule.words import KIND, WORDS, Objective

PROBLEM = Problem(
    kind=KIND,
    instance="PipelineSchedule",
    objectives=tuple(Objective),
    solution_fields=("start",),
    needs_instance=True,
    words=WORDS,
    export=Export(".csv", options=("communication", "waits", "backward")),
    tools={
        "torchtitan": Tool(
            "torch.order.order",
            "pipeline_parallel_schedule_csv of torchtitan",
            requires="require_dealt",
        )
    },
    public=dict.fromkeys(("PipelineSchedule", "ScheduleSolution"), ""),
)
