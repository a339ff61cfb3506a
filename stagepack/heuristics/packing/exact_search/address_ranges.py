"""The allowed offsets of a block: disjoint spans in ascending order.

What address ranges and fixed blocks leave is restricted to multiples of the block's alignment.
O(k) for a block with k ranges and fixed neighbours.  Source: ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.exact_search import address_ranges_kernels as kernels
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE, Rules, Spans
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.meetings import Pause, met, shares
from stagepack.instances.packing.normal_form.rows_kernels import rows
from stagepack.instances.profile import Array


@dataclass(frozen=True, eq=False)
class Places:
    """Offsets at which blocks may lie: rows of spans, ends included, ascending and disjoint."""

    ptr: Array  # int64, shape (b + 1,): a block with an empty row may lie anywhere
    # `low`, `high`: int64: multiples of the alignment.  What may lie nowhere has one span, at
    # NOWHERE.
    low: Array
    high: Array

    @property
    def limited(self) -> Array:
        """Which blocks may not lie anywhere, shape (b,)."""
        return np.asarray(np.diff(self.ptr) > 0)

    @property
    def lowest(self) -> Array:
        """Lowest offset of each block, shape (b,)."""
        lowest = np.zeros(len(self.ptr) - 1, dtype=np.int64)
        lowest[self.limited] = self.low[self.ptr[:-1][self.limited]]
        return lowest

    def take(self, which: Array) -> Places:
        """Return the places of some of the blocks."""
        if not len(self.low):
            return Places(np.zeros(len(which) + 1, dtype=np.int64), self.low, self.high)
        at, ptr = rows(self.ptr, which)
        return Places(ptr, self.low[at], self.high[at])

    def key(self, i: int) -> bytes:
        """Return what is equal for blocks that may lie at the same offsets."""
        row = slice(self.ptr[i], self.ptr[i + 1])
        return bytes(self.low[row].tobytes() + self.high[row].tobytes())


Beside = tuple[Array, Array, Array]
"""Addresses [low, high) of the fixed blocks that movable ones meet, by ascending `low`, as rows."""


def beside_fixed(blocks: Blocks, owner: Array, first: Array, end: Array, pause: Pause) -> Beside:
    """Return the addresses of the fixed blocks that each movable block meets.

    The pieces that count, shape (pieces,), are of the blocks `owner`, alive in the sections
    [`first`, `end`).  `pause` is called now and then; it may raise.
    """
    # Fixed blocks come first, by address, so that rows of those that are met ascend in it.
    order = np.argsort(np.where(blocks.fixed < 0, NOWHERE, blocks.fixed), kind="stable")
    rank = np.empty(blocks.b, dtype=np.int64)
    rank[order] = np.arange(blocks.b)
    movable = blocks.fixed[owner] < 0
    by_kind = np.lexsort((first, movable))
    held = len(owner) - int(movable.sum())
    owner, first, end = owner[by_kind], first[by_kind], end[by_kind]
    low = held + np.searchsorted(first[held:], first, side="left")
    high = held + np.searchsorted(first[held:], end, side="left")
    low[held:] = np.searchsorted(first[:held], first[held:], side="right")
    high[held:] = np.searchsorted(first[:held], end[held:], side="left")
    ptr, other = met(rank[owner], low, np.maximum(low, high), blocks.b, pause)
    at, own = rows(ptr, rank)
    near = order[other[at]]
    return own, blocks.fixed[near], blocks.fixed[near] + blocks.size[near]


def places(
    blocks: Blocks,
    which: Array,
    pause: Pause,
    beside: Beside | None = None,
    *,
    tuning: PackingTuning = TUNING,
) -> Places:
    """Return where the blocks `which` may lie.

    They may not use the addresses in `beside`, of the fixed blocks that each of all blocks meets.
    `pause` is called now and then; it may raise.
    """
    ranges, range_ptr = rows(blocks.range_ptr, which)
    near_ptr = np.zeros(len(which) + 1, dtype=np.int64)
    near_low = near_high = near_ptr[:0]
    if beside is not None:
        at, near_ptr = rows(beside[0], which)
        near_low, near_high = beside[1][at], beside[2][at]
    rules = Rules(
        size=blocks.size[which],
        alignment=blocks.alignment[which],
        range_ptr=range_ptr,
        range_low=blocks.range_low[ranges],
        range_high=blocks.range_high[ranges],
        near_ptr=near_ptr,
        near_low=near_low,
        near_high=near_high,
    )
    most = len(ranges) + len(near_low)
    ptr = np.zeros(len(which) + 1, dtype=np.int64)
    if not most:
        return Places(ptr, near_low, near_low)
    # A span a range, another one a fixed neighbour, and one more for each block.
    low, high = np.empty((2, most + len(which)), dtype=np.int64)
    for begin, end in shares((range_ptr + near_ptr)[1:]):
        pause()
        kernels.permitted(begin, end, rules, ptr, low, high)
    effort.spend(tuning.places.span * most)
    return Places(ptr, low[: ptr[-1]].copy(), high[: ptr[-1]].copy())


def misplaced(blocks: Blocks, held: Array, pause: Pause, *, tuning: PackingTuning = TUNING) -> bool:
    """Return whether a rule of its own forbids one of the fixed blocks `held` its place.

    `pause` is called now and then; what it raises ends the look.
    """
    where = places(blocks, held, pause, tuning=tuning)
    alone = np.diff(where.ptr) == 1  # what is fixed has a range: its place, if it is allowed
    return not (alone.all() and np.array_equal(where.lowest, blocks.fixed[held]))


def common_holes(
    given: Spans, pause: Pause, *, tuning: PackingTuning = TUNING
) -> tuple[Array, Array]:
    """Return the addresses [low, high) that no block of a group in `given` may use, as rows.

    More holes than are worth while are left out.  `pause` is called now and then; it may raise.
    """
    groups = len(given.member_ptr) - 1
    most = int((given.end - given.begin)[given.members].sum()) + groups
    control, ptr = np.zeros(3, dtype=np.int64), np.zeros(groups + 1, dtype=np.int64)
    # However long these are: groups that need more get no holes.
    holes = np.empty((min(most, tuning.places.hole_limit), 2), dtype=np.int64)
    scratch = np.empty((min(most, tuning.places.section_holes), 2), dtype=np.int64)
    while not kernels.common_holes(tuning.places.budget, given, control, ptr, holes, scratch):
        effort.spend(tuning.places.span * tuning.places.budget)
        pause()
    return ptr, holes[: ptr[-1]].copy()
