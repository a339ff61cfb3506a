"""Pipeline schedules: instances, operations, solutions, their checker and their timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.schedule.data import ScheduleSolution as ScheduleSolution
    from stagepack.instances.schedule.instance import PipelineSchedule as PipelineSchedule
    from stagepack.instances.schedule.instance import measure as measure
    from stagepack.instances.schedule.memory import memory_arcs as memory_arcs
    from stagepack.instances.schedule.problem import KIND as KIND
    from stagepack.instances.schedule.problem import Objective as Objective
    from stagepack.instances.schedule.reasons import least_memory as least_memory
    from stagepack.instances.schedule.timing import earliest as earliest
else:
    __getattr__ = later(
        __name__,
        problem="KIND Objective",
        data="ScheduleSolution",
        instance="PipelineSchedule measure",
        memory="memory_arcs",
        reasons="least_memory",
        timing="earliest",
    )
