"""Plans whose stages stay on their devices, with what each level leaves the next fed back.

A partition for at most w microbatches in flight leaves room for their stashes.  Few of them leave
the stages more memory, and the schedule less; so w goes down from all that a pipeline can have in
flight to one.  Partitions of the least bottleneck are asked for, too, as they let the slowest
device do least.  Every partition that is new gets a schedule within what its stages leave.  Where a
stage leaves too little, for the inputs of microbatches or for lack of a placement, the partition is
asked for again with too little memory on the device for that stage.  The fastest plan wins.

What none of that can prove does `step_bound`, for every partition and schedule; and where not even
one microbatch's stash fits beside any stages, nothing fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.instances.packing.stage import stage_packing
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.schedule import ScheduleSolution
from stagepack.instances.schedule.check import measure
from stagepack.planning.stages import Level, Structure
from stagepack.planning.tries import ROUNDS, Tries, expressed, quickest
from stagepack.result import Result, Status

BALANCED = "bottleneck"
Stage = tuple[int, int, int]
"""Layers [first, end), and the device."""


@dataclass
class Resident(Tries):
    """Plans whose stages stay where they are.

    Attributes
    ----------
    model : PipelinePartition
    """

    model: PipelinePartition = field(kw_only=True)
    _seen: set[PipelineSolution] = field(default_factory=set)

    def search(self) -> tuple[int | None, str, str]:
        """Try every number of microbatches in flight.

        Returns
        -------
        bound, source, reason : int or None, str, str
            Of all such plans; why there are none, where that is proved.
        """
        loosest = self._with_stashes(1)
        least = self.ask(loosest.replace(objective=BALANCED))
        bound, source = self._bound(least)
        self.enough = bound
        if least.status is Status.INFEASIBLE:
            return bound, source, least.reason
        for in_flight in self._in_flight():
            for objective in dict.fromkeys((str(self.model.objective), BALANCED)):
                self._try(self._with_stashes(in_flight).replace(objective=objective))
        return bound, source, ""

    def _bound(self, least: Result[Any]) -> tuple[int | None, str]:
        """Return a bound on every plan: work on a chain, or the least bottleneck within memory."""
        bound, source = step_bound(self.model, self.microbatches, split=self.split), "work in order"
        if least.bound is not None:
            # Rounded up on its device, no stage takes less.
            within_memory = int(self.microbatches * least.bound * (1 - 1e-9))
            if within_memory > bound:
                bound, source = within_memory, "least bottleneck within memory"
        return bound, source

    def _with_stashes(self, in_flight: int) -> PipelinePartition:
        return self.model.replace(microbatches=in_flight)

    def _in_flight(self) -> Iterator[int]:
        """Yield the numbers of microbatches in flight for which partitions are made, falling."""
        most = min(self.microbatches, self.model.k)
        stashing = self.model.training and self.model.stash.any()
        limited = any(device.memory is not None for device in self.model.cluster.devices)
        yield from range(most, 0, -1) if stashing and limited else (most,)

    def _try(self, whole: PipelinePartition) -> None:
        """Look for a plan whose stages are those of a partition, or of one with less memory."""
        in_flight, partition = whole.microbatches, whole
        first: Result[PipelineSolution] | None = None
        for lent in range(ROUNDS):
            if self.ends():
                return
            result: Result[PipelineSolution] = self.ask(partition)
            if result.solution is None:
                self.note(in_flight, lent, result.status, result.reason)
                return
            if result.solution in self._seen:
                return
            self._seen.add(result.solution)
            first = result if first is None else first
            cut = Level("partition", whole, expressed(whole, result.solution, first))
            full = self._go_on(cut, lent)
            if not full:
                return
            partition = _with_less(partition, result.solution.stages, full)

    def _go_on(self, cut: Level, lent: int) -> list[int]:
        """Schedule the stages of a partition and place what they keep.

        Returns
        -------
        list of int
            Stages with too little room; empty where that is not what is wrong.
        """
        partition: Any = cut.instance
        in_flight = partition.microbatches
        stages = cut.result.solution.stages
        full = self._too_full(partition, stages)
        if full:
            self.note(in_flight, lent, Status.INFEASIBLE, "inputs of microbatches do not fit")
            return full
        given = Structure(cut, {}, self.microbatches, split=self.split)
        schedule = given.schedule()
        if self.best is not None and quickest(schedule) >= self.best[0]:
            self.note(in_flight, lent, Status.FEASIBLE, "its work alone takes longer")
            return []
        timed: Result[ScheduleSolution] = self.ask(schedule)
        if timed.solution is None or timed.objective is None:
            self.note(in_flight, lent, timed.status, timed.reason)
            return []
        levels = [cut, Level("schedule", schedule, timed)]
        flying = [device.peak_memory for device in measure(schedule, timed.solution).devices]
        for at, (stage, nbytes) in enumerate(zip(stages, flying, strict=True)):
            packing = stage_packing(partition, stage, nbytes)
            if packing is None:
                continue
            placed: Result[Any] = self.ask(packing)
            if placed.solution is None:
                self.note(in_flight, lent, placed.status, f"stage {at}: {placed.reason}")
                return [at]
            levels.append(Level(f"stage {at}", packing, placed))
        self.note(in_flight, lent, timed.status, "", timed.objective)
        self.offer(timed.objective, tuple(levels), given)
        return []

    def _too_full(self, partition: PipelinePartition, stages: list[Stage]) -> list[int]:
        """Return the stages beside which not even one microbatch in flight fits."""
        found = []
        for at, (first, end, device) in enumerate(stages):
            memory = partition.cluster.devices[device].memory
            if memory is not None and partition.training:
                need = stage_memory(partition, first, end, device, 0)
                need += int(partition.stash[first:end].sum()) + int(partition.in_bytes[first])
                if need > memory:
                    found.append(at)
        return found


def _with_less(
    partition: PipelinePartition, stages: list[Stage], full: list[int]
) -> PipelinePartition:
    """Return a partition whose devices are too small for some stages."""
    devices = list(partition.cluster.devices)
    for at in full:
        counted = stage_memory(partition, *stages[at], len(stages) - at)
        device = stages[at][2]
        devices[device] = msgspec.structs.replace(devices[device], memory=max(0, counted - 1))
    cluster = msgspec.structs.replace(partition.cluster, devices=tuple(devices))
    return partition.replace(cluster=cluster)
