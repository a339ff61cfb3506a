"""How a plan is found: the levels one after the other, with what each leaves the next fed back.

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

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.instances.answer import require_instance
from stagepack.instances.arrays import integer
from stagepack.instances.packing.stage import stage_packing
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.check import measure
from stagepack.planning.model_plan import Attempt, Level, ModelPlan
from stagepack.result import Result, Status, Termination
from stagepack.solve import solve

ROUNDS = 8
"""How often memory is taken from a partition."""
QUESTIONS = 20
"""For how many times the limit of one question new ones are begun."""
BALANCED = "bottleneck"
Stage = tuple[int, int, int]
"""Layers [first, end), and the device."""
KIND = PipelinePartition.kind
"""The kind of instances that are planned for."""
DRAWN = PipelineSchedule.kind
"""The kind of the level that is the picture of a plan."""


def plan_model(
    model: PipelinePartition | ModelProfile,
    cluster: Cluster | None = None,
    *,
    microbatches: int | None = None,
    split: bool = False,
    time_limit: float | None = 5,
    seed: int = 0,
    threads: int = 1,
    **options: Any,
) -> ModelPlan:
    """Plan a whole model: stages, the schedule of the microbatches, and addresses in each memory.

    Parameters
    ----------
    model : PipelinePartition or ModelProfile
        What :func:`stagepack.read`, :func:`stagepack.load` and :func:`stagepack.profile_model`
        return.
    cluster : Cluster, optional
        Of a profile.
    microbatches : int, optional
        Of a step; those of the partition when absent.
    split : bool
        Split the backward pass into B and W.
    time_limit : float, optional
        Seconds of each question; after 20 times as many none is begun.
    seed, threads : int
        As for :func:`stagepack.solve`.
    **options
        What :meth:`.PipelinePartition.from_profile` takes, for a profile.

    Returns
    -------
    ModelPlan

    Raises
    ------
    InputError
        For a profile without a cluster, and what does not go with an instance.
    """
    if isinstance(model, ModelProfile):
        if cluster is None:
            raise InputError("is missing", field="cluster", remedy="give the cluster to plan for")
        model = PipelinePartition.from_profile(model, cluster, **options)
    elif cluster is not None or options:
        field_name = "cluster" if cluster is not None else next(iter(options))
        raise InputError("goes with a profile", field=field_name, remedy="leave it out")
    require_instance(model, KIND, "model")
    many = model.microbatches if microbatches is None else integer(microbatches, "microbatches")
    if many < 1:
        raise InputError(f"{many}", field="microbatches", remedy="give at least one")
    limits = {"time_limit": time_limit, "seed": seed, "threads": threads}
    return _Search(model, many, split and model.training, limits).plan()


@dataclass
class _Search:
    """What is known while plans are looked for."""

    model: PipelinePartition
    microbatches: int
    split: bool
    limits: dict[str, Any]
    attempts: list[Attempt] = field(default_factory=list)
    best: tuple[Number, tuple[Level, ...]] | None = None
    _seen: set[PipelineSolution] = field(default_factory=set)
    _enough: int | None = None
    _began: float = field(default_factory=time.monotonic)

    def plan(self) -> ModelPlan:
        """Try every number of microbatches in flight, and return the fastest plan."""
        loosest = self._with_stashes(1)
        least: Result[Any] = solve(loosest.replace(objective=BALANCED), **self.limits)
        bound, source = self._bound(least)
        self._enough = bound
        reason = least.reason if least.status is Status.INFEASIBLE else ""
        if least.status is not Status.INFEASIBLE:
            for in_flight in self._in_flight():
                for objective in dict.fromkeys((str(self.model.objective), BALANCED)):
                    self._try(self._with_stashes(in_flight).replace(objective=objective))
        status = Status.INFEASIBLE if reason else Status.UNKNOWN
        levels: tuple[Level, ...] = ()
        if self.best is not None:
            value, levels = self.best
            status = Status.OPTIMAL if bound is not None and value <= bound else Status.FEASIBLE
        elif not reason:
            reason = "; ".join(dict.fromkeys(one.reason for one in self.attempts if one.reason))
            reason = reason or "the time was over before any plan was made"
        return ModelPlan(
            name=self.model.name,
            status=status,
            levels=levels,
            bound=None if status is Status.INFEASIBLE else bound,
            bound_source=source,
            microbatches=self.microbatches,
            attempts=tuple(self.attempts),
            reason=reason,
        )

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
            if self._ends():
                return
            result: Result[PipelineSolution] = solve(partition, **self.limits)
            if result.solution is None:
                self._note(in_flight, lent, result.status, result.reason)
                return
            if result.solution in self._seen:
                return
            self._seen.add(result.solution)
            first = result if first is None else first
            full = self._go_on(Level("partition", whole, _of(whole, result, first)), lent)
            if not full:
                return
            partition = _with_less(partition, result.solution.stages, full)

    def _ends(self) -> bool:
        """Whether no further question is asked: nothing is faster, or the time is over."""
        if self.best is not None and self._enough is not None and self.best[0] <= self._enough:
            return True
        limit = self.limits["time_limit"]
        return limit is not None and time.monotonic() - self._began > QUESTIONS * limit

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
            self._note(in_flight, lent, Status.INFEASIBLE, "inputs of microbatches do not fit")
            return full
        schedule = PipelineSchedule.from_partition(
            partition, cut.result, microbatches=self.microbatches, split=self.split
        )
        if self.best is not None and _least(schedule) >= self.best[0]:
            self._note(in_flight, lent, Status.FEASIBLE, "its work alone takes longer")
            return []
        timed: Result[ScheduleSolution] = solve(schedule, **self.limits)
        if timed.solution is None or timed.objective is None:
            self._note(in_flight, lent, timed.status, timed.reason)
            return []
        levels = [cut, Level("schedule", schedule, timed)]
        flying = [device.peak_memory for device in measure(schedule, timed.solution).devices]
        for at, (stage, nbytes) in enumerate(zip(stages, flying, strict=True)):
            packing = stage_packing(partition, stage, nbytes)
            if packing is None:
                continue
            placed: Result[Any] = solve(packing, **self.limits)
            if placed.solution is None:
                self._note(in_flight, lent, placed.status, f"stage {at}: {placed.reason}")
                return [at]
            levels.append(Level(f"stage {at}", packing, placed))
        self._note(in_flight, lent, timed.status, "", timed.objective)
        if self.best is None or timed.objective < self.best[0]:
            self.best = timed.objective, tuple(levels)
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

    def _note(
        self,
        in_flight: int,
        lent: int,
        status: Status,
        reason: str,
        objective: Number | None = None,
    ) -> None:
        self.attempts.append(Attempt(in_flight, lent, status, objective, reason))


def _least(schedule: PipelineSchedule) -> int:
    """Return a quick bound on a schedule: before the work of a stage come F of those before it."""
    return int((np.cumsum(schedule.forward) - schedule.forward + schedule.work).max())


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


def _of(
    whole: PipelinePartition,
    result: Result[PipelineSolution],
    first: Result[PipelineSolution],
) -> Result[PipelineSolution]:
    """Return a result with less memory as one of the whole, whose bound is that of the first."""
    if result is first:
        return result
    return dataclasses.replace(
        result,
        status=Status.FEASIBLE,
        termination=Termination.FINISHED,
        bound=first.bound,
        bound_source=first.bound_source,
        digest=whole.digest,
    )
