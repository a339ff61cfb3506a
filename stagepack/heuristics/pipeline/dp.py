"""The exact method: bisection over limits, each probe a dynamic program over the chain's tail.

Objectives with one limit: bisect on it.  Transfer-bounded: walk down the staircase of
non-dominated pairs (compute C, transfer T), each step the least C for the transfers still worth
having and then the least T for that C, so that every pair is met once; stop as soon as no pair
with C + T below the best can remain.

Cost: O(transitions * n) a probe, O(log(sum of cycles)) probes a step, usually two or three steps.
Source: own work, after *Auto Pipeline*, whose sweep over all thresholds :mod:`.reference` keeps.
"""

from __future__ import annotations

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
    if not load_kernels.cache_info().currsize:
        with progress.setup("compiling kernels"):
            load_kernels()
    prober = Prober(costs, progress)
    needs = prober.probe()
    if needs is None:
        progress.prove_infeasible(explain(costs, progress))
        return
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        _staircase(costs, prober, progress, *needs)
        return
    low, high = objective_bound(costs), needs[0]
    while low < high:
        if progress.stale:
            progress.offer(_partition(prober, high, UNLIMITED), "dp")
        progress.require_time()
        low, high = prober.narrow(low, high, transfer=UNLIMITED)
        progress.raise_bound(costs.bound(low), SEARCHED)
    progress.offer(_partition(prober, high, UNLIMITED), "dp")
    progress.raise_bound(costs.bound(high), SEARCHED)


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
    best = c_known + t_known
    incumbent = (c_known, t_known)  # limits that the best partition met so far needs
    offered = False

    def least(
        low: int, high: int, *, compute: int | None = None, transfer: int | None = None
    ) -> int:
        """Return the least limit on what is not held that can be met; `high` is."""
        nonlocal offered
        while low < high:
            if progress.stale and not offered:
                progress.offer(_partition(prober, *incumbent), "dp")
                offered = True
            progress.require_time()
            low, high = prober.narrow(low, high, compute=compute, transfer=transfer)
        return high

    def transfer_needed(compute: int, transfer: int) -> int:
        needs = prober.probe(compute, transfer)
        assert needs is not None
        return needs[1]

    # The transfer that no partition avoids, and the least compute.
    t_min = least(costs.host, t_known, compute=UNLIMITED)
    floor = costs.compute_bound()
    progress.raise_bound(costs.bound(floor + t_min), "work bound")
    c = least(floor, c_known, transfer=UNLIMITED)
    t = least(t_min, transfer_needed(c, UNLIMITED), compute=c)
    while True:
        if c + t < best or not offered:
            best, incumbent = min(best, c + t), (c, t) if c + t < best else incumbent
            progress.offer(_partition(prober, *incumbent), "dp")
            offered = True
        # What is left has compute > c and transfer < t, and is worth having below `best`.
        progress.raise_bound(costs.bound(min(best, c + 1 + t_min)), SEARCHED)
        t_limit = min(t - 1, best - 2 - c)
        c_limit = best - 1 - t_min
        if t_limit < t_min or c_limit <= c:
            break
        needs = prober.probe(c_limit, t_limit)
        if needs is None:
            break
        c = least(c + 1, needs[0], transfer=t_limit)
        t = least(t_min, transfer_needed(c, t_limit), compute=c)
    progress.raise_bound(costs.bound(best), SEARCHED)


def _partition(prober: Prober, compute: int, transfer: int) -> PipelineSolution:
    """Return a partition within limits that can be met."""
    needs = prober.probe(compute, transfer)
    assert needs is not None
    return prober.solution()
