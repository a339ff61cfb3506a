"""Places millions of blocks in O(n log n): fills the valleys of a skyline, by classes of blocks.

A skyline runs over the sections.  A valley is a segment that is lower than its neighbours.  It
takes the first block whose lifetime lies within it: of the first class that has one (the longest,
the largest, or the biggest area, by powers of two or finer), the one that starts first.  If there
is none, the valley is raised to its lower wall.  Always filling the lowest valley is the
lowest-offset dive.  Valleys are independent, so the nearest one can be filled first, without a heap
and with good memory locality.
Each class is a list sorted by start under a segment tree of ends.  O(n * classes * log n) at worst,
however many blocks are alive together.  Source: of the skyline, Burke, Kendall and Whitwell 2004,
best fit for strip packing.

If there is time left, blocks that ended high are moved to an earlier class and everything is placed
again, repeatedly; each placement is about as fast as the first (squeaky wheel optimisation, Joslin
and Clements 1999).

Blocks of equal lifetime that arrive in order are placed around a ring instead, the smallest
possible one, in O(n) a try.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing, place_limited
from stagepack.heuristics.packing.constructive.greedy_kernels import FAR
from stagepack.heuristics.packing.constructive.valleys_kernels import (
    Classes,
    around,
    fill,
    outline,
    plant,
    span,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array

KEYS = ("length", "fine-length", "size", "length-size", "area")
"""What classes are made of: the fastest, the same in finer steps, what has least to do with that,
and what mixes both."""

RING = "ring"
"""Source of what went around a ring."""


class Spans:
    """When each block is alive, as one run of sections in which it has its full height.

    That is all there is of plain blocks.  Of others it is the shortest run that spans all pieces;
    what may share or pauses is kept apart all the same.  Packings of these are packings of the
    blocks.  `first` and `end`, int64 (b,), are sections; beyond the last one for what goes on into
    the next turn of circular time.
    """

    def __init__(self, blocks: Blocks, *, tuning: PackingTuning = TUNING) -> None:
        self.tuning = tuning
        self.blocks = blocks
        ptr, first, end, sections = blocks.piece_ptr, blocks.first, blocks.end, blocks.sections
        count = np.diff(ptr)
        if (count == 1).all():
            self.first, self.end = first, end
            return
        self.first = np.zeros(blocks.b, dtype=np.int64)
        self.end = np.ones(blocks.b, dtype=np.int64)
        some = np.flatnonzero(count)
        at = ptr[some]
        self.first[some] = first[at]
        self.end[some] = np.maximum.reduceat(end, at)
        if not blocks.linear:  # around the circle: all but the longest pause
            span(ptr, (first, end), sections, (self.first, self.end))

    @cached_property
    def scattered(self) -> Array:
        """Blocks that spend most of the time between their pieces; none if too many meet."""
        blocks = self.blocks
        if len(blocks.first) == blocks.b:
            return np.empty(0, dtype=np.int64)
        some = np.flatnonzero(np.diff(blocks.piece_ptr))
        alive = np.zeros(blocks.b, dtype=np.int64)
        alive[some] = np.add.reduceat(blocks.end - blocks.first, blocks.piece_ptr[some])
        members = np.flatnonzero(self.length > 2 * alive)
        return (
            members
            if _few_meet(blocks, members, self.tuning.valleys.fitted_meetings)
            else members[:0]
        )

    @property
    def length(self) -> Array:
        """Number of sections."""
        return np.asarray(self.end - self.first)


def classes_by(key: str, spans: Spans) -> Array:
    """Return the class of each block, the first to be taken first; int64, shape (b,)."""
    size, length = np.log2(np.maximum(spans.blocks.size, 1)), np.log2(spans.length)
    match key:
        case "length":
            return _descending(length)
        case "fine-length":
            # What is chosen for a valley leaves less of it.
            return _descending(4 * length)
        case "length-size":
            return _descending(2 * length + size)
        case "size":
            return _descending(size)
    return _descending(length + size)


def _descending(level: Array) -> Array:
    """Return classes of whole levels, the highest level first."""
    rounded = np.floor(level).astype(np.int64)
    return np.asarray(rounded.max() - rounded)


def place(
    spans: Spans,
    classes: Array,
    *,
    keep_going: KeepGoing | None = None,
    complete: bool = False,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Place all blocks by filling valleys.

    None when time is over, or what has upper limits finds no place.  What has upper limits, or
    lives in pieces far apart, is placed before, by first fit.  `classes`, int64 (b,), are those of
    blocks, from 0, the lower first.  If `complete` it goes on even if time is over, by
    `keep_going`, which is asked several times a second; but for first fit of very many.
    """
    blocks, circular = spans.blocks, not spans.blocks.linear

    def over() -> bool:
        # Asked even where the answer changes nothing, so that callers hear of the time.
        return keep_going is not None and not keep_going() and not complete

    if over():
        return None
    bound = _bound(blocks)
    offsets = np.full(blocks.b, -1, dtype=np.int64)
    ground = np.zeros(blocks.sections, dtype=np.int64)
    before = np.union1d(bound, spans.scattered)
    if over():
        return None
    if len(before):
        before = before[np.argsort(classes[before], kind="stable")]
        few = complete and _few_meet(blocks, before, tuning.valleys.late_meetings)
        until = (lambda: not over()) if few else keep_going
        if not place_limited(blocks, before, offsets, keep_going=until, tuning=tuning):
            if len(bound):
                return None
            offsets[:], before = -1, bound  # they span their pauses
        _rise(ground, blocks, before, offsets)
    free = np.flatnonzero(offsets < 0)
    if not len(free):
        return offsets
    order = free[_sorted(classes[free], spans.first[free])]
    if over():
        return None
    table, order = _table(spans, classes, order, circular)
    plant(table)
    skyline = outline(ground, circular)
    placed = np.full(len(order), -1, dtype=np.int64)
    if over():
        return None
    effort.spend(tuning.prices.call + tuning.valleys.block * len(order))
    while not (done := fill(table, skyline, placed, tuning.valleys.budget)):
        effort.spend(tuning.valleys.step * tuning.valleys.budget)
        if over():
            return None
    effort.spend(tuning.valleys.step * done)
    offsets[order] = placed
    return offsets


