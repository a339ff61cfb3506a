"""Pipeline schedules: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Export, Problem, Tool
from stagepack.instances.words import CAPACITIES, Parameter

KIND = "pipeline-schedule"


class Objective(StrEnum):
    """What a schedule should minimise, in cycles."""

    MAKESPAN = "makespan"
    """The end of the step: of the last operation and the optimizer after it."""
    SPAN = "span"
    """The longest time any device is taken, from its first start to its last end: the period of
    steps whose optimizer needs no barrier."""


WORDS = (
    Parameter("forward", int, "cycles of a forward pass", 1, 2**40),
    Parameter("backward", int, "cycles of B, 0: inference", 0, 2**40),
    Parameter("weight", int, "cycles of W, 0: B is the whole backward pass", 0, 2**40),
    Parameter("latency", int, "cycles from device to device", 0, 2**40),
    Parameter("chunks", int, "stages of a device", 1, 2**10),
    Parameter("split", bool, "split backward passes into B and W"),
    Parameter(
        "whole_first", bool, "W of first stages is the whole backward pass, as PyTorch has it"
    ),
    Parameter("steps", int, "optimiser steps of a run", 1, 2**31),
)

PROBLEM = Problem(
    kind=KIND,
    instance="PipelineSchedule",
    objectives=tuple(Objective),
    solution_fields=("start",),
    needs_instance=True,
    words=(*WORDS, CAPACITIES),
    export=Export(".csv", options=("communication", "waits", "backward")),
    tools={
        "torchtitan": Tool(
            "torch.schedule.order",
            "pipeline_parallel_schedule_csv of torchtitan",
            requires="require_dealt",
        )
    },
    public=dict.fromkeys(("PipelineSchedule", "ScheduleSolution"), ""),
)
