"""Lower bounds that need no search."""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.blocks import Blocks


def peak_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak: the heaviest section, or what must lie high. O(b)."""
    bound = max(int(blocks.load.max()), int(blocks.size.max()))
    # With one alignment for all, only the block on top leaves less than it is rounded up to.
    slack = int((blocks.rounded.size - blocks.size).max())
    bound = max(bound, int(blocks.rounded.load.max()) - slack)
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    if len(ranged):
        lowest = blocks.range_low[blocks.range_ptr[ranged]] + blocks.size[ranged]
        bound = max(bound, int(lowest.max()))
    return bound


def objective_bound(instance: LmemPacking, blocks: Blocks) -> int:
    """Return a lower bound on the instance's objective that holds whatever is chosen."""
    if instance.objective is Objective.MOVES:
        return 0
    if instance.objective is Objective.SPILL:
        return int(instance.accesses.sum()) * min(memory.cost for memory in instance.memories)
    return peak_bound(blocks)


def overload(instance: LmemPacking, blocks: Blocks) -> str:
    """Return why the capacity cannot do, from one look at each section and block; '' if unknown.

    Nothing here says that the capacity will do.
    """
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    first = blocks.range_ptr[ranged]
    room = blocks.range_high[first] - blocks.range_low[first]
    nowhere = ranged[room < blocks.size[ranged]]
    if len(nowhere):
        buffer = instance.buffer_id(int(np.flatnonzero(blocks.block == nowhere[0])[0]))
        return f"buffer {buffer} fits in none of its ranges; widen them or free reserved ones"
    ceiling = instance.ceiling
    if instance.objective is Objective.SPILL:
        limits = [memory.capacity for memory in instance.memories]
        if None in limits:
            return ""
        ceiling = sum(limit for limit in limits if limit is not None)
    if ceiling is None:
        return ""
    heaviest = int(blocks.load.argmax())
    excess = int(blocks.load[heaviest]) - ceiling
    if excess > 0:
        alive = int(((blocks.first <= heaviest) & (heaviest < blocks.end)).sum())
        when = f"at time {blocks.time[heaviest]}" if instance.conflicts is None else "in one clique"
        return (
            f"the {alive} buffers alive {when} hold {blocks.load[heaviest]} bytes, {excess} more "
            f"than the capacity of {ceiling}; at least {blocks.load[heaviest]} are needed"
        )
    if instance.objective is not Objective.SPILL and peak_bound(blocks) > ceiling:
        return (
            f"a fixed or limited buffer must end at {peak_bound(blocks)}, beyond the capacity "
            f"of {ceiling}; move it or raise the capacity"
        )
    return ""
