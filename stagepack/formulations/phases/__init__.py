"""Models of phase scheduling: plans as paths of groups, and recomputation within one group.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.phases.PhaseSchedule`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.phases.cp_sat import CpSat as CpSat
    from stagepack.formulations.phases.milp import Milp as Milp
    from stagepack.formulations.phases.remat_models import RematCpSat as RematCpSat
    from stagepack.formulations.phases.remat_models import RematMilp as RematMilp
else:
    __getattr__ = later(__name__, cp_sat="CpSat", milp="Milp", remat_models="RematCpSat RematMilp")
