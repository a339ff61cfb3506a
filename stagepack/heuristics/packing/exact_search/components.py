"""Independent components of a packing instance, on which the exact search is run.

A component is a connected part of the conflicts.  A block that conflicts with all others of its
component can be placed at the bottom without loss of generality: packings of the rest, moved up by
its size, are packings of the whole.  Such blocks are removed, and the rest may separate again.
Sizes are divided by their greatest common divisor.

Cost: O(p log(p)) for p pieces each time that such blocks are removed; O(b p) if blocks pause.
Source: see :mod:`.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.exact_search import components_kernels as kernels
from stagepack.heuristics.packing.exact_search.address_ranges import (
    Places,
    beside_fixed,
    common_holes,
    misplaced,
    places,
)
from stagepack.heuristics.packing.exact_search.exact_state import BLOCK, NOWHERE, SECTION, Spans
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.meetings import Pause, meetings
from stagepack.instances.packing.normal_form.places import aligned_unit
from stagepack.instances.packing.normal_form.rows_kernels import rows, transposed
from stagepack.instances.profile import Array
from stagepack.progress import pausing


@dataclass(frozen=True, eq=False)
class Group:
    """Movable blocks over sections."""

    index: Array  # int64, shape (b,): index of each block in the instance
    # `size`, `alignment`, `duration`: int64, shape (b,): bytes; what offsets are multiples of; time
    # alive.
    size: Array
    alignment: Array
    duration: Array
    # `section_ptr`, `section_of`: int64, shape (b + 1,), (incidences,): sections of each block as
    # rows, ascending, never empty.
    section_ptr: Array
    section_of: Array
    places: Places  # where blocks may lie
    # Every row is a run of consecutive sections; the blocks of a part ascend in the first one.
    linear: bool

    @property
    def b(self) -> int:
        """Number of blocks."""
        return len(self.index)

    @property
    def first(self) -> Array:
        """First section of each block."""
        return np.asarray(self.section_of[self.section_ptr[:-1]])

    @property
    def last(self) -> Array:
        """Last section of each block."""
        return np.asarray(self.section_of[self.section_ptr[1:] - 1])

    @property
    def floating(self) -> bool:
        """Whether all blocks may be moved up by any block's size."""
        unit = int(np.gcd.reduce(self.size))
        return not len(self.places.low) and not (unit % self.alignment).any()

    def take(self, which: Array) -> Group:
        """Return the group of some of the blocks."""
        at, ptr = rows(self.section_ptr, which)
        return Group(
            self.index[which],
            self.size[which],
            self.alignment[which],
            self.duration[which],
            ptr,
            self.section_of[at],
            self.places.take(which),
            self.linear,
        )

    @cached_property
    def pieces(self) -> tuple[Array, Array, Array]:
        """Runs of consecutive sections: block, first and end, blocks ascending."""
        if self.linear:
            return np.arange(self.b), self.first, self.last + 1
        owner = np.repeat(np.arange(self.b), np.diff(self.section_ptr))
        begins = np.append(True, (np.diff(owner) > 0) | (np.diff(self.section_of) != 1))
        ends = np.append(begins[1:], True)
        return owner[begins], self.section_of[begins], self.section_of[ends] + 1

    def neighbours(self, pause: Pause) -> tuple[Array, Array]:
        """Return the blocks that share a section with each, as rows, ascending."""
        return meetings(*self.pieces, self.b, pause)

    def parts(self) -> Iterator[Array]:
        """Yield the positions of the blocks of each connected part."""
        owner, first, end = self.pieces
        order = np.argsort(first, kind="stable")
        reach = np.maximum.accumulate(end[order])
        if self.linear:
            yield from np.split(order, np.flatnonzero(first[order][1:] >= reach[:-1]) + 1)
            return
        # Pieces that overlap, one after the other, are chains, which blocks connect.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        chain = np.cumsum(np.append(False, first[order][1:] >= reach[:-1]))
        nodes = self.b + int(chain[-1]) + 1
        links = coo_array(
            (np.ones(len(order), dtype=bool), (owner[order], self.b + chain)), shape=(nodes, nodes)
        )
        label = connected_components(links, directed=False)[1][: self.b]
        order = np.argsort(label, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(label[order])) + 1)

    def compressed(self) -> Group:
        """Return the group over the maximal sections of its blocks."""
        if not self.linear:
            return self
        first, end = self.first, self.last + 1
        starts, ends = distinct(first), np.sort(end)
        ended = np.searchsorted(ends, starts, side="right")
        full = starts[np.append(ended[1:] > ended[:-1], True)]  # something ends before more start
        first, end = np.searchsorted(full, first), np.searchsorted(full, end)
        ptr = np.zeros(self.b + 1, dtype=np.int64)
        np.cumsum(end - first, out=ptr[1:])
        section_of = np.arange(ptr[-1]) + np.repeat(first - ptr[:-1], end - first)
        return replace(self, section_ptr=ptr, section_of=section_of)

    def at_bottom(self, pause: Pause) -> Array:
        """Return which blocks conflict with all others, shape (b,)."""
        owner, first, end = self.pieces
        if self.linear:
            return np.asarray((first < end.min()) & (end > first.max()))
        begun = np.searchsorted(np.sort(first), end, side="left")
        count = begun - np.searchsorted(np.sort(end), first, side="right")
        enough = np.bincount(owner, weights=count, minlength=self.b) >= self.b
        for i in np.flatnonzero(enough).tolist():
            pause()
            mine = slice(*np.searchsorted(owner, [i, i + 1]).tolist())
            met = np.zeros(self.b, dtype=bool)
            for start, stop in zip(first[mine].tolist(), end[mine].tolist(), strict=True):
                met[owner[(first < stop) & (end > start)]] = True
            enough[i] = met.all()
        return np.asarray(enough)


