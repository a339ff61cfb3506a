"""What is to be known of pipeline schedules: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.problem import Export, Problem
from stagepack.instances.schedule.data import KIND, Objective
from stagepack.instances.schedule.instance import PipelineSchedule
from stagepack.instances.schedule.solution import ScheduleSolution
from stagepack.instances.words import Parameter

PROBLEM = Problem(
    kind=KIND,
    instance=PipelineSchedule,
    solution=ScheduleSolution,
    objectives=tuple(Objective),
    solution_fields=("start",),
    needs_instance=True,
    words=(
        Parameter("forward", int, "cycles of a forward pass", 1, 2**40),
        Parameter("backward", int, "cycles of B, 0: inference", 0, 2**40),
        Parameter("weight", int, "cycles of W, 0: B is the whole backward pass", 0, 2**40),
        Parameter("latency", int, "cycles from device to device", 0, 2**40),
        Parameter("chunks", int, "stages of a device", 1, 2**10),
        Parameter("split", bool, "split backward passes into B and W"),
        Parameter("steps", int, "optimiser steps of a run", 1, 2**31),
    ),
    export=Export(".csv"),
    public=dict.fromkeys(("PipelineSchedule", "ScheduleSolution"), ""),
)
