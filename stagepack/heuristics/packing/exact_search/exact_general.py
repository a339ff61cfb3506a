"""Exact packing of blocks of any shape: pieces of reduced height, unlike members, in-place pairs.

A component is a connected part of the conflicts between movable blocks, together with the fixed
blocks beside it.  It is searched by :mod:`.exact_general_kernels` with several branching orders.
Components and searches have the same interface as those of rectangular blocks, so that
:func:`.exact.decide` and ``minimise`` work with both.

Cost and sources: see :mod:`.exact_general_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.exact_search import distances_kernels
from stagepack.heuristics.packing.exact_search import exact_general_kernels as kernels
from stagepack.heuristics.packing.exact_search import exact_general_state as general
from stagepack.heuristics.packing.exact_search import exact_state as state
from stagepack.heuristics.packing.exact_search.address_ranges import Places, misplaced, places
from stagepack.heuristics.packing.exact_search.canonical import PausedSearch, longer, ranks
from stagepack.heuristics.packing.exact_search.components import next_top
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE
from stagepack.heuristics.packing.exact_search.portfolio import Portfolio
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.packing.normal_form.meetings import Pause, meetings
from stagepack.instances.packing.normal_form.places import aligned_unit
from stagepack.instances.packing.normal_form.rows_kernels import rows, transposed
from stagepack.instances.profile import Array
from stagepack.progress import pausing

ORDERS = (
    (state.LOWEST_SECTION, "ATZ"),
    (state.LOWEST_BLOCK, "ZAT"),
    (state.LOWEST_SECTION, "WZA"),
    (state.LOWEST_BLOCK, "ATZ"),
    (state.LOWEST_SECTION, "ZAT"),
    (state.LOWEST_BLOCK, "TAZ"),
)
"""Where to branch, and which block is preferred at equal places: by descending area (A), largest
load of a section (T), size (Z), number of sections (W)."""


class Component:
    """Connected movable blocks and the fixed ones beside them, in units of their gcd.

    `blocks` have the pieces that count, `index` are the movable ones, `held` the fixed ones that
    share a section with them.  `pause` is called now and then; it may raise.

    `shapes` are the state before anything is placed: the movable blocks, then the held ones.
    `load`, int64 of shape (sections,), and `area`, int64 of shape (b + held,), are units of each
    section, and of each block over all sections.  `bound` is a lower bound on the peak in bytes;
    NOWHERE: no packing of any height.
    """

    def __init__(
        self,
        blocks: Blocks,
        index: Array,
        held: Array,
        pause: Pause = lambda: None,
        *,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.tuning = tuning
        self.index, self.size = index, blocks.size[index]
        which = np.concatenate([index, held])
        at, piece_ptr = rows(blocks.piece_ptr, which)
        first, end = blocks.first[at], blocks.end[at]
        low, high = blocks.low[at], blocks.high[at]
        allowed = places(blocks, which, pause, tuning=tuning)
        pause()
        lengths = (self.size, low, high, allowed.low[allowed.low < NOWHERE])
        unit = math.gcd(*(int(np.gcd.reduce(part)) for part in lengths if len(part)))
        self.unit = unit = aligned_unit(unit, blocks.alignment[index])
        owner = np.repeat(np.arange(len(which)), np.diff(piece_ptr))
        pieces = np.stack([first, end, low // unit, high // unit], axis=1)
        near_ptr, near = meetings(owner, first, end, len(which), pause)
        share_ptr, share = _partners(blocks, which)
        pause()
        run_ptr, runs = forbidden(near_ptr, near, piece_ptr, pieces, share_ptr, share)
        pause()
        sections, piece, section = _incidences(first, end)
        member_ptr, entry = transposed(np.arange(len(piece) + 1), section, sections)
        piece, section = piece[entry], section[entry]
        member = owner[piece]
        pause()
        partner_ptr, partners = _partners_here(member, section, share_ptr, share)
        pause()
        alive, section_of = np.divmod(distinct(member * sections + section), sections)
        section_ptr = _pointer(alive, len(which))
        pause()
        ends = (
            np.where(end < NOWHERE, end // unit, NOWHERE) for end in (allowed.low, allowed.high)
        )
        step = blocks.alignment[which]
        self.shapes = general.Shapes(
            blocks=_table(
                general.BLOCK,
                offset=np.append(np.full(len(index), -1), blocks.fixed[held] // unit),
                lowest=np.zeros(len(which), dtype=np.int64),
                hole=np.full(len(which), -1),
                size=blocks.size[which] // unit,
                step=np.where(unit % step == 0, 1, step // unit),
                near=near_ptr,
                range=allowed.ptr,
                section=section_ptr,
                before=np.full(len(which), -1),
                after=np.full(len(which), -1),
            ),
            near=_table(general.NEAR, block=near, run=run_ptr),
            members=_table(
                general.MEMBER,
                block=member,
                low=pieces[piece, 2],
                high=pieces[piece, 3],
                partner=partner_ptr,
            ),
            sections=_table(general.SECTION, member=member_ptr),
            runs=runs,
            ranges=_spans(*ends),
            partners=partners,
            section_of=section_of,
            order=np.arange(len(member)),
            queue=np.zeros(len(which), dtype=np.int64),
            touched=np.zeros(sections, dtype=np.int64),
        )
        self._order_twins(piece_ptr, pieces, np.diff(share_ptr), allowed)
        held_here = pieces[piece, 3] - pieces[piece, 2]
        self.load = np.zeros(sections, dtype=np.int64)
        np.add.at(self.load, section, held_here)
        self.area = np.zeros(len(which), dtype=np.int64)
        np.add.at(self.area, member, held_here)
        effort.spend(
            tuning.general.component
            + tuning.general.component_entry * (len(near) + len(member) + len(runs))
        )
        pause()
        self.bound = GeneralSearch(self, tuning=tuning).bound()

    @property
    def b(self) -> int:
        """Number of movable blocks."""
        return len(self.index)

    def capacity(self, nbytes: int) -> int:
        """Return a capacity in bytes in units."""
        return nbytes // self.unit

    def offsets(self, units: Array) -> Array:
        """Return offsets in bytes, shape (b,), from those in units."""
        return np.asarray(self.unit * units)

    def settled(self, packing: Array) -> Array:
        """Return its blocks' offsets in a packing."""
        return np.asarray(packing[self.index])

    def peak(self, offsets: Array) -> int:
        """Return the highest top of its blocks, given their offsets in bytes."""
        return int((offsets + self.size).max())

    def _order_twins(
        self, piece_ptr: Array, pieces: Array, partners: Array, allowed: Places
    ) -> None:
        """Chain identical movable blocks without partners."""
        blocks, near, runs = self.shapes.blocks, self.shapes.near, self.shapes.runs
        last: dict[object, int] = {}
        for i in np.flatnonzero(partners[: self.b] == 0).tolist():
            shape = pieces[piece_ptr[i] : piece_ptr[i + 1]].tobytes()
            key = int(blocks["size"][i]), int(blocks["step"][i]), allowed.key(i), shape
            if key in last:
                below = last[key]
                row = near["block"][blocks["near"][i] : blocks["near_end"][i]]
                entry = near[blocks["near"][i] + np.searchsorted(row, below)]
                # Their pieces coincide at equal offsets, so that a run holds zero.
                reach = runs["high"][entry["run"] : entry["run_end"]]
                blocks["before"][i], blocks["after"][below] = below, i
                blocks["apart"][i] = reach[reach >= 0].min() + 1
            last[key] = i


