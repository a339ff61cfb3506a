"""Models of phase scheduling: plans as paths of groups, and recomputation within one group.

Each class builds its model from a :class:`~stagepack.instances.phases.PhaseSchedule`, turns an
engine's values into a plan (`decode`), a plan into a complete start (`hint`) and an engine's raw
bound into a safe one in cycles (`lower_bound`).  Engines are imported when a model is built, not
before.
"""

from stagepack.formulations.phases.cp_sat import CpSat
from stagepack.formulations.phases.milp import Milp
from stagepack.formulations.phases.remat_models import RematCpSat, RematMilp

__all__ = ["CpSat", "Milp", "RematCpSat", "RematMilp"]
