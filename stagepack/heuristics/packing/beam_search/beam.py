"""Beam search over packings from the bottom up, for instances with hardly any free space.

All states of a level have about the same area placed; the most promising ones are kept and
expanded.  Two criteria rank them: the area wasted below the remaining blocks, each at its lowest
proved offset, and the preference to place long lifetimes early.  Whether a search succeeds depends
on how these are weighted, so many settings are tried before the beam is widened around the most
successful one.  Occasionally a state of a level, often the best, is passed to the exact search with
a small node limit: the remaining blocks separate into parts, which it packs one by one, whereas a
state of a beam must get all parts right at once.  A packing that is found is valid; if none is
found, nothing is proved.

Cost: see :mod:`.beam_kernels`; memory is limited.  Source: own work; exclusions as in the exact
search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.beam_search import beam_kernels as kernels
from stagepack.heuristics.packing.beam_search import beam_state as state
from stagepack.heuristics.packing.beam_search.beam_state import (
    FACTS,
    NODE,
    PROPOSAL,
    Beam,
    Given,
    Pool,
)
from stagepack.heuristics.packing.exact_search.canonical import CanonicalSearch, Partial, ranks
from stagepack.heuristics.packing.exact_search.components import Component, Packing
from stagepack.heuristics.packing.exact_search.exact_state import LOWEST_BLOCK, LOWEST_SECTION
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped

SCALE = 1024
"""Capacities are taken for so much where settings are applied: these are then for any unit."""

FOCUS = (LOWEST_BLOCK, LOWEST_SECTION, LOWEST_SECTION)
"""Where each branches; drawn, as its nodes and order are."""


@dataclass(frozen=True)
class Setting:
    """How states are judged."""

    # What is wasted in a section counts 1 / (what may be wasted there + this); 0: 1.
    nearness: float
    early: float  # what it is worth that long-lived blocks are placed
    power: float  # of the part of time that a block lives, in what placing it is worth
    square: bool = False  # squares of what is wasted are summed

    def varied(self, random: np.random.Generator) -> Setting:
        """Return a setting that is a little different."""
        steps = random.integers(-2, 3, size=2)
        return replace(
            self,
            nearness=self.nearness * 1.5 ** float(steps[0]),
            early=self.early * 1.5 ** float(steps[1]),
            power=float(random.choice([1.5, 2.0, 2.5])),
        )


FIRST = (
    Setting(69, 0.0025, 1.5),
    Setting(20, 0.01, 2),
    Setting(31, 0.004, 1.5),
    Setting(10, 0.005, 1.5, square=True),
    Setting(0, 0.3, 2),
    Setting(5, 0.05, 2),
)
"""What is tried first, every other time with beams of the least width; in turn from another one
for each seed."""


class BeamSearch:
    """Beam searches of one component, one after the other; each can be paused.

    `ending` packs the rest where some of it is placed; `steps` are the elementary steps of the
    kernel, of all that was begun.
    """

    def __init__(
        self, component: Component, ending: Ending | None = None, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.component = component
        self.steps = 0
        self._ending, self._end = ending, np.empty(0, dtype=np.int64)
        self._earliest, self._slot = int(tuning.beams.ending_level * component.b), 0
        self._judging = self._trying = 0.0  # seconds of work
        ptr, section_of = component.section_ptr, component.section_of
        begins = np.append(True, np.diff(section_of) != 1)
        begins[ptr[:-1]] = True
        at = np.flatnonzero(begins)
        odd = bool(len(component.spans) or (component.blocks["step"] > 1).any())
        self._slowness = tuning.beams.odd_slowness if odd else 1.0
        self._slowness *= (
            tuning.beams.uncached_slowness if self.bytes > tuning.beams.cached_state else 1.0
        )
        blocks = component.blocks
        self._length = np.diff(ptr)
        area = blocks["size"] * self._length.astype(float)
        rank = np.empty(component.b, dtype=np.int64)
        rank[np.argsort(-self._length, kind="stable")] = np.arange(component.b)
        before = np.full(component.b, -1, dtype=np.int64)
        first = np.flatnonzero(blocks["twin"] >= 0)
        before[blocks["twin"][first]] = first
        self._given = Given(
            blocks=blocks,
            odd=odd,
            size=blocks["size"].copy(),
            rank=rank,
            before=before,
            run_ptr=np.searchsorted(at, ptr),
            run_first=section_of[at],
            run_end=section_of[np.append(at[1:], len(section_of)) - 1] + 1,
            neighbour_ptr=component.neighbour_ptr,
            neighbours=component.neighbours,
            member_ptr=component.member_ptr,
            members=component.members,
            area=area / area.sum(),
            worth=area,
            sections=component.sections,
            spans=component.spans,
            holes=component.holes,
            total=component.sections["total"].copy(),
            weight=np.ones(len(component.sections)),
            square=False,
            made=tuning.beams.made,
            passes=tuning.beams.passes,
        )
        self._rows = int(self._given.area.max() * component.b) + 3
        self._beam: Beam | None = None
        self._capacity = 0

    @property
    def widest(self) -> int:
        """The widest beam that memory allows, and that the orders of few blocks can fill."""
        orders = self.tuning.beams.states_an_order * math.factorial(
            min(self.component.b, self.tuning.beams.ordered_blocks)
        )
        return max(1, min(self.tuning.beams.memory // self.bytes // 3, orders))

    @property
    def bytes(self) -> int:
        """What a state takes."""
        return 20 * (self.component.b + len(self.component.sections)) + FACTS.itemsize

    @property
    def width(self) -> int:
        """States kept at a level."""
        return 0 if self._beam is None else self._beam.kept.shape[1]

    @property
    def reached(self) -> int:
        """The last level that had a state."""
        return 0 if self._beam is None else int(self._beam.control[state.REACHED])

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        beam = self._beam
        assert beam is not None
        if len(self._end):
            offsets, at = self._end.copy(), int(beam.pool.facts["node"][self._slot])
        else:
            offsets = np.empty(self.component.b, dtype=np.int64)
            at = int(beam.control[state.NODES]) - 1
        while at > 0:
            node = beam.nodes[at]
            offsets[node["block"]], at = node["offset"], int(node["parent"])
        return offsets

    def start(self, capacity: int, setting: Setting, width: int) -> None:
        """Begin anew, with `width` states kept at a level, as far as memory goes.

        `capacity` is in units, above the lift.
        """
        component = self.component
        width = min(width, self.widest)
        if self._beam is None or self.width != width:
            self._beam = self._empty(width)
            effort.spend(self.tuning.beams.resize + self.tuning.beams.resize_state * width)
        beam = self._beam = self._beam._replace(given=self._judged(capacity, setting))
        effort.spend(
            self.tuning.beams.start
            + self.tuning.beams.start_item * (component.b + len(component.sections))
        )
        pool, facts = beam.pool, beam.pool.facts
        pool.base[0], pool.effective[0] = component.blocks["base"], component.blocks["effective"]
        pool.left[0] = beam.given.total
        pool.under[0] = np.arange(component.b)
        pool.floor[0], pool.lowest[0] = -1, component.members[component.member_ptr[:-1]]
        facts[0] = 0
        facts["worth"][0] = beam.given.worth.sum()
        facts["rank"][0], facts["left"][0], facts["used"][0] = -1, component.b, 1
        slots = len(facts)
        pool.free[:] = np.arange(slots - 1, -1, -1)
        beam.waiting[:] = 0
        beam.kept["state"][0, 0] = 0
        beam.control[:] = 0
        beam.met[:] = 0
        beam.control[state.KEPT] = beam.control[state.NODES] = 1
        beam.control[state.FREE] = slots - 1
        beam.control[state.PHASE] = state.BEGIN
        beam.control[state.TOLD] = self._ending is not None
        self._end = self._end[:0]
        self._capacity = capacity

    def run(self) -> int:
        """Go on for some hundredths of a second; return RUNNING, FOUND or DEAD."""
        assert self._beam is not None
        outcome, until = state.CHOSEN, self.steps + int(self.tuning.beams.budget / self._slowness)
        while outcome == state.CHOSEN and self.steps < until:
            outcome = kernels.proceed(self._capacity, until - self.steps, self._beam)
            steps = int(self._beam.control[state.SPENT])
            self.steps += steps
            seconds = self.tuning.prices.call + self.tuning.beams.step * self._slowness * steps
            self._judging += seconds
            effort.spend(seconds)
            if outcome == state.CHOSEN and self._ended():
                return state.FOUND
        return state.RUNNING if outcome == state.CHOSEN else int(outcome)

    def _best(self) -> int:
        """Return the slot of the best state of the level."""
        assert self._beam is not None
        kept = self._beam.kept[0, : self._beam.control[state.KEPT]]
        return int(kept["state"][kept["guide"].argmin()])

    def _ended(self) -> bool:
        """Try to pack what a state of the level leaves, if it is time; return whether so."""
        beam, ending = self._beam, self._ending
        assert beam is not None
        assert ending is not None
        early = beam.control[state.LEVEL] < self._earliest
        if early or self._trying > self.tuning.beams.ending_share * self._judging:
            return False
        kept = beam.kept[0, : beam.control[state.KEPT]]["state"]
        pool, slot, began = beam.pool, ending.pick(kept, self._best()), effort.spent()
        self._slot = slot
        partial = Partial(pool.base[slot], pool.effective[slot], pool.floor[slot], pool.left[slot])
        found = ending.run(self._capacity, partial)
        self._trying += effort.spent() - began
        if found is not None:
            self._end = found
        return found is not None

    def _judged(self, capacity: int, setting: Setting) -> Given:
        """Return what is given, with weights and worths of a setting."""
        given, scale = self._given, SCALE / max(1, capacity)
        held = given.total + self._reserved(capacity)
        weight = np.full(len(held), scale)
        if setting.nearness:
            weight /= np.maximum(0, capacity - held) * scale + setting.nearness
        sections = len(held)
        worth = setting.early * 0.01 * sections * scale * given.size
        worth *= (self._length / sections) ** setting.power
        return given._replace(weight=weight, worth=worth, square=setting.square)

    def _reserved(self, capacity: int) -> Array:
        """Return how much of each section, shape (k,), is in holes below a capacity."""
        sections = self.component.sections
        where = np.repeat(np.arange(len(sections)), sections["hole_end"] - sections["hole"])
        low, high = np.minimum(self.component.holes, capacity).T
        return np.bincount(where, high - low, minlength=len(sections))

    def _empty(self, width: int) -> Beam:
        """Return the arrays of a search."""
        b, k = self.component.b, len(self.component.sections)
        slots = min(
            (self._rows + 1) * width + 2, max(3 * width, self.tuning.beams.memory // self.bytes)
        )
        pool = Pool(
            base=np.empty((slots, b), dtype=np.int64),
            effective=np.empty((slots, b), dtype=np.int64),
            under=np.empty((slots, b), dtype=np.int32),
            floor=np.empty((slots, k), dtype=np.int64),
            lowest=np.empty((slots, k), dtype=np.int32),
            left=np.empty((slots, k), dtype=np.int64),
            facts=np.zeros(slots, dtype=FACTS),
            free=np.empty(slots, dtype=np.int64),
        )
        return Beam(
            given=self._given,
            pool=pool,
            # As many as wait, for the proposals of a level; nodes for two levels a block: `Beam`.
            proposals=np.empty((self._rows, self.tuning.beams.proposals * width), dtype=PROPOSAL),
            waiting=np.zeros(self._rows, dtype=np.int64),
            kept=np.empty((1, width), dtype=PROPOSAL),
            seen=np.zeros(
                1 << (2 * self.tuning.beams.proposals * width).bit_length(), dtype=np.int64
            ),
            nodes=np.zeros(2 * (b + 1) * width + 2, dtype=NODE),
            excluded=np.empty(b, dtype=np.int64),
            candidates=np.empty(b, dtype=np.int64),
            met=np.zeros(b, dtype=np.int64),
            barred=np.zeros(b, dtype=np.bool_),
            control=np.zeros(16, dtype=np.int64),
        )


class Ending:
    """Packs what states of a beam leave: by exact search with few nodes, in orders of a `seed`."""

    def __init__(self, component: Component, seed: int, *, tuning: PackingTuning = TUNING) -> None:
        self.tuning = tuning
        self._search = CanonicalSearch(component, tuning=tuning)
        self._random = np.random.default_rng([seed, component.b])
        group = component.group
        area, duration = group.duration * (group.size / component.unit), group.duration
        keys = [-np.asarray(key, dtype=float) for key in (component.load(), duration, area)]
        load, longest, largest = keys
        self._ranks = [
            ranks([largest, longest, load]),
            ranks([longest, largest, load]),
            ranks([load, longest, largest]),
            ranks([load, largest, longest]),
        ]

    def pick(self, kept: Array, best: int) -> int:
        """Return which state of a level to go on from: every other time the best."""
        at = int(self._random.integers(2 * len(kept)))
        return best if at >= len(kept) else int(kept[at])

    def run(self, capacity: int, partial: Partial) -> Array | None:
        """Return offsets in units, shape (b,), of what had no place, if all of it is packed."""
        rank = self._ranks[self._random.integers(len(self._ranks))]
        focus = FOCUS[self._random.integers(len(FOCUS))]
        nodes = self.tuning.beams.ending_nodes[
            self._random.integers(len(self.tuning.beams.ending_nodes))
        ]
        packed = self._search.complete(capacity, partial, rank, focus, nodes)
        return self._search.units if packed else None


class Beams:
    """Beam searches of one component in settings drawn by `seed`, wider and wider.

    `under_way` is the capacity of the search that can be gone on with, if any.
    """

    def __init__(
        self, component: Component, seed: int = 0, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.component = component
        packed = tuning.beams.endings and component.linear
        ending = Ending(component, seed, tuning=tuning) if packed else None
        self.search = BeamSearch(component, ending, tuning=tuning)
        self._seed = seed
        self._centre, self._furthest = FIRST[0], -1
        self._drawn: dict[int, int] = {}  # capacity -> settings begun
        self.under_way: int | None = None

    def run(
        self, capacity: int, keep_going: Callable[[], bool] | None = None, draws: int | None = None
    ) -> int:
        """Try one setting after the other, at most `draws` of them.

        Return FOUND, DEAD (none of the draws found anything), or RUNNING when `keep_going`, asked
        several times a second, says no; what is under way then is gone on with the next time, where
        the `capacity`, in units above the lift, is the same.
        """
        while True:
            if self.under_way != capacity:
                if draws is not None and draws <= 0:
                    return state.DEAD
                number = self._drawn.get(capacity, 0)
                self._drawn[capacity] = number + 1
                self._setting, width = self._draw(number)
                self.search.start(capacity, self._setting, width)
                self.under_way = capacity
                draws = None if draws is None else draws - 1
            outcome = self.search.run()
            if outcome != state.RUNNING:
                self.under_way = None
                if self.search.reached > self._furthest:
                    self._centre, self._furthest = self._setting, self.search.reached
                if outcome == state.FOUND:
                    return outcome
            if keep_going is not None and not keep_going():
                return state.RUNNING

    def _draw(self, number: int) -> tuple[Setting, int]:
        """Return the setting and the width of a draw: mostly near to what got furthest so far."""
        if number < len(FIRST):
            at = (number + self._seed) % len(FIRST)
            return FIRST[at], self.tuning.beams.narrowest << number % 2
        turn = number - len(FIRST)
        random = np.random.default_rng([self._seed, number])
        around = self._centre if turn % 3 else FIRST[int(random.integers(len(FIRST)))]
        return around.varied(random), self.tuning.beams.narrowest << min(_doublings(turn), 20)


def _doublings(turn: int) -> int:
    """Return how often the least width is doubled in a turn, from 0: 0 0 1 0 0 1 2 0 0 1 ..."""
    turn += 1
    while turn & turn + 1:  # not the last of a series, whose first ones are the series before
        turn -= (1 << turn.bit_length() - 1) - 1
    return turn.bit_length() - 1


def unsupported(blocks: Blocks) -> str:
    """Return why beams do not cover `blocks`, or ''."""
    if not blocks.rigid:
        return "beams need blocks of full height at all times, without shared offsets"
    return ""


def improve(
    blocks: Blocks,
    offsets: Array,
    *,
    target: int,
    seed: int = 0,
    keep_going: Callable[[], bool] | None = None,
    on_solution: Callable[[Array], None] | None = None,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Lower the peak of a packing: first to the target at once, then half the way, and so on.

    The blocks are of the supported kind, and their neighbours must fit in memory.  `offsets`, int64
    (b,), are a packing; what is returned has no higher peak.  It stops at the peak `target`, the
    best bound known, or any that will do, or once `keep_going`, asked several times a second, says
    no.  Random numbers follow from `seed`; `on_solution` is called with the offsets at every
    improvement.
    """
    try:
        packing = Packing(blocks, keep_going=keep_going, tuning=tuning)
    except Stopped:
        return offsets
    known = int((offsets + blocks.size).max(initial=0))
    target = max(target, packing.bound)
    best, peaks = packing.offsets.copy(), []
    for component in packing.components:
        settled = component.settled(offsets)
        best[component.index] = settled
        peaks.append(component.peak(settled))
    peak = max([packing.peak, *peaks])
    if peak < known and on_solution is not None:
        on_solution(best.copy())
    known = min(known, peak)
    beams: dict[int, Beams] = {}
    while known > target:
        at = int(np.argmax(peaks))
        component, low = packing.components[at], target
        if at not in beams:
            beams[at] = Beams(component, seed, tuning=tuning)
        several = beams[at]
        # The target gets as many draws as all between it and the peak.
        tries = [(target, tuning.beams.halvings * len(FIRST))] + [
            (-1, len(FIRST))
        ] * tuning.beams.halvings
        for given, draws in tries:
            capacity = given if given >= 0 else (low + peaks[at]) // 2
            if given < 0 and component.capacity(capacity) >= component.capacity(peaks[at]):
                break
            outcome = several.run(component.capacity(capacity), keep_going, draws)
            if outcome == state.FOUND:
                best[component.index] = component.offsets(several.search.units)
                peaks[at] = component.peak(best[component.index])
                known = min(known, peak := max(packing.peak, *peaks))
                if known == peak and on_solution is not None:
                    on_solution(best.copy())
            elif outcome == state.RUNNING:
                return best
            else:
                low = capacity
            if peaks[at] <= target:
                break
    return best
