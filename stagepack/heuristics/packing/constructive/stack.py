"""The last resort: a placement with all buffers on top of one another, in O(n).

Source: common.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.profile import Array


def stack(instance: LmemPacking) -> Array | None:
    """Return offsets without any overlap whatever the lifetimes, shape (n,); O(n).

    None where buffers have fixed places, ranges or colocations, or where the stack exceeds the
    capacity or the objective has several memories.
    """
    held = instance.allowed or instance.reserved or instance.colocated or instance.memories
    if held or (instance.fixed >= 0).any() or instance.objective is Objective.SPILL:
        return None
    step = int(np.lcm.reduce(instance.alignment))
    if step > 2**20:
        return None
    room = -(-instance.size // step) * step
    if float(room.sum(dtype=np.float64)) >= 2.0**61:
        return None
    offsets = np.asarray(np.cumsum(room) - room)
    ceiling = instance.ceiling
    fits = ceiling is None or int((offsets + instance.size).max()) <= ceiling
    return offsets if fits else None
