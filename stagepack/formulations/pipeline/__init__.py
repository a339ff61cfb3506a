"""Models of pipeline partitioning: path variables, cumulative assignment, constraint programming.

Each class builds its model from :class:`~stagepack.instances.pipeline.ranges.RangeCosts`, turns
an engine's values into a solution (`decode`), a solution into a complete start (`hint`) and an
engine's raw bound into a safe one in ticks (`lower_bound`).  Engines are imported when a model is
built, not before.
"""

from stagepack.formulations.pipeline.cp_sat import CpSat
from stagepack.formulations.pipeline.milp_assignment import MilpAssignment
from stagepack.formulations.pipeline.milp_interval import MilpInterval

__all__ = ["CpSat", "MilpAssignment", "MilpInterval"]
