"""The normal form of packing: blocks that need one offset each, over compressed time.

Buffers that share an offset become one block.  Lifetimes, gaps, circular time and conflict graphs
are all expressed as pieces: a block occupies some bytes above its offset in a range of sections.
Sections are the maximal cliques of the pieces, in order of time.  Two blocks conflict exactly where
they have pieces in one section.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.meetings import Looks, Pause, meetings
from stagepack.instances.packing.normal_form.pieces import sections, shared
from stagepack.instances.packing.normal_form.places import grouping, ranges, unit_of, walls
from stagepack.instances.profile import Array

_made: weakref.WeakKeyDictionary[LmemPacking, Blocks] = weakref.WeakKeyDictionary()
_cut_short: weakref.WeakSet[LmemPacking] = weakref.WeakSet()
"""Those whose conflicts there was no time to cover well."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Blocks:
    """A packing instance in normal form; made by :meth:`of`."""

    # `block`, `shift`: int64, shape (n,): block of each buffer, and how far it lies above the
    # block's offset.
    block: Array
    shift: Array
    # `size`, `alignment`: int64, shape (b,): bytes of each block and what its offset is a multiple
    # of.
    size: Array
    alignment: Array
    # int64, shape (b,): how long each block is alive, in the instance's own time (sections, for a
    # graph).
    duration: Array
    # int64, shape (b + 1,): block i has the pieces piece_ptr[i] .. piece_ptr[i + 1] - 1, ascending
    # in time.
    piece_ptr: Array
    # `first`, `end`, `low`, `high`: int64, shape (pieces,): in the sections [first, end) the block
    # occupies the bytes [offset + low, offset + high).
    first: Array
    end: Array
    low: Array
    high: Array
    # int64, shape (sections,): a time in each section, rising (an index, where a conflict graph
    # replaces time).
    time: Array
    # int64, shape (sections,): the same in the instance's own time, which may begin anew: see
    # :mod:`.lanes`.
    moment: Array
    timed: int  # the sections from there on are no moments, but sets of buffers that are kept apart
    # int64, shape (sections,): bytes that each section needs at least: of blocks that may share,
    # only the largest count.
    load: Array
    fixed: Array  # int64, shape (b,): given offsets; -1: free
    range_ptr: Array  # int64, shape (b + 1,): where the ranges of each block begin
    # `range_low`, `range_high`: int64, shape (ranges,): address ranges [low, high), ascending, in
    # one of which the block must lie wholly; a block without any may lie anywhere from 0 up.
    range_low: Array
    range_high: Array
    may_share: Array  # int64, shape (pairs, 2): blocks that may overlap at equal offsets
    unit: int  # some best allocation has all offsets multiples of this
    # Sections follow one another in time: lifetimes that are not circular, given or found, with
    # neither exemptions nor separations.
    linear: bool
    looks: int = 0  # questions whether to go on while it was made, most of them after as much work
    # No block lies across a multiple of this, a multiple of all alignments, and that is all that
    # its ranges say; else 0.
    walls: int = 0
    # No block lies across a multiple of this; 0: ranges say where they may lie.  See `open`.
    segment: int = 0

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
        block, shift, alignment = grouping(instance)
        b, looks = len(alignment), Looks(keep_going)
        size = np.zeros(b, dtype=np.int64)
        np.maximum.at(size, block, shift + instance.size)
        if instance.conflicts is None:
            found = sections(instance, block, shift, b, looks)
            load = np.zeros(len(found.time) + 1, dtype=np.int64)
            np.add.at(load, found.first, found.high - found.low)
            np.add.at(load, found.end, found.low - found.high)
            load = np.cumsum(load)[:-1]
            whole = found.timed == len(found.time) and np.array_equal(found.time, found.moment)
            linear = instance.period is None and whole
        else:
            from stagepack.instances.packing.normal_form.graphs import sections_of_graph

            found, load, linear, short = sections_of_graph(instance, block, shift, looks)
            (_cut_short.add if short else _cut_short.discard)(instance)
            looks()
        pairs = _sharing(instance, block, shift)
        ptr = np.concatenate([[0], np.cumsum(found.count)]).astype(np.int64)
        looks()
        if len(pairs):
            held = found.high - found.low
            load -= shared(pairs, ptr, found.first, found.end, held, len(found.time))
        range_ptr, range_low, range_high, fixed = ranges(
            instance, block, shift, size, alignment, looks
        )
        return cls(
            block=block,
            shift=shift,
            size=size,
            alignment=alignment,
            duration=found.duration,
            piece_ptr=ptr,
            first=found.first,
            end=found.end,
            low=found.low,
            high=found.high,
            time=found.time,
            moment=found.moment,
            timed=found.timed,
            load=load,
            fixed=fixed,
            range_ptr=range_ptr,
            range_low=range_low,
            range_high=range_high,
            may_share=pairs,
            unit=unit_of(instance, shift, alignment, range_low),
            linear=linear,
            looks=looks.times,
            walls=walls(instance, block, shift, size, alignment),
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
    def open(self) -> Blocks:
        """The same blocks where they lie in segments and there are no other ranges, without ranges.

        What places them must keep to `segment`.  Else, or with more than one piece a block, these.
        """
        if not self.walls or not self.rigid or (self.size > self.walls).any():
            return self
        if (np.diff(self.piece_ptr) != 1).any():
            return self
        none, ptr = np.zeros(0, dtype=np.int64), np.zeros(self.b + 1, dtype=np.int64)
        return replace(
            self, range_ptr=ptr, range_low=none, range_high=none, segment=self.walls, walls=0
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
        if self.open is not self:
            return self.open.rounded
        step = int(self.alignment[0])
        if step == 1 or not self.rigid or (self.alignment != step).any():
            return self
        size = -(-self.size // step) * step
        owner = np.repeat(np.arange(self.b), np.diff(self.piece_ptr))
        load = np.zeros(self.sections + 1, dtype=np.int64)
        np.add.at(load, self.first, size[owner])
        np.add.at(load, self.end, -size[owner])
        lengths = [*self.range_low.tolist(), self.segment]
        unit = math.gcd(int(np.gcd.reduce(size)), *lengths) or 1
        return replace(self, size=size, high=size[owner], load=np.cumsum(load)[:-1], unit=unit)

    def expand(self, offsets: Array) -> Array:
        """Return the offset of each buffer, shape (n,), from that of each block."""
        return np.asarray(offsets[self.block] + self.shift)

    def gathered(self, offsets: Array) -> Array:
        """Return the offset of each block, shape (b,), from that of each buffer."""
        found = np.empty(self.b, dtype=np.int64)
        found[self.block] = offsets - self.shift
        return found

    def neighbours(self, pause: Pause = lambda: None) -> tuple[Array, Array]:
        """Return the blocks that share a section with each block: see :func:`.meetings`."""
        owner = np.repeat(np.arange(self.b), np.diff(self.piece_ptr))
        return meetings(owner, self.first, self.end, self.b, pause)


def _sharing(instance: LmemPacking, block: Array, shift: Array) -> Array:
    """Return the pairs of blocks that may overlap at equal offsets, ascending.

    Members that are no in-place pairs must not meet at equal offsets.
    """
    exempt = set(instance.in_place) - set(instance.apart)
    alone = set(instance.exclusive)
    exempt = {pair for pair in exempt if not alone.intersection(pair)}
    pairs = np.array(sorted(exempt), dtype=np.int64).reshape(-1, 2)
    pairs = pairs[(instance.size[pairs] > 0).all(axis=1)]
    pairs = pairs[block[pairs[:, 0]] != block[pairs[:, 1]]]
    if (shift[pairs[:, 0]] != shift[pairs[:, 1]]).any():
        i, j = pairs[np.argmax(shift[pairs[:, 0]] != shift[pairs[:, 1]])].tolist()
        raise InputError(
            f"buffers {instance.buffer_id(i)} and {instance.buffer_id(j)} belong to buffers that "
            "their views lift to different multiples of their alignments",
            field="in_place",
            remedy="give them equal alignments, or leave out the pair",
        )
    pairs = np.unique(np.sort(block[pairs], axis=1), axis=0)
    if not len(pairs) or not (instance.colocated or instance.views):
        return pairs
    single = Blocks.of(instance.replace(colocated=(), views=()))
    order = np.argsort(block, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(block[order])) + 1)
    keep = [
        not any(
            _meet_at_equal_offsets(single, x, y, int(shift[y] - shift[x]))
            for x in members[i].tolist()
            for y in members[j].tolist()
            if (min(x, y), max(x, y)) not in exempt
        )
        for i, j in pairs.tolist()
    ]
    return np.asarray(pairs[keep])


def _meet_at_equal_offsets(single: Blocks, x: int, y: int, above: int) -> bool:
    """Tell whether two buffers overlap, at some time, when y lies so far `above` x."""
    for p in range(single.piece_ptr[x], single.piece_ptr[x + 1]):
        for q in range(single.piece_ptr[y], single.piece_ptr[y + 1]):
            together = single.first[p] < single.end[q] and single.first[q] < single.end[p]
            low, high = above + single.low[q], above + single.high[q]
            if together and single.low[p] < high and low < single.high[p]:
                return True
    return False
