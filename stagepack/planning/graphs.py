"""Plans of graphs: stages that are cut from the graph itself, and their schedule.

As with chains, stages keep memory for at most w microbatches in flight, and w is reduced from the
largest useful number to one.  In a schedule, transfers do not occupy devices; partitions that are
balanced without transfers are therefore tried, too, and those on fewer devices: a step waits for
transfers where the load of a device does not.  The stages are in a row, but a tensor may skip
some of them, and branches may run in parallel: the schedule has the edges of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.evidence import Evidence, Proof
from stagepack.heuristics.graph.step_bound import forward_path, longest_chain, step_bound
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.instances.profile import Array
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.stages import Level, Structure, ticks
from stagepack.planning.tries import Tries, expressed
from stagepack.progress import clock
from stagepack.result import Result, Status

ASKED = (Objective.SUM, Objective.OVERLAP)
"""Objectives whose stages are tried beside those of the graph's own."""
UNTIMED = (Objective.REPLICATED, Objective.MEMORY)
"""Those that are not: a schedule has a device a stage, and asks for time."""


EACH = 8
"""Accelerators up to which every smaller number is tried; of more a half, a quarter, and so on."""
SHIFTS = 200
"""Moves of single nodes that are tried at most."""


@dataclass
class Graphs(Tries):
    """Plans of a graph."""

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
        asked = [*dict.fromkeys((*(() if own in UNTIMED else (own,)), *ASKED))]
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
                        reason = self.unsolved(first)
                    break
                self._schedule(whole, first, first.solution)
                if objective == asked[0]:
                    self._on_fewer(whole, first)
            if first is None or first.solution is None or self.ends():
                continue
            if not whole.traffic.any():  # the sum has been asked
                continue
            free = whole.replace(traffic=np.zeros_like(whole.traffic), objective=Objective.SUM)
            balanced = self.ask(free).solution
            if balanced is not None and not whole.check(balanced):
                self._schedule(whole, first, balanced)
        self._shift()
        return reason

    def _on_fewer(self, whole: GraphPartition, first: Result[GraphSolution]) -> None:
        """Schedule all nodes on one device, and the best partitions on fewer of them."""
        if not whole.empty_devices:
            return
        room = np.zeros(whole.accelerators) if whole.capacity is None else whole.capacity
        _, kinds = np.unique(np.column_stack((whole.speeds, room)), axis=0, return_index=True)
        for device in (*kinds.tolist(), *range(whole.accelerators, whole.devices)[:1]):
            self._offer(whole, first, np.full(whole.n, device))
        cycles, k = ticks(whole), whole.accelerators
        counts = range(k - 1, 0, -1) if k <= EACH else [k >> by for by in range(1, k.bit_length())]
        for count in counts:
            ways = _first(whole.speeds, count), _first(whole.capacity, count)
            for chosen in dict.fromkeys(ways):
                fewer = _on(whole, chosen)
                hopeless = self.best is not None and (
                    step_bound(fewer, self.microbatches, cycles) >= self.best[0]
                )
                if hopeless or self.ends():
                    continue
                found = self.ask(fewer).solution
                if found is None:
                    continue
                devices = np.array([*chosen, *range(k, whole.devices)])
                order = devices[list(found.order)].tolist()
                self._offer(whole, first, devices[found.assignment], order)

    def _shift(self) -> None:
        """Move single nodes, each with its colour, as long as that is better."""
        tried, known = 0, None
        while self.best is not None and self.best is not known and not self.ends():
            known = self.best
            cut = known[2].cut
            whole: Any = cut.instance
            place, blocks = cut.result.solution.assignment, _blocks(whole)
            crossed = whole.edges[place[whole.edges[:, 0]] != place[whole.edges[:, 1]]]
            for block in np.unique(blocks[crossed if len(crossed) else whole.edges]).tolist():
                here = blocks == block
                for device in range(whole.devices):
                    if tried < SHIFTS and (place[here] != device).any():
                        tried += self._offer(whole, cut.result, np.where(here, device, place))

    def _offer(
        self,
        whole: GraphPartition,
        first: Result[GraphSolution],
        place: Array,
        order: Sequence[int] = (),
    ) -> bool:
        """Schedule the stages of a partition that another question led to; return whether they are
        valid.

        `place` is the device of each node.
        """
        solution = GraphSolution.of(whole, place, order)
        if self.ends() or whole.check(solution):
            return False
        self._schedule(whole, first, solution)
        return True

    def _schedule(
        self, whole: GraphPartition, first: Result[GraphSolution], solution: GraphSolution
    ) -> None:
        """Schedule the stages of a solution, unless that was done."""
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
            ends = math.inf if limit is None else clock() + limit
            least = least_step(path, self.microbatches, split=self.split, ends=ends)
            if least > bound:
                nodes = forward_path(self.model).tolist()
                self.because = Evidence(Proof.LOG, {"rule": "path", "path": nodes})
                return least, "least step of the longest path"
        return bound, "work of the graph"

    def _in_flight(self) -> Iterator[int]:
        """Yield the numbers of microbatches in flight for which partitions are made, falling."""
        most = min(self.microbatches, self.model.devices)
        stashing = self.model.backward.any() and self.model.stash.any()
        limited = self.model.capacity is not None
        yield from range(most, 0, -1) if stashing and limited else (1,)


def _blocks(whole: GraphPartition) -> Array:
    """Return a number for each node; nodes of one colour have the same."""
    numbers = np.where(whole.colour < 0, np.arange(whole.n) + whole.n, whole.colour)
    return np.unique(numbers, return_inverse=True)[1]


def _first(figures: Array | None, count: int) -> tuple[int, ...]:
    """Return so many devices with the largest figures, the first of like ones, in rising order."""
    if figures is None:
        return tuple(range(count))
    return tuple(sorted(np.argsort(-figures, kind="stable")[:count].tolist()))


def _on(whole: GraphPartition, chosen: tuple[int, ...]) -> GraphPartition:
    """Return a graph on some of its accelerators, and on all CPUs."""
    some = list(chosen)
    links = whole.bandwidth
    if isinstance(links, np.ndarray):
        kept = [*some, *range(whole.accelerators, whole.devices)]
        links = links[np.ix_(kept, kept)]
    return whole.replace(
        accelerators=len(some),
        speeds=whole.speeds[some],
        capacity=None if whole.capacity is None else whole.capacity[some],
        bandwidth=links,
    )
