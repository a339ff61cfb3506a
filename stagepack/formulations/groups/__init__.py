"""Models of layer grouping: plans as paths of groups, and what happens inside a group."""

from stagepack.formulations.groups.cp_sat import CpSat
from stagepack.formulations.groups.milp import Milp

__all__ = ["CpSat", "Milp"]
