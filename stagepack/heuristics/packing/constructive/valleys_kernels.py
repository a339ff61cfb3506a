"""Compiled kernels of quick placement: valleys of a skyline filled by class, and rings.

Cost: O(b * classes * log b) at worst for valleys, O(b) a ring.  Source: see :mod:`.valleys`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.constructive.greedy_kernels import clear_of_walls
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, step, tiered

NEVER = (1 << 31) - 1
HERE, PLACED = range(2)


class Classes(NamedTuple):
    """Blocks sorted by class, then by first section.

    In circular time a block comes twice, in one turn and in the next.
    """

    # int64 (classes + 1,): class k has the entries ptr[k] .. ptr[k + 1] - 1, ascending in first
    # section.
    ptr: Array
    # int32 (entries,): sections.
    first: Array
    end: Array
    block: Array  # int64 (entries,): the block of each entry
    # int64 (entries,): bytes, and what offsets are multiples of.
    size: Array
    alignment: Array
    # int64: where blocks may lie, as blocks have it; the last range of each is endless.
    range_ptr: Array
    range_low: Array
    range_high: Array
    segment: int  # no block lies across a multiple of it, a multiple of all alignments; 0: any may
    # int32 (entries,): the same block in the other turn; of no entries where time is not circular.
    twin: Array
    shortest: Array  # int64 (classes,): fewest sections of a block of the class
    tree_ptr: Array  # int64 (classes + 1,): where the tree of each class begins
    # int32: for each class a segment tree over its entries: the least end of what is not yet
    # placed.
    tree: Array
    finger: Array  # int64 (classes,): where the last look into each class began


class Skyline(NamedTuple):
    """A skyline as a list of segments of equal height; columns of one table, near in memory."""

    height: Array  # int64 (sections + 1,): of the segment that starts at a section
    # int64 (sections + 1,): first sections of the neighbours of the segment that starts at a
    # section; in linear time -1 and `sections` stand for the ends, in circular time the list
    # closes.
    before: Array
    after: Array
    state: Array  # int64 (2,): the segment at hand, and how many blocks are placed


@tiered(entries)
def plant(classes: Classes) -> None:
    """Fill the trees and the shortest lengths; O(entries)."""
    for k in range(len(classes.ptr) - 1):
        base = classes.tree_ptr[k]
        leaves = (classes.tree_ptr[k + 1] - base) // 2
        begin, stop = classes.ptr[k], classes.ptr[k + 1]
        # Later looks take it as a bound only: it is not raised when the shortest block is placed.
        shortest = NEVER
        for p in range(begin, stop):
            classes.tree[base + leaves + p - begin] = classes.end[p]
            shortest = min(shortest, classes.end[p] - classes.first[p])
        # Leaves beyond the entries never end early enough to be taken.
        for p in range(leaves + stop - begin, 2 * leaves):
            classes.tree[base + p] = NEVER
        for p in range(leaves - 1, 0, -1):
            classes.tree[base + p] = min(classes.tree[base + 2 * p], classes.tree[base + 2 * p + 1])
        classes.shortest[k] = shortest
        classes.finger[k] = begin


@tiered(entries)
def outline(ground: Array, circular: bool) -> Skyline:
    """Return the skyline of the heights `ground`, int64 (sections,); O(sections).

    If `circular`, the last section comes before the first.
    """
    sections = len(ground)
    rows = np.full((sections + 1, 3), -1, np.int64)
    height, before, after = rows[:, 0], rows[:, 1], rows[:, 2]
    last = 0
    # A segment is named by its first section; sections within segments have no entry.
    height[0] = ground[0]
    for s in range(1, sections):
        if ground[s] != ground[last]:
            height[s] = ground[s]
            before[s] = last
            after[last] = s
            last = s
    # Overwritten below where time is a circle.
    after[last] = sections
    if circular:
        after[last] = 0
        before[0] = last
    return Skyline(height, before, after, np.zeros(2, np.int64))


@step
def _at_or_after(a: int, k: int, classes: Classes) -> int:
    """Return the first entry of class k that does not start before section a.

    Gallops from where the last look began: looks are mostly near one another.
    """
    first = classes.first
    begin, stop = classes.ptr[k], classes.ptr[k + 1]
    lo, hi, step = classes.finger[k], stop, 1
    if lo < stop and first[lo] < a:
        # Forward, in steps that double, then between the last two.
        lo += 1
        while lo < stop:
            hi = min(lo + step, stop)
            if first[hi - 1] >= a:
                break
            lo = hi
            step *= 2
    else:
        # Backward likewise.
        hi = lo
        while hi > begin:
            lo = max(hi - step, begin)
            if first[lo] < a:
                lo += 1
                break
            hi = lo
            step *= 2
        # The begin of the class was reached.
        lo = min(lo, hi)
    while lo < hi:
        mid = (lo + hi) >> 1
        if first[mid] < a:
            lo = mid + 1
        else:
            hi = mid
    classes.finger[k] = lo
    return int(lo)


@step
def _choose(a: int, b: int, classes: Classes) -> tuple[int, int]:
    """Return a block that lives within the sections [a, b), and its class; -1 if there is none.

    It is of the first class that has one, and there the one that starts first.
    """
    tree, first = classes.tree, classes.first
    for k in range(len(classes.ptr) - 1):
        # What starts later cannot end by b.
        latest = b - classes.shortest[k]
        base = classes.tree_ptr[k]
        # Too narrow a valley for the class, or none that is left ends by b.
        if latest < a or tree[base + 1] > b:
            continue
        begin, stop = classes.ptr[k], classes.ptr[k + 1]
        # Entries before start too early; of those from here on the first that ends by b is sought.
        lo = _at_or_after(a, k, classes)
        if lo >= stop or first[lo] > latest:
            continue
        leaves = (classes.tree_ptr[k + 1] - base) >> 1
        node, width, left = leaves + lo - begin, 1, lo
        while True:
            # Some entry of this subtree ends by b; the leftmost one starts first.
            if tree[base + node] <= b:
                while node < leaves:
                    node *= 2
                    if tree[base + node] > b:
                        node += 1
                return node - leaves + begin, k
            # On to the subtree right of this one, as large as may be.
            left += width
            if left >= stop or first[left] > latest:
                break
            node += 1
            while node & 1 == 0:
                node >>= 1
                width *= 2
    return -1, -1


@step
def _take(x: int, k: int, classes: Classes) -> int:
    """Take entry x of class k out of the tree; return the section in which it ends."""
    tree, base = classes.tree, classes.tree_ptr[k]
    node = ((classes.tree_ptr[k + 1] - base) >> 1) + x - classes.ptr[k]
    end = tree[base + node]
    # Placed: it is never the least again.
    tree[base + node] = NEVER
    while node > 1:
        node >>= 1
        least = min(tree[base + 2 * node], tree[base + 2 * node + 1])
        # Above here nothing changes.
        if tree[base + node] == least:
            break
        tree[base + node] = least
    return int(end)


@step
def _settled(x: int, h: int, classes: Classes) -> int:
    """Return the lowest offset that entry x may have from h up."""
    size, grid = classes.size[x], classes.alignment[x]
    at = h if grid == 1 else (h + grid - 1) // grid * grid
    at = clear_of_walls(at, size, classes.segment)
    if len(classes.range_low) > 0:
        i = classes.block[x]
        for r in range(classes.range_ptr[i], classes.range_ptr[i + 1]):
            # The last range is endless, so that one of them fits.
            at = (max(h, classes.range_low[r]) + grid - 1) // grid * grid
            if at + size <= classes.range_high[r]:
                break
    return int(at)


def _steps(classes: Classes, skyline: Skyline, _: Array, steps: int) -> int:
    """Return about how many elementary steps :func:`fill` takes: some for each block and class."""
    many = 4 * (len(classes.first) + len(skyline.height))
    return 4 * len(classes.shortest) * min(steps, many)


@tiered(_steps)
def fill(classes: Classes, skyline: Skyline, offsets: Array, steps: int) -> int:
    """Fill valleys until all blocks are placed or `steps` are done.

    A step goes to a lower neighbour, places a block in a valley, or raises one to its lower wall.
    Which valley comes first makes no difference, so that the nearest does.  The skyline is whole
    again after each.  `offsets`, int64 (entries,), receive that of every entry that is placed.
    Return the steps that are done, where all blocks are placed; 0: they are not.
    """
    height, before, after, state = skyline.height, skyline.before, skyline.after, skyline.state
    sections = len(height) - 1
    circular = len(classes.twin) > 0
    blocks = len(classes.first) // (2 if circular else 1)
    a, left_over = state[HERE], steps
    while left_over > 0 and state[PLACED] < blocks:
        left_over -= 1
        h = height[a]
        # Join neighbours of the same height.
        p, q = before[a], after[a]
        while 0 <= q < sections and q != a and height[q] == h:
            # A section that begins no segment any more.
            height[q] = -1
            q = after[q]
            after[a] = q
            if q < sections:
                before[q] = a
        p = before[a]
        if p >= 0 and p != a and height[p] == h:
            height[a] = -1
            after[p] = q
            if q < sections:
                before[q] = p
            a = p
            continue
        # One segment is left, at the same height everywhere.
        alone = p == a or (p < 0 and q == sections)
        left = height[p] if p >= 0 else -1
        right = height[q] if q < sections else -1
        # Not a valley: down to the neighbour, which is nearer than the lowest of all.
        if not alone and 0 <= left < h:
            a = p
            continue
        if not alone and 0 <= right < h:
            a = q
            continue
        # Across the end of a circle sections go on counting.
        b = q if q > a else q + sections
        anywhere = alone and circular  # the only segment may start where a block does
        x, k = _choose(0 if anywhere else a, NEVER - 1 if anywhere else b, classes)
        if anywhere:
            height[a] = -1
            a = classes.first[x]
            height[a] = h
            before[a] = after[a] = p = q = a
        if x < 0:
            # Nothing fits: up to the lower wall, with which it is joined in the next step.
            height[a] = right if left < 0 or (0 <= right < left) else left
            continue
        f, e = classes.first[x], _take(x, k, classes)
        at = _settled(x, h, classes)
        offsets[x] = at
        if circular:
            y = classes.twin[x] + 0  # of 64 bits, as x: what follows is compiled once
            _take(y, k, classes)
            offsets[y] = at
            f %= sections
            # Beyond the end of a circle the skyline begins anew.
            e %= sections
            q %= sections
        state[PLACED] += 1
        height[f] = at + classes.size[x]
        # The segment falls into what lies before the block, the block, and what lies after it.
        right_end = after[a]
        if f != a:
            after[a] = f
            before[f] = a
        # Something of the valley is left at its right.
        if e != q:
            height[e] = h
            after[f] = e
            before[e] = f
            after[e] = right_end
            if right_end < sections:
                before[right_end] = e
        else:
            after[f] = right_end
            if right_end < sections:
                before[right_end] = f
    state[HERE] = a
    return steps - left_over if state[PLACED] == blocks else 0


@tiered(entries)
def around(
    order: Array,
    first: Array,
    end: Array,
    size: Array,
    alignment: Array,
    ring: int,
    offsets: Array,
    lows: Array,
) -> bool:
    """Place blocks one after another around a ring; return whether all found a place; O(b).

    Addresses run on from lap to lap, of `ring` bytes; what is in use lies between the lowest block
    alive and the newest.  All arrays are int64 (b,): `order` has blocks by first section, `first`,
    `end`, `size` and `alignment` are their own, `offsets` receive offsets; `lows` are for the
    kernel to work in.
    """
    oldest, newest = 0, 0
    for at in range(len(order)):
        i = order[at]
        # Blocks die in the order in which they came, or later: the oldest one bounds what is free.
        while oldest < at and end[order[oldest]] <= first[i]:
            oldest += 1
        lap = newest // ring * ring
        place = (newest - lap + alignment[i] - 1) // alignment[i] * alignment[i]
        # No block goes across the end of a lap.
        if place + size[i] > ring:
            lap += ring
            place = 0
        low = lap + place
        # It would lap the oldest block alive.
        if oldest < at and low + size[i] - lows[oldest] > ring:
            return False
        lows[at] = low
        offsets[i] = place
        newest = low + size[i]
    return True


@tiered(entries)
def span(ptr: Array, piece: tuple[Array, Array], turn: int, found: tuple[Array, Array]) -> None:
    """Find the shortest run of sections around a circle that spans all pieces of each block.

    The first one of equally short ones; O(pieces).  The circle is a `turn` of sections.  `ptr`,
    int64 (b + 1,), is where the pieces of each block begin; `piece`, two arrays int64 (pieces,),
    their firsts and ends, ascending by first within a block.  `found`, two arrays int64 (b,), gets
    first and end of the run, but for blocks without pieces.
    """
    first, end = piece
    for i in range(len(ptr) - 1):
        until, longest = np.int64(0), np.int64(-turn - 1)
        for at in range(ptr[i], ptr[i + 1]):
            until = max(until, end[at])
            last = at + 1 == ptr[i + 1]
            # After the last piece comes the first one of the next turn.
            following = first[ptr[i]] + turn if last else first[at + 1]
            # All but the longest pause is the shortest run.
            if following - until > longest:
                longest = following - until
                found[0][i] = following % turn
                found[1][i] = following % turn + turn - longest
