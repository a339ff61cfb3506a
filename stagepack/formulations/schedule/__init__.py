"""Models of pipeline schedules: constraint programming.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.schedule.PipelineSchedule`; `Idle` is for bounds only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.schedule.cp_sat import CpSat as CpSat
    from stagepack.formulations.schedule.idle import Idle as Idle
    from stagepack.formulations.schedule.within_memory import WithinMemory as WithinMemory
else:
    __getattr__ = later(__name__, cp_sat="CpSat", idle="Idle", within_memory="WithinMemory")
