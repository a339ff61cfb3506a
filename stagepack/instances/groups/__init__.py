"""Layer grouping: instances, plans, their slices, timesteps and local memory, their checker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import later

if TYPE_CHECKING:
    from stagepack.instances.groups.chip import LaneChip as LaneChip
    from stagepack.instances.groups.data import Source as Source
    from stagepack.instances.groups.instance import LayerGrouping as LayerGrouping
    from stagepack.instances.groups.operators import Operator as Operator
    from stagepack.instances.groups.operators import Weight as Weight
    from stagepack.instances.groups.problem import KIND as KIND
    from stagepack.instances.groups.problem import Objective as Objective
    from stagepack.instances.groups.problem import OperatorKind as OperatorKind
    from stagepack.instances.groups.problem import Slicing as Slicing
    from stagepack.instances.groups.solution import GroupingSolution as GroupingSolution
else:
    __getattr__ = later(
        __name__,
        problem="KIND Objective OperatorKind Slicing",
        chip="LaneChip",
        data="Source",
        operators="Operator Weight",
        instance="LayerGrouping",
        solution="GroupingSolution",
    )
