"""Re-planning: a placement within the capacity that moves as few bytes as a search can do.

Buffers keep their previous offsets as long as these fit together; the others go into what is
left.  Where they find no room, some of the kept ones are released, the smallest first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.packing import effort, greedy
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array

ENTRY, CHECKED, MADE = 3e-9, 1e-6, 1e-3
"""Seconds of a buffer or piece looked at for one other, of a buffer in a check or a normal form,
and of either apart from that."""


def place(
    instance: LmemPacking,
    capacity: int,
    *,
    keep_going: Callable[[], bool],
    on_solution: Callable[[Array], object],
) -> None:
    """Report placements within `capacity`, shape (n,), each moving fewer bytes than the last.

    Releases kept buffers until the rest fits, then tries to keep each released one again, the
    largest first.  O(n) greedy packings at most.
    """
    kept = _consistent(instance, capacity, keep_going)
    found = None
    while found is None and keep_going():
        found, beyond = _with(instance, kept, capacity, keep_going)
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
        if not _agree(instance, again, capacity):
            continue
        better, _ = _with(instance, again, capacity, keep_going)
        if better is not None and _bytes(instance, better) < _bytes(instance, found):
            found, kept = better, again
            on_solution(found)


def _moved(instance: LmemPacking, offsets: Array) -> Array:
    return np.asarray((instance.previous >= 0) & (instance.previous != offsets))


def _bytes(instance: LmemPacking, offsets: Array) -> int:
    return int(instance.size[_moved(instance, offsets)].sum())


def _consistent(instance: LmemPacking, capacity: int, keep_going: Callable[[], bool]) -> Array:
    """Return a mask of buffers whose previous offsets are valid together, the largest first.

    O(n) for each buffer, in memory linear in n.
    """
    kept = np.zeros(instance.n, dtype=bool)
    blocks = Blocks.of(instance)
    alone = np.flatnonzero(_fits_alone(instance, blocks, capacity))
    if _agree(instance, _mask(alone, instance.n), capacity):
        return _mask(alone, instance.n)
    low = np.where(instance.fixed >= 0, instance.fixed, instance.previous)
    high = low + instance.size
    placed = instance.fixed >= 0
    for buffer in sorted(alone.tolist(), key=lambda i: (-int(instance.size[i]), i)):
        if not keep_going():  # what is known to fit together is kept
            break
        effort.spend(effort.LOOK + ENTRY * (instance.n + len(blocks.first)))
        block = blocks.block[buffer]
        beside = np.flatnonzero(placed & (low < high[buffer]) & (low[buffer] < high))
        together = (blocks.block == block) & placed & (low != low[buffer])
        if not _alive_with(blocks, block, blocks.block[beside]) and not together.any():
            kept[buffer] = placed[buffer] = True
    return kept


def _alive_with(blocks: Blocks, block: int, others: Array) -> bool:
    """Whether a block shares a section with any of some others."""
    of_others = np.zeros(blocks.b, dtype=bool)
    of_others[others] = True
    of_others[block] = False
    pieces = np.flatnonzero(np.repeat(of_others, np.diff(blocks.piece_ptr)))
    first, end = blocks.first[pieces], blocks.end[pieces]
    own = range(int(blocks.piece_ptr[block]), int(blocks.piece_ptr[block + 1]))
    return any(bool(((first < blocks.end[p]) & (end > blocks.first[p])).any()) for p in own)


def _mask(buffers: Array, n: int) -> Array:
    mask = np.zeros(n, dtype=bool)
    mask[buffers] = True
    return mask


def _fits_alone(instance: LmemPacking, blocks: Blocks, capacity: int) -> Array:
    """Return a mask of buffers whose previous offsets their blocks may have, beside no others."""
    block, at = blocks.block, instance.previous
    top = at + blocks.size[block]
    fits = (at >= 0) & (at % blocks.alignment[block] == 0) & (top <= capacity)
    for buffer in np.flatnonzero(fits & (np.diff(blocks.range_ptr)[block] > 0)):
        ranges = slice(blocks.range_ptr[block[buffer]], blocks.range_ptr[block[buffer] + 1])
        inside = (blocks.range_low[ranges] <= at[buffer]) & (
            top[buffer] <= blocks.range_high[ranges]
        )
        fits[buffer] = inside.any()
    return np.asarray(fits)


def _agree(instance: LmemPacking, kept: Array, capacity: int) -> bool:
    """Whether the previous offsets of some buffers break no rule, fixed ones in place."""
    if not kept.any():
        return True
    members = np.flatnonzero(kept | (instance.fixed >= 0))
    effort.spend(MADE + CHECKED * instance.n)
    offsets = np.where(kept, instance.previous, instance.fixed)[members]
    part = instance.select(
        members.tolist(), objective=Objective.FIT, capacity=capacity, memories=()
    )
    return not part.check(PackingSolution.of(part, offsets))


def _with(
    instance: LmemPacking, kept: Array, capacity: int, keep_going: Callable[[], bool]
) -> tuple[Array | None, Array]:
    """Return a placement that keeps these buffers (None), and the buffers that found no room."""
    fixed = np.where(kept, instance.previous, instance.fixed)
    effort.spend(MADE + CHECKED * instance.n)
    part = instance.replace(fixed=fixed, objective=Objective.PEAK)
    blocks = Blocks.of(part)
    found = greedy.portfolio(blocks, keep_going=keep_going)
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
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    of_them = too_high[owner]
    change = np.zeros(blocks.sections + 1, dtype=np.int64)
    np.add.at(change, blocks.first[of_them], 1)
    np.add.at(change, blocks.end[of_them], -1)
    busy = np.concatenate([[0], np.cumsum(np.cumsum(change)[:-1] > 0)])
    near = np.zeros(blocks.b, dtype=bool)
    near[owner[busy[blocks.end] > busy[blocks.first]]] = True
    candidates = np.flatnonzero(kept & near[blocks.block])
    if not len(candidates):
        candidates = np.flatnonzero(kept)
    by_size = candidates[np.argsort(instance.size[candidates], kind="stable")]
    return _mask(by_size[: (len(by_size) + 1) // 2], instance.n)
