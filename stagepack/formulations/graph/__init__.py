"""Models of graph partitioning: which stage, or which device, every block is on.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.graph.compact.Compact`.
"""

from stagepack.formulations.graph.cp_sat import CpSat
from stagepack.formulations.graph.milp import Milp

__all__ = ["CpSat", "Milp"]
