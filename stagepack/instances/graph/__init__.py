"""Graph partitioning: instances, solutions, their checker and the form on which methods work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.graph.compact import Compact as Compact
    from stagepack.instances.graph.data import GraphSolution as GraphSolution
    from stagepack.instances.graph.instance import GraphPartition as GraphPartition
    from stagepack.instances.graph.problem import KIND as KIND
    from stagepack.instances.graph.problem import DeviceOrder as DeviceOrder
    from stagepack.instances.graph.problem import Objective as Objective
else:
    __getattr__ = later(
        __name__,
        problem="KIND DeviceOrder Objective",
        data="GraphSolution",
        instance="GraphPartition",
        compact="Compact",
    )
