"""Models of packing: constraint programming, and a MILP of who lies below whom.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.packing.LmemPacking`.
"""

from stagepack.formulations.packing.cp_sat import CpSat
from stagepack.formulations.packing.milp import Milp

__all__ = ["CpSat", "Milp"]
