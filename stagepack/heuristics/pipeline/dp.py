"""The exact method: bisection over limits, each probe a dynamic program over the chain's tail.

Objectives with one limit: bisect on it.  Transfer-bounded: walk down the staircase of
non-dominated pairs (compute C, transfer T).  The least C comes first, then the least T for it; any
better partition has more compute and less transfer, so one probe with the limits that its sum
leaves to each either ends the search or begins the next step.

Cost: O(transitions * n) steps and bytes a probe at most, far less near the optimum;
O(log(sum of cycles)) probes a step, usually one or two steps.  Source: own work, after
*Auto Pipeline*, whose sweep over all thresholds :mod:`.reference` keeps.
"""

from __future__ import annotations

from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.feasibility import explain
from stagepack.heuristics.pipeline.prober import Search, load_kernels
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.result import InputError, Progress


def solve(costs: RangeCosts, progress: Progress[PipelineSolution]) -> None:
    """Find and prove an optimal partition, or that there is none.

    Raises
    ------
    Stopped
        When `progress` runs out of time; it then holds the best partition and a safe bound.
    """
    if not load_kernels.cache_info().currsize:
        with progress.setup("loading kernels"):
            load_kernels()
    near = None if progress.solution is None else costs.largest_compute(progress.solution)
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        search = Search(costs, costs.compute_bound(), costs.host, progress, near)
    else:
        search = Search(costs, objective_bound(costs), 0, progress, near)
    offered = None
    while True:
        try:
            search.go_on()
        except InputError as error:
            if progress.solution is None:
                raise
            progress.reason = str(error)  # what is known stays known
            return
        if search.infeasible:
            progress.prove_infeasible(explain(costs, progress))
            return
        if search.best != offered:
            offered = search.best
            progress.offer(search.partition(), "dp")
        progress.raise_bound(costs.bound(search.bound), "exhausted search")
        if search.done:
            return
        progress.require_time()
