"""What groups cost, straight from the definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagepack.heuristics.groups.network import cuts
from stagepack.heuristics.groups.oracle import NONE
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.regions import Regions
from stagepack.instances.groups.timesteps import Timetable, alone_cycles
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status


def cheapest(
    whole: LayerGrouping, members: Sequence[int], fits: Callable[[Timetable], bool]
) -> int:
    """Return the least cycles of operators as one group over all cuts that fit; `NONE`."""
    lone = len(members) == 1 and whole.stands(members[0])
    found = alone_cycles(whole, members[0]) if lone else NONE
    for cut in cuts(whole):
        regions = Regions(whole, members, cut)
        if any(
            whole.tensors[t].shape[axis] < cut.along(axis)
            for t in regions.stored
            for axis in range(5)
        ):
            continue
        table = Timetable(regions)
        if table.cycles < found and regions.allowed and fits(table):
            found = table.cycles
    return found


def loaded(table: Timetable) -> bool:
    """Whether the bytes alive in every row fit."""
    load = Blocks.of(packing(table)).load
    return int(load.max()) <= table.regions.instance.chip.memory


def placed(table: Timetable) -> bool:
    """Whether all buffers can be placed."""
    status, _ = place(table, lambda: True)
    assert status is not Status.UNKNOWN
    return status is Status.FEASIBLE
