"""The last resort: a placement with all buffers on top of one another, in O(n).

Source: common.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing import LmemPacking
from stagepack.instances.profile import Array


def stack(instance: LmemPacking) -> Array | None:
    """Return offsets without any overlap whatever the lifetimes, shape (n,); O(n).

    None where buffers have fixed places, ranges, segments, colocations or views, or where the stack
    exceeds the capacity or there are several memories.
    """
    held = instance.allowed or instance.reserved or instance.colocated or instance.memories
    if held or instance.views or instance.segment or (instance.fixed >= 0).any():
        return None
    offsets = pile(instance.size, instance.alignment)
    ceiling = instance.ceiling
    if offsets is None or ceiling is None:
        return offsets
    return offsets if int((offsets + instance.size).max()) <= ceiling else None


def pile(size: Array, alignment: Array, floor: int = 0) -> Array | None:
    """Return offsets of buffers on top of one another, from `floor` on, shape (n,); O(n).

    None where alignments have no common multiple that is small, or numbers grow too large.  `size`
    and `alignment`, int64 (n,), are those of the buffers.
    """
    step = int(np.lcm.reduce(alignment))
    if not 0 < step <= 2**20:
        return None
    room = -(-size // step) * step
    if floor + float(room.sum(dtype=np.float64)) >= 2.0**61:
        return None
    return np.asarray(np.cumsum(room) - room + -(-floor // step) * step)
