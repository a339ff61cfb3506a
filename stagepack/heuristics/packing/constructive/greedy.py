"""Greedy rules: take the blocks in some order, and put each into a gap between placed blocks.

A rule is an order and a choice among the gaps.  Placing n blocks costs O(n * m) steps, where m
blocks are placed during the lifetime of a block.  Orders in which long blocks come before short
ones (by powers of two of their number of sections) keep m close to the number of blocks alive
together, so that millions of blocks can be placed.
Source: with each rule (:mod:`.rules`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy_kernels import (
    FAR,
    Lists,
    Pieces,
    Whole,
    fill_lists,
    fill_slabs,
    make_slabs,
)
from stagepack.heuristics.packing.constructive.rules import BANKS, FIRST, RULES, Measures, Rule
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import Banks
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.meetings import Pause
from stagepack.instances.profile import Array
from stagepack.progress import Stopped, pausing

KeepGoing = Callable[[], bool]


class BankPairs(NamedTuple):
    """Banks in terms of blocks."""

    # Banks there are, and bytes of each.
    number: int
    nbytes: int
    # int64: other[ptr[i] : ptr[i + 1]] are the blocks that should not be in a bank of block i; once
    # a pair of buffers.
    ptr: Array
    other: Array

    @classmethod
    def of(cls, blocks: Blocks, banks: Banks) -> BankPairs:
        """Return the pairs of `banks` between different blocks."""
        pairs = blocks.block[np.asarray(banks.pairs, dtype=np.int64).reshape(-1, 2)]
        ptr, other = _rows(pairs[pairs[:, 0] != pairs[:, 1]], blocks.b)
        return cls(banks.count, banks.nbytes, ptr, other)


def whole(blocks: Blocks) -> bool:
    """Whether every block is one full-height piece that may lie anywhere: slabs apply."""
    return (
        blocks.rigid and not len(blocks.range_low) and bool((np.diff(blocks.piece_ptr) == 1).all())
    )


def place(
    blocks: Blocks,
    rule: Rule,
    *,
    ceiling: int | None = None,
    keep_going: KeepGoing | None = None,
    banks: BankPairs | None = None,
    measures: Measures | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Place all blocks by one rule; None when a block finds no place or time is over.

    Blocks with given offsets come first, then those with upper limits, whatever the order.  No
    block may exceed the address `ceiling`.  Nothing is put beyond the last of `banks`, which the
    rule `bank-aware` needs.  `measures` are those of the blocks, to be used again; `keep_going` is
    asked several times a second.
    """
    if keep_going is not None and not keep_going():
        return None
    return place_in_order(
        blocks,
        rule.order(measures or Measures(blocks), keep_going),
        policy=rule.policy,
        ceiling=ceiling,
        keep_going=keep_going,
        banks=banks,
        tuning=tuning,
    )


