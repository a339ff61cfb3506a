"""Models of layer grouping: plans as paths of groups of consecutive operators."""

from stagepack.formulations.groups.milp import Milp

__all__ = ["Milp"]