def movable(
    blocks: Blocks,
    first: int = 0,
    end: int = -1,
    pause: Pause = lambda: None,
    *,
    tuning: PackingTuning = TUNING,
) -> Group:
    """Return the group of the movable blocks of an instance of rigid ones.

    Only the sections [`first`, `end`) count; -1: to the last.  `pause` is called now and then; it
    may raise.
    """
    end = blocks.sections if end < 0 else end
    effort.spend(tuning.prices.call + tuning.exact.chosen * (blocks.b + len(blocks.first)))
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    begin, stop = np.maximum(blocks.first, first), np.minimum(blocks.end, end)
    keep = begin < stop
    owner, begin, stop = owner[keep], begin[keep], stop[keep]
    pause()
    held = blocks.fixed[owner] >= 0
    beside = beside_fixed(blocks, owner, begin, stop, pause) if held.any() else None
    owner, begin, stop = owner[~held], begin[~held], stop[~held]
    linear = blocks.linear and bool((np.diff(blocks.piece_ptr) <= 1).all())
    after = np.append(blocks.time, blocks.time[-1:] + 1)
    duration = np.zeros(blocks.b, dtype=np.int64)
    np.add.at(duration, owner, after[stop] - after[begin])
    pause()
    count = stop - begin
    section_of = np.arange(count.sum()) + np.repeat(begin - np.cumsum(count) + count, count)
    pause()
    alive = distinct(owner)
    number = np.bincount(owner, weights=count, minlength=blocks.b)[alive]
    return Group(
        alive,
        blocks.size[alive],
        blocks.alignment[alive],
        duration[alive],
        np.concatenate([[0], np.cumsum(number.astype(np.int64))]),
        section_of,
        places(blocks, alive, pause, beside, tuning=tuning),
        linear,
    )


