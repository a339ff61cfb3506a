"""Models of pipeline partitioning: path variables, cumulative assignment, constraint programming.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.pipeline.ranges.RangeCosts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.pipeline.cp_sat import CpSat as CpSat
    from stagepack.formulations.pipeline.milp_assignment import MilpAssignment as MilpAssignment
    from stagepack.formulations.pipeline.milp_interval import MilpInterval as MilpInterval
    from stagepack.formulations.pipeline.placed import CpSatPlaced as CpSatPlaced
else:
    __getattr__ = later(
        __name__,
        cp_sat="CpSat",
        milp_assignment="MilpAssignment",
        milp_interval="MilpInterval",
        placed="CpSatPlaced",
    )
