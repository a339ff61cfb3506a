"""Plans of graphs on devices with remote memory: stages that do not fit run in phases.

The graph is partitioned as if every device had room for all nodes.  If the nodes of a device do not
fit, they are ordered as layers and run in phases for a bundle of microbatches, like the stages of
chains.  Where this takes longer than the partition assumed, the estimates of the nodes of this
device are raised in proportion, and the graph is partitioned again.  Plans whose stages all fit are
tried first.

Bounds: no plan is faster than the longest path, where a bundle counts as one longer microbatch.
Variables beyond the memory of all devices together must be loaded for every bundle, and one device
does at least its share of these loads and of the work.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.heuristics.graph.step_bound import SLACK, longest_chain, step_bound
from stagepack.heuristics.pipeline.step_stages import least_step
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.chains.layers import require_layers
from stagepack.instances.phases.chips import at_clock
from stagepack.instances.profile import Array, Chip
from stagepack.planning.graphs import UNTIMED, Graphs
from stagepack.planning.loading import Loading, divisors
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.stages import Level, Structure, pace, ticks
from stagepack.planning.tries import ROUNDS, expressed, quickest
from stagepack.progress import clock
from stagepack.result import Result, Status

PATIENCE = 2
"""Partitions in a row that may be no better before others are begun with."""


def phased_graph(
    model: GraphPartition, microbatches: int, split: bool, limits: JsonObject, remote: Chip
) -> ModelPlan:
    """Return the fastest plan of a `model` that is found, with phases or without; see
    :func:`.phased`.

    Cycles of the chip, `remote`, are units of time where the graph does not say in what times are.
    `microbatches`, `split` and `limits` as there.
    """
    require_layers(model)
    clock = pace(model)
    chip = at_clock(remote, float(remote.clock) * ticks(model) if clock is None else clock)
    search = PhasedGraphs(model.name, microbatches, False, limits, model=model, chip=chip)
    bound, source = search.bound(split)
    resident = Graphs(model.name, microbatches, split, limits, model=model, enough=bound)
    reason = resident.search()
    search.attempts, search.best, search.enough = resident.attempts, resident.best, bound
    search.interrupted = resident.interrupted
    if model.capacity is not None:
        search.search()
        if search.best is None:
            reason = search.too_large()
    else:
        search.because = resident.because
    found = search.plan(bound, source, "" if search.best is not None else reason)
    return found if found.levels else dataclasses.replace(found, on_chip=search._on_chip)


@dataclass
class PhasedGraphs(Loading):
    """Plans of a graph with phases."""

    model: GraphPartition = field(kw_only=True)

    def __post_init__(self) -> None:
        given = self.model
        own = Objective.SUM if given.objective in UNTIMED else given.objective
        self.free = given.replace(capacity=None, microbatches=1, objective=own)
        sizes = [None] * given.devices if given.capacity is None else given.capacity.tolist()
        self._on_chip = (*sizes, *([None] * (given.devices - len(sizes))))

    def search(self) -> None:
        """Try partitions and bundles."""
        bounds = {bundle: self._bound(bundle, False) for bundle in divisors(self.microbatches)}
        first = self.ask(self.free)
        if first.solution is None:
            self.note(self.microbatches, 0, first.status, first.reason)
            return
        for bundle, bound in sorted(bounds.items(), key=lambda one: one[1]):
            if self.best is not None and self.best[0] <= bound:
                break
            self._try(first, bundle)

    # ------------------------------------------------------------------ bounds

    def bound(self, split: bool) -> tuple[int, str]:
        """Return a bound on all plans, and what it is from; `split`: of stages that stay."""
        cycles = ticks(self.model)
        work = step_bound(self.free, self.microbatches, cycles)
        least = min(self._bound(bundle, split) for bundle in divisors(self.microbatches))
        if least > work:
            return least, "least step of the longest path, and loads of what fits no device"
        return work, "work of the graph"

    def _bound(self, bundle: int, split: bool) -> int:
        """Return a bound on plans with such bundles."""
        model, cycles = self.free, ticks(self.model)
        count, limit = self.microbatches // bundle, self.limits["time_limit"]
        ends = math.inf if limit is None else clock() + limit
        path = longest_chain(model, cycles)
        found = 0
        if path is not None:
            found = bundle * least_step(path, count, split=split and bundle == 1, ends=ends)
        rate, known = self.chip.remote_bandwidth, self._sizes()
        if rate is None or known is None:
            return found
        trains = bool(model.backward.any())
        held = np.minimum(model.parameters, model.memory) if trains else model.memory
        loads = max(0.0, float(held.sum()) - sum(known)) / float(rate)
        loads *= count * (3 if trains else 1) / model.devices
        work = step_bound(model, self.microbatches, cycles)
        beside = trains or not self.chip.io_tile_choices.some
        share = self._share(cycles) * (1 - SLACK)
        both = share + loads if beside else max(share, loads)
        return max(found, work, math.floor(both * (1 - SLACK)))

    def _share(self, cycles: int) -> float:
        """Return the work of a device where all do as much, on the fastest."""
        speeds = self.free.speeds
        total = float(self.free.time.sum()) / float(speeds.max(initial=1))
        return self.microbatches * total * cycles / self.free.devices

    def _sizes(self) -> list[int] | None:
        """Return the bytes of all devices; None where some have no limit."""
        known = [size for size in self._on_chip if size is not None]
        return known if len(known) == self.model.devices else None

    # ------------------------------------------------------------------ plans

    def _try(self, first: Result[GraphSolution], bundle: int) -> None:
        """Cut the graph for a bundle, again and again with what the last stages took."""
        weights = self.free.time.astype(np.float64)
        better, made, seen = 0, math.inf, set[GraphSolution]()
        solution = first.solution
        for lent in range(ROUNDS):
            if self.ends() or solution is None or solution in seen or lent - better > PATIENCE:
                return
            seen.add(solution)
            cut = Level("partition", self.free, expressed(self.free, solution, first))
            given = self._inside(cut, bundle, lent)
            if given is None or not self.timed(given, (), lent):
                return
            schedule = given.schedule()
            takes = quickest(schedule)
            if takes < made:
                better, made = lent, takes
            self._learn(weights, given)
            times = np.maximum(1, np.rint(weights)).astype(np.int64) if self.free.whole else weights
            solution = self.ask(self.free.replace(time=times)).solution

    def _learn(self, weights: Array, given: Structure) -> None:
        """Let the nodes of each device count together as much as its stage takes."""
        schedule = given.schedule()
        place = given.cut.result.solution.assignment
        for at, device in enumerate(given.places):
            here = (place == device) & self.free.accelerator
            own = weights[here].sum()
            if own > 0 and (at, False) in given.inside:
                taken = float(schedule.work[at]) / self.microbatches / ticks(self.model)
                speed = float(self.free.speeds[device])
                weights[here] *= taken * speed / own

    def _inside(self, cut: Level, bundle: int, lent: int) -> Structure | None:
        """Return the stages of a partition with their phases; None where some have none."""
        count = self.microbatches // bundle
        bare = Structure(cut, {}, self.microbatches, bundle, False, self._on_chip)
        inside = {}
        for at in self._overfull(bare, bundle):
            chain, stage = bare.layers(at)
            memory = bare.memory(bare.places[at])
            assert memory is not None
            for backward in (False, True)[: 1 + chain.training]:
                if self.ends():
                    return None
                found = self.phases(
                    chain, stage, memory, bundle, backward=backward, key=chain.digest
                )
                if found is None or found[1].solution is None:
                    status = Status.INFEASIBLE if found is None else found[1].status
                    reason = "" if found is None else found[1].reason
                    self.note(count, lent, status, f"stage {at}: {reason}")
                    return None
                name = f"stage {at} backward" if backward else f"stage {at}"
                inside[at, backward] = Level(name, *found)
        return Structure(cut, inside, self.microbatches, bundle, False, self._on_chip)

    def _overfull(self, bare: Structure, bundle: int) -> list[int]:
        """Return the stages that cannot stay on their devices."""
        place = bare.cut.result.solution.assignment
        count, found = self.microbatches // bundle, []
        for at, device in enumerate(bare.places):
            here, memory = place == device, bare.memory(device)
            flying = bundle * min(count, len(bare.places))
            need = int(self.free.memory[here].sum()) + flying * int(self.free.stash[here].sum())
            if memory is not None and need > memory:
                found.append(at)
        return found

    def too_large(self) -> str:
        """Return which node no device can hold, not even by itself; "" for none."""
        sizes = self._sizes()
        if sizes is None or self.free.backward.any():
            return ""
        at = int(self.free.memory.argmax())
        if self.free.memory[at] <= max(sizes):
            return ""
        name = self.free.node_name(at)
        return f"{name} does not fit {max(sizes):,} bytes, not even in a phase of its own"
