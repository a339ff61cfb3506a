"""Why no plan is possible: which operator does not fit, and what would make it fit."""

from __future__ import annotations

from stagepack.heuristics.groups.network import cuts
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.regions import Regions
from stagepack.instances.groups.timesteps import Timetable


def explain(instance: LayerGrouping) -> str:
    """Return which operator needs more local memory than there is, however it is cut.

    Of operators that fit only together with others nothing is said but that.
    """
    for at, operator in enumerate(instance.operators):
        if instance.stands(at):
            continue
        least, best = _least_bytes(instance, at)
        if least > instance.chip.memory:
            over = least - instance.chip.memory
            slices = "whole" if best == 1 else f"in {best:,} slices"
            return (
                f"{operator.name} needs {least:,} bytes in each lane, {slices}: {over:,} more than "
                f"there are; give lanes of {least:,} bytes, allow more slices or another slicing, "
                "or let it run from global memory (standalone)"
            )
    return "no buffers of some operator can be placed; give more local memory"


def _least_bytes(instance: LayerGrouping, at: int) -> tuple[int, int]:
    """Return the least bytes in a lane of an operator by itself, and in how many slices."""
    found = []
    for cut in cuts(instance):
        regions = Regions(instance, (at,), cut)
        sizes = instance.tensors[at].shape
        if all(sizes[axis] >= cut.along(axis) for axis in range(5)) and not regions.refusals():
            found.append((max(Timetable(regions).load_bytes()), cut.slices))
    return min(found, default=(0, 1))
