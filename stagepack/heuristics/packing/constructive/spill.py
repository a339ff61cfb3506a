"""Assigns buffers to memories by value: those that save most per byte come first.

Memories come in order of the cost of an access, at equal costs the largest first.  One takes what
has no other home left, then others as long as their load fits at every moment.  It is packed, and
buffers that end above its capacity go to a later memory if they may.  Where accesses do not count,
those with the fewest homes come first, then the largest.

Cost: O(memories * rounds) greedy packings.  Source: own work; by value per byte, as for knapsacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import greedy, valleys
from stagepack.heuristics.packing.constructive.spill_kernels import fill
from stagepack.heuristics.packing.homes import alone_in, possible
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


class Placed(NamedTuple):
    """Buffers in memories."""

    # `offsets`, `memory`: int64, shape (n,): of each buffer.
    offsets: Array
    memory: Array
    fits: bool  # whether that is a placement; else some memories are too full


def place(
    instance: LmemPacking, keep_going: Callable[[], bool], *, tuning: PackingTuning = TUNING
) -> Placed:
    """Return buffers in memories, which may be too full where greedy rules find no better place.

    O(memories * rounds) greedy packings, ``tuning.spill.rounds`` at most a memory.  When
    `keep_going` says no, what has no memory yet goes to the last one that it may live in, and is
    placed there by a quick rule.
    """
    blocks = Blocks.of(instance)
    home = np.ones((blocks.b, len(instance.memories)), dtype=bool)
    np.logical_and.at(home, blocks.block, possible(instance))
    offsets = np.zeros(instance.n, dtype=np.int64)
    memory = np.full(instance.n, -1, dtype=np.int64)
    fits = going = True

    def settle(chosen: Array, index: int, last: bool) -> Array | None:
        """Pack blocks into a memory and return () or those beyond its end, None: all of them.

        If it is the last attempt they stay there all the same.
        """
        nonlocal fits
        buffers = np.flatnonzero(np.isin(blocks.block, chosen))
        found = packed(instance, index, buffers, keep_going, tuning=tuning)
        if found is not None and not len(found[1]):
            offsets[buffers], memory[buffers] = found[0], index
        elif last:
            fits, memory[buffers] = False, index
        return None if found is None else distinct(blocks.block[buffers[found[1]]])

    order = by_cost(instance)
    left = np.arange(blocks.b)
    for at, index in enumerate(order):
        later = order[at + 1 :]
        here = left[home[left, index]]
        stay = ~home[np.ix_(here, later)].any(axis=1)
        bound, free = here[stay], here[~stay]
        chosen = bound
        going = going and keep_going()  # whoever said no is not asked again
        if len(free) and going:
            ranked = _best_first(instance, blocks, home, index, later, tuning=tuning)
            ranked = np.concatenate([bound, ranked[np.isin(ranked, free)]])
            limit = end_of(instance, index)
            if limit is not None:
                ranked = _within(blocks, ranked, limit, keep_going, tuning=tuning)
            chosen = np.concatenate([bound, ranked[~np.isin(ranked, bound)]])
        for turn in range(tuning.spill.rounds):
            most = len(chosen) == len(bound) or turn == tuning.spill.rounds - 1
            chosen = bound if most else chosen
            if not len(chosen):
                break
            beyond = settle(chosen, index, most)
            if most or (beyond is not None and not len(beyond)):
                break
            out = chosen if beyond is None else beyond
            kept = chosen[np.isin(chosen, bound) | ~np.isin(chosen, out)]
            half = len(bound) + (len(chosen) - len(bound)) // 2
            chosen = kept if len(bound) < len(kept) < len(chosen) else chosen[:half]
            going = going and keep_going()
            chosen = chosen if going else bound
        left = left[~np.isin(left, blocks.block[memory == index])]
    return Placed(offsets, memory, fits)


def by_cost(instance: LmemPacking) -> list[int]:
    """Return memories in order of the cost of an access, at equal costs the largest first."""

    def key(index: int) -> tuple[int, int]:
        end = end_of(instance, index)
        return instance.memories[index].cost, -(2**62) if end is None else -end

    return sorted(range(len(instance.memories)), key=key)


def end_of(instance: LmemPacking, index: int) -> int | None:
    """Return the address that ends a memory: its capacity or the last bank."""
    limits = [instance.memories[index].capacity]
    if instance.banks is not None:
        limits.append(instance.banks.count * instance.banks.nbytes)
    return min((limit for limit in limits if limit is not None), default=None)


def _best_first(
    instance: LmemPacking,
    blocks: Blocks,
    home: Array,
    index: int,
    later: Sequence[int],
    *,
    tuning: PackingTuning,
) -> Array:
    """Return all blocks, those first that save most per byte and moment.

    They are to live in the memory `index` and could live in those of `later` instead; `home`, bool
    of shape (b, memories), says where they may.
    """
    effort.spend(tuning.prices.item * (instance.n + len(blocks.first)))
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    weight = np.zeros(blocks.b)
    np.add.at(weight, owner, (blocks.high - blocks.low) * 1.0 * (blocks.end - blocks.first))
    if instance.objective is not Objective.SPILL:
        return np.lexsort((-weight, -blocks.size, home[:, later].sum(axis=1)))
    accesses = np.zeros(blocks.b)
    np.add.at(accesses, blocks.block, instance.accesses)
    costs = np.array([instance.memories[k].cost for k in later], dtype=float)
    instead = np.where(home[:, later], costs, np.inf).min(axis=1)
    saved = np.where(np.isfinite(instead), instead, 0) - instance.memories[index].cost
    return np.argsort(-accesses * saved / np.maximum(1.0, weight), kind="stable")


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


def packed(
    instance: LmemPacking,
    index: int,
    buffers: Array,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning = TUNING,
) -> tuple[Array, Array] | None:
    """Return offsets of buffers in a memory, and the positions of those that end above it.

    None where greedy rules find no place.

    `buffers` can all live in the memory `index`.  Once `keep_going` says no, a quick rule must do.
    """
    effort.spend(
        tuning.spill.made + tuning.spill.buffer * instance.n + 3 * tuning.prices.item * len(buffers)
    )
    limit = end_of(instance, index)
    part = alone_in(instance, index, buffers, capacity=limit, banks=None, penalties=None)
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
    most = np.iinfo(np.int64).max if limit is None else limit
    return offsets, np.flatnonzero(offsets + part.size > most)
