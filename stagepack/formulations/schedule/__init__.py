"""Models of pipeline schedules: constraint programming.

The class builds its model from a :class:`~stagepack.instances.schedule.PipelineSchedule`, turns an
engine's values into a solution (`decode`), a solution into a complete start (`hint`) and an
engine's raw bound into a safe one (`lower_bound`).  Engines are imported when a model is built,
not before.
"""

from stagepack.formulations.schedule.cp_sat import CpSat

__all__ = ["CpSat"]
