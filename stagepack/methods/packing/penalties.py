"""Packings in which pairs of buffers share addresses at a cost: the least cost within the capacity.

First, whether all pairs can be apart: then nothing is paid.  Otherwise annealing lowers the cost,
cliques that are larger than the memory raise the bound, and where pairs are few CP-SAT proves, in
turns.  At last the peak is lowered without sharing more.  For the objective ``peak`` this comes
second, within the least peak.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import numpy as np

from stagepack.evidence import witness
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.heuristics.packing import exact_search
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.penalties import cliques, placing
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods import packing as methods
from stagepack.methods.packing.attempt import Attempt, PackingProgress, accepted
from stagepack.progress import Part, Stopped
from stagepack.result import Status

METHODS = ("auto", "cp-sat", "reuse-aware", "exact", "portfolio", "dive", "anneal", "beam")
"""Methods to which the second criterion matters; of a rule the answer stays what it says."""

SOURCE = "reuse-aware"


class Sharing:
    """A search for a placement, in one memory, in which what shares addresses costs little."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt, self.tuning = attempt, attempt.tuning
        self.pairs = Pairs.of(attempt.instance, attempt.blocks)
        effort.spend(self.tuning.prices.item * len(self.pairs))
        self.small = not exact_search.exact.unsupported(attempt.blocks, tuning=self.tuning)
        certain = self.pairs.certain
        why = accepted(attempt.instance, certain, witness("floor"), tuning=self.tuning)
        attempt.progress.raise_bound(certain, "pairs at one address", why)

    @property
    def capacity(self) -> int:
        """Where memory ends."""
        ceiling = self.attempt.instance.ceiling
        assert ceiling is not None  # the objective needs a capacity
        return ceiling

    @property
    def turn(self) -> float:
        """Seconds of work of the first turn."""
        steer, entries = self.tuning.penalties, 2 * (len(self.pairs) + self.attempt.blocks.pairs)
        return min(steer.turn, max(2 * steer.first, steer.entry * entries))

    def offer(self, offsets: Array) -> None:
        """Offer a placement of the blocks."""
        self.attempt.offer(offsets, SOURCE)

    def apart(self) -> None:
        """Look for a placement in which no pair shares, or any at all; say if there is none."""
        every = np.ones(len(self.pairs), dtype=bool)
        self._decide(self.pairs.separated(every))
        attempt = self.attempt
        nothing = attempt.progress.solution is None and attempt.keep_going()
        if nothing and self._decide(attempt.blocks) is Status.INFEASIBLE:
            methods.explain.conclude_infeasible(attempt, attempt.best, "exhausted search")

    def _decide(self, blocks: Blocks) -> Status:
        """Offer a placement of these blocks within the capacity; return whether there is one."""
        attempt, capacity = self.attempt, self.capacity
        low = greedy.portfolio(blocks, keep_going=attempt.keep_going, tuning=self.tuning)
        if low is not None and int((low + blocks.size).max(initial=0)) <= capacity:
            self.offer(low)
            return Status.FEASIBLE
        if exact_search.exact.unsupported(blocks, tuning=self.tuning):
            return Status.UNKNOWN
        seconds = min(self.tuning.penalties.apart, effort.left() / 4)
        found = exact_search.exact.decide(
            blocks,
            capacity,
            keep_going=attempt.for_a_while(seconds),
            warm=low,
            tuning=self.tuning,
        )
        if found.offsets is not None:
            self.offer(found.offsets)
        return found.status

    def anneal(self, seed: int, seconds: float, *, anew: bool = False) -> None:
        """Lower the cost for some `seconds` of work, from the best placement, or `anew` from
        anywhere.

        Random numbers are of the `seed`.
        """
        attempt = self.attempt
        if not attempt.keep_going():
            return
        with effort.lending(1, seconds):
            placing.improve(
                self.pairs,
                self.capacity,
                None if anew else attempt.lowest,
                floor=int(attempt.progress.bound or 0),
                seed=seed,
                keep_going=attempt.for_a_while(seconds),
                on_solution=self.offer,
                tuning=self.tuning,
            )

    def bound(self, seed: int, seconds: float) -> None:
        """Raise the bound for some seconds of work, with random numbers of `seed`."""
        progress = self.attempt.progress
        if cliques.unsupported(self.pairs, tuning=self.tuning) or not self.attempt.keep_going():
            return
        cliques.bound(
            self.pairs,
            self.capacity,
            None if progress.objective is None else int(progress.objective),
            seed=seed,
            keep_going=self.attempt.for_a_while(seconds),
            on_bound=lambda bound: progress.raise_bound(bound, "cliques that share"),
            tuning=self.tuning,
        )

    def lower(self, seconds: float, keep_going: Callable[[], bool]) -> None:
        """Lower the peak of the best placement, in which no more pairs may share, for some seconds
        of work.

        `keep_going` says whether there is time, although the cost may be proved.
        """
        low, until = self.attempt.lowest, effort.spent() + seconds
        if low is None or self.attempt.blocks.pairs > self.tuning.penalties.settled:
            return
        blocks = self.pairs.separated(~self.pairs.shared(low))
        order = np.argsort(low, kind="stable")
        best = greedy.place_in_order(blocks, order, tuning=self.tuning)  # as soon as a check
        if best is not None:
            self.offer(best)
            if (best + blocks.size).max() < (low + blocks.size).max():
                low = best
        if keep_going() and not exact_search.exact.unsupported(blocks, tuning=self.tuning):
            exact_search.exact.minimise(
                blocks,
                upper=low,
                on_solution=self.offer,
                keep_going=lambda: effort.spent() < until and keep_going(),
                tuning=self.tuning,
            )


