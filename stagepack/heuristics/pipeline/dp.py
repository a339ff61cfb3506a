"""The exact method: bisection over limits; each probe is a dynamic program over tails of the chain.

Objectives with one limit are solved by bisection on it, `headroom` by one on the tokens; sums of
all stages, `latency` and `moves`, by a program of their own (:mod:`.latency`).  For
`transfer-bounded`, the least compute is found first, unless this would mean to examine many layers
and a start is known.  Then the remaining part of the staircase of
non-dominated pairs of compute and transfer is searched, see :mod:`.staircase`.

Cost: O(transitions * n) steps and bytes a probe at most, far less near the optimum;
O(log(sum of cycles)) probes for one limit.  Source: own work, after *Auto Pipeline*, whose sweep
over all thresholds :mod:`.reference` implements.
"""

from __future__ import annotations

from stagepack.heuristics import pipeline as heuristics
from stagepack.heuristics.pipeline.bounds import (
    cheap_cuts,
    dearest_span,
    filled,
    objective_bound,
)
from stagepack.heuristics.pipeline.prober import LeastLimit, Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Progress


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> bool:
    """Find and prove an optimal partition; return False when there is none.

    When it is stopped for time, `progress` holds the best partition and a safe bound.
    """
    if costs.instance.objective.additive:
        return heuristics.latency.solve(costs, progress, tuning)
    if costs.instance.objective is Objective.HEADROOM:
        return _most_tokens(costs, progress, tuning)
    return _search(costs, progress, tuning)


def _search(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning
) -> bool:
    two_limits = costs.instance.objective is Objective.TRANSFER_BOUNDED
    floor = costs.compute_bound() if two_limits else objective_bound(costs)
    rest = costs.transfer_bound() + costs.host if two_limits else 0
    if costs.instance.objective is Objective.SUM and not costs.tabular:
        search, known = _from_few_cuts(costs, floor, progress, tuning), None
    else:
        known = _known(costs, progress)
        search = LeastLimit(costs, floor, progress, known, tuning=tuning.probes)
    offered, evidence, cells = None, filled(costs, [rest]), tuning.staircase_cells
    if two_limits and known is not None and search.begins_with_more(cells):
        # Compute does not narrow the windows down, limits on transfer may.
        heuristics.staircase.descend(search, floor, progress, cells=cells)
        return True
    try:
        while not search.done:
            search.go_on()
            if search.infeasible:
                return False
            if search.best != offered and progress.stale:
                offered = search.best
                progress.offer(search.best_partition(), "dp")
            progress.raise_bound(costs.bound(search.bound + rest), "exhausted search", evidence)
            progress.require_time()
        if two_limits:
            offered = search.best  # by the descent, unless that finds a better one at once
            found = search.best_partition()
            heuristics.staircase.descend(search, search.bound, progress, found, cells=cells)
    finally:
        if search.best != offered:
            progress.offer(search.best_partition(), "dp")
    return True


def _known(costs: RangeCosts, progress: Progress[PipelineSolution]) -> int | None:
    """Return what the best partition known needs of the limit on compute, in ticks."""
    return None if progress.solution is None else costs.largest_compute(progress.solution)


def _from_few_cuts(
    costs: RangeCosts,
    floor: int,
    progress: Progress[PipelineSolution],
    tuning: PipelineTuning,
) -> LeastLimit:
    """Return the search for the least sum; where it is a large one a chain of few cuts is first."""
    bound, *around = dearest_span(costs, progress.require_time)
    floor = max(floor, bound)
    progress.raise_bound(costs.bound(floor), "work bound", filled(costs))
    most = max(tuning.first_cuts, 4 * costs.k)
    search = LeastLimit(costs, floor, progress, _known(costs, progress), tuning=tuning.probes)
    if not tuning.few_cuts_first or 2 * most > costs.allowed.sum():
        return search
    if not search.begins_with_more(tuning.large_cells):
        return search
    cuts = cheap_cuts(costs, most, progress.require_time)
    cuts[around] = True
    first = LeastLimit(costs, floor, progress, _known(costs, progress), cuts, tuning.probes)
    while not (first.done or first.infeasible):
        first.go_on()
        progress.require_time()
    if first.best is None:
        return search
    progress.offer(first.best_partition(), "dp")
    progress.require_time()
    return LeastLimit(costs, floor, progress, _known(costs, progress), tuning=tuning.probes)


def _most_tokens(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning
) -> bool:
    """Find and prove a partition with the most tokens; return False when none fits.

    A probe asks whether any partition fits with the cache of so many tokens in memory; the one
    found may leave room for more, from which the search goes on.  O(log(tokens)) probes.
    """

    def found(tokens: int) -> int:
        """Return the tokens of a partition that has so many at least, -1 where there is none."""
        prober = Prober(costs.with_tokens(tokens), progress, tuning.probes)
        if prober.probe() is None:
            return -1
        solution = prober.partition()
        progress.offer(solution, "dp")
        return -costs.objective(solution)

    evidence = filled(costs)
    most = -objective_bound(costs)
    known = None if progress.solution is None else -costs.objective(progress.solution)
    low = found(costs.tokens) if known is None else known
    if low < 0:
        return False
    step = max(1, most - low >> 5)  # most of the time the bound is near
    while low < most:
        progress.require_time()
        middle = max(low + 1, most - step)
        tokens = found(middle)
        if tokens < 0:
            most, step = middle - 1, 2 * step
            progress.raise_bound(costs.bound(-most), "exhausted search", evidence)
        else:
            low, step = tokens, max(1, most - tokens >> 1)
    progress.raise_bound(costs.bound(-low), "exhausted search", evidence)
    return True
