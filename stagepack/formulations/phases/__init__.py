"""Models of phase scheduling: plans as paths of groups, and recomputation within one group.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.phases.PhaseSchedule`.
"""

from stagepack.formulations.phases.cp_sat import CpSat
from stagepack.formulations.phases.milp import Milp
from stagepack.formulations.phases.remat_models import RematCpSat, RematMilp

__all__ = ["CpSat", "Milp", "RematCpSat", "RematMilp"]
