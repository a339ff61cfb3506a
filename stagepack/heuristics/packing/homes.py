"""In which memories buffers can live, and what of an instance has nothing to do with the rest.

Buffers that have one place, by colocation or as views, live in one memory.  Memories between which
no buffer has a choice are packed apart.

Cost: O(n memories), and a copy of the buffers of each memory.  Source: components of a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.instances.joining import Joined
from stagepack.instances.packing import relations
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array


@dataclass(frozen=True, eq=False)
class Share:
    """Some memories, and the buffers that live in these and nowhere else."""

    memories: tuple[int, ...]  # their indices, ascending
    buffers: Array  # int64, shape (k,): ascending
    instance: LmemPacking  # of these alone; one without memories if it is one memory
    # What they cost wherever they are; None where the objective of `instance` is that of all.
    constant: int | None


def possible(instance: LmemPacking) -> Array:
    """Return where buffers can live, bool, shape (n, memories).

    Those of its homes that are large enough, and where it may be at the offset that is fixed.
    """
    shape = instance.n, len(instance.memories)
    found = np.ones(shape, dtype=bool) if instance.homes is None else instance.homes.copy()
    fixed = instance.fixed >= 0
    top = instance.size + np.maximum(instance.fixed, 0)
    for index, level in enumerate(instance.memories):
        if level.capacity is not None:
            found[:, index] &= top <= level.capacity
        found[:, index] &= ~fixed | (instance.fixed % level.alignment == 0)
    if instance.colocated or instance.views:
        group, _ = relations.tied(instance)
        common = np.ones((int(group.max()) + 1, shape[1]), dtype=bool)
        np.logical_and.at(common, group, found)
        found = common[group]
    return found


def shares(instance: LmemPacking, where: Array) -> list[Share]:
    """Return what can be packed apart, the fewest buffers first.

    `where`, from :func:`possible`, has a memory for every buffer.
    """
    joined = Joined[int]()
    for choice in np.unique(where, axis=0):
        first, *others = np.flatnonzero(choice).tolist()
        for other in others:
            joined.join(first, other)
    found = []
    for members in joined.sets(range(len(instance.memories))):
        memories = tuple(sorted(members))
        buffers = np.flatnonzero(where[:, list(memories)].any(axis=1))
        if len(buffers):
            found.append(_share(instance, where, memories, buffers))
    return sorted(found, key=lambda share: (len(share.buffers), share.memories))


def _share(instance: LmemPacking, where: Array, memories: tuple[int, ...], buffers: Array) -> Share:
    levels = [instance.memories[index] for index in memories]
    costs = [level.cost for level in levels]
    objective, constant = instance.objective, None
    priced = instance.penalties is not None and bool(
        np.isin(instance.penalties.pairs, buffers).all(axis=1).any()
    )
    if objective is Objective.SPILL and len(set(costs)) == 1:
        constant = int(instance.accesses[buffers].sum()) * costs[0]
    elif objective is Objective.PENALTIES and not priced:
        constant = 0
    if constant is not None:
        limited = all(level.capacity is not None for level in levels)
        objective = Objective.FIT if limited else Objective.PEAK
    if len(memories) == 1:
        endless = objective is Objective.PENALTIES and levels[0].capacity is None
        alone = alone_in(
            instance, memories[0], buffers, objective=Objective.PEAK if endless else objective
        )
        if endless:
            alone = alone.replace(objective=objective, capacity=_enough(alone))
        return Share(memories, buffers, alone, constant)
    if len(memories) == len(levels) == len(instance.memories) and objective is instance.objective:
        return Share(memories, buffers, instance.replace(homes=where), constant)
    chosen = instance.select(
        buffers.tolist(),
        memories=levels,
        homes=where[np.ix_(buffers, np.array(memories))],
        objective=objective,
    )
    return Share(memories, buffers, chosen, constant)


def alone_in(instance: LmemPacking, memory: int, buffers: Array, **changes: object) -> LmemPacking:
    """Return buffers as an instance of one memory, its peak to be minimised if nothing is said.

    `buffers` can all live in the `memory`; `changes` are to further fields.
    """
    return instance.within(memory, buffers.tolist(), **{"objective": Objective.PEAK, **changes})


def _enough(instance: LmemPacking) -> int:
    """Return a capacity that no best placement needs to exceed: all blocks on any support."""
    blocks = Blocks.of(instance)  # within segments they have ranges as far as any needs
    stacked = (blocks.size + blocks.alignment).sum() + (instance.segment or 0)
    return int(blocks.range_low.max(initial=0) + stacked)
