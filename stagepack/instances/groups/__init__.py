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
    from stagepack.instances.groups.solution import GroupingSolution as GroupingSolution
    from stagepack.instances.groups.words import KIND as KIND
    from stagepack.instances.groups.words import Objective as Objective
    from stagepack.instances.groups.words import OperatorKind as OperatorKind
    from stagepack.instances.groups.words import Slicing as Slicing
else:
    __getattr__ = later(
        __name__,
        words="KIND Objective OperatorKind Slicing",
        chip="LaneChip",
        data="Source",
        operators="Operator Weight",
        instance="LayerGrouping",
        solution="GroupingSolution",
    )
