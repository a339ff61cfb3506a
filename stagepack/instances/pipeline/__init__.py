"""Pipeline partitioning: instances, solutions, their checker and their range costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.pipeline.data import PipelineSolution as PipelineSolution
    from stagepack.instances.pipeline.data import Variable as Variable
    from stagepack.instances.pipeline.instance import PipelinePartition as PipelinePartition
    from stagepack.instances.pipeline.problem import KIND as KIND
    from stagepack.instances.pipeline.problem import Objective as Objective
else:
    __getattr__ = later(
        __name__,
        problem="KIND Objective",
        data="PipelineSolution Variable",
        instance="PipelinePartition",
    )
