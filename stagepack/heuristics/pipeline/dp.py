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

from stagepack.heuristics.pipeline.bounds import compute_bound
from stagepack.heuristics.pipeline.feasibility import explain
from stagepack.heuristics.pipeline.prober import UNLIMITED, Prober
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import Progress

SOURCE = "exhausted search"


def solve(costs: RangeCosts, progress: Progress[PipelineSolution]) -> None:
    """Find and prove an optimal partition, or that there is none.

    Raises
    ------
    Stopped
        When `progress` runs out of time; it then holds the best partition and a safe bound.
    """
    with progress.setup("compiling kernels"):
        Prober(_tiny()).probe()
    prober = Prober(costs, progress)
    if not prober.probe():
        progress.prove_infeasible(explain(costs))
        return
    first = prober.solution()
    progress.offer(first, "dp")
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        _staircase(costs, prober, progress, first)
        return
    floor = compute_bound(costs)
    progress.raise_bound(costs.value(floor), "work bound")

    def within(limit: int) -> PipelineSolution | None:
        return prober.solution() if prober.probe(limit) else None

    def narrowed(low: int, found: PipelineSolution | None) -> None:
        progress.raise_bound(costs.value(low), SOURCE)
        if found is not None:
            progress.offer(found, "dp")

    least(within, lambda found: prober.values(found)[0], floor, first, progress, narrowed=narrowed)


def least(
    within: Callable[[int], PipelineSolution | None],
    value: Callable[[PipelineSolution], int],
    low: int,
    known: PipelineSolution,
    progress: Progress[PipelineSolution],
    *,
    narrowed: Callable[[int, PipelineSolution | None], None] | None = None,
) -> tuple[int, PipelineSolution]:
    """Return the least limit >= `low` for which `within` finds a partition, and that partition.

    `known` is within the limit ``value(known)``; `within` must be monotone in the limit.
    `narrowed(low, found)` is told of every step.
    """
    high = value(known)
    while low < high:
        progress.require_time()
        middle = (low + high) // 2
        found = within(middle)
        if found is None:
            low = middle + 1
        else:
            known, high = found, value(found)
        if narrowed is not None:
            narrowed(min(low, high), found)
    if narrowed is not None:
        narrowed(high, None)
    return high, known


def _staircase(
    costs: RangeCosts,
    prober: Prober,
    progress: Progress[PipelineSolution],
    first: PipelineSolution,
) -> None:
    """Walk the non-dominated pairs (C, T) by rising C until none can beat the best sum."""

    def least_compute(low: int, transfer: int, known: PipelineSolution) -> int:
        def within(limit: int) -> PipelineSolution | None:
            return prober.solution() if prober.probe(limit, transfer) else None

        return least(within, lambda found: prober.values(found)[0], low, known, progress)[0]

    def least_transfer(low: int, compute: int, known: PipelineSolution) -> int:
        def within(limit: int) -> PipelineSolution | None:
            return prober.solution() if prober.probe(compute, limit) else None

        value, found = least(within, lambda s: prober.values(s)[1], low, known, progress)
        progress.offer(found, "dp")
        return value

    # The transfer that no partition avoids, and the least compute.
    t_min = least_transfer(costs.host, UNLIMITED, first)
    floor = compute_bound(costs)
    progress.raise_bound(costs.value(floor + t_min), "work bound")
    c = least_compute(floor, UNLIMITED, first)
    progress.raise_bound(costs.value(c + t_min), SOURCE)
    prober.probe(c, UNLIMITED)
    t = least_transfer(t_min, c, prober.solution())
    best = c + t
    while True:
        # What is left has compute > c and transfer < t, and is worth having below `best`.
        progress.raise_bound(costs.value(min(best, c + 1 + t_min)), SOURCE)
        t_limit = min(t - 1, best - 2 - c)
        c_limit = best - 1 - t_min
        if t_limit < t_min or c_limit <= c or not prober.probe(c_limit, t_limit):
            break
        c = least_compute(c + 1, t_limit, prober.solution())
        prober.probe(c, t_limit)
        t = least_transfer(t_min, c, prober.solution())
        best = min(best, c + t)
    progress.raise_bound(costs.value(best), SOURCE)


def _tiny() -> RangeCosts:
    """Return two layers on two devices: enough to load or compile the kernels."""
    from stagepack.instances.pipeline import PipelinePartition

    return RangeCosts(PipelinePartition.from_arrays([1, 1], devices=2))
