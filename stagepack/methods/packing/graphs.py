"""Placement of conflict graphs that are too large for a clique cover within the time limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from stagepack.evidence import witness
from stagepack.heuristics import effort
from stagepack.heuristics.packing import constructive
from stagepack.heuristics.packing.bounds import LISTED
from stagepack.heuristics.packing.constructive.conflicts_kernels import Graph
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.intervals import explained
from stagepack.instances.packing.normal_form.intervals_kernels import Rows
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.packing.attempt import PackingProgress, examined, note_over
from stagepack.methods.starts import offer_start
from stagepack.result import Termination

STARTED = ("auto", "exact", "portfolio")
"""Methods that begin so, if nobody says how they should; rules where there is no time for them."""

WITHOUT = "first-fit-size"
"""The rule that needs no cliques: its order is known without them."""


def least(n: int, *, tuning: PackingTuning = TUNING) -> float:
    """Return the seconds of a first placement of `n` buffers for each of their conflicts."""
    return (
        tuning.graphs.placed_uncached if n > tuning.prices.cached_buffers else tuning.graphs.placed
    )


def placed_first(
    name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings
) -> bool:
    """Whether the method `name` places this instance straight from its conflicts.

    `progress` says how much time is left.  A start or an engine in `settings` needs the whole
    method.
    """
    tuning = settings.tuned(TUNING)
    graph = instance.conflicts
    if graph is None or (
        len(graph) < tuning.graphs.conflicts and instance.n < tuning.graphs.buffers
    ):
        return False
    given = isinstance(settings.warm_start, str) and settings.warm_start != "auto"
    late = progress.remaining < tuning.graphs.covered * len(graph)
    return (
        (name in STARTED or name == WITHOUT or (late and name in RULES))
        and not given
        and settings.engine is None
        and instance.objective in (Objective.PEAK, Objective.FIT)
        and not (instance.previous >= 0).any()
        and not constructive.conflicts.unsupported(instance)
    )


def place(name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings) -> bool:
    """Place an instance that is :func:`placed_first` by `name`, and lower that for a while.

    Return whether there is a reason and the time to go on, by lifetimes that explain the conflicts
    or by a cover.
    """
    tuning = settings.tuned(TUNING)
    m = 0 if instance.conflicts is None else len(instance.conflicts)
    if not isinstance(settings.warm_start, str):
        offer_start(instance, progress, settings, {})
    run = _Run(instance, progress, tuning=tuning)

    def whatever_the_time() -> bool:
        return progress.keep_going() or not progress.interrupted

    graph = constructive.conflicts.rows(instance, progress.keep_going, tuning=tuning)
    around, heaviest, pair = constructive.conflicts.weigh(graph, progress.keep_going, tuning=tuning)
    progress.raise_bound(heaviest, "heaviest pair in conflict", witness("clique", members=pair))
    order = (
        None
        if name == WITHOUT
        else constructive.conflicts.sides(graph, progress.keep_going, tuning=tuning)
    )
    if order is None:
        order = np.argsort(-graph.size, kind="stable")
    offsets = constructive.conflicts.first_fit(graph, order, whatever_the_time, tuning=tuning)
    if offsets is None:
        return False
    peak = run.offer(offsets, name if name == WITHOUT else "first fit")
    if name != WITHOUT and _in_time(instance, graph, progress, tuning=tuning):
        return progress.keep_going()
    seconds = tuning.graphs.bounding * progress.remaining
    weight, members = constructive.conflicts.heavy_clique(
        graph, around, progress.keep_going, seconds, tuning=tuning
    )
    why = witness("clique", members=members.tolist())
    progress.raise_bound(weight, "clique of conflicts", why)
    if instance.ceiling is not None and instance.objective is Objective.FIT:
        run.conclude(weight, members)
    if name == WITHOUT:
        return False
    later = progress.remaining - tuning.graphs.covered * m
    lowering = (
        min(tuning.graphs.share * later, tuning.graphs.covered * m)
        if later > tuning.graphs.covered * m
        else math.inf
    )
    until = _for_a_while(progress, lowering)
    by_conflicts = np.argsort(-around, kind="stable")
    other = constructive.conflicts.first_fit(graph, by_conflicts, until, tuning=tuning)
    if other is not None and run.offer(other, "first fit by conflicts") < peak:
        order, offsets = by_conflicts, other
    lowered = constructive.conflicts.placements(graph, order, offsets, around, until, tuning=tuning)
    for found, source in itertools.islice(
        lowered, tuning.graphs.sweeps if later == math.inf else None
    ):
        run.offer(found, source)
    if progress.stop_reason() is Termination.TIME_LIMIT and name in RULES:
        progress.reason = f"{name} did not end in time; first fit by other orders has run instead"
    return progress.keep_going()


def _in_time(
    instance: LmemPacking, graph: Graph, progress: PackingProgress, *, tuning: PackingTuning
) -> bool:
    """Whether lifetimes are found that explain the conflicts, where there is time to look."""
    assert instance.conflicts is not None
    seconds = tuning.graphs.explained * tuning.prices.scattered(instance.n) * len(graph.other)
    if not (instance.size > 0).all() or seconds > tuning.graphs.explaining * progress.remaining:
        return False
    rows = Rows(graph.ptr, graph.other)
    found = explained(instance, instance.conflicts, progress.keep_going, rows)
    effort.spend(seconds if found is not None else 0)
    return found is not None


def place_as_listed(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Offer what was given, and what comes of going through the conflicts once, if not to the end.

    Made for so many conflicts that there is no time for more.
    """
    tuning = settings.tuned(TUNING)
    if not isinstance(settings.warm_start, str):
        offer_start(instance, progress, settings, {})
    placeable = instance.objective in (Objective.PEAK, Objective.FIT)
    if not placeable or constructive.conflicts.unsupported(instance):
        progress.stop(Termination.TIME_LIMIT)
        return
    kept = examined(instance, tuning=tuning) - tuning.scale.late
    offsets = constructive.conflicts.listed_fit(
        instance, lambda: progress.keep_going() and progress.remaining > kept, tuning=tuning
    )
    if progress.remaining <= kept:
        progress.stop(Termination.TIME_LIMIT)
    if offsets is not None:
        _Run(instance, progress, tuning=tuning).offer(offsets, "first fit, as listed")


