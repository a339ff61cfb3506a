"""Trade-offs of packings: bytes of the first memory against the cost of spilling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stagepack.instances.packing.check import measure
from stagepack.instances.packing.data import PackingSolution
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import Objective
from stagepack.instances.tradeoffs import MORE, Axis, WhatIf, least, more


def _within(instance: LmemPacking, limit: int) -> LmemPacking:
    first, *others = instance.memories
    smaller = replace(first, capacity=least(first.capacity, limit))
    return instance.replace(memories=(smaller, *others))


def _used(instance: LmemPacking, solution: PackingSolution) -> int:
    return measure(instance, solution).peaks[0]


def _one_memory(instance: LmemPacking) -> str:
    return "" if len(instance.memories) > 1 else "there is one memory only, nothing can be spilled"


AXES = {
    "memory": Axis(
        unit="bytes",
        description="bytes of the first memory",
        within=_within,
        used=_used,
        objective="spill",
        lacking=_one_memory,
    )
}


def what_ifs(instance: LmemPacking) -> Iterator[WhatIf]:
    """Yield more memory where it is limited, and addresses that were not allowed."""
    if instance.objective is Objective.BANK_CONFLICTS:
        return  # what a conflict is worth beside the peak depends on all of these
    if instance.memories:
        for at, memory in enumerate(instance.memories):
            if memory.capacity is not None:
                grown = list(instance.memories)
                grown[at] = replace(memory, capacity=more(memory.capacity))
                changed = instance.replace(memories=tuple(grown))
                yield WhatIf(f"{MORE} % more of {memory.name}", changed)
    elif instance.ceiling is not None:
        yield WhatIf(f"{MORE} % more memory", instance.replace(capacity=more(instance.ceiling)))
    if (instance.alignment > 1).any():
        yield WhatIf("no alignment", instance.replace(alignment=np.ones_like(instance.alignment)))
    if instance.reserved:
        yield WhatIf("no reserved ranges", instance.replace(reserved=()))


def critical(instance: LmemPacking, solution: PackingSolution) -> Iterator[tuple[str, str]]:
    """Yield the buffer that ends highest, the largest one, and when most bytes are alive."""
    tops = solution.offsets + instance.size
    for what, at in (("highest end", int(tops.argmax())), ("largest", int(instance.size.argmax()))):
        low, high = int(solution.offsets[at]), int(tops[at])
        inside = ""
        if solution.memory is not None:
            inside = f" of {instance.memories[int(solution.memory[at])].name}"
        yield what, f"{instance.buffer_id(at)}: {high - low:,} bytes at {low:,}{inside}"
    if instance.period is None and instance.conflicts is None and not instance.gaps:
        moment, alive = _fullest(instance)
        yield "most bytes alive", f"{alive:,} from {moment:,} on"


def _fullest(instance: LmemPacking) -> tuple[int, int]:
    """Return when the most bytes are alive, and how many."""
    moments = np.concatenate([instance.start, instance.end])
    change = np.concatenate([instance.size, -instance.size])
    # What ends at a moment is gone before something begins.
    order = np.lexsort((change, moments))
    level = np.cumsum(change[order])
    at = int(level.argmax())
    return int(moments[order[at]]), int(level[at])