def _table(dtype: np.dtype[Any], **columns: Array) -> Array:
    """Return records of these columns; those that begin rows also give where these end."""
    known = set(dtype.names or ())
    begins = {name for name in columns if f"{name}_end" in known}
    fields = {name: columns[name][:-1] if name in begins else columns[name] for name in columns}
    fields |= {f"{name}_end": columns[name][1:] for name in begins}
    table = np.zeros(len(next(iter(fields.values()))), dtype=dtype)
    for name, column in fields.items():
        table[name] = column
    return table


def _pointer(row: Array, count: int) -> Array:
    """Return the begins of rows, from the ascending row of each entry."""
    ptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=count), out=ptr[1:])
    return ptr


def _partners(blocks: Blocks, which: Array) -> tuple[Array, Array]:
    """Return the positions of those with which each of the blocks may share its offset."""
    place = np.full(blocks.b, -1)
    place[which] = np.arange(len(which))
    pairs = place[blocks.may_share]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    order = np.lexsort((j, i))
    return _pointer(i, len(which)), j[order]


def forbidden(
    near_ptr: Array, near: Array, piece_ptr: Array, pieces: Array, share_ptr: Array, share: Array
) -> tuple[Array, Array]:
    """Return the forbidden distances o_i - o_j of the entries (i, j) of `near`, as rows of spans.

    Of each block, `near_ptr` and `near` have rows of the blocks that it meets, `piece_ptr` and
    `pieces` of its pieces (sections [first, end), bytes [low, high) above the offset; shape
    (pieces, 4)), `share_ptr` and `share` of the blocks with which it may share its offset; all
    int64.  Spans of entry e are spans[ptr[e] : ptr[e + 1]] of the answer (ptr, spans).
    """
    # A run for each pair of pieces that meet, in either order, and one more for each in `share`.
    first, end = np.sort(pieces[:, 0]), np.sort(pieces[:, 1])
    meeting = np.searchsorted(first, end, side="left") - np.arange(1, len(end) + 1)
    most = 2 * int(meeting.sum()) + len(share) + 1
    ptr = np.zeros(len(near) + 1, dtype=np.int64)
    low, high = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    used = distances_kernels.forbidden(
        near_ptr, near, piece_ptr, pieces, share_ptr, share, ptr, low, high
    )
    return ptr, _spans(low[:used], high[:used])