def next_top(blocks: Array, capacity: int) -> int:
    """Return the least top above a capacity that a block can have: offsets are whole steps.

    `blocks` are records with the fields `size` and `step`; `capacity` is in units.
    """
    steps = -(-np.maximum(0, capacity + 1 - blocks["size"]) // blocks["step"])
    return int((steps * blocks["step"] + blocks["size"]).min())


class Component:
    """A connected group in units of its gcd, as the kernel sees it.

    The group has two blocks at least.  Below it are `lift` bytes, held by the blocks of `bottom`,
    whose sizes are told; they conflict with all of the group.  `pause` is called now and then; it
    may raise.

    `blocks` and `sections`, BLOCK and SECTION, are the state before anything is placed; what is not
    told of here is as :func:`.exact_kernels.search` takes it.  `life`, int64 of shape (b,), is a
    number that is equal for blocks of the same sections; `bound` is a lower bound on the peak in
    bytes, lift included: the largest load of a section.
    """

    def __init__(
        self,
        group: Group,
        lift: int,
        bottom: list[tuple[int, int]],
        pause: Pause = lambda: None,
        *,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.tuning = tuning
        self.bottom, self._pause = bottom, pause
        self.group, self.lift, self.index, self.linear = group, lift, group.index, group.linear
        self.unit = unit = _unit(group)
        pause()
        is_used = np.bincount(group.section_of) > 0
        used = int(is_used.sum())
        self.section_of = (np.cumsum(is_used) - 1)[group.section_of]
        self.section_ptr = group.section_ptr
        pause()
        self.neighbour_ptr, neighbours = group.neighbours(pause)
        self.neighbours = neighbours.astype(np.int32)
        pause()
        self.member_ptr, self.members = transposed(self.section_ptr, self.section_of, used)
        pause()
        self.blocks = blocks = np.zeros(group.b, dtype=BLOCK)
        blocks["size"] = group.size // unit
        blocks["step"] = np.where(unit % group.alignment == 0, 1, group.alignment // unit)
        blocks["offset"] = blocks["under"] = -1
        blocks["section"], blocks["section_end"] = self.section_ptr[:-1], self.section_ptr[1:]
        blocks["neighbour"], blocks["neighbour_end"] = (
            self.neighbour_ptr[:-1],
            self.neighbour_ptr[1:],
        )
        self.spans = self._spans()
        self._families()
        pause()
        self.sections = sections = np.zeros(used, dtype=SECTION)
        member = self.members
        sections["member"], sections["member_end"] = self.member_ptr[:-1], self.member_ptr[1:]
        pause()
        np.add.at(sections["total"], self.section_of, blocks["size"][self._owner()])
        sections["witness"] = member[self.member_ptr[:-1]]
        np.add.at(sections["crossing"], self.section_of, 1)
        np.subtract.at(sections["crossing"], self.section_of[self.section_ptr[1:] - 1], 1)
        pause()
        self.holes = self._holes()
        sections["floor"] = np.minimum.reduceat(blocks["effective"][member], self.member_ptr[:-1])
        self.bound = lift + unit * kernels.least_peak(blocks, sections, self.holes)
        effort.spend(
            tuning.exact.component
            + tuning.exact.component_entry * (len(self.neighbours) + len(self.section_of))
        )

    @property
    def b(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def load(self) -> Array:
        """Return the largest load of a section of each block, in units."""
        total = self.sections["total"][self.section_of]
        return np.asarray(np.maximum.reduceat(total, self.section_ptr[:-1]))

    def capacity(self, nbytes: int) -> int:
        """Return a capacity in bytes in units above the lift."""
        return (nbytes - self.lift) // self.unit

    def offsets(self, units: Array) -> Array:
        """Return offsets in bytes, shape (b,), from those in units."""
        return np.asarray(self.lift + self.unit * units)

    def settled(self, packing: Array) -> Array:
        """Return its blocks' offsets in a packing, moved so that the bottom blocks lie below.

        Whatever lies above a bottom block lies above it entirely, so that taking the block out
        and putting it at the bottom leaves a packing.
        """
        offsets = packing[self.index]
        moved = offsets + self.lift
        for block, nbytes in self.bottom:
            moved = moved - nbytes * (packing[block] < offsets)
        return np.asarray(moved)

    def peak(self, offsets: Array) -> int:
        """Return the highest top of its blocks, given their offsets in bytes."""
        return int((offsets + self.group.size).max())

    def next_peak(self, nbytes: int) -> int:
        """Return the least possible peak above a capacity, in bytes."""
        return self.lift + self.unit * next_top(self.blocks, self.capacity(nbytes))

    def _owner(self) -> Array:
        """The block of each incidence."""
        return np.repeat(np.arange(self.b), np.diff(self.section_ptr))

    def _spans(self) -> Array:
        """Return the rows of all spans and set each block's row and lowest place.

        Blocks that may lie at the same places have one row.
        """
        allowed, unit, blocks = self.group.places, self.unit, self.blocks
        blocks["base"] = blocks["effective"] = allowed.lowest // unit
        begins: dict[bytes, int] = {}
        taken = []
        used = 0
        for i in np.flatnonzero(allowed.limited).tolist():
            if i % self.tuning.exact.pause_steps == 0:
                self._pause()
            row = slice(allowed.ptr[i], allowed.ptr[i + 1])
            key = allowed.key(i)
            if key not in begins:
                begins[key] = used
                taken.append(row)
                used += row.stop - row.start
            blocks["span"][i] = begins[key]
            blocks["span_end"][i] = begins[key] + row.stop - row.start
        spans = np.empty((used, 2), dtype=np.int64)
        for column, ends in enumerate((allowed.low, np.minimum(allowed.high, NOWHERE))):
            spans[:, column] = np.concatenate([ends[row] for row in taken]) // unit if taken else 0
        return spans

    def _families(self) -> None:
        """Find blocks of the same sections, and identical ones, which are placed in order."""
        blocks, count = self.blocks, self.b
        lives: dict[Hashable, int] = {}
        families: dict[tuple[int, int], int] = {}
        twins: dict[tuple[int, ...], int] = {}
        life, family, twin = [0] * count, [-1] * count, [-1] * count
        columns = ("size", "step", "span", "span_end")
        each = zip(*(blocks[column].tolist() for column in columns), strict=True)
        for i, (where, (size, step, span, span_end)) in enumerate(
            zip(self._rows(), each, strict=True)
        ):
            if i % self.tuning.exact.pause_steps == 0:
                self._pause()
            mine = life[i] = lives.setdefault(where, len(lives))
            if span == span_end and size % step == 0:
                family[i] = families.setdefault((mine, step), len(families))
            alike = mine, size, step, span, span_end
            earlier = twins.get(alike)
            if earlier is not None:
                twin[earlier] = i
                top = int(blocks["effective"][earlier]) + size
                blocks["effective"][i] = self._settled(i, top)
            twins[alike] = i
        self.life = np.array(life, dtype=np.int64)
        blocks["family"], blocks["twin"] = family, twin

    def _rows(self) -> Iterator[Hashable]:
        """Yield what is equal for blocks of the same sections."""
        if self.linear:
            yield from zip(self.group.first.tolist(), self.group.last.tolist(), strict=True)
        else:
            for begin, end in pairwise(self.section_ptr.tolist()):
                yield self.section_of[begin:end].tobytes()

    def _settled(self, i: int, at: int) -> int:
        """Return the lowest legal offset of a block from `at` up, or NOWHERE."""
        block = self.blocks[i]
        at = -(-at // int(block["step"])) * int(block["step"])
        spans = self.spans[block["span"] : block["span_end"]]
        row = int(np.searchsorted(spans[:, 1], at))
        return (max(at, int(spans[row, 0])) if row < len(spans) else NOWHERE) if len(spans) else at

    def _holes(self) -> Array:
        """Return the addresses that no member of a section may use, and set each section's row."""
        sections, blocks, limited = self.sections, self.blocks, self.group.places.limited
        where = np.flatnonzero(np.logical_and.reduceat(limited[self.members], self.member_ptr[:-1]))
        at, member_ptr = rows(self.member_ptr, where)
        members = self.members[at]
        if (
            np.diff(self.group.places.ptr)[members].sum() > self.tuning.places.span_limit
        ):  # those common to all
            members = np.arange(self.b) if limited.all() else members[:0]
            member_ptr = np.array([0, len(members)])
        if not len(members):
            return np.empty((0, 2), dtype=np.int64)
        begin, end = blocks["span"].copy(), blocks["span_end"].copy()
        size, top = blocks["size"].copy(), NOWHERE // self.unit
        given = Spans(begin, end, self.spans, size, member_ptr, members, top)
        ptr, holes = common_holes(given, self._pause, tuning=self.tuning)
        sections["hole"][where], sections["hole_end"][where] = ptr[:-1], ptr[1:]
        return holes


def _unit(group: Group) -> int:
    """Return the gcd of all lengths an offset of a canonical packing is made of."""
    low = group.places.low
    lengths = group.size, low[low < NOWHERE]
    return aligned_unit(math.gcd(*(int(np.gcd.reduce(part)) for part in lengths)), group.alignment)


class Packing:
    """An instance of rigid blocks: those whose place is known, and components to search.

    `first` and `end` are as :func:`movable` takes them; :class:`~stagepack.progress.Stopped` is
    raised once `keep_going`, asked now and then, says no.

    `offsets`, int64 of shape (blocks.b,), are those of the blocks outside the components, `peak` is
    their highest top.  `clash`: fixed blocks overlap or break a rule, so that there is no packing
    at all.  What is left to be searched are `components`, the highest bound first.
    """

    def __init__(
        self,
        blocks: Blocks,
        first: int = 0,
        end: int = -1,
        keep_going: Callable[[], bool] | None = None,
        *,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.tuning = tuning
        self._pause = pausing(keep_going)
        self.offsets = np.maximum(blocks.fixed, 0)
        held = np.flatnonzero(blocks.fixed >= 0)
        self.peak = int((blocks.fixed + blocks.size)[held].max(initial=0))
        self.components: list[Component] = []
        self.clash = misplaced(blocks, held, self._pause, tuning=tuning) or _overlap(
            blocks, held, self._pause
        )
        group = movable(blocks, first, end, self._pause, tuning=tuning)
        waiting: list[tuple[Group, list[tuple[int, int]]]] = [(group, [])] if group.b else []
        while waiting:
            group, bottom = waiting.pop()
            for part in group.parts():
                self._pause()
                rest = self._bottom(group.take(part), bottom)
                if rest is not None:
                    waiting.append(rest)
        self._place_dead(blocks)
        self.components.sort(key=lambda component: -component.bound)

    @property
    def bound(self) -> int:
        """Lower bound on the peak in bytes; NOWHERE or more when there is no packing."""
        if self.clash:
            return NOWHERE
        return max([self.peak, *(component.bound for component in self.components)])

    def _place(self, block: int, offset: int, nbytes: int) -> None:
        """Give a block its offset for good."""
        self.offsets[block] = offset
        self.peak = max(self.peak, offset + nbytes)

    def _bottom(
        self, part: Group, bottom: list[tuple[int, int]]
    ) -> tuple[Group, list[tuple[int, int]]] | None:
        """Place the blocks of a connected part that lie at its bottom; return the rest, if any.

        A part without such blocks becomes a component.  `bottom` lists the blocks below the part
        and their sizes.
        """
        lift = sum(nbytes for _, nbytes in bottom)
        if part.b == 1:
            at = int(part.places.lowest[0]) if part.places.limited[0] else lift
            self._place(int(part.index[0]), at, int(part.size[0]))
            return None
        lowest = part.at_bottom(self._pause) if part.floating else np.zeros(part.b, dtype=bool)
        if not lowest.any():
            self.components.append(Component(part, lift, bottom, self._pause, tuning=self.tuning))
            return None
        bottom = list(bottom)
        for i in np.flatnonzero(lowest).tolist():
            self._place(int(part.index[i]), lift, int(part.size[i]))
            bottom.append((int(part.index[i]), int(part.size[i])))
            lift += int(part.size[i])
        rest = np.flatnonzero(~lowest)
        return (part.take(rest).compressed(), bottom) if len(rest) else None

    def _place_dead(self, blocks: Blocks) -> None:
        """Place those of the blocks that are never alive."""
        which = np.flatnonzero((np.diff(blocks.piece_ptr) == 0) & (blocks.fixed < 0))
        self.offsets[which] = places(blocks, which, self._pause, tuning=self.tuning).lowest
        self.peak = max(self.peak, int((self.offsets + blocks.size)[which].max(initial=0)))


def _overlap(blocks: Blocks, held: Array, pause: Pause) -> bool:
    """Return whether two of these fixed blocks overlap."""
    at, ptr = rows(blocks.piece_ptr, held)
    owner = np.repeat(np.arange(len(held)), np.diff(ptr))
    first, end = blocks.first[at], blocks.end[at]
    low, high = blocks.fixed[held], (blocks.fixed + blocks.size)[held]
    order = np.argsort(first, kind="stable")
    owner, first, end = owner[order], first[order], end[order]
    later = np.searchsorted(first, end, side="left")
    for q in range(len(owner)):
        pause()
        i, others = owner[q], owner[q + 1 : later[q]]
        if ((others != i) & (low[others] < high[i]) & (low[i] < high[others])).any():
            return True
    return False
