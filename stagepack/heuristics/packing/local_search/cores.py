"""Packings built from a core: the blocks alive where memory is nearly full are placed first.

In long instances, few sections are nearly full.  The blocks alive there, the core, are packed
first, at the load by exact search, or else by dives and local search.  All others are placed
outwards, level by level of the load, greedily into the gaps; where some end too high, exact search
looks for places around what is fixed.  Those that still end too high are added to the core, and the
process is repeated.  A few rounds reach the load bound or come within some thousandths of it.
Cost: a greedy placement of all blocks a round.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import dive, valleys
from stagepack.heuristics.packing.constructive.greedy import KeepGoing, place_in_order, whole
from stagepack.heuristics.packing.constructive.rules import RULES, Measures
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array

COMPLETING = ("best-fit-lifetime", "classes", "best-fit-heaviest")
"""Rules that place the other blocks around a core."""


def unsupported(blocks: Blocks) -> str:
    """Return why cores do not cover `blocks`, or ''."""
    if not blocks.linear or blocks.segment or not whole(_freed(blocks)):
        return "cores need blocks in one piece: no gaps, circular time, ranges or segments"
    return ""


def best(
    blocks: Blocks,
    *,
    offsets: Array | None = None,
    target: int | None = None,
    seed: int = 0,
    keep_going: KeepGoing | None = None,
    on_solution: Callable[[Array, str], None] | None = None,
    tuning: PackingTuning = TUNING,
) -> Array | None:
    """Return the lowest packing found by rules and cores, of the supported kind of blocks.

    None when time was over before the first packing.  Only packings better than `offsets`, int64
    (b,), if given, are reported to `on_solution`, with a source, at every improvement.  It stops at
    the peak `target`, by default the load bound, or once `keep_going`, asked several times a
    second, says no.  Random numbers follow from `seed`.
    """
    bound = int(blocks.load.max(initial=0))
    goal = bound if target is None else max(target, bound)
    found = _Found(_freed(blocks), goal, keep_going or (lambda: True), tuning, blocks.fixed)
    found.offer(offsets, "known")
    found.report = on_solution
    measures = Measures(blocks)
    if found.offsets is None and blocks.b <= tuning.greedy.scalable_from:
        # Something soon; the first core of more blocks takes hardly longer than this.
        found.place(COMPLETING[0], measures)
    if found.peak > goal:
        _Cores(found, measures).run(seed)
    return found.offsets


@dataclass
class _Found:
    """The lowest packing so far, which is to reach a target."""

    blocks: Blocks
    target: int
    keep_going: KeepGoing
    tuning: PackingTuning
    fixed: Array | None = None  # offsets of those that stay where they are; -1: free
    report: Callable[[Array, str], None] | None = None
    offsets: Array | None = None
    peak: int = 1 << 62

    def offer(self, offsets: Array | None, source: str) -> None:
        """Keep a packing if it is lower than all before, and report it."""
        if offsets is None:
            return
        peak = int((offsets + self.blocks.size).max(initial=0))
        if peak < self.peak:
            self.offsets, self.peak = offsets, peak
            if self.report is not None:
                self.report(offsets, source)

    def place(self, name: str, measures: Measures) -> None:
        """Place all blocks by a rule."""
        packed = place_in_order(
            self.blocks,
            RULES[name].order(measures),
            policy=RULES[name].policy,
            keep_going=self.keep_going,
            placed=self.fixed,
            tuning=self.tuning,
        )
        self.offer(packed, name)


class _Cores:
    """Packs a core, places the others around it, and lets the core grow by what sticks out."""

    def __init__(self, found: _Found, measures: Measures) -> None:
        self.found, self.measures = found, measures
        tuning = found.tuning
        self.blocks, self.target, self.tuning = found.blocks, found.target, tuning
        self.aim = self.target  # a peak that is tried for: the target, or somewhat more
        self.greatest = int(self.blocks.load.max())
        # Of the core are those that live where most bytes do, what has joined them, what is fixed.
        assert found.fixed is not None
        self.fixed = found.fixed
        full, self.start = tuning.scale.full, tuning.cores.heavy
        if (measures.heaviest_load >= full * self.greatest).mean() > tuning.scale.even:
            self.start = full  # no moment stands out: nearly all would join in small steps
        heavy = measures.heaviest_load >= self.start * self.greatest
        self.core = heavy | (self.fixed >= 0)
        # Of the last packing of the core and of what was placed around it; -1 for all others.
        self.offsets = self.fixed.copy()
        # Seconds of work that placing all others takes, by those that were placed last.
        self.completing = 0.0

    def run(self, seed: int) -> None:
        """Go on until the target is met, time is over, or rounds are."""
        legs, filling, last, vain = 6, 0.0, None, 0
        for turn in range(self.tuning.cores.rounds):
            if turn and not self.found.keep_going():
                return
            members = np.flatnonzero(self.core)
            packed = _pack_core(
                _part(self.blocks, members, self.fixed),
                self.offsets[members],
                self._searches(turn) and (last is None or last[0] < len(members)),
                self.aim,
                seed + turn,
                legs if turn else 2,
                min(filling, self.tuning.cores.most_calls * self.tuning.annealing.leg),
                self.found.keep_going,
                tuning=self.tuning,
            )
            if packed is None:
                return
            peak = int((packed + self.blocks.size[members]).max())
            if last == (len(members), peak) and peak > self.aim:
                # The others would be placed as before.
                legs = min(2 * legs, self.tuning.cores.most_calls)
                continue
            last = len(members), peak
            self.offsets[:] = -1
            self.offsets[members] = packed
            joining = self._place_others(max(self.aim, peak), turn)
            if joining is None:
                return
            self.core[joining] = True
            reached, vain = self.found.peak <= self.aim, vain + 1
            if reached or vain == self.tuning.cores.vain:  # half the way, down or up
                low = self.target if reached else self.aim
                self.aim, last, vain = (low + self.found.peak) // 2, None, 0
            if not len(joining):
                legs *= 2
            legs = min(legs, self.tuning.cores.most_calls)
            filling = max(filling, self.tuning.cores.refill_share * self.completing)

    def _searches(self, turn: int) -> bool:
        """Return whether a turn searches: of very many blocks a first packing is to come soon."""
        return turn > 0 or self.blocks.b <= self.tuning.greedy.scalable_from

    def _place_others(self, goal: int, turn: int) -> Array | None:
        """Place the others, level by level, the heavy ones first; return what should join the core.

        None when the target is met, or time is over.  But for the first, a turn goes no further
        than the level that shows what should join, unless it is much lower than the lowest packing
        known.
        """
        others, began = np.count_nonzero(~self.core), effort.spent()
        joining = np.empty(0, dtype=np.int64)
        worth = self.aim + self.tuning.cores.worth * (self.found.peak - self.aim)
        for level in (*self.tuning.cores.levels, 0.0):
            if level >= self.start:
                continue
            heavy = self.measures.heaviest_load >= level * self.greatest
            members = np.flatnonzero(self.core | heavy)
            # The last level is everything; it is not cut out again.
            whole = len(members) == self.blocks.b
            part = self.blocks if whole else _part(self.blocks, members)
            shape = self.measures if whole else Measures(part)
            placed, going = self.offsets[members], self.found.keep_going
            tries = _complete(part, shape, placed, goal, going, tuning=self.tuning)
            if not tries:
                return None
            over, peak, chosen = min(tries, key=lambda item: item[:2])
            if over and goal == self.aim and self._searches(turn):
                around = _part(self.blocks, members, self.offsets)
                found = _search(around, goal, going, chosen, tuning=self.tuning)
                over, chosen = (over, chosen) if found is None else (0, found)
            self.offsets[members] = chosen
            if over:
                # What sticks out in the packings that are nearly as good joins as well.
                near = 2 * over + 2 if over <= self.tuning.cores.joining else over
                similar = [option for count, _, option in tries if count <= near]
                high = members[np.logical_or.reduce([part.size + o > goal for o in similar])]
                joining = np.union1d(joining, high[~self.core[high]])
                goal = max(goal, peak)
            done = len(members) - int(np.count_nonzero(self.core))
            self.completing = (effort.spent() - began) * others / max(1, done)
            if whole:
                self.found.offer(self.offsets.copy(), "core")
                if self.found.peak <= self.target:
                    return None
            hasty = turn and (turn <= self.tuning.cores.hasty_rounds or goal > worth)
            if len(joining) and (hasty or goal >= self.found.peak):
                break
        return joining


def _freed(blocks: Blocks) -> Blocks:
    """Return the blocks without the ranges of those that are fixed, which are placed as such."""
    blocks = blocks.open
    if not (blocks.fixed[np.diff(blocks.range_ptr) > 0] >= 0).all():
        return blocks
    none, free = np.zeros(0, dtype=np.int64), np.full(blocks.b, -1, dtype=np.int64)
    ptr = np.zeros(blocks.b + 1, dtype=np.int64)
    return replace(blocks, range_ptr=ptr, range_low=none, range_high=none, fixed=free)


def _part(blocks: Blocks, members: Array, fixed: Array | None = None) -> Blocks:
    """Return some of the blocks as an instance of their own, at offsets `fixed` but for -1."""
    return Blocks.of(
        LmemPacking.from_arrays(
            blocks.size[members],
            blocks.time[blocks.first[members]],
            blocks.time[blocks.end[members] - 1] + 1,
            alignment=blocks.alignment[members],
            segment=blocks.segment or None,
            fixed=None if fixed is None else fixed[members],
        )
    ).open


def _search(
    blocks: Blocks,
    target: int,
    keep_going: KeepGoing,
    known: Array | None = None,
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return a packing at the `target` by exact search; parts of `known` that are low stay."""
    meetings = int(Measures(blocks).meetings.sum())
    if meetings > tuning.cores.searched_meetings or exact.unsupported(blocks, tuning=tuning):
        return None
    until = effort.spent() + tuning.cores.searched
    return exact.decide(
        blocks,
        target,
        keep_going=lambda: effort.spent() < until and keep_going(),
        warm=known,
        tuning=tuning,
    ).offsets


