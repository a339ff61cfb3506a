"""Plans of graphs: stages that are cut from the graph itself, and their schedule.

As with chains, stages keep memory for at most w microbatches in flight, and w is reduced from the
largest useful number to one.  In a schedule, transfers do not occupy devices; partitions that are
balanced without transfers are therefore tried, too.  The stages are in a row, but a tensor may skip
some of them, and branches may run in parallel: the schedule has the edges of the graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from stagepack.heuristics.graph.step_bound import longest_chain, step_bound
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.stages import Level, Structure, ticks
from stagepack.planning.tries import Tries, expressed
from stagepack.result import Result, Status

ASKED = (Objective.SUM, Objective.OVERLAP)
"""Objectives whose stages are tried beside those of the graph's own."""
UNTIMED = (Objective.REPLICATED, Objective.MEMORY)
"""Those that are not: a schedule has a device a stage, and asks for time."""


@dataclass
class Graphs(Tries):
    """Plans of a graph.

    Attributes
    ----------
    model : GraphPartition
    """

    model: GraphPartition = field(kw_only=True)
    _seen: set[GraphSolution] = field(default_factory=set)

    def find(self) -> ModelPlan:
        """Return the fastest plan that is found."""
        bound, source = self._bound()
        self.enough = bound
        reason = self.search()
        return self.plan(bound, source, "" if self.best is not None else reason)

    def search(self) -> str:
        """Try every number of microbatches in flight; return why none fits, if that is proved."""
        own = self.model.objective
        asked = dict.fromkeys((*(() if own in UNTIMED else (own,)), *ASKED))
        reason = ""
        for in_flight in self._in_flight():
            whole, first = self.model, None
            for objective in asked:
                if self.ends():
                    break
                whole = self.model.replace(microbatches=in_flight, objective=objective)
                first = self.ask(whole)
                if first.solution is None:
                    self.note(in_flight, 0, first.status, first.reason)
                    if first.status is Status.INFEASIBLE and in_flight == 1:
                        reason = first.reason
                    break
                self._schedule(whole, first, first.solution)
            if first is None or first.solution is None or self.ends():
                continue
            if not whole.traffic.any():  # the sum has been asked
                continue
            free = whole.replace(traffic=np.zeros_like(whole.traffic), objective=Objective.SUM)
            balanced = self.ask(free).solution
            if balanced is not None and not whole.check(balanced):
                self._schedule(whole, first, balanced)
        return reason

    def _schedule(
        self, whole: GraphPartition, first: Result[GraphSolution], solution: GraphSolution
    ) -> None:
        """Schedule the stages of a solution, unless that was done.

        Parameters
        ----------
        whole : GraphPartition
        first : Result
            Its own.
        solution : GraphSolution
        """
        if solution not in self._seen:
            self._seen.add(solution)
            cut = Level("partition", whole, expressed(whole, solution, first))
            self.timed(Structure(cut, {}, self.microbatches, split=self.split), ())

    def _bound(self) -> tuple[int, str]:
        """Return a bound on every plan: work, or the least step of the longest path."""
        cycles = ticks(self.model)
        bound = step_bound(self.model, self.microbatches, cycles)
        path = longest_chain(self.model, cycles)
        if path is not None:
            limit = self.limits["time_limit"]
            ends = math.inf if limit is None else time.monotonic() + limit
            least = least_step(path, self.microbatches, split=self.split, ends=ends)
            if least > bound:
                return least, "least step of the longest path"
        return bound, "work of the graph"

    def _in_flight(self) -> Iterator[int]:
        """Yield the numbers of microbatches in flight for which partitions are made, falling."""
        most = min(self.microbatches, self.model.devices)
        stashing = self.model.backward.any() and self.model.stash.any()
        limited = self.model.capacity is not None
        yield from range(most, 0, -1) if stashing and limited else (1,)
