"""The state of one run of a packing method: its normal form and the way to `progress`."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable

import numpy as np

from stagepack.evidence import SEARCHED, Evidence
from stagepack.heuristics.packing import bounds, effort, relocation
from stagepack.heuristics.packing.beam_search import beam
from stagepack.heuristics.packing.constructive import dive, greedy, spill, valleys
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.exact_search.components import Packing
from stagepack.heuristics.packing.local_search import annealing, overlaps
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Memory, Objective, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Progress, Stopped
from stagepack.result import Event, EventKind
from stagepack.verify import verify

PackingProgress = Progress[PackingSolution]


class Attempt:
    """One instance being solved: its normal form, and how answers get to `progress`.

    Raises
    ------
    Stopped
        When a look at the loads shows that nothing fits; `progress` has the reason.
    """

    def __init__(
        self, instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.instance = instance
        self.progress = progress
        self.blocks = Blocks.of(instance, progress.keep_going, anew=False)
        self._low: Array | None = None
        self._searches: exact.Searches | None = None
        rows = len(instance.gaps) + len(instance.allowed)
        made = tuning.prices.item * instance.n + tuning.prices.row * rows
        effort.spend(tuning.prices.normal_form + made / 3)
        self._check = tuning.prices.check + made + examined(instance, tuning=tuning)
        over = bounds.overload(instance, self.blocks)
        if over is not None:
            progress.prove_infeasible(over[0], accepted(instance, None, over[1], tuning=tuning))
            raise Stopped
        bound, why = bounds.objective_bound(instance, self.blocks, self.keep_going, tuning=tuning)
        progress.raise_bound(bound, "load bound", accepted(instance, bound, why, tuning=tuning))

    @property
    def keep_going(self) -> Callable[[], bool]:
        """Whether the run has a reason and the time to go on."""
        return self.progress.keep_going

    @property
    def too_dense(self) -> bool:
        """Whether more pairs of blocks are alive together than a search of all holds in memory."""
        return self.blocks.pairs > self.tuning.exact.pair_limit

    @property
    def peak_only(self) -> bool:
        """Whether only the peak counts."""
        return self.instance.objective in (Objective.PEAK, Objective.FIT)

    @property
    def best(self) -> Array | None:
        """The lowest placement known, shape (b,).

        It may exceed the capacity: searches start from it all the same.
        """
        low, lowest, size = self._low, self.lowest, self.blocks.size
        if low is None or lowest is None:
            return lowest if low is None else low
        return low if (low + size).max() < (lowest + size).max() else lowest

    @property
    def lowest(self) -> Array | None:
        """The placement of the best answer known, shape (b,)."""
        solution = self.progress.solution
        if solution is None:
            return None
        offsets = np.empty(self.blocks.b, dtype=np.int64)
        offsets[self.blocks.block] = solution.offsets
        return offsets

    @property
    def target(self) -> int:
        """The peak at which lowering ends: one that fits, or that is proved to be the least."""
        return max(int(self.progress.bound or 0), self.instance.goal or 0)

    def searches(self, keep_going: Callable[[], bool]) -> exact.Searches | None:
        """Return the exact searches of the blocks, to go on with; None where time is over."""
        if self._searches is None:
            with contextlib.suppress(Stopped):
                self._searches = exact.Searches(
                    exact.prepared(self.blocks, keep_going=keep_going, tuning=self.tuning),
                    tuning=self.tuning,
                )
        return self._searches

    def offer(self, offsets: Array, source: str) -> None:
        """Offer offsets of all blocks if they respect the capacity; else say what they need."""
        size = self.blocks.size
        if self._low is None or (offsets + size).max() < (self._low + size).max():
            self._low = offsets
        self.offer_buffers(self.blocks.expand(offsets), source)

    def offer_buffers(self, offsets: Array, source: str, memory: Array | None = None) -> None:
        """Offer offsets of all buffers if they respect the capacity; else say what they need.

        Parameters
        ----------
        offsets : ndarray of int64, shape (n,)
        source : str
            What found them.
        memory : ndarray of int64, shape (n,), optional
            Index of each buffer's memory; with several memories the capacity is not asked.
        """
        ceiling = self.instance.ceiling
        peak = int((offsets + self.instance.size).max())
        if memory is None and ceiling is not None and peak > ceiling:
            note_over(self.progress, peak, source)
            return
        self.progress.reason = ""
        effort.spend(self._check)
        self.progress.offer(PackingSolution.of(self.instance, offsets, memory), source)

    def overdue(self, deterministic: bool) -> float:
        """Return the seconds of CPU after which an engine limited by work is ended all the same."""
        return self.tuning.auto.overdue * self.progress.remaining if deterministic else math.inf

    def for_a_while(self, seconds: float) -> Callable[[], bool]:
        """Return a `keep_going` that also ends after so much work: the same on any machine."""
        until = effort.spent() + seconds

        def go_on() -> bool:
            return effort.spent() < until and self.progress.keep_going()

        return go_on


def accepted(
    instance: LmemPacking, bound: int | None, evidence: Evidence, *, tuning: PackingTuning = TUNING
) -> Evidence:
    """Return evidence that its rule accepts: of groups of one offset the blocks know more.

    Parameters
    ----------
    instance : LmemPacking
    bound : int or None
        What it is to show; None: that nothing fits.
    evidence : Evidence
    tuning : PackingTuning
        The numbers that steer the search.
    """
    if not instance.colocated:
        return evidence
    found = verify(instance, bound, evidence.proof, evidence.data, time_limit=tuning.auto.verifying)
    if found.proof is None:
        return SEARCHED
    rule = found.detail
    return evidence if rule == evidence.data["rule"] else Evidence(found.proof, {"rule": rule})


def examined(instance: LmemPacking, *, tuning: PackingTuning = TUNING) -> float:
    """Return the seconds in which all conflicts are looked at for the check of an answer."""
    conflicts = 0 if instance.conflicts is None else len(instance.conflicts)
    return tuning.prices.conflict_checked * effort.scattered(instance.n, tuning=tuning) * conflicts


def note_over(progress: PackingProgress, peak: int, source: str) -> None:
    """Remember the peak of a placement above the capacity, if it is the lowest so far.

    Parameters
    ----------
    progress : PackingProgress
        Whose trace gets an event of the kind `OVER_CAPACITY`.
    peak : int
        Above the capacity.
    source : str
        Which method it is of.
    """
    known = nearest(progress)
    if progress.solution is None and (known is None or peak < known.value):
        progress.trace.events.append(Event(progress.elapsed, EventKind.OVER_CAPACITY, peak, source))


def nearest(progress: PackingProgress) -> Event | None:
    """Return what is known about the lowest placement above the capacity."""
    events = reversed(progress.trace.events)
    return next((event for event in events if event.kind == EventKind.OVER_CAPACITY), None)


def compile_kernels(attempt: Attempt, *parts: str, rigid: bool = False) -> None:
    """Compile what a method needs (the first time) outside of the time limit.

    Parameters
    ----------
    attempt : Attempt
    *parts : str
        As for :func:`warm_up`, of which some bring others.
    rigid : bool
        The search will see the blocks made rigid only.
    """
    if {"greedy", "valleys"} & set(parts) and not attempt.blocks.plain:
        parts += ("lists",)
    if {"exact", "beam"} & set(parts) and not attempt.blocks.plain:
        parts += ("places",)
    instance = attempt.instance
    if instance.in_place or instance.colocated or len(instance.memories) > 1:
        parts += ("sharing",)
    if not attempt.blocks.rigid and not rigid:
        parts = tuple("general" if part == "exact" else part for part in parts)
    if parts in _warm:
        return
    with attempt.progress.setup("loading kernels"), effort.counting():
        warm_up(*parts)
    _warm.add(parts)


_warm: set[tuple[str, ...]] = set()
"""Parts of :func:`warm_up` that were run."""


@functools.cache
def warm_up(*parts: str) -> None:
    """Run heuristics on few buffers, so that their kernels are compiled or loaded.

    Parameters
    ----------
    *parts : str
        Out of "greedy", "valleys", "lists" (either for more than plain blocks), "sharing" (checks
        of what may lie over one another), "dive", "exact", "places" (exact and beam for more than
        plain blocks), "general" (exact for blocks of any shape), "anneal", "overlaps", "beam",
        "relocation", "spill".
    """
    # Its load is 16 and its optimum 17, so that nothing is decided without a search.
    instance = LmemPacking.from_arrays(
        [4, 6, 5, 4, 2, 7, 7, 8], [0, 0, 0, 1, 1, 2, 3, 4], [2, 1, 3, 2, 4, 5, 4, 5]
    )
    blocks = Blocks.of(instance)
    rule = RULES["classes"]
    low = np.array([0, 4, 10, 4, 15, 0, 7, 7])
    instance.check(PackingSolution.of(instance, low))
    if "greedy" in parts:
        greedy.place(blocks, rule)
    if "valleys" in parts:
        valleys.first(valleys.Spans(blocks))
    if "lists" in parts:
        greedy.place(Blocks.of(instance.replace(fixed=[0] + [-1] * 7)), rule)
    if "sharing" in parts:
        shared = instance.replace(in_place=[(0, 5)])
        shared.check(PackingSolution.of(shared, low))  # the sweep that lets pairs share
    if "dive" in parts:
        dive.place(blocks, np.arange(8))
    if "exact" in parts:
        exact.decide(blocks, 16)
    if "places" in parts:
        limited = instance.replace(fixed=[0] + [-1] * 7, reserved=[(40, 41)])
        exact.prepared(Blocks.of(limited))
    if "beam" in parts:
        beam.Beams(Packing(blocks).components[0]).run(16, draws=1)
    if "general" in parts:
        around = instance.replace(end=[*instance.end[:7], 6], period=5, in_place=[(0, 5)])
        exact.decide(Blocks.of(around), 16)
    if "anneal" in parts:
        annealing.improve(blocks, low, target=16, legs=1)
    if "overlaps" in parts:
        looks = iter([True] * 2)
        overlaps.improve(blocks, low, target=16, keep_going=lambda: next(looks, False))
    if "spill" in parts:
        two = [Memory("near", 16, 1), Memory("far", None, 2)]
        apart = instance.replace(memories=two, accesses=[1] * 8, objective="spill")
        spill.place(apart, lambda: True)
    if "relocation" in parts:
        relocation.returned(blocks, low, low)
        relocation.around(blocks, low, 22)
