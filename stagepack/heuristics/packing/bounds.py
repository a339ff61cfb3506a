"""Lower bounds that need no search."""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.blocks import Blocks


def peak_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak: the heaviest section, or what must lie high. O(b)."""
    return max(load_bound(blocks), placed_bound(blocks))


def load_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak from what each section holds."""
    # With one alignment for all, only the block on top leaves less than it is rounded up to.
    slack = int((blocks.rounded.size - blocks.size).max())
    rounded = int(blocks.rounded.load.max()) - slack
    return max(int(blocks.load.max()), int(blocks.size.max()), rounded)


def placed_bound(blocks: Blocks) -> int:
    """Return a lower bound on the peak from the lowest place of every block with ranges."""
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    lowest = blocks.range_low[blocks.range_ptr[ranged]] + blocks.size[ranged]
    return int(lowest.max(initial=0))


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
    skew = np.flatnonzero((blocks.fixed >= 0) & (blocks.fixed % blocks.alignment != 0))
    if len(skew):
        names = [instance.buffer_id(int(i)) for i in np.flatnonzero(blocks.block == skew[0])]
        return (
            f"colocated buffers {', '.join(names)} are fixed at {blocks.fixed[skew[0]]}, no "
            f"multiple of their alignments ({blocks.alignment[skew[0]]}); correct one of them"
        )
    ceiling = instance.ceiling
    if instance.objective is Objective.SPILL:
        limits = [memory.capacity for memory in instance.memories]
        if None in limits:
            return ""
        ceiling = sum(limit for limit in limits if limit is not None)
    if ceiling is None:
        return ""
    limit = f"the capacity of {ceiling}"
    if instance.objective is not Objective.SPILL and ceiling != instance.capacity:
        limit = f"the {ceiling} bytes of all banks"
    heaviest = int(blocks.load.argmax())
    excess = int(blocks.load[heaviest]) - ceiling
    if excess > 0:
        alive = int(((blocks.first <= heaviest) & (heaviest < blocks.end)).sum())
        when = f"at time {blocks.time[heaviest]}" if instance.conflicts is None else "in one clique"
        return (
            f"the {alive} buffers alive {when} hold {blocks.load[heaviest]} bytes, {excess} more "
            f"than {limit}; at least {load_bound(blocks)} are needed"
        )
    if instance.objective is Objective.SPILL:
        return ""
    if placed_bound(blocks) > ceiling:
        return (
            f"a fixed or limited buffer must end at {placed_bound(blocks)}, beyond {limit}; "
            "move it or raise the limit"
        )
    if load_bound(blocks) > ceiling:
        return (
            f"rounded up to their alignment, the buffers alive together need "
            f"{load_bound(blocks)} bytes, {load_bound(blocks) - ceiling} more than {limit}"
        )
    return ""
