"""Models of graph partitioning: which stage, or which device, every block is on.

They are :class:`~stagepack.formulations.base.Formulation`s, built from
:class:`~stagepack.instances.graph.compact.Compact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.formulations.graph.cp_sat import CpSat as CpSat
    from stagepack.formulations.graph.latency import Latency as Latency
    from stagepack.formulations.graph.milp import Milp as Milp
else:
    __getattr__ = later(__name__, cp_sat="CpSat", latency="Latency", milp="Milp")
