"""The kinds of problems for type checkers: their instances and solutions, their names in files."""

from __future__ import annotations

from typing import Literal

from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution

Instance = PipelinePartition | LmemPacking | PipelineSchedule | PhaseSchedule
"""An instance of any kind."""
Solution = PipelineSolution | PackingSolution | ScheduleSolution | PhaseSolution
"""A solution of any kind."""

PipelineKind = Literal["pipeline-partition", "pipeline"]
PackingKind = Literal["lmem-packing", "packing"]
ScheduleKind = Literal["pipeline-schedule", "schedule"]
PhaseKind = Literal["phase-schedule", "phases"]