def _pack_core(
    core: Blocks,
    before: Array,
    grown: bool,
    target: int,
    seed: int,
    legs: int,
    filling: float,
    keep_going: KeepGoing,
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return the lowest packing of the core: by exact search, dives, rules or local search.

    `before` is where its blocks were in the last round, those that have joined too high; -1: there
    was none.  Where it has `grown` it is searched for a packing at the target.  `filling` seconds
    of work, or more, go to valleys where many meet.
    """
    measures = Measures(core)
    found = _Found(core, target, keep_going, tuning)
    if grown:
        found.offer(_search(core, target, keep_going, tuning=tuning), "exact")
    if found.peak > target and (before >= 0).all():  # what was built would be built again
        found.offer(before, "last round")
    elif found.peak > target:
        _build(found, measures)
    meetings = int(measures.meetings.sum())
    if found.offsets is None or found.peak <= target:
        return found.offsets
    if meetings > tuning.cores.refilled_meetings:
        _fill_anew(found, max(filling, tuning.annealing.leg * legs))
    if found.peak <= target or meetings > tuning.cores.annealed_meetings:
        return found.offsets
    return annealing.improve(
        core,
        found.offsets,
        target=target,
        seed=seed,
        legs=legs,
        keep_going=keep_going,
        tuning=tuning,
    )


def _build(found: _Found, measures: Measures) -> None:
    """Pack the core by dives and rules; by one rule where many meet, as valleys are filled then."""
    core, going, tuning = found.blocks, found.keep_going, found.tuning
    crowded = int(measures.meetings.sum()) > tuning.cores.refilled_meetings
    dived = core.b <= tuning.cores.dived_blocks and not crowded and not dive.unsupported(core)
    for keys in dive.ORDERS.values() if dived else ():
        if found.peak > found.target:
            order = np.lexsort(keys(measures)[::-1])
            found.offer(dive.place(core, order, keep_going=going, tuning=tuning), "dive")
    for name in COMPLETING[:1] if crowded else COMPLETING:
        few = core.b <= tuning.greedy.scalable_from
        if found.peak > found.target and (few or RULES[name].scalable):
            found.place(name, measures)


def _fill_anew(found: _Found, seconds: float) -> None:
    """Fill valleys by all classes, then again and again by the best ones, for so much work."""
    core, going, tuning = found.blocks, found.keep_going, found.tuning
    spans, until = valleys.Spans(core, tuning=tuning), effort.spent() + seconds
    tries = []
    for key in valleys.KEYS:
        classes = valleys.classes_by(key, spans)
        offsets = valleys.place(spans, classes, keep_going=going, tuning=tuning)
        if offsets is not None:
            tries.append((int((offsets + core.size).max()), key, offsets))
            found.offer(offsets, key)
    if tries:
        _, key, offsets = min(tries, key=lambda item: item[0])
        valleys.improve(
            spans,
            offsets,
            key,
            target=found.target,
            known=found.peak,
            keep_going=lambda: effort.spent() < until and going(),
            on_solution=lambda better: found.offer(better, "valleys, anew"),
            tuning=tuning,
        )


def _complete(
    part: Blocks,
    measures: Measures,
    placed: Array,
    goal: int,
    keep_going: KeepGoing,
    *,
    tuning: PackingTuning,
) -> list[tuple[int, int, Array]]:
    """Place what is not placed, by several rules until one stays within the goal.

    Return how many blocks of each completed packing stick out above it, its peak, its offsets.
    """
    tries = []
    for name in COMPLETING:
        rule = RULES[name]
        if part.b > tuning.greedy.scalable_from and not rule.scalable:
            continue
        offsets = place_in_order(
            part,
            rule.order(measures),
            policy=rule.policy,
            keep_going=keep_going,
            placed=placed,
            tuning=tuning,
        )
        if offsets is None:
            break
        top = offsets + part.size
        tries.append((int((top > goal).sum()), int(top.max()), offsets))
        if tries[-1][1] <= goal or tries[-1][0] <= tuning.cores.clear:
            break
    return tries
