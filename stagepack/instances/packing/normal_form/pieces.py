"""Pieces of blocks: what is held when, and the sections into which time is compressed.

Pairs that are exempt take turns: all moments are gone through once for each *lane*, a set of
buffers without exempt pairs.  Sets of buffers that are kept apart are moments of their own, after
all others.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.lanes import turns
from stagepack.instances.packing.normal_form.meetings import Looks, Turns
from stagepack.instances.packing.normal_form.places import joined
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

Piece = tuple[int, int, int, int, int]
"""Block, [start, end) in time, [low, high) in bytes above the offset."""


NOTHING = Turns(np.zeros((0, 5), dtype=np.int64), np.zeros(0, dtype=np.int64))
"""Of lifetimes that are as given."""


@dataclass(frozen=True, eq=False)
class Sections:
    """Pieces by block and section."""

    # `first`, `end`, `low`, `high`: int64, shape (pieces,): as those of :class:`.Blocks`.
    first: Array
    end: Array
    low: Array
    high: Array
    # `count`, `duration`: int64, shape (b,): pieces of each block, and how long it is alive.
    count: Array
    duration: Array
    # `time`, `moment`: int64, shape (sections,): as those of :class:`.Blocks`.
    time: Array
    moment: Array
    # So many sections are moments; those after them are sets of buffers that are kept apart.
    timed: int


def sections(instance: LmemPacking, block: Array, shift: Array, b: int, looks: Looks) -> Sections:
    """Return the pieces of all `b` blocks of an instance with lifetimes, and their sections.

    `block` and `shift`, shape (n,), are of each buffer, as :func:`.grouping` says.
    """
    (owner, start, stop, low, high), taken = _pieces(instance, block, shift, looks)
    first, end, time = _compress(start, stop)
    looks()  # of millions every pass takes a while: others hear of it
    count = np.bincount(owner, minlength=b)
    duration = np.zeros(b, dtype=np.int64)
    apart = start >= taken.end
    np.add.at(duration, owner, np.where(apart, 1, taken.moment(stop) - taken.moment(start)))
    if len(owner) > b or not np.array_equal(owner, np.arange(b)):
        order = _by_owner(owner, first, b)
        looks()
        first, end, low, high = first[order], end[order], low[order], high[order]
    looks()
    timed = int(np.searchsorted(time, taken.end))
    return Sections(first, end, low, high, count, duration, time, taken.moment(time), timed)


def _pieces(
    instance: LmemPacking, block: Array, shift: Array, looks: Looks
) -> tuple[tuple[Array, Array, Array, Array, Array], Turns]:
    """Return pieces (block, [start, stop) in time, [low, high) above the offset) in turns."""
    empty = bool((instance.size == 0).any())
    related = instance.views or instance.exempt or instance.apart or instance.exclusive
    together = instance.colocated or instance.views
    if not (instance.gaps or together or instance.period is not None or empty or related):
        zero = np.zeros(instance.n, dtype=np.int64)
        return (block, instance.start, instance.end, zero, instance.size), NOTHING
    buffers, zero = np.arange(instance.n), np.zeros(instance.n, dtype=np.int64)
    columns = np.stack([buffers, instance.start, instance.end, zero, instance.size], axis=1)
    if instance.gaps:
        held = np.unique([gap.buffer for gap in instance.gaps])
        columns = np.concatenate([np.delete(columns, held, axis=0), _between_gaps(instance)])
    columns = columns[(columns[:, 1] < columns[:, 2]) & (columns[:, 3] < columns[:, 4])]
    if instance.period is not None:
        columns = _turned(columns, instance.period)
    taken = turns(instance, block, columns, looks) if related else NOTHING
    columns = taken.rows.copy() if related else columns
    above = shift[columns[:, 0]]
    columns[:, 3] += above
    columns[:, 4] += above
    columns[:, 0] = block[columns[:, 0]]
    if together:
        several = np.bincount(block)[columns[:, 0]] > 1
        merged = np.array(_union(columns[several].tolist()), dtype=np.int64).reshape(-1, 5)
        columns = np.concatenate([columns[~several], merged])
    if empty:  # most searches want a piece of each block
        columns = np.concatenate([columns, _of_no_bytes(instance, block, columns)])
    first, second, third, fourth, fifth = (np.ascontiguousarray(row) for row in columns.T)
    return (first, second, third, fourth, fifth), taken


def _of_no_bytes(instance: LmemPacking, block: Array, pieces: Array) -> Array:
    """Return a piece for each block of no bytes, alone, one after the other, after all `pieces`."""
    nothing = np.setdiff1d(block, block[instance.size > 0])
    begin = pieces[:, 2].max(initial=instance.start.min()) + np.arange(len(nothing))
    zero = np.zeros_like(begin)
    return np.stack([nothing, begin, begin + 1, zero, zero], axis=1)


def _between_gaps(instance: LmemPacking) -> Array:
    """Return the pieces, shape (pieces, 5), of the buffers that have gaps; some are empty."""
    pieces: list[Piece] = []
    gaps: dict[int, list[tuple[int, int, int, int]]] = {}
    for gap in instance.gaps:
        gaps.setdefault(gap.buffer, []).append((gap.start, gap.end, gap.low, gap.high))
    for buffer, found in gaps.items():
        now, nbytes = int(instance.start[buffer]), int(instance.size[buffer])
        for begin, stop, low, high in sorted(found):
            pieces.append((buffer, now, begin, 0, nbytes))
            pieces.append((buffer, begin, stop, low, high))
            now = stop
        pieces.append((buffer, now, int(instance.end[buffer]), 0, nbytes))
    return np.array(pieces, dtype=np.int64).reshape(-1, 5)


def _turned(pieces: Array, period: int) -> Array:
    """Cut pieces of circular time, shape (pieces, 5), where the period begins anew."""
    pieces = pieces.copy()
    pieces[pieces[:, 1] >= period, 1:3] -= period
    over = pieces[pieces[:, 2] > period]
    pieces[:, 2] = np.minimum(pieces[:, 2], period)
    over[:, 1], over[:, 2] = 0, over[:, 2] - period
    return np.concatenate([pieces, over])


def _union(pieces: list[Piece]) -> list[Piece]:
    """Merge what buffers with one place hold: at every moment, the union of their bytes.

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
            now = set(joined([*([(0, -tallest[0])] if tallest else []), *above]))
            over = [window for window in running if window not in now]
            found += [(owner, running.pop(window), moment, *window) for window in over]
            for window in now:
                running.setdefault(window, moment)
    return found


def shared(pairs: Array, ptr: Array, first: Array, end: Array, held: Array, sections: int) -> Array:
    """Return, per section, what sharing can save at most: all but the largest of each cluster.

    `pairs` of blocks may share; block i has the pieces `ptr`[i] up to `ptr`[i + 1], which hold so
    many bytes, `held`, in the `sections` from `first` up to `end`.
    """
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


def _by_owner(owner: Array, first: Array, b: int) -> Array:
    """Return an order of pieces by their block, then by section."""
    many = len(owner)
    if (first[1:] < first[:-1]).any() or many * b > LARGEST:
        return np.lexsort((first, owner))
    # One sort of numbers is several times as fast as one of their indices.
    return np.sort(owner * many + np.arange(many)) % many
