"""The exact method for chains whose layers have alternatives, and rules that choose for given cuts.

Stages are priced within a limit, and the search for chains without alternatives finds the best
partition of these stages (:mod:`stagepack.heuristics.pipeline.dp`).  If it is worth no more than
the limit, it is the best of all; otherwise every partition is worth more than the limit, which
grows.  The nearer the limit is to the optimum, the fewer trade-offs stages have.

Cost: a few times that of the stages (:mod:`.costs`) and of the search.  Source: own work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from stagepack.heuristics.pipeline import dp
from stagepack.heuristics.pipeline.bounds import objective_bound
from stagepack.heuristics.pipeline.options.costs import Chooser, ChosenCosts, Pause
from stagepack.heuristics.pipeline.prober import Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Part, Progress, Stopped


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> bool:
    """Find and prove an optimal partition with its choices; return False when none fits."""
    instance, chooser = costs.instance, Chooser(costs, tuning.options, progress.require_time)
    if progress.solution is None:
        found = any_that_fits(costs, progress, tuning, chooser)
        if found is None:
            return False
        progress.offer(found, "dp")
    for limit in _limits(costs, progress, tuning):
        priced = ChosenCosts(chooser, limit + costs.rounding)
        part: Progress[PipelineSolution] = Part(
            progress, instance.evaluate, instance.check, tolerance=instance.tolerance
        )
        try:
            fits = dp.solve(priced, part, tuning)
        except Stopped:
            fits = True
            if not part.proved:
                raise
        finally:
            if part.solution is not None:
                progress.offer(part.solution, "dp")
        progress.require_time()
        beyond = costs.bound(limit + 1)
        bound = part.bound if fits and part.bound is not None else beyond
        # What is worth more than the limit need not have all its stages here.
        progress.raise_bound(min(bound, beyond), "exhausted search")
        if progress.proved:
            return True
    return True


def _limits(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning
) -> Iterator[int]:
    """Yield rising limits in ticks, from just above the bound to what the best known is worth."""
    floor, share = objective_bound(costs), tuning.options.first_share
    assert progress.solution is not None
    while True:
        known = costs.objective(progress.solution)
        limit = floor + int(max(floor, 1) * share)
        if limit >= known:
            yield known
            return
        yield limit
        share *= tuning.options.growth


def any_that_fits(
    costs: RangeCosts,
    progress: Progress[PipelineSolution] | None,
    tuning: PipelineTuning = TUNING,
    chooser: Chooser | None = None,
) -> PipelineSolution | None:
    """Return a partition that fits with some choices, whatever it takes; None: there is none.

    `chooser` is of these costs, where there is one.
    """
    pause: Pause = (lambda: None) if progress is None else progress.require_time
    chooser = chooser or Chooser(costs, tuning.options, pause)
    prober = Prober(ChosenCosts(chooser, timed=False), progress, tuning.probes)
    return None if prober.probe() is None else prober.partition()


def chosen_for(
    costs: RangeCosts,
    solution: PipelineSolution,
    tuning: PipelineTuning,
    pause: Pause,
    closely: bool,
) -> PipelineSolution | None:
    """Return the stages of a partition with choices that fit; None: none do, or none are found.

    Choices of `solution` do not matter.  `pause` is called now and then; what it raises ends the
    search.  `closely`: the best choices are taken; else those of a rule of thumb, which may find
    none.
    """
    chooser, instance = Chooser(costs, tuning.options, pause), costs.instance
    chosen = list[int]()
    for at, (a, b, device) in enumerate(solution.stages):
        left = len(solution.devices) - at
        stashes = min(instance.microbatches, left) if instance.training else 0
        kind = int(costs.device_class[device]), stashes
        if closely:
            found = chooser.choose(chooser.options(*kind), a, b)
        else:
            found = chooser.leaner(kind, a, b)
        if found is None:
            return None
        chosen += found
    return dataclasses.replace(solution, choices=chooser.named(chosen))
