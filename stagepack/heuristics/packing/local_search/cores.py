"""Packings built from a core: the blocks alive where memory is nearly full are placed first.

In long instances, few sections are nearly full.  The blocks alive there, the core, are packed
first, by dives and local search.  All others are placed greedily into the gaps.  Those that end too
high are added to the core, and the process is repeated.  A few rounds reach the load bound or come
within some thousandths of it.  Cost: a greedy placement of all blocks a round.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import valleys
from stagepack.heuristics.packing.constructive.dive import ORDERS, place
from stagepack.heuristics.packing.constructive.greedy import KeepGoing, place_in_order
from stagepack.heuristics.packing.constructive.rules import RULES, Measures
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array

COMPLETING = ("best-fit-lifetime", "classes", "best-fit-heaviest")
"""Rules that place the other blocks around a core."""


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
    """Return the lowest packing found by rules and cores.

    Parameters
    ----------
    blocks : Blocks
        Plain ones.
    offsets : ndarray of int64, shape (b,), optional
        A packing known; only better ones are reported.
    target : int, optional
        Stop at this peak; by default at the load bound.
    seed : int
        Of random numbers.
    keep_going : callable, optional
        Asked several times a second.
    on_solution : callable, optional
        Called with offsets and a source at every improvement.

    Returns
    -------
    ndarray of int64, shape (b,), or None
        Offsets; None when time was over before the first packing.
    """
    bound = int(blocks.load.max(initial=0))
    found = _Found(blocks, None)
    found.offer(offsets, "known")
    found.report = on_solution
    goal = bound if target is None else max(target, bound)
    measures = Measures(blocks)
    if found.offsets is None and blocks.b <= tuning.greedy.scalable_from:
        # Something soon; the first core of more blocks takes hardly longer than this.
        rule = RULES[COMPLETING[0]]
        order = rule.order(measures)
        packed = place_in_order(
            blocks, order, policy=rule.policy, keep_going=keep_going, tuning=tuning
        )
        found.offer(packed, rule.name)
    if found.peak > goal:
        _Cores(blocks, measures, goal, keep_going or (lambda: True), found, tuning=tuning).run(seed)
    return found.offsets


@dataclass
class _Found:
    """The lowest packing so far."""

    blocks: Blocks
    report: Callable[[Array, str], None] | None
    offsets: Array | None = None
    peak: int = field(default=1 << 62)

    def offer(self, offsets: Array | None, source: str) -> None:
        """Keep a packing if it is lower than all before, and report it."""
        if offsets is None:
            return
        peak = int((offsets + self.blocks.size).max(initial=0))
        if peak < self.peak:
            self.offsets, self.peak = offsets, peak
            if self.report is not None:
                self.report(offsets, source)


class _Cores:
    """Packs a core, places the others around it, and lets the core grow by what sticks out.

    Attributes
    ----------
    core : ndarray of bool, shape (b,)
        Blocks of the core: those that live where most bytes do, and what has joined them.
    offsets : ndarray of int64, shape (b,)
        Of the last packing of the core and of what was placed around it; -1 for all others.
    completing : float
        Seconds of work that placing all others takes, by those that were placed last.
    """

    def __init__(
        self,
        blocks: Blocks,
        measures: Measures,
        target: int,
        keep_going: KeepGoing,
        found: _Found,
        *,
        tuning: PackingTuning,
    ) -> None:
        self.tuning = tuning
        self.blocks, self.measures, self.target = blocks, measures, target
        self.keep_going, self.found = keep_going, found
        self.greatest = int(blocks.load.max())
        self.core = measures.heaviest_load >= tuning.cores.heavy * self.greatest
        self.offsets = np.full(blocks.b, -1, dtype=np.int64)
        self.completing = 0.0

    def run(self, seed: int) -> None:
        """Go on until the target is met, time is over, or rounds are."""
        legs, filling, last = 6, 0.0, None
        for turn in range(self.tuning.cores.rounds):
            if turn and not self.keep_going():
                return
            members = np.flatnonzero(self.core)
            packed = _pack_core(
                _part(self.blocks, members),
                self.offsets[members],
                self.target,
                seed + turn,
                legs if turn else 2,
                min(filling, self.tuning.cores.most_calls * self.tuning.annealing.leg),
                self.keep_going,
                tuning=self.tuning,
            )
            if packed is None:
                return
            peak = int((packed + self.blocks.size[members]).max())
            if last == (len(members), peak) and peak > self.target:
                legs = min(
                    2 * legs, self.tuning.cores.most_calls
                )  # the others would be placed as before
                continue
            last = len(members), peak
            self.offsets[:] = -1
            self.offsets[members] = packed
            joining = self._place_others(max(self.target, peak), turn)
            if joining is None:
                return
            self.core[joining] = True
            if not len(joining):
                legs *= 2
            legs = min(legs, self.tuning.cores.most_calls)
            filling = max(filling, self.tuning.cores.refill_share * self.completing)

    def _place_others(self, goal: int, turn: int) -> Array | None:
        """Place the others, level by level, the heavy ones first; return what should join the core.

        None when the target is met, or time is over.  Early turns go no further than the level that
        shows what should join, nor does any once it is no lower than the lowest packing known.
        """
        others, began = np.count_nonzero(~self.core), effort.spent()
        joining = np.empty(0, dtype=np.int64)
        for level in (*self.tuning.cores.levels, 0.0):
            heavy = self.measures.heaviest_load >= level * self.greatest
            members = np.flatnonzero(self.core | heavy)
            # The last level is everything; it is not cut out again.
            whole = len(members) == self.blocks.b
            part = self.blocks if whole else _part(self.blocks, members)
            shape = self.measures if whole else Measures(part)
            tries = _complete(
                part, shape, self.offsets[members], goal, self.keep_going, tuning=self.tuning
            )
            if not tries:
                return None
            over, peak, chosen = min(tries, key=lambda item: item[:2])
            self.offsets[members] = chosen
            if over:
                # What sticks out in the packings that are nearly as good joins as well.
                similar = [option for count, _, option in tries if count <= 2 * over + 2]
                high = [
                    part.size + option > goal
                    for option in similar
                    if over <= self.tuning.cores.joining
                ]
                joining = members[np.logical_or.reduce(high)] if high else members[:0]
                joining = joining[~self.core[joining]]
                goal = max(goal, peak)
            placed = len(members) - int(np.count_nonzero(self.core))
            self.completing = (effort.spent() - began) * others / max(1, placed)
            if whole:
                self.found.offer(self.offsets.copy(), "core")
                return None if self.found.peak <= self.target else joining
            if len(joining) and (
                0 < turn <= self.tuning.cores.hasty_rounds or goal >= self.found.peak
            ):
                break
        return joining


def _part(blocks: Blocks, members: Array) -> Blocks:
    """Return some of the blocks as an instance of their own."""
    return Blocks.of(
        LmemPacking.from_arrays(
            blocks.size[members],
            blocks.time[blocks.first[members]],
            blocks.time[blocks.end[members] - 1] + 1,
            alignment=blocks.alignment[members],
        )
    )


def _pack_core(
    core: Blocks,
    before: Array,
    target: int,
    seed: int,
    legs: int,
    filling: float,
    keep_going: KeepGoing,
    *,
    tuning: PackingTuning,
) -> Array | None:
    """Return the lowest packing of the core by dives, rules and, failing these, local search.

    `before` is where its blocks were in the last round, those that have joined too high; -1: there
    was none.  `filling` seconds of work, or more, go to valleys where many meet.
    """
    measures = Measures(core)
    found = _Found(core, None)
    if (before >= 0).all():  # what was built would be built again
        found.offer(before, "last round")
    else:
        _build(core, measures, target, keep_going, found, tuning=tuning)
    meetings = int(measures.meetings.sum())
    if (
        found.offsets is not None
        and found.peak > target
        and meetings > tuning.cores.refilled_meetings
    ):
        _fill_anew(
            core,
            target,
            max(filling, tuning.annealing.leg * legs),
            keep_going,
            found,
            tuning=tuning,
        )
    if found.offsets is None or found.peak <= target or meetings > tuning.cores.annealed_meetings:
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


def _build(
    core: Blocks,
    measures: Measures,
    target: int,
    keep_going: KeepGoing,
    found: _Found,
    *,
    tuning: PackingTuning,
) -> None:
    """Pack the core by dives and rules; by one rule where many meet, as valleys are filled then."""
    crowded = int(measures.meetings.sum()) > tuning.cores.refilled_meetings
    for keys in ORDERS.values() if core.b <= tuning.cores.dived_blocks and not crowded else ():
        if found.peak > target:
            found.offer(
                place(core, np.lexsort(keys(measures)[::-1]), keep_going=keep_going, tuning=tuning),
                "dive",
            )
    for name in COMPLETING[:1] if crowded else COMPLETING:
        rule = RULES[name]
        if found.peak > target and (core.b <= tuning.greedy.scalable_from or rule.scalable):
            order = rule.order(measures)
            found.offer(
                place_in_order(
                    core, order, policy=rule.policy, keep_going=keep_going, tuning=tuning
                ),
                name,
            )


def _fill_anew(
    core: Blocks,
    target: int,
    seconds: float,
    keep_going: KeepGoing,
    found: _Found,
    *,
    tuning: PackingTuning,
) -> None:
    """Fill valleys by all classes, then again and again by the best ones, for so much work."""
    spans, until = valleys.Spans(core, tuning=tuning), effort.spent() + seconds
    tries = []
    for key in valleys.KEYS:
        offsets = valleys.place(
            spans, valleys.classes_by(key, spans), keep_going=keep_going, tuning=tuning
        )
        if offsets is not None:
            tries.append((int((offsets + core.size).max()), key, offsets))
            found.offer(offsets, key)
    if tries:
        _, key, offsets = min(tries, key=lambda item: item[0])
        valleys.improve(
            spans,
            offsets,
            key,
            target=target,
            known=found.peak,
            keep_going=lambda: effort.spent() < until and keep_going(),
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

    Returns
    -------
    list of (int, int, ndarray)
        How many blocks of each completed packing stick out above the goal, its peak, its offsets.
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
