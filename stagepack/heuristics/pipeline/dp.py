"""The exact method: bisection over limits, each probe a dynamic program over the chain's tail.

Objectives with one limit: bisect on it.  Transfer-bounded: walk down the staircase of
non-dominated pairs (compute C, transfer T), each step the least C for the transfers still worth
having and then the least T for that C, so that every pair is met once; stop as soon as no pair
with C + T below the best can remain.

Cost: O(transitions * n) a probe, O(log(sum of cycles)) probes a step, usually two or three steps.
Source: DESIGN 3.1, after the seed *Auto Pipeline*, whose sweep over all thresholds
:mod:`.reference` keeps.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.feasibility import explain
from stagepack.heuristics.pipeline.prober import UNLIMITED, Prober, load_kernels
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import Progress

SEARCHED = "exhausted search"


def solve(costs: RangeCosts, progress: Progress[PipelineSolution]) -> None:
    """Find and prove an optimal partition, or that there is none.

    Raises
    ------
    Stopped
        When `progress` runs out of time; it then holds the best partition and a safe bound.
    """
    with progress.setup("compiling kernels"):
        load_kernels(costs.tabular)
    prober = Prober(costs, progress)
    needs = prober.probe()
    if needs is None:
        progress.prove_infeasible(explain(costs))
        return
    progress.offer(prober.solution(), "dp")
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        _staircase(costs, prober, progress, *needs)
        return
    floor = objective_bound(costs)

    def within(limit: int) -> int | None:
        needs = prober.probe(limit)
        return None if needs is None else needs[0]

    least(within, prober.solution, floor, needs[0], progress, costs)


def least(
    within: Callable[[int], int | None],
    solution: Callable[[], PipelineSolution],
    low: int,
    high: int,
    progress: Progress[PipelineSolution],
    costs: RangeCosts,
) -> None:
    """Bisect on the objective value itself, in ticks, telling `progress` of every step.

    ``within(limit)`` returns the value of a partition worth at most `limit`, or None, and
    `solution` the partition last found; the optimum is in [low, high].
    """

    def narrowed(low: int, improved: bool) -> None:
        progress.raise_bound(costs.value(low), SEARCHED)
        if improved and progress.stale:
            progress.offer(solution(), "dp")

    high = _bisect(within, low, high, progress, narrowed)
    within(high)
    progress.offer(solution(), "dp")
    progress.raise_bound(costs.value(high), SEARCHED)


def _bisect(
    within: Callable[[int], int | None],
    low: int,
    high: int,
    progress: Progress[PipelineSolution],
    narrowed: Callable[[int, bool], None] | None = None,
) -> int:
    """Return the least limit in [low, high] that `within` can meet; `high` is known to be met."""
    while low < high:
        progress.require_time()
        value = within((low + high) // 2)
        if value is None:
            low = (low + high) // 2 + 1
        else:
            high = max(low, value)
        if narrowed is not None:
            narrowed(low, value is not None)
    return high


def _staircase(
    costs: RangeCosts,
    prober: Prober,
    progress: Progress[PipelineSolution],
    c_known: int,
    t_known: int,
) -> None:
    """Walk the non-dominated pairs (C, T) by rising C until none can beat the best sum.

    A partition with the limits (c_known, t_known) is known.
    """

    def least_compute(low: int, high: int, transfer: int) -> int:
        def within(limit: int) -> int | None:
            needs = prober.probe(limit, transfer)
            return None if needs is None else needs[0]

        return _bisect(within, low, high, progress)

    def least_transfer(low: int, high: int, compute: int) -> int:
        def within(limit: int) -> int | None:
            needs = prober.probe(compute, limit)
            return None if needs is None else needs[1]

        value = _bisect(within, low, high, progress)
        prober.probe(compute, value)
        progress.offer(prober.solution(), "dp")
        return value

    # The transfer that no partition avoids, and the least compute.
    t_min = least_transfer(costs.host, t_known, UNLIMITED)
    floor = costs.compute_bound()
    progress.raise_bound(costs.value(floor + t_min), "work bound")
    c = least_compute(floor, c_known, UNLIMITED)
    progress.raise_bound(costs.value(c + t_min), SEARCHED)
    t = least_transfer(t_min, _transfer_needed(prober, c, UNLIMITED), c)
    best = c + t
    while True:
        # What is left has compute > c and transfer < t, and is worth having below `best`.
        progress.raise_bound(costs.value(min(best, c + 1 + t_min)), SEARCHED)
        t_limit = min(t - 1, best - 2 - c)
        c_limit = best - 1 - t_min
        if t_limit < t_min or c_limit <= c:
            break
        needs = prober.probe(c_limit, t_limit)
        if needs is None:
            break
        c = least_compute(c + 1, needs[0], t_limit)
        t = least_transfer(t_min, _transfer_needed(prober, c, t_limit), c)
        best = min(best, c + t)
    progress.raise_bound(costs.value(best), SEARCHED)


def _transfer_needed(prober: Prober, compute: int, transfer: int) -> int:
    needs = prober.probe(compute, transfer)
    assert needs is not None
    return needs[1]
