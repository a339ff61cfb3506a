"""Keeping what fits: an old placement, carried over as far as a pass or two over time can do.

Old places that do not clash are kept, the heavier of two that do, and all other blocks go around
them.  Where these end too high, smaller kept blocks near them are given up and it begins anew.
Failing that, blocks of a given placement go back to their old places unless others lie there.
A pass costs a sort and, for the rest, a greedy placement: it carries to millions of blocks.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing.greedy import KeepGoing, place_in_order, whole
from stagepack.heuristics.packing.keep_kernels import sieve
from stagepack.heuristics.packing.rules import RULES, Measures
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array

RULE = "best-fit-lifetime"
"""How blocks go around those that are kept: of the rules that scale, mostly the lowest."""

ROUNDS = 6
"""Times that the others are placed, each with about half as many kept blocks near what was too
high."""

RETURNS = 20
"""Times that blocks on their way back are looked at again, because one of them gave way."""


def unsupported(blocks: Blocks) -> str:
    """Return why old places cannot be kept by passes over time, or ''."""
    if not whole(blocks):
        return "keeping needs blocks of one full-height piece that may lie anywhere"
    return ""


def previous(instance: LmemPacking, blocks: Blocks) -> Array:
    """Return the old offset of each block, shape (b,), or -1: that of its largest such buffer."""
    old = np.full(blocks.b, -1, dtype=np.int64)
    by_size = np.argsort(instance.size, kind="stable")
    by_size = by_size[instance.previous[by_size] >= 0]
    old[blocks.block[by_size]] = instance.previous[by_size]
    return old


def around(
    blocks: Blocks, old: Array, ceiling: int, *, keep_going: KeepGoing | None = None
) -> Array | None:
    """Keep old places that do not clash, and place the other blocks around them.

    Parameters
    ----------
    blocks : Blocks
        Of the supported kind.
    old : ndarray of int64, shape (b,)
        Old offsets; -1: none.
    ceiling : int
        Address that no block may exceed.
    keep_going : callable, optional
        Asked several times a second.

    Returns
    -------
    ndarray of int64, shape (b,), or None
        Offsets; None when the rest never fitted, or time is over.
    """
    usable = (old >= 0) & (old + blocks.size <= ceiling) & (old % blocks.alignment == 0)
    candidates = np.flatnonzero(usable)
    if not len(candidates):
        return None
    clashing = _clashing(blocks, candidates, old[candidates], blocks.size[candidates] * 1.0)
    kept = np.zeros(blocks.b, dtype=bool)
    kept[candidates[~clashing]] = True
    measures = Measures(blocks)
    rule = RULES[RULE]
    order = rule.order(measures)
    for _ in range(ROUNDS):
        offsets = place_in_order(
            blocks,
            order,
            policy=rule.policy,
            keep_going=keep_going,
            placed=np.where(kept, old, -1),
        )
        if offsets is None:
            return None
        beyond = offsets + blocks.size > ceiling
        if not beyond.any():
            return offsets
        near = np.flatnonzero(kept & _alive_with(blocks, beyond))
        if not len(near):
            return None
        near = near[np.argsort(blocks.size[near], kind="stable")]
        kept[near[: (len(near) + 1) // 2]] = False
    return None


def returned(blocks: Blocks, offsets: Array, old: Array) -> Array:
    """Return a packing with blocks moved back to old places, as far as nobody is in their way.

    Parameters
    ----------
    blocks : Blocks
        Of the supported kind.
    offsets : ndarray of int64, shape (b,)
        A packing; its peak is not exceeded.
    old : ndarray of int64, shape (b,)
        Old offsets; -1: none.
    """
    peak = int((offsets + blocks.size).max(initial=0))
    back = (old >= 0) & (old + blocks.size <= peak) & (old % blocks.alignment == 0)
    everyone = np.arange(blocks.b)
    for _ in range(RETURNS):
        found = np.where(back, old, offsets)
        # Who is not on the way back gives way to nobody.
        weight = np.where(back & (old != offsets), blocks.size, np.inf)
        dropped = _clashing(blocks, everyone, found, weight)
        if not dropped.any():
            return found
        back &= ~dropped
    return offsets


def _clashing(blocks: Blocks, members: Array, low: Array, weight: Array) -> Array:
    """Return which of some blocks are to go so that the others do not intersect."""
    times = np.concatenate([blocks.end[members], blocks.first[members]])
    # At equal times ends come first: lifetimes are half-open.
    events = np.argsort(times, kind="stable")
    return sieve(events, low, low + blocks.size[members], weight)


def _alive_with(blocks: Blocks, some: Array) -> Array:
    """Return which blocks share a section with any of some; both as masks."""
    change = np.zeros(blocks.sections + 1, dtype=np.int64)
    np.add.at(change, blocks.first[some], 1)
    np.add.at(change, blocks.end[some], -1)
    busy = np.concatenate([[0], np.cumsum(np.cumsum(change)[:-1] > 0)])
    return np.asarray(busy[blocks.end] > busy[blocks.first])
