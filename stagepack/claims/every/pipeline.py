"""Every partition of a chain: cuts, the devices of its stages, and what layers take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, combinations, pairwise, permutations, product

from stagepack.claims.every import MOST, TooManyError
from stagepack.instances.pipeline.data import PartitionData, PipelineSolution

Row = tuple[int, ...]


def candidates(instance: PartitionData, below: Fraction | None) -> Iterator[PipelineSolution]:
    """Yield all partitions."""
    slots = len(instance.stage_devices)
    inner = [cut for cut in range(1, instance.n) if instance.allowed_cuts[cut]]
    sizes = range(1 if instance.fewer_stages else slots, min(slots, len(inner) + 1) + 1)
    order = math.perm if instance.free_order else math.comb
    choices = math.prod(len(names) for names in _names(instance))
    if sum(math.comb(len(inner), s - 1) * order(slots, s) for s in sizes) * choices > MOST:
        raise TooManyError
    for stages in sizes:
        for devices in _rows(instance, stages):
            for cuts in combinations(inner, stages - 1):
                boundaries = (0, *cuts, instance.n)
                for taken in _choices(instance, boundaries):
                    yield PipelineSolution(boundaries, devices, taken)


def _rows(instance: PartitionData, stages: int) -> Iterator[Row]:
    """Yield the devices that stages may be on."""
    if instance.free_order:
        return permutations(range(instance.k), stages)
    return combinations(instance.stage_devices, stages)


def _names(instance: PartitionData) -> list[list[str]]:
    """Return what each layer may take."""
    every = instance.alternatives.items()
    return [
        [instance.own_alternative, *(name for name, one in every if one.layers[at])]
        for at in range(instance.n)
    ]


def _choices(instance: PartitionData, boundaries: Row) -> Iterator[tuple[str, ...]]:
    """Yield what all layers take."""
    names, own = _names(instance), instance.own_alternative
    if not instance.alternatives:
        yield ()
    elif instance.alternatives_per == "layer":
        yield from product(*names)
    else:  # what a layer of a stage has not, it does not take
        stages = list(pairwise(boundaries))
        for taken in product([own, *instance.alternatives], repeat=len(stages)):
            yield tuple(chain.from_iterable(
                [name if name in names[at] else own for at in range(a, b)]
                for (a, b), name in zip(stages, taken, strict=True)
            ))  # fmt: skip
