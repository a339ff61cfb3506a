"""Compiled kernels of annealing over first-fit orders.

Cost: O(m log m) for each block that a move places again and that meets m others.  Source: see
:mod:`.annealing`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stagepack.heuristics.packing.constructive.greedy_kernels import (
    clear_of_walls,
    pop_interval,
    push_interval,
)
from stagepack.heuristics.random_kernels import draw
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step


class Annealing(NamedTuple):
    """An annealing under way; int64 arrays unless stated otherwise."""

    # (b + 1,), (e,): rows of the blocks that meet each block.
    ptr: Array
    other: Array
    # (b,): units of each block, and what its offset is a multiple of.
    size: Array
    alignment: Array
    segment: int  # units; no block lies across a multiple of it; 0: any may
    # Sections of each block.
    piece_ptr: Array
    first: Array
    end: Array
    order: Array  # (movable,): blocks in the order of placing
    place: Array  # (b,): where each block is in `order`; -1: it stays where it is
    offsets: Array  # (b,): first-fit offsets of that order
    mark: Array  # (b,): number of the last trial in which a block had to be placed again
    excess: Array  # (sections,): height above the target in each section, of the trial under way
    # (b,): blocks moved in the trial under way, and where they were: each once, in their order.
    undo_block: Array
    undo_offset: Array
    # (most neighbours + 1,): offsets a block may not take: one interval for each entry of its row.
    heap_low: Array
    heap_high: Array
    # uint64: one bit a byte of memory; empty: memory is too large, use the heap.  Tops beyond the
    # last bit are noticed before a bit is written.
    bits: Array
    random: Array  # uint64 (1,): state of the generator
    state: Array  # (3,): target, energy (below 0: to be found, see REORDERED), number of trials


TRIAL = 24
"""Steps that any trial is worth, however few blocks there are: its numbers are drawn."""

BIT, HEAP, PIECE = 2, 8, 2
"""Steps of a block in the way of another: its units are marked, 256 more a step, or it goes through
a heap; and what a piece of a lifetime takes as long as, in sections."""

TARGET, ENERGY, TRIALS = range(3)

REORDERED, RETARGETED = -1, -2
"""Energies to be found: all must be placed anew, or the target alone has changed."""


@compiled
def meetings(first: Array, end: Array, order: Array, wanted: Array) -> tuple[Array, Array]:
    """Return who meets each wanted block, as rows (ptr, other); those of others are empty.

    O(b + pairs), in memory only the rows: pairs are gone through twice, to count what they write,
    then to write it.  Blocks are alive in the sections [`first`, `end`); `order` has them by rising
    `first`, all int64 (b,).  The rows of `wanted` ones, bool (b,), are written.
    """
    b = len(first)
    ptr = np.zeros(b + 1, dtype=np.int64)
    other = np.empty(0, dtype=np.int64)
    # Only a stand-in of the right type until rows are written.
    used = ptr
    for writing in range(2):
        for p in range(b):
            i = order[p]
            q = p + 1
            # All that begin while i is alive: each pair once, from the one that begins first.
            while q < b and first[order[q]] < end[i]:
                j = order[q]
                if writing:
                    if wanted[i]:
                        other[used[i]] = j
                        used[i] += 1
                    if wanted[j]:
                        other[used[j]] = i
                        used[j] += 1
                else:
                    ptr[i + 1] += wanted[i]
                    ptr[j + 1] += wanted[j]
                q += 1
        if not writing:
            for i in range(b):
                ptr[i + 1] += ptr[i]
            # As many entries as were counted.
            other = np.empty(ptr[b], dtype=np.int64)
            used = ptr[:-1].copy()
    return ptr, other


@step
def _trailing_zeros(x: Any) -> int:
    """Return the number of zeros below the lowest one of a word that is not 0."""
    count, width = 0, 32
    while width > 0:
        # The lower half of what is left holds no one.
        if x << np.uint64(64 - width) == 0:
            count += width
            x >>= np.uint64(width)
        width >>= 1
    return count


@step
def _next(bits: Array, at: int, end: int, flip: Any) -> int:
    """Return the first bit from `at` on that differs from those of `flip`, at most `end`."""
    word = at >> 6
    # With `flip` all ones the first free unit is found, with 0 the first taken one.
    x = (bits[word] ^ flip) >> np.uint64(at & 63)
    if x != 0:
        return min(at + _trailing_zeros(x), end)
    word += 1
    while word << 6 < end:
        x = bits[word] ^ flip
        if x != 0:
            return min((word << 6) + _trailing_zeros(x), end)
        word += 1
    return end


@step
def _fit_bits(i: int, search: Annealing) -> tuple[int, int]:
    """Place block i beside those before it, by marking memory: its lowest offset, words written.

    `bits` may be of any length: a top beyond it ends the marking before its words are written.
    """
    ptr, other, offsets, place = search.ptr, search.other, search.offsets, search.place
    full = ~np.uint64(0)
    bits, size, at = search.bits, search.size[i], place[i]
    step = search.alignment[i]
    cleared, top, words = 0, 0, 0
    for r in range(ptr[i], ptr[i + 1]):
        j = other[r]
        # It is placed later; one of place -1 stays where it is and always counts.
        if place[j] >= at:
            continue
        low = offsets[j]
        high = low + search.size[j]
        if high > top:
            top = high
            if top > 64 * len(bits):
                break
            # Words are cleared when a block first reaches them, so that short packings touch few.
            while cleared << 6 < high:
                bits[cleared] = 0
                cleared += 1
        left, right = low >> 6, (high - 1) >> 6
        words += right - left
        # Ones from the first unit on in the first word, and up to the last unit in the last.
        head = full << np.uint64(low & 63)
        tail = full >> np.uint64(63 - ((high - 1) & 63))
        if left == right:
            bits[left] |= head & tail
        else:
            bits[left] |= head
            for word in range(left + 1, right):
                bits[word] = full
            bits[right] |= tail
    lowest: int = 0
    if top > 64 * len(bits):
        # Far above any packing of interest: anything valid will do.
        for r in range(ptr[i], ptr[i + 1]):
            j = other[r]
            if place[j] < at:
                lowest = max(lowest, offsets[j] + search.size[j])
        lowest = (lowest + step - 1) // step * step
        return int(clear_of_walls(lowest, size, search.segment)), words + cleared
    while lowest < top:
        lowest = _next(bits, lowest, top, full)
        lowest = (lowest + step - 1) // step * step
        lowest = clear_of_walls(lowest, size, search.segment)
        if lowest >= top:
            break
        # The gap ends at the next unit that is taken.
        taken = _next(bits, lowest, top, np.uint64(0))
        if taken >= top or taken - lowest >= size:
            break
        lowest = taken
    return lowest, words + cleared


@step
def _fit_heap(i: int, search: Annealing) -> int:
    """Return the lowest offset of block i beside those before it, by a heap of what they take."""
    ptr, other, offsets, place = search.ptr, search.other, search.offsets, search.place
    size, step, at = search.size[i], search.alignment[i], place[i]
    heap_low, heap_high = search.heap_low, search.heap_high
    filled = 0
    for r in range(ptr[i], ptr[i + 1]):
        j = other[r]
        if place[j] < at:
            # Offsets at which i would meet j: then the lowest offset outside of all is sought.
            low, high = offsets[j] - size + 1, offsets[j] + search.size[j]
            filled = push_interval(low, high, filled, heap_low, heap_high)
    lowest = 0
    while filled > 0 and heap_low[0] <= lowest:
        if heap_high[0] > lowest:
            lowest = (heap_high[0] + step - 1) // step * step
            lowest = clear_of_walls(lowest, size, search.segment)
        filled = pop_interval(filled, heap_low, heap_high)
    return lowest


@step
def _raise(i: int, cost: int, peak: int, search: Annealing) -> tuple[int, int, int]:
    """Add what block i sticks out to cost and peak; return these, and steps, more for a piece."""
    excess, sections = search.excess, 0
    height = search.offsets[i] + search.size[i] - search.state[TARGET]
    # Most blocks lie below the target.
    if height <= 0:
        return cost, peak, sections
    for p in range(search.piece_ptr[i], search.piece_ptr[i + 1]):
        sections += PIECE + search.end[p] - search.first[p]
        for s in range(search.first[p], search.end[p]):
            # Only what sticks out higher than before counts anew: the sum is over sections.
            if excess[s] < height:
                cost += height - excess[s]
                excess[s] = height
    if height > peak:
        # The peak alone decides in the end, so that it weighs as much as three sections.
        cost += 3 * (height - peak)
        peak = height
    return cost, peak, sections


@step
def _replace(begin: int, limit: int, search: Annealing) -> tuple[int, int, int]:
    """Place the marked blocks from `begin` on again, and those their moves concern.

    Return the energy of the trial, more than `limit` when it was given up, the length of the undo
    list, and the work.  The list has an entry a block: each moves once at most, as the order is
    gone through once.
    """
    order, ptr, other, offsets, mark = (
        search.order,
        search.ptr,
        search.other,
        search.offsets,
        search.mark,
    )
    trial = search.state[TRIALS]
    # Filled anew by every trial; eight of it a step.
    search.excess[:] = 0
    marked = len(search.bits) > 0
    cost, peak, moved, work = 0, 0, 0, len(search.excess) // 8
    # All of the order, as the energy is that of all; only marked blocks are placed again.
    for at in range(len(order)):
        i = order[at]
        if at >= begin and mark[i] == trial:
            if marked:
                offset, words = _fit_bits(i, search)
                work += BIT * (ptr[i + 1] - ptr[i]) + words // 4
            else:
                offset = _fit_heap(i, search)
                work += HEAP * (ptr[i + 1] - ptr[i])
            before = offsets[i]
            if offset != before:
                # A trial may be given up: then all of it is taken back.
                search.undo_block[moved] = i
                search.undo_offset[moved] = before
                moved += 1
                offsets[i] = offset
                top = offset + search.size[i]
                # Later blocks are concerned that may now fall, and that are in the way.
                for r in range(ptr[i], ptr[i + 1]):
                    j = other[r]
                    low = offsets[j]
                    if before < low or (low < top and offset < low + search.size[j]):
                        mark[j] = trial
        cost, peak, sections = _raise(i, cost, peak, search)
        work += 1 + sections // 4
        # Energy only grows along the order: it will not be accepted.
        if cost > limit:
            break
    return cost, moved, work


@step
def _shift(source: int, target: int, search: Annealing) -> None:
    """Move the block at `source` in the order to `target`."""
    order, place = search.order, search.place
    i = order[source]
    step = 1 if target > source else -1
    at = source
    while at != target:
        j = order[at + step]
        order[at] = j
        place[j] = at
        at += step
    order[target] = i
    place[i] = target


@step
def _choose(search: Annealing) -> int:
    """Return a block to move: any, one above the target, or one that meets such a block."""
    offsets, other = search.offsets, search.other
    order, ptr = search.order, search.ptr
    at = draw(search.random, len(order))
    i = order[at]
    kind = draw(search.random, 4)
    # One in four moves takes any block.
    if kind == 3:
        return int(i)
    for _ in range(len(order)):
        i = order[at]
        if offsets[i] + search.size[i] > search.state[TARGET]:
            break
        # From a random place on, so that not always the first is taken.
        at = at + 1 if at + 1 < len(order) else 0
    # Two in four take something that meets what sticks out.
    if kind > 0 and ptr[i + 1] > ptr[i]:
        j = other[ptr[i] + draw(search.random, ptr[i + 1] - ptr[i])]
        if search.place[j] >= 0:
            i = j
    return int(i)


@compiled
def anneal(search: Annealing, temperature: float, budget: int) -> int:
    """Try moves in the order until the energy is 0 or `budget` steps are done.

    Return what is left of `budget`; less than 0: the last move went beyond.  A move takes a block,
    more often than not one that sticks out or meets one that does, next to another that it meets.
    It is given up as soon as its energy is above what would be accepted: what is worse by
    `temperature` is with probability 1 / e.  An energy below 0 says that order or target are new:
    it is found before the first move.  Order, offsets and generator of `search` go on from call to
    call: calls end between two moves.
    """
    ptr, other, offsets, mark = search.ptr, search.other, search.offsets, search.mark
    order, place, state = search.order, search.place, search.state
    while state[ENERGY] != 0 and budget > 0:
        state[TRIALS] += 1
        # Whatever comes out is taken where the energy has to be found.
        begin, last, source, target, limit = 0, 0, 0, 0, 1 << 62
        if state[ENERGY] == REORDERED:
            # Everything is placed again.
            for i in order:
                mark[i] = state[TRIALS]
        elif state[ENERGY] == RETARGETED:
            pass
        else:
            i = _choose(search)
            meets = ptr[i + 1] - ptr[i]
            source = place[i]
            if meets > 0:
                beside = other[ptr[i] + draw(search.random, meets)]
                # One that stays where it is has no place in the order: to the front then.
                target = max(place[beside], 0)
            begin, last = min(source, target), max(source, target)
            _shift(source, target, search)
            # It is placed again in any case.
            mark[i] = state[TRIALS]
            for r in range(ptr[i], ptr[i + 1]):
                j = other[r]
                # It was placed before them, and now comes later: they may fall to where it was.
                if source <= place[j] < target and offsets[i] < offsets[j]:
                    mark[j] = state[TRIALS]
            # Drawn before the trial, so that it can be given up early (Metropolis).
            luck = (draw(search.random, 1 << 30) + 1.0) / (1 << 30)
            limit = state[ENERGY] + np.int64(-temperature * np.log(luck))
        cost, moved, work = _replace(begin, limit, search)
        budget -= TRIAL + work + last - begin
        if cost <= limit:
            state[ENERGY] = cost
        else:
            # Backwards, though each block is there once: as any undo.
            for k in range(moved - 1, -1, -1):
                offsets[search.undo_block[k]] = search.undo_offset[k]
            _shift(target, source, search)
    return budget
