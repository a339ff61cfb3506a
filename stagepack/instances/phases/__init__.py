"""Phase scheduling: instances, plans, their checker, their simulator and their programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.phases.data import PhaseSolution as PhaseSolution
    from stagepack.instances.phases.data import Policy as Policy
    from stagepack.instances.phases.instance import PhaseSchedule as PhaseSchedule
    from stagepack.instances.phases.modes import Mode as Mode
    from stagepack.instances.phases.problem import KIND as KIND
    from stagepack.instances.phases.problem import Objective as Objective
else:
    __getattr__ = later(
        __name__,
        problem="KIND Objective",
        data="PhaseSolution Policy",
        modes="Mode",
        instance="PhaseSchedule",
    )
