"""The most tokens whose KV cache fits on every device: bisection over them, each probe a partition.

A probe asks whether any partition fits with the cache of so many tokens in memory; the one found
may leave room for more, from which the search goes on.

Cost: O(log(tokens)) probes, see :mod:`.prober`.  Source: own work; the question is that of servers
of language models, which set aside for the cache what is left.
"""

from __future__ import annotations

from stagepack.heuristics.pipeline.bounds import filled, objective_bound
from stagepack.heuristics.pipeline.prober import Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Progress


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> bool:
    """Find and prove a partition with the most tokens; return False when none fits.

    Raises
    ------
    Stopped
        When the time is over.
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
