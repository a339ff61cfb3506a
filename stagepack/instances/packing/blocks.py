"""The normal form of packing: blocks that need one offset each, over compressed time.

Buffers that share an offset become one block.  Lifetimes, gaps, circular time and conflict graphs
are all expressed as pieces: a block occupies some bytes above its offset in a range of sections.
Sections are the maximal cliques of the pieces, in order of time.  Two blocks conflict exactly where
they have pieces in one section.
"""

from __future__ import annotations

import heapq
import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.meetings import Looks, Pause, meetings
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

Piece = tuple[int, int, int, int, int]
"""Block, [start, end) in time, [low, high) in bytes above the offset."""

_made: weakref.WeakKeyDictionary[LmemPacking, Blocks] = weakref.WeakKeyDictionary()
_cut_short: weakref.WeakSet[LmemPacking] = weakref.WeakSet()
"""Those whose conflicts there was no time to cover well."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Blocks:
    """A packing instance in normal form; made by :meth:`of`.

    Attributes
    ----------
    block : ndarray of int64, shape (n,)
        Block of each buffer.
    size, alignment : ndarray of int64, shape (b,)
        Bytes of each block and what its offset is a multiple of.
    duration : ndarray of int64, shape (b,)
        How long each block is alive, in the instance's own time (sections, for a graph).
    piece_ptr : ndarray of int64, shape (b + 1,)
        Block i has the pieces piece_ptr[i] .. piece_ptr[i + 1] - 1, ascending in time.
    first, end, low, high : ndarray of int64, shape (pieces,)
        In the sections [first, end) the block occupies the bytes [offset + low, offset + high).
    time : ndarray of int64, shape (sections,)
        A moment in each section (an index, where a conflict graph replaces time).
    load : ndarray of int64, shape (sections,)
        Bytes that each section needs at least: of blocks that may share, only the largest count.
    fixed : ndarray of int64, shape (b,)
        Given offsets; -1: free.
    range_ptr : ndarray of int64, shape (b + 1,)
        Where the ranges of each block begin.
    range_low, range_high : ndarray of int64, shape (ranges,)
        Address ranges [low, high), ascending, in one of which the block must lie wholly; a block
        without any may lie anywhere from 0 up.
    may_share : ndarray of int64, shape (pairs, 2)
        Blocks that may overlap at equal offsets.
    unit : int
        Some best allocation has all offsets multiples of this.
    linear : bool
        Sections follow one another in time: lifetimes that are not circular, given or found.
    looks : int
        Questions whether to go on while it was made, most of them after as much work.
    """

    block: Array
    size: Array
    alignment: Array
    duration: Array
    piece_ptr: Array
    first: Array
    end: Array
    low: Array
    high: Array
    time: Array
    load: Array
    fixed: Array
    range_ptr: Array
    range_low: Array
    range_high: Array
    may_share: Array
    unit: int
    linear: bool
    looks: int = 0

    @classmethod
    def of(
        cls, instance: LmemPacking, keep_going: Callable[[], bool] | None = None, anew: bool = True
    ) -> Blocks:
        """Return the normal form of an instance; O(n) for integers of moderate span.

        It is kept as long as the instance lives.  `keep_going` is asked now and then: once it says
        no, conflicts that no clique covers yet are sections by themselves, until somebody with more
        time asks, `anew`: millions take long.
        """
        known = _made.get(instance)
        if known is None or (anew and instance in _cut_short and keep_going and keep_going()):
            known = _made[instance] = cls._of(instance, keep_going or (lambda: True))
        return known

    @classmethod
    def _of(cls, instance: LmemPacking, keep_going: Callable[[], bool]) -> Blocks:
        block, b = _grouping(instance)
        looks = Looks(keep_going)
        size = np.zeros(b, dtype=np.int64)
        np.maximum.at(size, block, instance.size)
        alignment = _alignment(instance, block, b)
        fixed = np.full(b, -1, dtype=np.int64)
        np.maximum.at(fixed, block, instance.fixed)
        linear = instance.period is None
        if instance.conflicts is None:
            (first, end, low, high), time, count, duration = _timed(instance, block, b, looks)
            load = np.zeros(len(time) + 1, dtype=np.int64)
            np.add.at(load, first, high - low)
            np.add.at(load, end, low - high)
            load = np.cumsum(load)[:-1]
        else:
            from stagepack.instances.packing.cover import sections

            first, end, high, count, load, linear, short = sections(instance, block, looks)
            (_cut_short.add if short else _cut_short.discard)(instance)
            duration = np.bincount(np.repeat(np.arange(b), count), end - first, b).astype(np.int64)
            low, time = np.zeros(len(first), dtype=np.int64), np.arange(len(load))
            looks()
        pairs = _sharing(instance, block)
        ptr = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        looks()
        if len(pairs):
            load -= _shared(pairs, ptr, first, end, high - low, len(time))
        range_ptr, range_low, range_high = _ranges(instance, block, size, fixed, looks)
        unit = _unit(instance, alignment, range_low)
        return cls(
            block=block,
            size=size,
            alignment=alignment,
            duration=duration,
            piece_ptr=ptr,
            first=first,
            end=end,
            low=low,
            high=high,
            time=time,
            load=load,
            fixed=fixed,
            range_ptr=range_ptr,
            range_low=range_low,
            range_high=range_high,
            may_share=pairs,
            unit=unit,
            linear=linear,
            looks=looks.times,
        )

    @property
    def b(self) -> int:
        """Number of blocks."""
        return len(self.size)

    @property
    def sections(self) -> int:
        """Number of sections."""
        return len(self.time)

    @cached_property
    def rigid(self) -> bool:
        """Whether blocks never shrink and never share an offset."""
        owner = np.repeat(np.arange(self.b), np.diff(self.piece_ptr))
        whole = (self.low == 0) & (self.high == self.size[owner])
        return bool(whole.all()) and not len(self.may_share)

    @cached_property
    def plain(self) -> bool:
        """Whether this is the classic problem: rigid, one piece a block, nothing placed."""
        return (
            self.linear
            and self.rigid
            and bool((np.diff(self.piece_ptr) == 1).all())
            and not len(self.range_low)
            and bool((self.unit % self.alignment == 0).all())
        )

    @cached_property
    def momentary(self) -> bool:
        """Whether every piece lives in one section, as those of a conflict graph do."""
        return bool((self.end - self.first == 1).all())

    @cached_property
    def pairs(self) -> int:
        """Number of pairs of pieces that share a section; O(pieces)."""
        return (self.count_meetings() - len(self.first)) // 2

    def count_meetings(self, pieces: Array | slice = slice(None)) -> int:
        """Return the number of pairs of these pieces that share a section, in either order.

        Each meets itself, too.  O(pieces + sections).
        """
        first = self.first[pieces]
        if self.momentary:
            alone = np.bincount(first)
            return int((alone * alone).sum())
        end = self.end[pieces]
        begun = np.cumsum(np.bincount(first, minlength=self.sections + 1))
        ended = np.cumsum(np.bincount(end, minlength=self.sections + 1))
        return int(begun[end - 1].sum() - ended[first].sum())

    @cached_property
    def rounded(self) -> Blocks:
        """The same blocks with sizes rounded up to the alignment, where all have one in common.

        Packings are the same, because what lies above a block begins at a multiple; only peaks
        end up to ``alignment - 1`` bytes higher.  Alignment then costs nothing more.  `unit` is
        for the peak only, whatever the objective.
        """
        step = int(self.alignment[0])
        if step == 1 or not self.rigid or (self.alignment != step).any():
            return self
        size = -(-self.size // step) * step
        owner = np.repeat(np.arange(self.b), np.diff(self.piece_ptr))
        load = np.zeros(self.sections + 1, dtype=np.int64)
        np.add.at(load, self.first, size[owner])
        np.add.at(load, self.end, -size[owner])
        unit = math.gcd(int(np.gcd.reduce(size)), *self.range_low.tolist()) or 1
        return replace(self, size=size, high=size[owner], load=np.cumsum(load)[:-1], unit=unit)

    def expand(self, offsets: Array) -> Array:
        """Return the offset of each buffer, shape (n,), from that of each block."""
        return np.asarray(offsets[self.block])

    def neighbours(self, pause: Pause = lambda: None) -> tuple[Array, Array]:
        """Return the blocks that share a section with each block: see :func:`.meetings`."""
        owner = np.repeat(np.arange(self.b), np.diff(self.piece_ptr))
        return meetings(owner, self.first, self.end, self.b, pause)


# ---------------------------------------------------------------------- buffers to blocks


def _grouping(instance: LmemPacking) -> tuple[Array, int]:
    """Return the block of each buffer and the number of blocks."""
    if not instance.colocated:
        return np.arange(instance.n), instance.n
    leader = np.arange(instance.n)
    for group in instance.colocated:
        leader[list(group)] = group[0]
    leaders, block = np.unique(leader, return_inverse=True)
    return block.astype(np.int64), len(leaders)


def _by_owner(owner: Array, first: Array, b: int) -> Array:
    """Return an order of pieces by their block, then by section."""
    many = len(owner)
    if (first[1:] < first[:-1]).any() or many * b > LARGEST:
        return np.lexsort((first, owner))
    # One sort of numbers is several times as fast as one of their indices.
    return np.sort(owner * many + np.arange(many)) % many


def _sharing(instance: LmemPacking, block: Array) -> Array:
    """Return the pairs of blocks that may overlap at equal offsets, ascending.

    Members that are no in-place pairs must not meet at equal offsets.
    """
    pairs = np.array(instance.in_place, dtype=np.int64).reshape(-1, 2)
    pairs = block[pairs[(instance.size[pairs] > 0).all(axis=1)]]
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    if not len(pairs) or not instance.colocated:
        return pairs
    single = Blocks.of(instance.replace(colocated=()))
    exempt = set(instance.in_place)
    order = np.argsort(block, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(block[order])) + 1)
    keep = [
        not any(
            _meet_at_equal_offsets(single, x, y)
            for x in members[i].tolist()
            for y in members[j].tolist()
            if (min(x, y), max(x, y)) not in exempt
        )
        for i, j in pairs.tolist()
    ]
    return np.asarray(pairs[keep])


def _meet_at_equal_offsets(single: Blocks, x: int, y: int) -> bool:
    """Tell whether two buffers overlap, at some time, when they have one offset."""
    for p in range(single.piece_ptr[x], single.piece_ptr[x + 1]):
        for q in range(single.piece_ptr[y], single.piece_ptr[y + 1]):
            together = single.first[p] < single.end[q] and single.first[q] < single.end[p]
            if together and single.low[p] < single.high[q] and single.low[q] < single.high[p]:
                return True
    return False


def _alignment(instance: LmemPacking, block: Array, b: int) -> Array:
    if not instance.colocated:
        return instance.alignment
    alignment = np.ones(b, dtype=np.int64)
    np.lcm.at(alignment, block, instance.alignment)
    return alignment


def _unit(instance: LmemPacking, alignment: Array, low: Array) -> int:
    """Return the gcd of all lengths an offset can be made of.

    A block slides down until it meets another, the begin of a range or a multiple of its alignment;
    for bank conflicts also the begin of a bank, for moves its previous offset.
    """
    lengths = [instance.size, low, instance.fixed[instance.fixed >= 0]]
    lengths += [np.array([x for gap in instance.gaps for x in (gap.low, gap.high)], dtype=np.int64)]
    if instance.objective is Objective.BANK_CONFLICTS and instance.banks is not None:
        lengths.append(np.array([instance.banks.nbytes]))
    if instance.objective is Objective.MOVES:
        lengths.append(instance.previous[instance.previous >= 0])
    unit = math.gcd(*(int(np.gcd.reduce(part)) for part in lengths if len(part)))
    return aligned_unit(unit, alignment)


def aligned_unit(unit: int, alignment: Array) -> int:
    """Return the unit of offsets made of multiples of `unit`, rounded up to alignments.

    It divides `unit` (0: is 1), and each alignment divides it or is a multiple of it.
    """
    unit = unit or 1  # of no bytes at all
    while True:  # an alignment that divided the unit may not divide a smaller one
        finer = alignment[(unit % alignment != 0) & (alignment % unit != 0)]
        if not len(finer):
            return unit
        unit = math.gcd(unit, int(np.gcd.reduce(finer)))


def _ranges(
    instance: LmemPacking, block: Array, size: Array, fixed: Array, looks: Callable[[], object]
) -> tuple[Array, Array, Array]:
    """Return the ranges of every block: allowed less reserved ones, or the fixed place."""
    b = len(size)
    given: dict[int, list[tuple[int, int]]] = {}
    for item in instance.allowed:
        given.setdefault(item.buffer, []).append((item.low, item.high))
    alone = np.bincount(block, minlength=b)[block] == 1
    free_to_go = alone & (instance.fixed < 0) & (instance.size > 0) & bool(instance.reserved)
    free_to_go[list(given)] = False
    everywhere = np.flatnonzero(~free_to_go).tolist() if instance.reserved else sorted(given)
    places: dict[int, list[tuple[int, int]]] = {}
    for buffer in everywhere:
        nbytes, at = int(instance.size[buffer]), int(block[buffer])
        spans = sorted(given.get(buffer, [(0, 2**62)]))
        free = _without(spans, instance.reserved, points=not nbytes)
        starts = _joined([(low, high - nbytes) for low, high in free if high - nbytes >= low])
        places[at] = _common(places[at], starts) if at in places else starts
    for at in np.flatnonzero(fixed >= 0).tolist():
        where = int(fixed[at])
        places[at] = _common(places.get(at, [(0, 2**62)]), [(where, where)])
    count = np.zeros(b, dtype=np.int64)
    rows: dict[int, list[tuple[int, int]]] = {}
    for at, found in places.items():
        span = found or [(0, -int(size[at]) - 1)]  # nowhere: a range of less than no bytes
        rows[at] = [(begin, min(last + int(size[at]), 2**62)) for begin, last in span]
        count[at] = len(span)
    holes = _without([(0, 2**62)], instance.reserved)
    free = block[free_to_go]
    for begin, end in holes:
        looks()  # of thousands of reserved ranges, each is compared with all blocks
        count[free] += size[free] <= end - begin
    ptr = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    low, high = np.empty((2, int(ptr[-1])), dtype=np.int64)
    for at, row in rows.items():
        low[ptr[at] : ptr[at + 1]], high[ptr[at] : ptr[at + 1]] = zip(*row, strict=True)
    cursor = ptr[free]
    for begin, end in holes:
        looks()
        fits = size[free] <= end - begin
        low[cursor[fits]], high[cursor[fits]] = begin, end
        cursor += fits
    return ptr, low, high


def _without(
    spans: list[tuple[int, int]], reserved: tuple[tuple[int, int], ...], *, points: bool = False
) -> list[tuple[int, int]]:
    """Return ranges less the `reserved` ones, which ascend; with `points` empty ones, too."""
    free = []
    for low, high in spans:
        for begin, end in reserved:
            if begin < high and end > low:
                if begin + points > low:
                    free.append((low, begin))
                low = end
        if low < high + points:
            free.append((low, high))
    return free


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return inclusive spans in order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for low, last in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((low, last))
    return found


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where two lists of inclusive spans agree."""
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d)]