def first_fit_takes(instance: LmemPacking, *, tuning: PackingTuning = TUNING) -> float:
    """Return the seconds that :func:`offer_first_fit` takes; infinite where it does not apply."""
    graph = instance.conflicts
    placeable = instance.objective in (Objective.PEAK, Objective.FIT)
    if graph is None or not placeable or constructive.conflicts.unsupported(instance):
        return math.inf
    return least(instance.n, tuning=tuning) * len(graph)


def offer_first_fit(
    instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
) -> None:
    """Offer first fit by size straight from the conflicts, whether or not there is time.

    To be called where :func:`first_fit_takes` seconds that are left.
    """
    graph = constructive.conflicts.rows(instance, progress.keep_going, tuning=tuning)
    offsets = constructive.conflicts.first_fit(
        graph, np.argsort(-graph.size, kind="stable"), lambda: True, tuning=tuning
    )
    if offsets is not None:
        _Run(instance, progress, tuning=tuning).offer(offsets, "first fit")


class _Run:
    """Offers placements that are lower than all before, where they respect the capacity."""

    def __init__(
        self, instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning
    ) -> None:
        self.tuning = tuning
        self.instance, self.progress = instance, progress
        self.least = math.inf if progress.objective is None else progress.objective

    def offer(self, offsets: Array, source: str) -> int:
        """Offer offsets, shape (n,); return their peak."""
        instance, ceiling = self.instance, self.instance.ceiling
        peak = int((offsets + instance.size).max())
        if peak >= self.least:
            return peak
        self.least = peak
        if ceiling is not None and peak > ceiling:
            note_over(self.progress, peak, source)
        else:
            effort.spend(
                self.tuning.prices.check
                + self.tuning.prices.item * instance.n
                + examined(instance, tuning=self.tuning)
            )
            self.progress.offer(PackingSolution.of(instance, offsets), source)
        return peak

    def conclude(self, weight: int, members: Array) -> None:
        """Say why nothing fits, where a clique is heavier than the capacity."""
        ceiling = self.instance.ceiling
        if ceiling is None or weight <= ceiling:
            return
        names = ", ".join(self.instance.buffer_id(int(i)) for i in members[:LISTED])
        more = f" and {len(members) - LISTED:,} more" if len(members) > LISTED else ""
        self.progress.prove_infeasible(
            f"the {len(members):,} buffers {names}{more} that all conflict with one another hold "
            f"{weight:,} bytes, {weight - ceiling:,} more than the capacity of {ceiling:,}; "
            f"at least {weight:,} are needed",
            witness("clique", members=members.tolist()),
        )


def _for_a_while(progress: PackingProgress, seconds: float) -> Callable[[], bool]:
    """Return a `keep_going` that also ends after so much time, by the clock that ends the run."""
    until = progress.spent + seconds
    return lambda: progress.spent < until and progress.keep_going()
