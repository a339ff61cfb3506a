"""The state of one run of a packing method: its normal form and the way to `progress`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from stagepack.evidence import SEARCHED, Evidence, witness
from stagepack.heuristics import effort
from stagepack.heuristics import packing as heuristics
from stagepack.heuristics.packing import bounds, exact_search
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Progress, Stopped
from stagepack.result import Event, EventKind

PackingProgress = Progress[PackingSolution]


class Attempt:
    """One instance being solved: its normal form, and how answers get to `progress`.

    :class:`Stopped` is raised when a look at the loads shows that nothing fits; `progress` has the
    reason.
    """

    def __init__(
        self, instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.instance = instance
        self.progress = progress
        self.blocks = Blocks.of(instance, progress.keep_going, anew=False)
        self._low: Array | None = None
        self._searches: exact_search.exact.Searches | None = None
        rows = len(instance.gaps) + len(instance.allowed)
        made = tuning.prices.item * instance.n + tuning.prices.row * rows
        effort.spend(tuning.prices.normal_form + made / 3)
        self._check = tuning.prices.check + made + examined(instance, tuning=tuning)
        over = bounds.overload(instance, self.blocks)
        if over is not None:
            progress.prove_infeasible(over[0], accepted(instance, None, over[1], tuning=tuning))
            raise Stopped
        if instance.memories:
            look_at_memories(instance, progress, tuning=tuning)
            return
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
        """Whether only the peak counts, of one memory."""
        peaks = (Objective.PEAK, Objective.FIT)
        return not self.instance.memories and self.instance.objective in peaks

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
        return self.blocks.gathered(solution.offsets)

    @property
    def target(self) -> int:
        """The peak at which lowering ends: one that fits, or that is proved to be the least."""
        return max(int(self.progress.bound or 0), self.instance.goal or 0)

    def searches(self, keep_going: Callable[[], bool]) -> exact_search.exact.Searches | None:
        """Return the exact searches of the blocks, to go on with; None where time is over."""
        if self._searches is None:
            with contextlib.suppress(Stopped):
                self._searches = exact_search.exact.Searches(
                    exact_search.exact.prepared(
                        self.blocks, keep_going=keep_going, tuning=self.tuning
                    ),
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

        `source` found them.  With several memories, `memory` has the index of each buffer's, and
        the capacity is not asked.

        `source` found these `offsets`.  With several memories, `memory` has the index of each
        buffer's, and the capacity is not asked.
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


def look_at_memories(
    instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
) -> Array:
    """Report what is known of several memories without search; return where buffers can live.

    The answer is bool, shape (n, memories).  `Stopped` is raised when nothing fits.
    """
    where = heuristics.homes.possible(instance)
    lost = heuristics.memory_bounds.nowhere(instance, where)
    if lost:
        progress.prove_infeasible(lost, witness("memories", sets=[]))
        raise Stopped
    crowds = heuristics.memory_bounds.crowds(instance, where, tuning=tuning)
    over = heuristics.memory_bounds.overload(instance, crowds)
    if over is not None:
        progress.prove_infeasible(over[0], accepted(instance, None, over[1], tuning=tuning))
        raise Stopped
    bound, why = heuristics.memory_bounds.objective_bound(instance, where, crowds)
    progress.raise_bound(bound, "load bound", accepted(instance, bound, why, tuning=tuning))
    return where


def accepted(
    instance: LmemPacking, bound: int | None, evidence: Evidence, *, tuning: PackingTuning = TUNING
) -> Evidence:
    """Return evidence that its rule accepts: of relations of buffers the blocks know more.

    It is to show `bound`; None: that nothing fits.
    """
    if not (instance.colocated or instance.related):
        return evidence
    from stagepack.verify import verify

    found = verify(instance, bound, evidence.proof, evidence.data, time_limit=tuning.auto.verifying)
    if found.proof is None:
        return SEARCHED
    rule, own = found.detail, not found.false and found.detail == evidence.data["rule"]
    return evidence if own else Evidence(found.proof, {"rule": rule})


def examined(instance: LmemPacking, *, tuning: PackingTuning = TUNING) -> float:
    """Return the seconds in which all conflicts are looked at for the check of an answer."""
    conflicts = 0 if instance.conflicts is None else len(instance.conflicts)
    return tuning.prices.conflict_checked * tuning.prices.scattered(instance.n) * conflicts


def note_over(progress: PackingProgress, peak: int, source: str) -> None:
    """Remember the peak of a placement above the capacity, if it is the lowest so far.

    The trace of `progress` gets an event of the kind `OVER_CAPACITY`, with the `peak` and the
    method, `source`.
    """
    known = nearest(progress)
    if progress.solution is None and (known is None or peak < known.value):
        progress.trace.events.append(Event(progress.elapsed, EventKind.OVER_CAPACITY, peak, source))


def nearest(progress: PackingProgress) -> Event | None:
    """Return what is known about the lowest placement above the capacity."""
    events = reversed(progress.trace.events)
    return next((event for event in events if event.kind == EventKind.OVER_CAPACITY), None)
