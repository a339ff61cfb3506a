"""Pairs of blocks that cost something where they share an address, beside their normal form.

Cost: O(pairs), those of equal blocks and sizes taken together.  Source: own work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stagepack.instances.packing import LmemPacking, Penalties
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Penalised pairs of blocks."""

    blocks: Blocks  # what is packed
    # int64, shape (pairs, 2): the blocks of each pair, ascending; several pairs may be of the same
    # two.
    member: Array
    # `low`, `high`: int64, shape (pairs, 2): the bytes [low, high) above the offset of each that
    # must not meet.
    low: Array
    high: Array
    cost: Array  # int64, shape (pairs,): what it costs if they do
    certain: int  # cost of the pairs that share whatever the placement is

    @classmethod
    def of(cls, instance: LmemPacking, blocks: Blocks) -> Pairs:
        """Return the pairs of the blocks of an instance; those that cost nothing are left out."""
        given, size = instance.penalties, instance.size
        nothing = Penalties(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))
        pairs, cost = (given or nothing).pairs, (given or nothing).cost
        counts = (size[pairs] > 0).all(axis=1) & (cost > 0)
        pairs, cost = pairs[counts], cost[counts]
        same = blocks.block[pairs[:, 0]] == blocks.block[pairs[:, 1]]
        begin, end = blocks.shift[pairs], (blocks.shift + size)[pairs]
        met = same & (begin.max(axis=1, initial=0) < end.min(axis=1, initial=2**62))
        certain = int(cost[met].sum())
        pairs, cost = pairs[~same], cost[~same]
        turned = blocks.block[pairs[:, 0]] > blocks.block[pairs[:, 1]]
        pairs[turned] = pairs[turned][:, ::-1]
        begin, end = blocks.shift[pairs], (blocks.shift + size)[pairs]
        rows = np.concatenate([blocks.block[pairs], begin, end], axis=1)
        rows, which = np.unique(rows, axis=0, return_inverse=True)
        total = np.zeros(len(rows), dtype=np.int64)
        np.add.at(total, which.ravel(), cost)
        return cls(blocks, rows[:, :2], rows[:, 2:4], rows[:, 4:], total, certain)

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def nearest(self) -> tuple[Array, Array]:
        """Between which distances, of the first from the second offset, each pair shares."""
        low, high = self.low, self.high
        return low[:, 1] - high[:, 0] + 1, high[:, 1] - low[:, 0] - 1

    def shared(self, offsets: Array) -> Array:
        """Return which pairs share an address, as a mask, for offsets of blocks."""
        distance = offsets[self.member[:, 0]] - offsets[self.member[:, 1]]
        low, high = self.nearest
        return np.asarray((low <= distance) & (distance <= high))

    def worth(self, offsets: Array) -> int:
        """Return the cost of a placement, given offsets of blocks."""
        return self.certain + int(self.cost[self.shared(offsets)].sum())

    def separated(self, which: Array) -> Blocks:
        """Return the blocks with some pairs (a mask) that must not share: one section more a pair.

        Blocks of which only a part counts in a pair are kept apart in that part alone.
        """
        blocks, chosen = self.blocks, np.flatnonzero(which)
        if not len(chosen):
            return blocks
        section = np.repeat(blocks.sections + np.arange(len(chosen)), 2)
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        owner = np.concatenate([owner, self.member[chosen].ravel()])
        first = np.concatenate([blocks.first, section])
        low, high = self.low[chosen], self.high[chosen]
        after = blocks.time.max(initial=-1) + 1 + np.arange(len(chosen))
        order = np.lexsort((first, owner))
        many = np.bincount(owner, minlength=blocks.b)
        return replace(
            blocks,
            piece_ptr=np.concatenate([[0], np.cumsum(many)]),
            first=first[order],
            end=np.concatenate([blocks.end, section + 1])[order],
            low=np.concatenate([blocks.low, low.ravel()])[order],
            high=np.concatenate([blocks.high, high.ravel()])[order],
            time=np.concatenate([blocks.time, after]),
            moment=np.concatenate([blocks.moment, after]),
            load=np.concatenate([blocks.load, (high - low).sum(axis=1)]),
            linear=False,
        )
