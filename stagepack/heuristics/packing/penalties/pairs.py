"""Pairs of blocks that cost something where they share an address, beside their normal form.

Source: own work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stagepack.heuristics.packing.exact_search.exact_general import forbidden
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.packing.meetings import Pause
from stagepack.instances.profile import Array


@dataclass(frozen=True, eq=False)
class Pairs:
    """Penalised pairs of blocks.

    Attributes
    ----------
    blocks : Blocks
        What is packed.
    first, second : ndarray of int64, shape (pairs,)
        The blocks of each pair, ``first < second``; several pairs may be of the same two.
    low, high : ndarray of int64, shape (pairs,)
        A pair shares an address where ``low <= offset[first] - offset[second] <= high``.
    cost : ndarray of int64, shape (pairs,)
        What that costs.
    certain : int
        Cost of the pairs that share whatever the placement is.
    """

    blocks: Blocks
    first: Array
    second: Array
    low: Array
    high: Array
    cost: Array
    certain: int

    @classmethod
    def of(cls, blocks: Blocks, size: Array, pairs: Array, cost: Array) -> Pairs:
        """Return the pairs of blocks of penalised pairs of buffers; those of no cost are left out.

        Parameters
        ----------
        blocks : Blocks
            The normal form.
        size : ndarray of int64, shape (n,)
            Bytes of each buffer.
        pairs : ndarray of int64, shape (k, 2)
            Buffers.
        cost : ndarray of int64, shape (k,)
            Of each pair.
        """
        counts = (size[pairs] > 0).all(axis=1) & (cost > 0)
        pairs, cost = pairs[counts], cost[counts]
        of, bytes_of = blocks.block[pairs], size[pairs]
        same = of[:, 0] == of[:, 1]
        certain = int(cost[same].sum())
        of, bytes_of, cost = of[~same], bytes_of[~same], cost[~same]
        turned = of[:, 0] > of[:, 1]
        of[turned], bytes_of[turned] = of[turned][:, ::-1], bytes_of[turned][:, ::-1]
        rows = np.column_stack([of, 1 - bytes_of[:, 0], bytes_of[:, 1] - 1])
        rows, which = np.unique(rows, axis=0, return_inverse=True)
        total = np.zeros(len(rows), dtype=np.int64)
        np.add.at(total, which.ravel(), cost)
        first, second, low, high = (np.ascontiguousarray(row) for row in rows.T)
        return cls(blocks, first, second, low, high, total, certain)

    def __len__(self) -> int:
        return len(self.cost)

    def shared(self, offsets: Array) -> Array:
        """Return which pairs share an address, as a mask, for offsets of blocks."""
        distance = offsets[self.first] - offsets[self.second]
        return np.asarray((self.low <= distance) & (distance <= self.high))

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
        section = blocks.sections + np.arange(len(chosen))
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        owner = np.concatenate([owner, self.first[chosen], self.second[chosen]])
        first = np.concatenate([blocks.first, section, section])
        zero = np.zeros(2 * len(chosen), dtype=np.int64)
        high = np.concatenate([1 - self.low[chosen], self.high[chosen] + 1])
        order = np.lexsort((first, owner))
        load = np.concatenate([blocks.load, high[: len(chosen)] + high[len(chosen) :]])
        return replace(
            blocks,
            piece_ptr=np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=blocks.b))]),
            first=first[order],
            end=np.concatenate([blocks.end, section + 1, section + 1])[order],
            low=np.concatenate([blocks.low, zero])[order],
            high=np.concatenate([blocks.high, high])[order],
            time=np.concatenate([blocks.time, np.arange(len(chosen))]),
            load=load,
            linear=False,
        )

    def rows(self, pause: Pause) -> tuple[Array, Array, Array, Array, Array]:
        """Return what each block must or should keep clear of, as rows.

        Returns
        -------
        ptr : ndarray of int64, shape (b + 1,)
            Rows of the blocks.
        other, low, high, cost : ndarray of int64, shape (entries,)
            Of the row of block i: at low <= o_i - o_other <= high the two share an address, which
            is forbidden at a cost of 0.
        """
        blocks, b = self.blocks, self.blocks.b
        ptr, near = blocks.neighbours(pause)
        pieces = np.stack([blocks.first, blocks.end, blocks.low, blocks.high], axis=1)
        i, j = np.concatenate([blocks.may_share, blocks.may_share[:, ::-1]]).T
        order = np.lexsort((j, i))
        partners = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=b))])
        run, spans = forbidden(ptr, near, blocks.piece_ptr, pieces, partners, j[order])
        many = np.diff(run)
        owner = np.repeat(np.repeat(np.arange(b), np.diff(ptr)), many)
        owner = np.concatenate([owner, self.first, self.second])
        order = np.argsort(owner, kind="stable")
        nothing = np.zeros(int(run[-1]), dtype=np.int64)
        return (
            np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=b))]),
            np.concatenate([np.repeat(near, many), self.second, self.first])[order],
            np.concatenate([spans["low"], self.low, -self.high])[order],
            np.concatenate([spans["high"], self.high, -self.low])[order],
            np.concatenate([nothing, self.cost, self.cost])[order],
        )