def _spans(low: Array, high: Array) -> Array:
    """Return spans from where each begins and ends."""
    spans = np.zeros(len(low), dtype=general.SPAN)
    spans["low"], spans["high"] = low, high
    return spans


def _partners_here(
    member: Array, section: Array, share_ptr: Array, share: Array
) -> tuple[Array, Array]:
    """Return, for each member of each section, its partners in that section, as rows."""
    at, ptr = rows(share_ptr, member)
    entry, partner, b = np.repeat(np.arange(len(member)), np.diff(ptr)), share[at], len(share_ptr)
    here = np.isin(section[entry] * b + partner, section * b + member)
    return _pointer(entry[here], len(member)), partner[here]


def _incidences(first: Array, end: Array) -> tuple[int, Array, Array]:
    """Return the number of sections in use, and (piece, section) wherever a piece is."""
    count = end - first
    piece = np.repeat(np.arange(len(first)), count)
    section = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    used, section = np.unique(section, return_inverse=True)
    return len(used), piece, section


class GeneralSearch(PausedSearch):
    """A search of one component for packings within a capacity, which can be paused."""

    def __init__(self, component: Component, *, tuning: PackingTuning = TUNING) -> None:
        super().__init__(tuning=tuning)
        self.component = component
        shapes = component.shapes
        b = len(shapes.blocks)
        self._shapes = shapes._replace(
            blocks=shapes.blocks.copy(), sections=shapes.sections.copy(), order=shapes.order.copy()
        )
        self._frames = np.zeros((b + 1, 9), dtype=np.int64)
        # More than a node takes (the kernel says how much): FULL, and then twice as long, will do.
        self._trail = np.zeros((16 * b + 64, 3), dtype=np.int64)
        self._lists = np.zeros(8 * b, dtype=np.int64)
        self._parts = np.zeros((4 * b, 2), dtype=np.int64)
        self._control = np.zeros(general.ENTRIES, dtype=np.int64)
        self._capacity = 0

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.tuning.general.step

    @property
    def nodes(self) -> int:
        """Nodes since the start."""
        return int(self._control[general.NODES])

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        return np.asarray(self._shapes.blocks["offset"][: self.component.b].copy())

    @property
    def least(self) -> int:
        """Once exhausted: no packing is lower, in units; NOWHERE or more: there is none."""
        return int(self._control[general.LEAST])

    def bound(self) -> int:
        """Return a lower bound on the peak in bytes."""
        self.start(NOWHERE - 1, np.arange(len(self._shapes.blocks)), 0)
        outcome = state.RUNNING
        while outcome == state.RUNNING:
            outcome = self.run(0)
        if outcome == state.EXHAUSTED:
            return NOWHERE
        peak = kernels.least_peak(self._shapes, self._control)
        return int(peak) * self.component.unit

    def start(self, capacity: int, rank: Array, focus: int) -> None:
        """Begin anew, with a `capacity` in units.

        Blocks of lower `rank`, int64 of shape (b + held,), are preferred at equal places; `focus`
        is LOWEST_BLOCK or LOWEST_SECTION.
        """
        b, shapes, control = self.component.b, self._shapes, self._control
        effort.spend(
            self.tuning.general.start + self.tuning.prices.item * (b + len(shapes.touched))
        )
        shapes.blocks[:] = self.component.shapes.blocks
        shapes.blocks["rank"] = rank
        shapes.blocks["waiting"][:b] = 1
        shapes.sections["stamp"], shapes.sections["top"] = 1, 0
        shapes.queue[:] = self._lists[: len(rank)] = np.arange(len(rank))
        shapes.touched[:] = np.arange(len(shapes.touched))
        tuning = self.tuning.general
        control[:] = 0
        control[general.RAISES], control[general.STEPS] = tuning.raises, tuning.deduction_steps
        control[general.SMALL], control[general.SOMETIMES] = tuning.divided, tuning.divided_seldom
        control[general.LEAST], control[general.FOCUS] = NOWHERE, focus
        control[general.WAITING] = control[general.LISTS] = b
        control[general.TOUCHED], control[general.STAMP] = len(shapes.touched), 1
        self._frames[0, general.STATE] = general.BEGUN
        self._frames[0, general.BEGIN], self._frames[0, general.COUNT] = 0, b
        self._capacity = capacity

    def _proceed(self, node_limit: int) -> tuple[int, int]:
        """Call the kernel."""
        arrays = self._frames, self._trail, self._lists, self._parts, self._control
        outcome = kernels.search(
            self._capacity, node_limit, self.tuning.general.budget, self._shapes, *arrays
        )
        return outcome, int(self._control[general.WORK])

    def _lengthen(self) -> None:
        """Double the arrays that were too short."""
        self._trail, self._lists = (
            longer(self._trail, tuning=self.tuning),
            longer(self._lists, tuning=self.tuning),
        )
        self._parts = longer(self._parts, tuning=self.tuning)


