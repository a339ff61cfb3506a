"""Which memory each buffer lives in, by value: the buffers that save most per byte go first.

A memory takes buffers as long as their load fits at every moment, is packed, and passes on what
ends above its capacity; the last memory must hold the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.packing import greedy
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array

ROUNDS = 20
"""Times that a memory is packed anew with fewer buffers before it goes without the rest."""


def place(instance: LmemPacking, keep_going: Callable[[], bool]) -> tuple[Array, Array] | None:
    """Return offsets and memories, shape (n,), or None when the rest does not fit anywhere.

    O(memories * rounds) greedy packings.
    """
    groups = _groups(instance)
    offsets = np.zeros(instance.n, dtype=np.int64)
    memory = np.full(instance.n, -1, dtype=np.int64)
    by_cost = sorted(range(len(instance.memories)), key=lambda m: instance.memories[m].cost)
    left = groups
    for rank, index in enumerate(by_cost):
        last = rank == len(by_cost) - 1
        limit = _limit(instance, index)
        chosen = left if last else _worth_most(instance, left, limit)
        for _ in range(ROUNDS):
            if not chosen:
                break
            buffers = np.array(sorted(i for group in chosen for i in group))
            found = _pack(instance, buffers, limit, keep_going)
            if found is not None and not found[1]:
                offsets[buffers], memory[buffers] = found[0], index
                break
            if last or not keep_going():
                return None
            beyond = {int(buffers[at]) for at in found[1]} if found is not None else set()
            fewer = [group for group in chosen if not beyond.intersection(group)]
            chosen = fewer if fewer and len(fewer) < len(chosen) else chosen[: len(chosen) // 2]
        left = [group for group in left if memory[group[0]] < 0]
    return None if (memory < 0).any() else (offsets, memory)


def _limit(instance: LmemPacking, index: int) -> int | None:
    """Return the address that ends a memory: its capacity or the last bank."""
    limits = [instance.memories[index].capacity]
    if instance.banks is not None:
        limits.append(instance.banks.count * instance.banks.nbytes)
    return min((limit for limit in limits if limit is not None), default=None)


def _groups(instance: LmemPacking) -> list[tuple[int, ...]]:
    """Return the buffers that move together: colocated ones, and the others alone."""
    together = {i for group in instance.colocated for i in group}
    return [*instance.colocated, *((i,) for i in range(instance.n) if i not in together)]


def _worth_most(
    instance: LmemPacking, groups: list[tuple[int, ...]], capacity: int | None
) -> list[tuple[int, ...]]:
    """Return the groups that save most per byte and moment and fit the load, best first."""
    blocks = Blocks.of(instance)
    weight = np.zeros(instance.n)
    for block in range(blocks.b):
        for piece in range(blocks.piece_ptr[block], blocks.piece_ptr[block + 1]):
            held = int(blocks.high[piece] - blocks.low[piece])
            weight[block] += held * int(blocks.end[piece] - blocks.first[piece])
    worth = {
        group: sum(int(instance.accesses[i]) for i in group)
        / max(1.0, weight[blocks.block[group[0]]])
        for group in groups
    }
    best = sorted(groups, key=lambda group: (-worth[group], group))
    if capacity is None:
        return best
    load = np.zeros(blocks.sections, dtype=np.int64)
    chosen = []
    for group in best:
        block = int(blocks.block[group[0]])
        pieces = range(int(blocks.piece_ptr[block]), int(blocks.piece_ptr[block + 1]))
        spans = [slice(int(blocks.first[p]), int(blocks.end[p])) for p in pieces]
        sizes = [int(blocks.high[p] - blocks.low[p]) for p in pieces]
        more = list(zip(spans, sizes, strict=True))
        if all(load[span].max() + nbytes <= capacity for span, nbytes in more):
            for span, nbytes in more:
                load[span] += nbytes
            chosen.append(group)
    return chosen


def _pack(
    instance: LmemPacking, buffers: Array, capacity: int | None, keep_going: Callable[[], bool]
) -> tuple[Array, list[int]] | None:
    """Return offsets of the buffers and the positions of those that end above the capacity."""
    part = instance.select(
        buffers.tolist(), objective=Objective.PEAK, memories=(), capacity=capacity
    )
    blocks = Blocks.of(part)
    found = greedy.portfolio(blocks, keep_going=keep_going)
    if found is None:
        return None
    offsets = blocks.expand(found)
    if capacity is None:
        return offsets, []
    return offsets, np.flatnonzero(offsets + part.size > capacity).tolist()
