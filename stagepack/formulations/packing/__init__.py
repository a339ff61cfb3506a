"""Models of packing: constraint programming, and a MILP of who lies below whom.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.packing.LmemPacking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.packing.cp_sat import CpSat as CpSat
    from stagepack.formulations.packing.milp import Milp as Milp
else:
    __getattr__ = later(__name__, cp_sat="CpSat", milp="Milp")