def place_in_order(
    blocks: Blocks,
    order: Array,
    *,
    policy: int = FIRST,
    ceiling: int | None = None,
    keep_going: KeepGoing | None = None,
    banks: BankPairs | None = None,
    placed: Array | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Place all blocks in the `order` given, int64 (b,); see :func:`place`.

    `policy` is which gap a block takes: one of the policies of the rules.  Blocks stay at the
    offsets `placed`, int64 (b,), -1 for those not placed; only for blocks that are :func:`whole`.
    `ceiling`, `keep_going` and `banks` are as for :func:`place`.
    """
    if policy == BANKS and banks is None:
        raise ValueError("the bank-aware rule needs banks")
    effort.spend(tuning.greedy.placement + tuning.greedy.ordered * blocks.b)
    offsets = np.full(blocks.b, -1, dtype=np.int64) if placed is None else placed.copy()
    order = order[offsets[order] < 0]
    limit = FAR // 2 if ceiling is None else ceiling
    blocks = blocks if policy == BANKS else blocks.open
    if banks is not None:
        limit = min(limit, banks.number * banks.nbytes)
    if policy != BANKS and whole(blocks):
        done = _by_slabs(blocks, order, policy, limit, keep_going, offsets, tuning=tuning)
    elif placed is not None:
        raise ValueError("blocks placed before must be whole")
    else:
        done = _by_lists(blocks, order, policy, limit, keep_going, banks, offsets, tuning=tuning)
    return offsets if done else None


def portfolio(
    blocks: Blocks,
    *,
    keep_going: KeepGoing | None = None,
    on_solution: Callable[[Array, str], None] | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Run every rule that suits the number of blocks and return the lowest placement.

    `on_solution` is called with offsets and the rule's name at every improvement; `keep_going` is
    asked several times a second.
    """
    measures = Measures(blocks)
    floor = int(blocks.load.max(initial=0))
    best, least = None, FAR
    for rule in RULES.values():
        if rule.policy == BANKS or (blocks.b > tuning.greedy.scalable_from and not rule.scalable):
            continue
        if keep_going is not None and not keep_going():
            break
        offsets = place(blocks, rule, keep_going=keep_going, measures=measures, tuning=tuning)
        if offsets is None:
            continue
        peak = int((offsets + blocks.size).max(initial=0))
        if peak < least:
            best, least = offsets, peak
            if on_solution is not None:
                on_solution(offsets, rule.name)
        if least <= floor:
            break
    return best


def _by_slabs(
    blocks: Blocks,
    order: Array,
    policy: int,
    ceiling: int,
    keep_going: KeepGoing | None,
    offsets: Array,
    *,
    tuning: PackingTuning,
) -> bool:
    """Place blocks of one full-height piece; fill `offsets`, return whether all found a place."""
    given = (blocks.first, blocks.end, blocks.size, blocks.alignment)
    first, end, size, alignment = (np.array(column) for column in given)
    plain = Whole(first, end, size, alignment, blocks.segment)
    length_class = Measures(blocks).length_class[order]
    cuts = np.flatnonzero(np.diff(length_class)) + 1
    if len(cuts) >= tuning.greedy.slab_widths:
        cuts, length_class = cuts[:0], np.full(len(order), int(length_class.max()))
    placed = np.flatnonzero(offsets >= 0)
    begin, spent = 0, np.zeros(1, dtype=np.int64)
    for todo in np.split(order, cuts) if len(order) else []:
        if keep_going is not None and not keep_going():
            return False
        shift = int(length_class[begin])
        begin += len(todo)
        placed = placed[np.argsort(offsets[placed], kind="stable")]
        slabs = make_slabs(placed, todo, plain, offsets, shift)
        at = 0
        while at < len(todo):
            if keep_going is not None and not keep_going():
                return False
            at = fill_slabs(
                todo, at, policy, ceiling, plain, slabs, offsets, tuning.greedy.budget, spent
            )
            _account(spent, tuning.greedy.step, tuning=tuning)
            if at < 0:
                return False
        placed = np.concatenate([placed, todo])
    return True


def _by_lists(
    blocks: Blocks,
    order: Array,
    policy: int,
    ceiling: int,
    keep_going: KeepGoing | None,
    banks: BankPairs | None,
    offsets: Array,
    *,
    tuning: PackingTuning,
) -> bool:
    """Place blocks of any kind; fill `offsets`, return whether all found a place."""
    effort.spend(tuning.greedy.placement + tuning.prices.item / 3 * (blocks.b + len(blocks.first)))
    pause = pausing(keep_going)
    try:
        pieces, lists = _pieces(blocks, banks), _lists(blocks, pause)
    except Stopped:
        return False
    limited = np.zeros(blocks.b, dtype=bool)
    some = np.flatnonzero(np.diff(blocks.range_ptr))
    limited[some] = blocks.range_high[blocks.range_ptr[some + 1] - 1] < FAR // 2
    urgency = np.where(blocks.fixed >= 0, 0, np.where(limited, 1, 2))[order]
    order = np.ascontiguousarray(order[np.argsort(urgency, kind="stable")])
    at, spent = 0, np.zeros(1, dtype=np.int64)
    while at < len(order):
        if keep_going is not None and not keep_going():
            return False
        at = fill_lists(
            order, at, policy, ceiling, pieces, lists, offsets, tuning.greedy.budget, spent
        )
        _account(spent, tuning.greedy.list_step, tuning=tuning)
        if at < 0:
            return False
    return True


def place_limited(
    blocks: Blocks,
    members: Array,
    offsets: Array,
    *,
    ceiling: int = FAR // 2,
    keep_going: KeepGoing | None = None,
    tuning: PackingTuning = TUNING,
) -> bool:
    """Place some blocks of any kind, those with given offsets first, then those with upper limits.

    Return whether all `members` found a place; not once `keep_going` says no.  `offsets`, int64
    (b,), are -1 for what is not placed, and filled; no block may exceed the address `ceiling`.
    """
    return _by_lists(blocks, members, FIRST, ceiling, keep_going, None, offsets, tuning=tuning)


def _account(spent: Array, step: float, *, tuning: PackingTuning) -> None:
    """Count the steps of a kernel as work, and begin to count anew."""
    effort.spend(tuning.prices.call + step * int(spent[0]))
    spent[0] = 0


def _pieces(blocks: Blocks, banks: BankPairs | None) -> Pieces:
    """Return blocks and banks as kernels take them."""
    share_ptr, share = _rows(blocks.may_share, blocks.b)
    none = np.zeros(blocks.b + 1, dtype=np.int64)
    return Pieces(
        size=_writable(blocks.size),
        alignment=_writable(blocks.alignment),
        piece_ptr=_writable(blocks.piece_ptr),
        first=_writable(blocks.first),
        end=_writable(blocks.end),
        low=_writable(blocks.low),
        high=_writable(blocks.high),
        range_ptr=_writable(blocks.range_ptr),
        range_low=_writable(blocks.range_low),
        range_high=_writable(blocks.range_high),
        share_ptr=share_ptr,
        share=share,
        bank_ptr=none if banks is None else banks.ptr,
        bank_other=none[:0] if banks is None else banks.other,
        bank_bytes=0 if banks is None else banks.nbytes,
        bank_count=0 if banks is None else banks.number,
    )


def _writable(values: Array) -> Array:
    """Return values as kernels are compiled for them: a copy only of what may not be written to."""
    return values if values.flags.writeable else np.array(values)


def _lists(blocks: Blocks, pause: Pause) -> Lists:
    """Return empty lists for slabs so long that pieces touch three of them on average."""
    shift, left = 0, blocks.first
    right = left if blocks.momentary else blocks.end - 1
    while True:
        pause()
        if (right - left).sum() <= 2 * len(left):
            break
        shift += 1
        left, right = blocks.first >> shift, (blocks.end - 1) >> shift
    slabs = (blocks.sections >> shift) + 1
    pause()
    change = np.bincount(left, minlength=slabs + 1)
    pause()
    change[1:] -= np.bincount(right, minlength=slabs + 1)[:-1]
    pause()
    # The list of a slab has room for all pieces that touch it.
    ptr = np.concatenate([[0], np.cumsum(np.cumsum(change))])
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    pause()
    met = Measures(blocks).met(pause)
    pause()
    # Of a heap: two intervals a piece that is met, one a range, and the last.
    room = int((2 * met + np.diff(blocks.range_ptr)).max(initial=0)) + 2
    return Lists(
        ptr=ptr,
        length=np.zeros(slabs + 1, dtype=np.int64),
        entry=np.empty(int(ptr[-1]), dtype=np.int64),
        owner=owner,
        heap_low=np.empty(room, dtype=np.int64),
        heap_high=np.empty(room, dtype=np.int64),
        shift=shift,
    )


def _rows(pairs: Array, b: int) -> tuple[Array, Array]:
    """Return symmetric pairs as rows (ptr, other)."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).reshape(-1, 2)
    both = both[np.argsort(both[:, 0], kind="stable")]
    ptr = np.zeros(b + 1, dtype=np.int64)
    np.cumsum(np.bincount(both[:, 0], minlength=b), out=ptr[1:])
    return ptr, np.ascontiguousarray(both[:, 1])