# ---------------------------------------------------------------------- time to sections


def _timed(
    instance: LmemPacking, block: Array, b: int, looks: Looks
) -> tuple[tuple[Array, Array, Array, Array], Array, Array, Array]:
    """Return pieces by block (first, end, low, high), and a moment of each section.

    Then how many pieces each block has, and how long it is alive.
    """
    owner, start, stop, low, high = _pieces(instance, block)
    first, end, time = _compress(start, stop)
    looks()  # of millions every pass takes a while: others hear of it
    count = np.bincount(owner, minlength=b)
    duration = np.zeros(b, dtype=np.int64)
    np.add.at(duration, owner, stop - start)
    if len(owner) > b or not np.array_equal(owner, np.arange(b)):
        order = _by_owner(owner, first, b)
        looks()
        first, end, low, high = first[order], end[order], low[order], high[order]
    looks()
    return (first, end, low, high), time, count, duration


def _pieces(instance: LmemPacking, block: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return pieces: block, [start, stop) in time, [low, high) above the offset."""
    empty = bool((instance.size == 0).any())
    if not (instance.gaps or instance.colocated or instance.period is not None or empty):
        zero = np.zeros(instance.n, dtype=np.int64)
        return block, instance.start, instance.end, zero, instance.size
    rows = [block, instance.start, instance.end, np.zeros(instance.n, dtype=np.int64)]
    columns = np.stack([*rows, instance.size], axis=1)
    if instance.gaps:
        held = np.unique([gap.buffer for gap in instance.gaps])
        columns = np.concatenate([np.delete(columns, held, axis=0), _between_gaps(instance, block)])
    columns = columns[(columns[:, 1] < columns[:, 2]) & (columns[:, 3] < columns[:, 4])]
    if instance.period is not None:
        columns = _turns(columns, instance.period)
    if instance.colocated:
        several = np.bincount(block)[columns[:, 0]] > 1
        merged = np.array(_union(columns[several].tolist()), dtype=np.int64).reshape(-1, 5)
        columns = np.concatenate([columns[~several], merged])
    if empty:  # most searches want a piece of each block
        columns = np.concatenate([columns, _of_no_bytes(instance, block, columns)])
    first, second, third, fourth, fifth = (np.ascontiguousarray(row) for row in columns.T)
    return first, second, third, fourth, fifth


def _of_no_bytes(instance: LmemPacking, block: Array, pieces: Array) -> Array:
    """Return a piece for each block of no bytes, alone, one after the other, after all `pieces`."""
    nothing = np.setdiff1d(block, block[instance.size > 0])
    begin = pieces[:, 2].max(initial=instance.start.min()) + np.arange(len(nothing))
    zero = np.zeros_like(begin)
    return np.stack([nothing, begin, begin + 1, zero, zero], axis=1)


def _between_gaps(instance: LmemPacking, block: Array) -> Array:
    """Return the pieces, shape (pieces, 5), of the buffers that have gaps; some are empty."""
    pieces: list[Piece] = []
    gaps: dict[int, list[tuple[int, int, int, int]]] = {}
    for gap in instance.gaps:
        gaps.setdefault(gap.buffer, []).append((gap.start, gap.end, gap.low, gap.high))
    for buffer, found in gaps.items():
        at, now, nbytes = (int(of[buffer]) for of in (block, instance.start, instance.size))
        for begin, stop, low, high in sorted(found):
            pieces.append((at, now, begin, 0, nbytes))
            pieces.append((at, begin, stop, low, high))
            now = stop
        pieces.append((at, now, int(instance.end[buffer]), 0, nbytes))
    return np.array(pieces, dtype=np.int64).reshape(-1, 5)


def _turns(pieces: Array, period: int) -> Array:
    """Cut pieces of circular time, shape (pieces, 5), where the period begins anew."""
    pieces = pieces.copy()
    pieces[pieces[:, 1] >= period, 1:3] -= period
    over = pieces[pieces[:, 2] > period]
    pieces[:, 2] = np.minimum(pieces[:, 2], period)
    over[:, 1], over[:, 2] = 0, over[:, 2] - period
    return np.concatenate([pieces, over])


def _union(pieces: list[Piece]) -> list[Piece]:
    """Merge what colocated buffers hold: at every moment, the union of their bytes.

    O(moments * windows that differ): without gaps only the largest counts.
    """
    found: list[Piece] = []
    groups: dict[int, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece[0], []).append(piece)
    for owner, parts in groups.items():
        changes: dict[int, list[tuple[tuple[int, int], int]]] = {}
        for _, start, end, low, high in parts:
            changes.setdefault(start, []).append(((low, high), 1))
            changes.setdefault(end, []).append(((low, high), -1))
        alive: Counter[tuple[int, int]] = Counter()
        tallest: list[int] = []  # tops of the windows from 0 up, negated; a heap, with dead ones
        above: set[tuple[int, int]] = set()
        running: dict[tuple[int, int], int] = {}  # bytes held -> since when
        for moment in sorted(changes):
            for window, change in changes[moment]:
                alive[window] += change
                if window[0]:
                    (above.add if alive[window] else above.discard)(window)
                elif change > 0:
                    heapq.heappush(tallest, -window[1])
            while tallest and not alive[0, -tallest[0]]:
                heapq.heappop(tallest)
            now = set(_joined([*([(0, -tallest[0])] if tallest else []), *above]))
            over = [window for window in running if window not in now]
            found += [(owner, running.pop(window), moment, *window) for window in over]
            for window in now:
                running.setdefault(window, moment)
    return found


def _shared(
    pairs: Array, ptr: Array, first: Array, end: Array, held: Array, sections: int
) -> Array:
    """Return, per section, what sharing can save at most: all but the largest of each cluster."""
    from stagepack.instances.joining import Joined

    joined = Joined[int]()
    for i, j in pairs.tolist():
        joined.join(i, j)
    alive = (
        block for block in dict.fromkeys(pairs.ravel().tolist()) if ptr[block] < ptr[block + 1]
    )
    saved = np.zeros(sections, dtype=np.int64)
    for members in joined.sets(alive):
        changes: dict[int, list[tuple[int, int]]] = {}
        for i in members:
            for piece in range(ptr[i], ptr[i + 1]):
                changes.setdefault(int(first[piece]), []).append((i, int(held[piece])))
                changes.setdefault(int(end[piece]), []).append((i, -int(held[piece])))
        now = dict.fromkeys(members, 0)
        total, largest = 0, [(0, members[0])]  # a heap of (- bytes, block), with stale ones
        for at, upto in itertools.pairwise(sorted(changes)):
            for i, change in changes[at]:
                now[i] += change
                total += change
                heapq.heappush(largest, (-now[i], i))
            while -largest[0][0] != now[largest[0][1]]:
                heapq.heappop(largest)
            saved[at:upto] += total + largest[0][0]
    return saved


def _compress(start: Array, stop: Array) -> tuple[Array, Array, Array]:
    """Return the sections [first, end) of every interval, and a moment of each section.

    A section is a maximal set of intervals that are alive together: it is full at the last start
    before an end.  O(n) where times span less than a few n, else O(n log n).
    """
    if not len(start):  # nothing is ever alive
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros(1, dtype=np.int64)
    origin = int(start.min())
    span = int(stop.max()) - origin
    if span <= 8 * len(start) + 1024:
        moments = None
        begin, leave, count = start - origin, stop - origin, span + 1
    else:
        moments, ranks = np.unique(np.concatenate([start, stop]), return_inverse=True)
        begin, leave, count = ranks[: len(start)], ranks[len(start) :], len(moments)
    births = np.zeros(count, dtype=bool)
    births[begin] = True
    deaths = np.zeros(count, dtype=np.int64)
    deaths[leave] = 1
    np.cumsum(deaths, out=deaths)
    starts = np.flatnonzero(births)
    # A start closes its section when something ends before the next start, or with it.
    closes = np.ones(len(starts), dtype=bool)
    closes[:-1] = deaths[starts[1:]] > deaths[starts[:-1]]
    full = starts[closes]
    before = np.zeros(count + 1, dtype=np.int64)
    before[full + 1] = 1
    np.cumsum(before, out=before)
    time = full + origin if moments is None else moments[full]
    return before[begin], before[leave], time
