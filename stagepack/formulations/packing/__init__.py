"""Models of packing: constraint programming, and a MILP of who lies below whom.

Each class builds its model from a :class:`~stagepack.instances.packing.LmemPacking`, turns an
engine's values into a solution (`decode`), a solution into a complete start (`hint`) and an
engine's raw bound into a safe one (`lower_bound`).  Engines are imported when a model is built,
not before.
"""

from stagepack.formulations.packing.cp_sat import CpSat
from stagepack.formulations.packing.milp import Milp

__all__ = ["CpSat", "Milp"]