def begin(attempt: Attempt, settings: Settings) -> None:
    """Offer first placements: all pairs apart, where that can be, or a few coolings."""
    search = Sharing(attempt)
    if search.small:
        search.apart()
        search.anneal(settings.seed, min(search.turn, effort.left() / 4), anew=True)


def solve(attempt: Attempt, settings: Settings, *, prove: bool = True) -> None:
    """Search for the least cost in turns, each longer: placements, and models to `prove` it."""
    search, steer = Sharing(attempt), attempt.tuning.penalties
    if search.small and attempt.progress.solution is None:
        search.apart()
    proving = prove and search.small
    seconds, unbounded = search.turn, not proving
    for turn in itertools.count() if search.small else ():
        before, seed = effort.spent(), settings.seed + turn * attempt.tuning.auto.seed_stride
        left = effort.left()
        if left < steer.last * seconds:  # the last turn
            seconds = left * (1 - steer.bounding) if not unbounded else left
        search.anneal(seed, seconds)
        if not unbounded:
            began, most = effort.spent(), steer.bounding * seconds
            search.bound(seed, most)
            unbounded = effort.spent() - began < most / 2  # it ended by itself
        if proving and len(search.pairs) <= steer.modelled and attempt.keep_going():
            _model(attempt, settings, seconds)
        if not attempt.keep_going() or effort.spent() == before:
            break
        seconds *= steer.growth
    progress = attempt.progress
    if search.small and not progress.interrupted:
        search.lower(
            min(steer.lowering, effort.left() / 4),
            lambda: progress.remaining > 0 and not progress.interrupted,
        )


def _model(attempt: Attempt, settings: Settings, seconds: float) -> None:
    """Let CP-SAT look for a proof for so many seconds of work."""
    from stagepack.methods.models import PACE, load_engine

    if formulations.CpSat.unsupported(attempt.instance):
        return
    engine = load_engine("cp-sat", attempt.progress, settings)
    methods.modelled.solve(attempt, None, engine, "CpSat", settings, work=PACE * seconds)


# ---------------------------------------------------------------------- the second criterion


def matter(name: str, instance: LmemPacking) -> bool:
    """Whether penalties decide between placements of equal peak."""
    return (
        name in METHODS
        and instance.objective is Objective.PEAK
        and instance.penalties is not None
        and not instance.memories
    )


def second(
    run: Callable[[LmemPacking, PackingProgress, Settings], None],
    instance: LmemPacking,
    progress: PackingProgress,
    settings: Settings,
) -> None:
    """Let `run` lower the peak, then look for a placement as low of the least penalties."""
    share = settings.tuned(TUNING).relocation.share
    with progress.reserving(share), contextlib.suppress(Stopped):
        run(instance, progress, settings)
    if progress.solution is None or progress.interrupted:
        return
    assert progress.objective is not None
    within = instance.replace(objective=Objective.PENALTIES, capacity=int(progress.objective))
    second: Part[PackingSolution, PackingSolution] = Part(
        progress, within.evaluate, within.check, polishing=True, secondary=within.secondary
    )
    second.offer(progress.solution, "answer")
    try:
        attempt = Attempt(within, second, tuning=settings.tuned(TUNING))
        begin(attempt, settings)
        solve(attempt, settings)
    except Stopped:
        pass
    finally:
        if second.solution is not None:
            known, source = progress.reason, second.trace.incumbents[-1].source
            progress.offer(second.solution, source)
            said = f"penalties of {second.objective:,} at this peak"
            said += ", the least" if second.proved else ", not proved to be the least"
            progress.reason = "; ".join(part for part in (known, said) if part)
            if second.interrupted:
                progress.interrupt()