class GeneralPortfolio(Portfolio):
    """Searches of one component of blocks of any shape.

    `warm` is as of :class:`.portfolio.Portfolio`.
    """

    def __init__(
        self, component: Component, warm: Array | None = None, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.component: Component = component
        self.search: GeneralSearch = GeneralSearch(component, tuning=tuning)
        blocks = component.shapes.blocks
        count = blocks["section_end"] - blocks["section"]
        load = np.zeros(len(blocks), dtype=np.int64)
        owner = np.repeat(np.arange(len(blocks)), count)
        np.maximum.at(load, owner, component.load[component.shapes.section_of])
        keys = {"A": component.area, "T": load, "Z": blocks["size"], "W": count}
        super().__init__(keys, warm, component.b)

    def next_peak(self, nbytes: int) -> int:
        """Return the least possible peak above a capacity: what blocks and the search allow."""
        unit, movable = self.component.unit, self.component.shapes.blocks[: self.component.b]
        return min(NOWHERE, unit * max(self.search.least, next_top(movable, nbytes // unit)))

    def _starts(self, capacity: int, number: int) -> Iterator[int]:
        """Start the searches of a round, one order after the other."""
        for focus, rank in self._orders(number):
            self.search.start(capacity, rank, focus)
            yield (self.tuning.general.first_limit * self.component.b) << number

    def _orders(self, number: int) -> Iterator[tuple[int, Array]]:
        """Yield focus and ranks; after two rounds the first key is changed by lognormal noise."""
        held = len(self.component.area) - self.component.b
        random = self._noise(number)
        for focus, order in ORDERS:
            keys = [-self._keys[key].astype(float) for key in order]
            if number > 1:
                keys[0] = keys[0] * random.lognormal(0.0, 0.1, len(keys[0]))
            yield focus, ranks(keys[::-1])
        if self.warm is not None:
            yield state.LOWEST_BLOCK, ranks([np.append(self.warm, np.zeros(held))])


class ShapedPacking:
    """An instance of blocks of any shape: those whose place is known, and components to search.

    `first`, `end`, `keep_going` and all attributes are as of :class:`.components.Packing`.
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
        pause = pausing(keep_going)
        blocks = _clipped(blocks, first, blocks.sections if end < 0 else end)
        self.offsets = np.maximum(blocks.fixed, 0)
        held = np.flatnonzero(blocks.fixed >= 0)
        self.peak = int((blocks.fixed + blocks.size)[held].max(initial=0))
        ptr, near = blocks.neighbours(pause)
        self.clash = misplaced(blocks, held, pause, tuning=tuning)
        self.components: list[Component] = []
        free = np.flatnonzero(blocks.fixed < 0)
        meets = np.diff(ptr)[free] > 0
        self._place_alone(blocks, free[~meets], pause)
        for part, beside in self._parts(free[meets], blocks.fixed >= 0, ptr, near):
            effort.spend(tuning.general.connected)
            pause()
            self.components.append(Component(blocks, part, beside, pause, tuning=tuning))
        self.clash = self.clash or _overlap(blocks, held)
        self.components.sort(key=lambda component: -component.bound)

    @property
    def bound(self) -> int:
        """Lower bound on the peak in bytes; NOWHERE or more when there is no packing."""
        if self.clash:
            return NOWHERE
        return max([self.peak, *(component.bound for component in self.components)])

    def _place_alone(self, blocks: Blocks, alone: Array, pause: Pause) -> None:
        """Place movable blocks that meet no other: at 0 where nothing is said of their place."""
        effort.spend(self.tuning.prices.item * len(alone))
        self.offsets[alone] = places(blocks, alone, pause, tuning=self.tuning).lowest
        self.peak = max(self.peak, int((self.offsets + blocks.size)[alone].max(initial=0)))

    def _parts(
        self, which: Array, held: Array, ptr: Array, near: Array
    ) -> Iterator[tuple[Array, Array]]:
        """Yield the movable blocks of every connected part, and the held ones beside them."""
        begin, meeting, fixed = ptr.tolist(), near.tolist(), held.tolist()
        seen = set[int]()
        for start in which.tolist():
            if start in seen:
                continue
            found, beside = [start], set[int]()
            seen.add(start)
            for i in found:
                row = meeting[begin[i] : begin[i + 1]]
                beside.update(j for j in row if fixed[j])
                fresh = [j for j in row if not fixed[j] and j not in seen]
                seen.update(fresh)
                found += fresh
            yield np.array(sorted(found)), np.array(sorted(beside), dtype=np.int64)


def _overlap(blocks: Blocks, held: Array) -> bool:
    """Return whether two fixed blocks are at a forbidden distance."""
    at, piece_ptr = rows(blocks.piece_ptr, held)
    pieces = np.stack([blocks.first[at], blocks.end[at], blocks.low[at], blocks.high[at]], axis=1)
    owner = np.repeat(np.arange(len(held)), np.diff(piece_ptr))
    near_ptr, near = meetings(owner, pieces[:, 0], pieces[:, 1], len(held))
    run_ptr, runs = forbidden(near_ptr, near, piece_ptr, pieces, *_partners(blocks, held))
    i = np.repeat(np.arange(len(held)), np.diff(near_ptr))
    distance = blocks.fixed[held[i]] - blocks.fixed[held[near]]
    distance = np.repeat(distance, np.diff(run_ptr))
    return bool(((runs["low"] <= distance) & (distance <= runs["high"])).any())


def _clipped(blocks: Blocks, first: int, end: int) -> Blocks:
    """Return the blocks with their pieces within some sections only."""
    if first == 0 and end == blocks.sections:
        return blocks
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    begin, stop = np.maximum(blocks.first, first), np.minimum(blocks.end, end)
    keep = begin < stop
    return replace(
        blocks,
        piece_ptr=_pointer(owner[keep], blocks.b),
        first=begin[keep],
        end=stop[keep],
        low=blocks.low[keep],
        high=blocks.high[keep],
    )
