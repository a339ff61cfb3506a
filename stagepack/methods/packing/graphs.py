"""Placement of conflict graphs that are too large for a clique cover within the time limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from stagepack.evidence import witness
from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.bounds import LISTED
from stagepack.heuristics.packing.constructive import conflicts
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.packing.attempt import CHECK, PackingProgress, examined, note_over
from stagepack.methods.starts import offer_start
from stagepack.result import Termination

MANY, LARGE = 200_000, 20_000
"""Conflicts, or buffers, from which on they are placed before cliques are looked for: these take
half a second, and a placement a fiftieth of that."""

STARTED = ("auto", "exact", "portfolio")
"""Methods that begin so, if nobody says how they should; rules where there is no time for them."""

WITHOUT = "first-fit-size"
"""The rule that needs no cliques: its order is known without them."""

LEAST, SCATTERED = 7.5e-8, 2.5e-7
"""Seconds of a conflict in a first placement, the check of it included; and where buffers lie
outside of the cache."""

COVERED = 3.1e-6
"""Seconds of a conflict until cliques cover them and all is made that other methods look at."""

LATE = 0.2
"""Seconds that an answer may come late."""

SHARE = 0.5
"""Part of the time beside that in which placements are lowered first."""

SWEEPS = 40
"""Sweeps in which they are lowered where time has no limit."""


def least(n: int) -> float:
    """Return the seconds of a first placement of `n` buffers for each of their conflicts."""
    return SCATTERED if n > effort.CACHED_BUFFERS else LEAST


def placed_first(
    name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings
) -> bool:
    """Whether a method places this instance straight from its conflicts.

    Parameters
    ----------
    name : str
        Of the method.
    instance : LmemPacking
    progress : PackingProgress
        Says how much time is left.
    settings : Settings
        A start or an engine that is asked for needs the whole method.
    """
    graph = instance.conflicts
    if graph is None or (len(graph) < MANY and instance.n < LARGE):
        return False
    given = isinstance(settings.warm_start, str) and settings.warm_start != "auto"
    late = progress.remaining < COVERED * len(graph)
    return (
        (name in STARTED or name == WITHOUT or (late and name in RULES))
        and not given
        and settings.engine is None
        and instance.objective in (Objective.PEAK, Objective.FIT)
        and not (instance.previous >= 0).any()
        and not conflicts.unsupported(instance)
    )


def place(name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings) -> bool:
    """Place an instance straight from its conflicts, and lower that for a while.

    Parameters
    ----------
    name : str
        Of the method.
    instance : LmemPacking
        One that is :func:`placed_first`.
    progress : PackingProgress
    settings : Settings

    Returns
    -------
    bool
        Whether there is a reason and the time to cover the conflicts by cliques and go on.
    """
    m = 0 if instance.conflicts is None else len(instance.conflicts)
    if not isinstance(settings.warm_start, str):
        offer_start(instance, progress, settings, {})
    run = _Run(instance, progress)

    def whatever_the_time() -> bool:
        return progress.keep_going() or not progress.interrupted

    graph = conflicts.rows(instance, progress.keep_going)
    around, heaviest, pair = conflicts.weigh(graph, progress.keep_going)
    progress.raise_bound(heaviest, "heaviest pair in conflict", witness("clique", members=pair))
    order = None if name == WITHOUT else conflicts.sides(graph, progress.keep_going)
    if order is None:
        order = np.argsort(-graph.size, kind="stable")
    offsets = conflicts.first_fit(graph, order, whatever_the_time)
    if offsets is None:
        return False
    peak = run.offer(offsets, name if name == WITHOUT else "first fit")
    weight, members = conflicts.heavy_clique(graph, around, progress.keep_going)
    why = witness("clique", members=members.tolist())
    progress.raise_bound(weight, "clique of conflicts", why)
    if instance.ceiling is not None and instance.objective is Objective.FIT:
        run.conclude(weight, members)
    if name == WITHOUT:
        return False
    later = progress.remaining - COVERED * m
    lowering = min(SHARE * later, COVERED * m) if later > COVERED * m else math.inf
    until = _for_a_while(progress, lowering)
    by_conflicts = np.argsort(-around, kind="stable")
    other = conflicts.first_fit(graph, by_conflicts, until)
    if other is not None and run.offer(other, "first fit by conflicts") < peak:
        order, offsets = by_conflicts, other
    lowered = conflicts.placements(graph, order, offsets, until)
    for found, source in itertools.islice(lowered, SWEEPS if later == math.inf else None):
        run.offer(found, source)
    if progress.stop_reason() is Termination.TIME_LIMIT and name in RULES:
        progress.reason = f"{name} did not end in time; first fit by other orders has run instead"
    return progress.keep_going()


def place_as_listed(instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Offer what was given, and what comes of going through the conflicts once, if not to the end.

    Parameters
    ----------
    instance : LmemPacking
        One with so many conflicts that there is no time for more.
    progress : PackingProgress
    settings : Settings
    """
    if not isinstance(settings.warm_start, str):
        offer_start(instance, progress, settings, {})
    placeable = instance.objective in (Objective.PEAK, Objective.FIT)
    if not placeable or conflicts.unsupported(instance):
        progress.stop(Termination.TIME_LIMIT)
        return
    kept = examined(instance) - LATE
    offsets = conflicts.listed_fit(
        instance, lambda: progress.keep_going() and progress.remaining > kept
    )
    if progress.remaining <= kept:
        progress.stop(Termination.TIME_LIMIT)
    if offsets is not None:
        _Run(instance, progress).offer(offsets, "first fit, as listed")


def first_fit_takes(instance: LmemPacking) -> float:
    """Return the seconds that :func:`offer_first_fit` takes; infinite where it does not apply."""
    graph = instance.conflicts
    placeable = instance.objective in (Objective.PEAK, Objective.FIT)
    if graph is None or not placeable or conflicts.unsupported(instance):
        return math.inf
    return least(instance.n) * len(graph)


def offer_first_fit(instance: LmemPacking, progress: PackingProgress) -> None:
    """Offer first fit by size straight from the conflicts, whether or not there is time.

    Parameters
    ----------
    instance : LmemPacking
        One for which :func:`first_fit_takes` seconds that are left.
    progress : PackingProgress
    """
    graph = conflicts.rows(instance, progress.keep_going)
    offsets = conflicts.first_fit(graph, np.argsort(-graph.size, kind="stable"), lambda: True)
    if offsets is not None:
        _Run(instance, progress).offer(offsets, "first fit")


class _Run:
    """Offers placements that are lower than all before, where they respect the capacity."""

    def __init__(self, instance: LmemPacking, progress: PackingProgress) -> None:
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
            effort.spend(CHECK + effort.ITEM * instance.n + examined(instance))
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
