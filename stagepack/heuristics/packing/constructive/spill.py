"""Assigns buffers to memories by value: those that save most per byte come first.

A memory accepts buffers as long as their load fits at every moment.  It is then packed, and buffers
that end above its capacity go to the next memory; the last memory must hold the rest.

Cost: O(memories * rounds) greedy packings.  Source: own work; by value per byte, as for knapsacks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import greedy, valleys
from stagepack.heuristics.packing.constructive.spill_kernels import fill
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array


def place(
    instance: LmemPacking, keep_going: Callable[[], bool], *, tuning: PackingTuning = TUNING
) -> tuple[Array, Array] | None:
    """Return offsets and memories, shape (n,), or None when the rest does not fit anywhere.

    O(memories * rounds) greedy packings, ``tuning.spill.rounds`` at most a memory.  When
    `keep_going` says no, what has no memory yet goes to the last one, if it is found a place there
    at once.
    """
    blocks = Blocks.of(instance)
    offsets = np.zeros(instance.n, dtype=np.int64)
    memory = np.full(instance.n, -1, dtype=np.int64)
    by_cost = sorted(range(len(instance.memories)), key=lambda m: instance.memories[m].cost)
    left = _best_first(instance, blocks, tuning=tuning)

    def settle(chosen: Array, index: int, keep_going: Callable[[], bool]) -> Array | None:
        """Pack blocks into a memory and return () or those beyond its end, None: all of them."""
        buffers = np.flatnonzero(np.isin(blocks.block, chosen))
        found = _pack(instance, buffers, _limit(instance, index), keep_going, tuning=tuning)
        if found is None:
            return None
        if not len(found[1]):
            offsets[buffers], memory[buffers] = found[0], index
        return distinct(blocks.block[buffers[found[1]]])

    for index in by_cost[:-1]:
        limit = _limit(instance, index)
        chosen = left if limit is None else _within(blocks, left, limit, keep_going, tuning=tuning)
        for _ in range(tuning.spill.rounds):
            if not keep_going() or not len(chosen):
                break
            beyond = settle(chosen, index, keep_going)
            if beyond is not None and not len(beyond):
                left = left[~np.isin(left, chosen)]
                break
            fewer = chosen if beyond is None else chosen[~np.isin(chosen, beyond)]
            chosen = fewer if 0 < len(fewer) < len(chosen) else chosen[: len(chosen) // 2]
        if not keep_going():
            break
    if len(left):
        settle(left, by_cost[-1], keep_going)
    return None if (memory < 0).any() else (offsets, memory)


def _limit(instance: LmemPacking, index: int) -> int | None:
    """Return the address that ends a memory: its capacity or the last bank."""
    limits = [instance.memories[index].capacity]
    if instance.banks is not None:
        limits.append(instance.banks.count * instance.banks.nbytes)
    return min((limit for limit in limits if limit is not None), default=None)


def _best_first(instance: LmemPacking, blocks: Blocks, *, tuning: PackingTuning) -> Array:
    """Return all blocks, those first that save most per byte and moment."""
    effort.spend(tuning.prices.item * (instance.n + len(blocks.first)))
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    weight = np.zeros(blocks.b)
    np.add.at(weight, owner, (blocks.high - blocks.low) * 1.0 * (blocks.end - blocks.first))
    accesses = np.zeros(blocks.b)
    np.add.at(accesses, blocks.block, instance.accesses)
    return np.argsort(-accesses / np.maximum(1.0, weight), kind="stable")


def _within(
    blocks: Blocks,
    order: Array,
    capacity: int,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning,
) -> Array:
    """Return the blocks, taken in this order, that the load leaves room for."""
    load = np.zeros(blocks.sections, dtype=np.int64)
    taken = np.zeros(len(order), dtype=np.bool_)
    height, at = blocks.high - blocks.low, 0
    while at < len(order) and keep_going():
        at, steps = fill(
            order,
            at,
            np.array(blocks.piece_ptr),
            np.array(blocks.first),
            np.array(blocks.end),
            height,
            capacity,
            load,
            taken,
            tuning.spill.budget,
        )
        effort.spend(tuning.prices.call + tuning.spill.step * steps)
    return order[taken]


def _pack(
    instance: LmemPacking,
    buffers: Array,
    capacity: int | None,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning,
) -> tuple[Array, Array] | None:
    """Return offsets of the buffers and the positions of those that end above the capacity."""
    effort.spend(
        tuning.spill.made + tuning.spill.buffer * instance.n + 3 * tuning.prices.item * len(buffers)
    )
    part = instance.select(
        buffers.tolist(), objective=Objective.PEAK, memories=(), capacity=capacity
    )
    blocks = Blocks.of(part)
    found = greedy.portfolio(blocks, keep_going=keep_going, tuning=tuning)
    if found is None and not keep_going():
        quick = valleys.first(
            valleys.Spans(blocks.rounded, tuning=tuning), keep_going=keep_going, tuning=tuning
        )
        found = None if quick is None else quick[0]
    if found is None:
        return None
    offsets = blocks.expand(found)
    limit = np.iinfo(np.int64).max if capacity is None else capacity
    return offsets, np.flatnonzero(offsets + part.size > limit)
