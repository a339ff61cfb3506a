"""Models of layer grouping: plans as paths of groups, and what happens inside a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.groups.cp_sat import CpSat as CpSat
    from stagepack.formulations.groups.milp import Milp as Milp
else:
    __getattr__ = later(__name__, cp_sat="CpSat", milp="Milp")
