"""Pipeline partitioning: instances, solutions, their checker and their range costs."""

from stagepack.instances.pipeline.check import check, evaluate
from stagepack.instances.pipeline.data import KIND, Objective, Variable
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.shared import SharedBytes
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.violation import Violation

__all__ = [
    "KIND",
    "Objective",
    "PipelinePartition",
    "PipelineSolution",
    "SharedBytes",
    "Variable",
    "Violation",
    "check",
    "evaluate",
]
