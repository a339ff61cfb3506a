"""Annealing over first-fit orders, starting from the order of offsets in the best packing.

A state is an order of the blocks; its packing is first fit in that order.  The energy is the excess
above a target below the peak, summed over the sections, plus three times the excess of the peak.
When it reaches zero the target is lowered.  A move changes the position of one block in the order;
only affected blocks are placed again.  When a cooling fails, all blocks are moved up to the
ceiling, the highest first, and back down.

Cost: O(m log m) for each block that a move places again and that meets m others.  Source: own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.local_search.annealing_kernels import (
    ENERGY,
    REORDERED,
    RETARGETED,
    TARGET,
    Annealing,
    anneal,
    meetings,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


def unsupported(blocks: Blocks) -> str:
    """Return why first-fit orders do not cover `blocks`, or ''."""
    if not blocks.rigid:
        return "annealing needs blocks of full height at all times, without shared offsets"
    blocks = blocks.open
    if not (blocks.fixed[np.diff(blocks.range_ptr) > 0] >= 0).all():
        return "annealing supports fixed offsets, but no address ranges"
    return ""


def improve(
    blocks: Blocks,
    offsets: Array,
    *,
    target: int,
    seed: int = 0,
    legs: int | None = None,
    keep_going: KeepGoing | None = None,
    on_solution: Callable[[Array], None] | None = None,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Lower the peak of a packing.

    The blocks are of the supported kind, and their neighbours must fit in memory.  `offsets`, int64
    (b,), are a packing; what is returned has no higher peak.  It stops at the peak `target`, the
    best bound known, after `legs` kernel calls, if given, or once `keep_going`, asked several times
    a second, says no.  Random numbers follow from `seed`; `on_solution` is called with the offsets
    at every improvement.
    """
    blocks = blocks.open
    free = blocks.fixed < 0
    # All is counted in units, of which the offsets of what stays are multiples too.
    unit = math.gcd(blocks.unit, *offsets[~free].tolist())
    target //= unit
    best, peak = offsets, -(-int((offsets + blocks.size).max(initial=0)) // unit)
    if peak <= target or not free.any():
        return best
    search = _search(blocks, offsets, free, unit, seed, tuning=tuning)
    size = search.size
    target = max(target, int((search.offsets + size)[~free].max(initial=0)))
    scale = float(size[free].mean())
    turnable = bool(free.all() and (search.alignment == 1).all() and not blocks.segment)
    length = tuning.annealing.cooling if legs is None else min(tuning.annealing.cooling, legs)
    # A near target gets further in the end, a far one sooner: it suits runs of a few calls.
    leg, step = 0, max(1, (peak - target) // 2)
    search.state[ENERGY] = 0
    while True:
        now = int((search.offsets + size).max())
        if now < peak:
            best, peak = search.offsets * unit, now
            if on_solution is not None:
                on_solution(best)
        if peak <= target or (legs is not None and legs <= 0):
            return best
        if keep_going is not None and not keep_going():
            return best
        vain = leg == length and search.state[ENERGY] > 0
        if vain and turnable:
            _from_above(search)
        if vain or search.state[ENERGY] == 0:
            if legs is None:
                step = max(1, (peak - target) // tuning.annealing.target_steps)
            elif vain:
                step = max(1, step // 2)
            search.state[TARGET] = max(target, peak - step)
            search.state[ENERGY] = REORDERED if leg == 0 else RETARGETED
        leg %= length
        left = anneal(
            search,
            scale
            * tuning.annealing.hottest
            * math.pow(tuning.annealing.coldest / tuning.annealing.hottest, leg / length),
            tuning.annealing.budget,
        )
        each = tuning.annealing.step if len(search.bits) else tuning.annealing.heap_step
        effort.spend(tuning.prices.call + each * (tuning.annealing.budget - left))
        leg += 1
        legs = None if legs is None else legs - 1


def _search(
    blocks: Blocks, offsets: Array, free: Array, unit: int, seed: int, *, tuning: PackingTuning
) -> Annealing:
    """Return a search, in units, that starts with the free blocks in the order of offsets."""
    ptr, other = _rows(blocks, free, tuning=tuning)
    effort.spend(tuning.annealing.made + tuning.prices.item * blocks.b)
    order = np.flatnonzero(free)
    order = order[np.argsort(offsets[order], kind="stable")]
    place = np.full(blocks.b, -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    room = int(np.diff(ptr).max(initial=0)) + 1  # an interval for each of the longest row
    small = int((offsets + blocks.size).max()) <= 64 * tuning.annealing.marks * unit
    return Annealing(
        ptr=ptr,
        other=other,
        size=blocks.size // unit,
        alignment=blocks.alignment // np.gcd(blocks.alignment, unit),
        segment=blocks.segment // unit,
        piece_ptr=np.array(blocks.piece_ptr),
        first=np.array(blocks.first),
        end=np.array(blocks.end),
        order=order,
        place=place,
        offsets=offsets // unit,
        mark=np.zeros(blocks.b, dtype=np.int64),
        excess=np.zeros(blocks.sections, dtype=np.int64),
        undo_block=np.empty(blocks.b, dtype=np.int64),
        undo_offset=np.empty(blocks.b, dtype=np.int64),
        heap_low=np.empty(room, dtype=np.int64),
        heap_high=np.empty(room, dtype=np.int64),
        bits=np.zeros(tuning.annealing.marks if small else 0, dtype=np.uint64),
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
        state=np.zeros(3, dtype=np.int64),
    )


def _rows(blocks: Blocks, free: Array, *, tuning: PackingTuning) -> tuple[Array, Array]:
    """Return the blocks that meet each free one, as rows."""
    if not blocks.linear or len(blocks.first) != blocks.b:
        ptr, other = blocks.neighbours()
        effort.spend(tuning.annealing.shaped_entry * len(other))
        return ptr, other
    order = np.argsort(blocks.first, kind="stable")
    ptr, other = meetings(np.array(blocks.first), np.array(blocks.end), order, free)
    effort.spend(tuning.annealing.entry * (blocks.pairs + len(other)))
    return ptr, other


def place_all(search: Annealing) -> None:
    """Place all movable blocks anew, in order."""
    search.state[ENERGY] = REORDERED
    anneal(search, 0.0, 1)


def _from_above(search: Annealing) -> None:
    """Let all blocks fall to the ceiling, the highest first, then back to the floor."""
    for _ in range(2):
        ceiling = int((search.offsets + search.size).max())
        search.offsets[:] = ceiling - search.offsets - search.size
        search.order[:] = np.argsort(search.offsets, kind="stable")
        search.place[search.order] = np.arange(len(search.order))
        place_all(search)