def _pieces_of(blocks: Blocks, members: Array) -> Array:
    """Return the pieces of some blocks."""
    inside = np.zeros(blocks.b, dtype=bool)
    inside[members] = True
    return np.flatnonzero(np.repeat(inside, np.diff(blocks.piece_ptr)))


def meetings(blocks: Blocks, members: Array | None = None) -> int:
    """Return the number of pairs of pieces alive together, of some blocks, in either order."""
    pieces = slice(None) if members is None else _pieces_of(blocks, members)
    return blocks.count_meetings(pieces)


def _few_meet(blocks: Blocks, members: Array, most: int) -> bool:
    """Whether at most so many pairs of pieces, in either order, of some blocks are alive together.

    Those of all blocks, counted once, stand for those of most.
    """
    if 2 * len(members) > blocks.b:
        return 2 * blocks.pairs + len(blocks.first) <= most
    return meetings(blocks, members) <= most


def _bound(blocks: Blocks) -> Array:
    """Return the blocks with upper limits."""
    ranged = np.flatnonzero(np.diff(blocks.range_ptr))
    return np.asarray(ranged[blocks.range_high[blocks.range_ptr[ranged + 1] - 1] < FAR // 2])


def _rise(ground: Array, blocks: Blocks, members: Array, offsets: Array) -> None:
    """Raise the ground to the tops of blocks that are placed."""
    pieces = _pieces_of(blocks, members)
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    first, end = blocks.first[pieces], blocks.end[pieces]
    tops, width = (offsets[owner] + blocks.high)[pieces], end - first
    step = 1 << int(width.max(initial=1)).bit_length()
    reach = np.zeros(len(ground), dtype=np.int64)
    while step:
        # `reach` holds the tops of runs of 2 * step sections, from each section on; then of step.
        longer = reach.copy()
        np.maximum(longer[step:], reach[: max(len(reach) - step, 0)], out=longer[step:])
        reach = longer
        here = (width >= step) & (width < 2 * step)
        np.maximum.at(reach, first[here], tops[here])
        np.maximum.at(reach, end[here] - step, tops[here])
        step //= 2
    np.maximum(ground, reach, out=ground)


def _sorted(classes: Array, first: Array) -> Array:
    """Return an order by class, then by first section, then as they come."""
    many, sections = len(first), int(first.max(initial=0)) + 1
    if many * sections * (int(classes.max(initial=0)) + 1) > FAR:
        return np.lexsort((first, classes))
    # One sort of numbers is several times as fast as one of their indices.
    return np.sort((classes * sections + first) * many + np.arange(many)) % max(many, 1)


def _table(spans: Spans, classes: Array, order: Array, circular: bool) -> tuple[Classes, Array]:
    """Return blocks as the kernel takes them, and the block of each entry."""
    blocks, twin = spans.blocks, np.empty(0, dtype=np.int32)
    first, end = spans.first[order], spans.end[order]
    if circular:
        turn, many = blocks.sections, len(order)
        twice = np.concatenate([classes[order], classes[order]])
        first, end = np.concatenate([first, first + turn]), np.concatenate([end, end + turn])
        sort = _sorted(twice, first)
        back = np.empty(2 * many, dtype=np.int64)
        back[sort] = np.arange(2 * many)
        twin = back[(sort + many) % (2 * many)].astype(np.int32)
        first, end, order = first[sort], end[sort], order[sort % many]
    cuts = np.flatnonzero(np.diff(classes[order])) + 1
    ptr = np.concatenate([[0], cuts, [len(order)]]).astype(np.int64)
    leaves = 1 << np.ceil(np.log2(np.diff(ptr))).astype(np.int64)
    tree_ptr = np.concatenate([[0], np.cumsum(2 * leaves)]).astype(np.int64)
    table = Classes(
        ptr=ptr,
        first=first.astype(np.int32),
        end=end.astype(np.int32),
        block=order,
        size=blocks.size[order],
        alignment=blocks.alignment[order],
        range_ptr=blocks.range_ptr,
        range_low=blocks.range_low,
        range_high=blocks.range_high,
        segment=blocks.segment,
        twin=twin,
        shortest=np.empty(len(leaves), dtype=np.int64),
        tree_ptr=tree_ptr,
        tree=np.empty(int(tree_ptr[-1]), dtype=np.int32),
        finger=np.empty(len(leaves), dtype=np.int64),
    )
    return table, order


def on_ring(
    spans: Spans, *, keep_going: KeepGoing | None = None, tuning: PackingTuning = TUNING
) -> Array | None:
    """Place blocks around the smallest ring that does, shape (b,); None if it would be large.

    For blocks that may lie anywhere, in linear time.
    """
    blocks = spans.blocks
    if not blocks.linear or len(blocks.range_low) or blocks.segment:
        return None
    low = int(blocks.load.max(initial=0))
    high = int(low * tuning.valleys.widest_ring)
    if not high:  # nothing takes room, as of buffers that are all gap
        return None
    # What starts while a block is alive comes after it and must not lap it.
    begun = np.zeros(blocks.sections + 1, dtype=np.int64)
    np.add.at(begun, spans.first + 1, blocks.size)
    np.cumsum(begun, out=begun)
    if (begun[spans.end] - begun[spans.first + 1]).max(initial=0) > high:
        return None
    order = np.lexsort((spans.end, spans.first))
    first, end, size, alignment = (
        np.array(values) for values in (spans.first, spans.end, blocks.size, blocks.alignment)
    )
    offsets, best = np.empty(blocks.b, dtype=np.int64), np.empty(blocks.b, dtype=np.int64)
    lows = np.empty(blocks.b, dtype=np.int64)
    ring, found = high, False
    for _ in range(tuning.valleys.ring_halvings):
        if keep_going is not None and not keep_going():
            break
        effort.spend(tuning.prices.item / 4 * blocks.b)
        if around(order, first, end, size, alignment, ring, offsets, lows):
            best, offsets, high, found = offsets, best, ring, True
        elif not found:
            return None
        else:
            low = ring
        ring = (low + high) // 2
    return best if found else None


def first(
    spans: Spans, *, keep_going: KeepGoing | None = None, tuning: PackingTuning = TUNING
) -> tuple[Array, str] | None:
    """Return a placement soon, and what it was made by; None where :func:`place` finds none.

    It is completed even if time is over: nothing else is as fast, or as good for its time.
    """
    size = spans.blocks.size
    ring = on_ring(spans, keep_going=keep_going, tuning=tuning)
    offsets = place(
        spans, classes_by(KEYS[0], spans), keep_going=keep_going, complete=True, tuning=tuning
    )
    if ring is not None and (offsets is None or (ring + size).max() < (offsets + size).max()):
        return ring, RING
    return None if offsets is None else (offsets, f"valleys by {KEYS[0]}")


def improve(
    spans: Spans,
    offsets: Array,
    key: str,
    *,
    target: int,
    known: float,
    keep_going: KeepGoing,
    on_solution: Callable[[Array], None],
    tuning: PackingTuning = TUNING,
) -> Array:
    """Place all blocks again and again, what ended up high a class earlier, until time is over.

    Return offsets of a peak no higher than that of `offsets`, int64 (b,), as `place` made them by
    the classes of `key`, one of :data:`KEYS`.  It stops at the peak `target`.  `known` is the peak
    of the best packing known, perhaps another one: what is higher is not reported to `on_solution`,
    which is called when the peak has fallen by a good part, and at the end.  `keep_going` is asked
    several times a second.
    """
    size = spans.blocks.size
    best = found = offsets
    least = peak = int((offsets + size).max(initial=0))
    reported = min(least, known)
    classes = at_best = classes_by(key, spans)
    while least > target and keep_going():
        if peak > tuning.valleys.astray * least:
            classes = at_best
        high = found + size > target + tuning.valleys.high * (least - target)
        classes = classes - high
        classes -= classes.min()
        anew = place(spans, classes, keep_going=keep_going, tuning=tuning)
        if anew is None:
            break
        found, peak = anew, int((anew + size).max())
        if peak < least:
            best, least, at_best = found, peak, classes
            if reported - least > reported // tuning.valleys.report_part:
                reported = least
                on_solution(best)
    if least < reported:
        on_solution(best)
    return best
