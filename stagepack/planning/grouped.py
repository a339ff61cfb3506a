"""Plans of networks on chips with local memory: stages, whose operators run in groups.

The groups of the whole network on one chip come first.  They bound all plans, and say what
operators take among others: a partition by these, and one by what operators take alone, are where
it begins.  Each stage then gets groups of its own, whose cycles are those of its F.  Operators of a
stage that takes longer than was thought count by as much more, and the partition is asked for
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.stage import stage_groups, step_bound
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Array
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.resident import BALANCED
from stagepack.planning.stages import Level, Structure
from stagepack.planning.tries import ROUNDS, Tries, expressed
from stagepack.result import Result, Status


@dataclass
class Grouped(Tries):
    """Plans with groups inside their stages.

    Attributes
    ----------
    chain : PipelinePartition
        The operators as layers.
    network : LayerGrouping
    """

    chain: PipelinePartition = field(kw_only=True)
    network: LayerGrouping = field(kw_only=True)
    _groups: dict[tuple[int, int], Result[Any]] = field(default_factory=dict)

    def find(self) -> ModelPlan:
        """Return the fastest plan that is found."""
        whole = self.ask(self.network)
        source = "groups of the network on one chip"
        if whole.status is Status.INFEASIBLE:
            return self.plan(None, source, whole.reason)
        bound = step_bound(whole.bound or 0, self.microbatches, self.chain.k)
        self.enough = bound
        first = self.ask(self.chain)
        if first.status is Status.INFEASIBLE:
            return self.plan(None, source, first.reason)
        if whole.solution is not None and first.solution is not None:
            level = Level("network", self.network, whole)
            alone = self.chain.forward.astype(np.float64)
            for weights in (self._shares(whole, alone), alone):
                self._try(level, first, weights)
        return self.plan(bound, source)

    def _shares(self, whole: Result[Any], alone: Array) -> Array:
        """Return what operators take among others: their shares of their groups."""
        shares = alone.copy()
        cycles = group_cycles(self.network, whole.solution)
        for group, taken in enumerate(cycles):
            operators = list(whole.solution.operators(group))
            shares[operators] *= taken / shares[operators].sum()
        return shares

    def _try(self, level: Level, first: Result[PipelineSolution], weights: Array) -> None:
        """Cut the chain by what operators take, again and again with what the last stages took."""
        seen = set()
        for lent in range(ROUNDS):
            if self.ends():
                return
            forward = np.maximum(1, np.rint(weights)).astype(np.int64)
            solution = self.ask(self.chain.replace(forward=forward, objective=BALANCED)).solution
            if solution is None or solution in seen:
                return
            seen.add(solution)
            cut = Level("partition", self.chain, expressed(self.chain, solution, first))
            inside = self._inside(cut, lent)
            if inside is None:
                return
            self.timed(Structure(cut, inside, self.microbatches), (level,), lent)
            for at, (begin, end, _) in enumerate(solution.stages):
                taken = int(inside[at, False].result.objective or 0)
                weights[begin:end] *= taken / weights[begin:end].sum()

    def _inside(self, cut: Level, lent: int) -> dict[tuple[int, bool], Level] | None:
        """Return the groups of the stages; None where some have none, or there is no time."""
        inside = {}
        for at, (first, end, _) in enumerate(cut.result.solution.stages):
            if self.ends():
                return None
            instance = stage_groups(self.network, first, end)
            if (first, end) not in self._groups:
                self._groups[first, end] = self.ask(instance)
            result = self._groups[first, end]
            if result.solution is None:
                reason = f"stage {at}: {result.reason}"
                self.note(self.microbatches, lent, result.status, reason)
                return None
            inside[at, False] = Level(f"stage {at}", instance, result)
        return inside
