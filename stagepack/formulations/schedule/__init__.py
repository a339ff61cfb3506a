"""Models of pipeline schedules: constraint programming.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.schedule.PipelineSchedule`; `Idle` is for bounds only.
"""

from stagepack.formulations.schedule.cp_sat import LOADING, CpSat
from stagepack.formulations.schedule.idle import Idle
from stagepack.formulations.schedule.within_memory import WithinMemory

__all__ = ["LOADING", "CpSat", "Idle", "WithinMemory"]
