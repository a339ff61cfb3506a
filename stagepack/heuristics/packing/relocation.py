"""Relocation: a placement within a capacity that moves few bytes of an old placement.

There are two methods.

*Passes over time*: old places that do not overlap are kept, of two that do the heavier one, and all
other blocks are placed around them.  If these end too high, smaller kept blocks near them are
released and the pass is repeated.  If this fails, blocks of a given placement return to their old
places where these are free.  A pass costs a sort and a greedy placement of the rest, and handles
millions of blocks.

*Search*, for instances with any rules: buffers keep their old offsets as long as these fit
together, and the others are placed into the rest.  If they do not fit, some kept buffers are
released, the smallest first, and then tried again one by one: O(n) greedy placements.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import (
    KeepGoing,
    place_in_order,
    portfolio,
    whole,
)
from stagepack.heuristics.packing.constructive.rules import RULES, Measures
from stagepack.heuristics.packing.relocation_kernels import sieve
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array

RULE = "best-fit-lifetime"
"""How blocks go around those that are kept: of the rules that scale, mostly the lowest."""


def unsupported(blocks: Blocks) -> str:
    """Return why old places cannot be kept by passes over time, or ''."""
    if not whole(blocks):
        return "this needs buffers without gaps, fixed offsets or address ranges"
    return ""


def previous(instance: LmemPacking, blocks: Blocks) -> Array:
    """Return the old offset of each block, shape (b,), or -1: that of its largest such buffer."""
    old = np.full(blocks.b, -1, dtype=np.int64)
    by_size = np.argsort(instance.size, kind="stable")
    by_size = by_size[instance.previous[by_size] >= 0]
    old[blocks.block[by_size]] = (instance.previous - blocks.shift)[by_size]
    return np.maximum(old, -1)


def around(
    blocks: Blocks,
    old: Array,
    ceiling: int,
    *,
    keep_going: KeepGoing | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Keep old places that do not clash, and place the other blocks around them.

    None when the rest never fitted, or time is over, by `keep_going`, which is asked several times
    a second.  The blocks are of the supported kind; `old`, int64 (b,), are offsets, -1: none.  No
    block may exceed the address `ceiling`.
    """
    usable = (old >= 0) & (old + blocks.size <= ceiling) & (old % blocks.alignment == 0)
    candidates = np.flatnonzero(usable)
    if not len(candidates):
        return None
    events, size = _events(blocks, candidates, tuning=tuning), blocks.size[candidates]
    clashing = _clashing(events, old[candidates], size, size * 1.0, keep_going, tuning=tuning)
    if clashing is None:
        return None
    kept = np.zeros(blocks.b, dtype=bool)
    kept[candidates[~clashing]] = True
    measures = Measures(blocks)
    rule = RULES[RULE]
    order = rule.order(measures)
    for _ in range(tuning.relocation.rounds):
        offsets = place_in_order(
            blocks,
            order,
            policy=rule.policy,
            keep_going=keep_going,
            placed=np.where(kept, old, -1),
            tuning=tuning,
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


def returned(
    blocks: Blocks,
    offsets: Array,
    old: Array,
    *,
    keep_going: KeepGoing | None = None,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Return a packing with blocks moved back to old places, as far as nobody is in their way.

    The blocks are of the supported kind.  The peak of `offsets`, int64 (b,), is not exceeded; they
    are the answer when time is over, by `keep_going`.  `old`, int64 (b,), are offsets, -1: none.
    """
    peak = int((offsets + blocks.size).max(initial=0))
    back = (old >= 0) & (old + blocks.size <= peak) & (old % blocks.alignment == 0)
    events = _events(blocks, np.arange(blocks.b), tuning=tuning)
    for _ in range(tuning.relocation.returns):
        found = np.where(back, old, offsets)
        # Who is not on the way back gives way to nobody.
        weight = np.where(back & (old != offsets), blocks.size, np.inf)
        dropped = _clashing(events, found, blocks.size, weight, keep_going, tuning=tuning)
        if dropped is None:
            return offsets
        if not dropped.any():
            return found
        back &= ~dropped
        if keep_going is not None and not keep_going():
            break
    return offsets


def _events(blocks: Blocks, members: Array, *, tuning: PackingTuning) -> Array:
    """Return deaths and births of some blocks in order of time, as the sieve wants them."""
    times = np.concatenate([blocks.end[members], blocks.first[members]])
    effort.spend(tuning.prices.item * len(times))
    # At equal times ends come first: lifetimes are half-open.
    return np.argsort(times, kind="stable")


def _clashing(
    events: Array,
    low: Array,
    size: Array,
    weight: Array,
    keep_going: KeepGoing | None,
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return which rectangles are to go so that the others do not intersect; None: no time."""
    # All may be alive together, each once.
    dropped, alive = np.zeros(len(low), dtype=bool), np.empty(len(low), dtype=np.int64)
    at = np.zeros(2, dtype=np.int64)
    while True:
        steps = sieve(events, low, low + size, weight, dropped, alive, at, tuning.relocation.budget)
        effort.spend(tuning.prices.call + tuning.relocation.sieved * steps)
        if at[0] == len(events):
            return dropped
        if keep_going is not None and not keep_going():
            return None


# ---------------------------------------------------------------------- by search


def move_less(
    instance: LmemPacking,
    capacity: int,
    *,
    keep_going: Callable[[], bool],
    on_solution: Callable[[Array], object],
    tuning: PackingTuning = TUNING,
) -> None:
    """Report placements within `capacity` bytes, each moving fewer bytes than the last.

    Releases kept buffers until the rest fits, then tries to keep each released one again, the
    largest first.  O(n) greedy packings at most.  The instance has previous offsets.  `on_solution`
    is called with offsets, shape (n,); once `keep_going` says no, the search ends.
    """
    kept = _consistent(instance, capacity, keep_going, tuning=tuning)
    found = None
    while found is None and keep_going():
        found, beyond = _with(instance, kept, capacity, keep_going, tuning=tuning)
        if found is None:
            if not kept.any():
                return
            kept &= ~_in_the_way(instance, kept, beyond)
    if found is None:
        return
    on_solution(found)
    for buffer in sorted(np.flatnonzero(_moved(instance, found)), key=lambda i: -instance.size[i]):
        if not keep_going():
            return
        again = kept.copy()
        again[buffer] = True
        again[instance.previous == found] = True
        if not _agree(instance, again, capacity, tuning=tuning):
            continue
        better, _ = _with(instance, again, capacity, keep_going, tuning=tuning)
        if better is not None and _bytes(instance, better) < _bytes(instance, found):
            found, kept = better, again
            on_solution(found)


def _moved(instance: LmemPacking, offsets: Array) -> Array:
    """Return which buffers leave their previous offsets, as a mask."""
    return np.asarray((instance.previous >= 0) & (instance.previous != offsets))


def _bytes(instance: LmemPacking, offsets: Array) -> int:
    """Return the bytes that leave their previous offsets."""
    return int(instance.size[_moved(instance, offsets)].sum())


def _consistent(
    instance: LmemPacking, capacity: int, keep_going: Callable[[], bool], *, tuning: PackingTuning
) -> Array:
    """Return a mask of buffers whose previous offsets are valid together, the largest first.

    O(n) for each buffer, in memory linear in n.
    """
    kept = np.zeros(instance.n, dtype=bool)
    blocks = Blocks.of(instance)
    alone = np.flatnonzero(_fits_alone(instance, blocks, capacity))
    if _agree(instance, _mask(alone, instance.n), capacity, tuning=tuning):
        return _mask(alone, instance.n)
    low = np.where(instance.fixed >= 0, instance.fixed, instance.previous)
    high = low + instance.size
    placed, base = instance.fixed >= 0, low - blocks.shift
    for buffer in sorted(alone.tolist(), key=lambda i: (-int(instance.size[i]), i)):
        if not keep_going():  # what is known to fit together is kept
            break
        effort.spend(
            tuning.prices.call + tuning.relocation.entry * (instance.n + len(blocks.first))
        )
        block = blocks.block[buffer]
        beside = np.flatnonzero(placed & (low < high[buffer]) & (low[buffer] < high))
        together = (blocks.block == block) & placed & (base != base[buffer])
        if not _meets(blocks, block, blocks.block[beside]) and not together.any():
            kept[buffer] = placed[buffer] = True
    return kept


def _meets(blocks: Blocks, block: int, others: Array) -> bool:
    """Whether a block shares a section with any of some others."""
    of_others = np.zeros(blocks.b, dtype=bool)
    of_others[others] = True
    of_others[block] = False
    pieces = np.flatnonzero(np.repeat(of_others, np.diff(blocks.piece_ptr)))
    first, end = blocks.first[pieces], blocks.end[pieces]
    own = range(int(blocks.piece_ptr[block]), int(blocks.piece_ptr[block + 1]))
    return any(bool(((first < blocks.end[p]) & (end > blocks.first[p])).any()) for p in own)


def _mask(buffers: Array, n: int) -> Array:
    """Return indices as a mask."""
    mask = np.zeros(n, dtype=bool)
    mask[buffers] = True
    return mask


def _fits_alone(instance: LmemPacking, blocks: Blocks, capacity: int) -> Array:
    """Return a mask of buffers whose previous offsets their blocks may have, beside no others."""
    block, at = blocks.block, instance.previous - blocks.shift
    top = at + blocks.size[block]
    fits = (
        (instance.previous >= 0)
        & (at >= 0)
        & (at % blocks.alignment[block] == 0)
        & (top <= capacity)
    )
    for buffer in np.flatnonzero(fits & (np.diff(blocks.range_ptr)[block] > 0)):
        ranges = slice(blocks.range_ptr[block[buffer]], blocks.range_ptr[block[buffer] + 1])
        inside = (blocks.range_low[ranges] <= at[buffer]) & (
            top[buffer] <= blocks.range_high[ranges]
        )
        fits[buffer] = inside.any()
    return np.asarray(fits)


def _agree(instance: LmemPacking, kept: Array, capacity: int, *, tuning: PackingTuning) -> bool:
    """Whether the previous offsets of some buffers break no rule, fixed ones in place."""
    if not kept.any():
        return True
    members = np.flatnonzero(kept | (instance.fixed >= 0))
    blocks, base = Blocks.of(instance), np.where(kept, instance.previous, instance.fixed)
    base, block = (base - blocks.shift)[members], blocks.block[members]
    of_block = np.zeros(blocks.b, dtype=np.int64)
    of_block[block] = base
    if (of_block[block] != base).any():  # a block would be in two places
        return False
    effort.spend(tuning.relocation.made + tuning.relocation.checked * instance.n)
    offsets = np.where(kept, instance.previous, instance.fixed)[members]
    part = instance.select(
        members.tolist(), objective=Objective.FIT, capacity=capacity, memories=()
    )
    return not part.check(PackingSolution.of(part, offsets))


def _with(
    instance: LmemPacking,
    kept: Array,
    capacity: int,
    keep_going: Callable[[], bool],
    *,
    tuning: PackingTuning,
) -> tuple[Array | None, Array]:
    """Return a placement that keeps these buffers (None), and the buffers that found no room."""
    fixed = np.where(kept, instance.previous, instance.fixed)
    effort.spend(tuning.relocation.made + tuning.relocation.checked * instance.n)
    part = instance.replace(fixed=fixed, objective=Objective.PEAK)
    blocks = Blocks.of(part)
    found = portfolio(blocks, keep_going=keep_going, tuning=tuning)
    if found is None:
        return None, np.flatnonzero(~kept)
    offsets = blocks.expand(found)
    beyond = np.flatnonzero(offsets + instance.size > capacity)
    return (None, beyond) if len(beyond) else (offsets, beyond)


def _in_the_way(instance: LmemPacking, kept: Array, beyond: Array) -> Array:
    """Return a mask of kept buffers to release: the smaller half of those alive with `beyond`."""
    blocks = Blocks.of(instance)
    too_high = np.zeros(blocks.b, dtype=bool)
    too_high[blocks.block[beyond]] = True
    near = _alive_with(blocks, too_high)
    candidates = np.flatnonzero(kept & near[blocks.block])
    if not len(candidates):
        candidates = np.flatnonzero(kept)
    by_size = candidates[np.argsort(instance.size[candidates], kind="stable")]
    return _mask(by_size[: (len(by_size) + 1) // 2], instance.n)


def _alive_with(blocks: Blocks, some: Array) -> Array:
    """Return which blocks share a section with any of some; both as masks."""
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    of_them = some[owner]
    change = np.zeros(blocks.sections + 1, dtype=np.int64)
    np.add.at(change, blocks.first[of_them], 1)
    np.add.at(change, blocks.end[of_them], -1)
    busy = np.concatenate([[0], np.cumsum(np.cumsum(change)[:-1] > 0)])
    near = np.zeros(blocks.b, dtype=bool)
    near[owner[busy[blocks.end] > busy[blocks.first]]] = True
    return near
