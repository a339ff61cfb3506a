"""The kinds of problems for type checkers: instances, solutions, names in files.

Signatures that depend on a kind are written with these.  ``python -m tests.tell_types`` writes this
file, and those signatures.
"""

from __future__ import annotations

from typing import Literal

from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution

__all__ = [
    "GraphKind",
    "GraphPartition",
    "GraphSolution",
    "GroupingKind",
    "GroupingSolution",
    "LayerGrouping",
    "LmemPacking",
    "PackingKind",
    "PackingSolution",
    "PhaseKind",
    "PhaseSchedule",
    "PhaseSolution",
    "PipelineKind",
    "PipelinePartition",
    "PipelineSchedule",
    "PipelineSolution",
    "ScheduleKind",
    "ScheduleSolution",
]

PipelineKind = Literal["pipeline-partition", "pipeline"]
PackingKind = Literal["lmem-packing", "packing"]
ScheduleKind = Literal["pipeline-schedule", "schedule"]
PhaseKind = Literal["phase-schedule", "phases"]
GroupingKind = Literal["layer-grouping", "groups"]
GraphKind = Literal["graph-partition", "graph"]
