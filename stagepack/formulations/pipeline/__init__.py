"""Models of pipeline partitioning: path variables, cumulative assignment, constraint programming.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.pipeline.ranges.RangeCosts`.
"""

from stagepack.formulations.pipeline.cp_sat import CpSat
from stagepack.formulations.pipeline.milp_assignment import MilpAssignment
from stagepack.formulations.pipeline.milp_interval import MilpInterval

__all__ = ["CpSat", "MilpAssignment", "MilpInterval"]
