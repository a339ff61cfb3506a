"""Plans whose stages fit on their devices; schedules feed back into the partition.

1. Partition the model so that every stage has memory for the stashes of at most w microbatches in
   flight.  A small w leaves more memory to the stages, and less freedom to the schedule; w is
   reduced from the depth of the pipeline to one.  Partitions of least bottleneck are tried, too,
   since they minimise the work of the slowest device.
2. Schedule each new partition within the memory that its stages leave free.
3. If a stage leaves too little, for the inputs of microbatches or because its buffers cannot be
   placed, reduce the memory of this device for this stage and partition again.

The fastest plan is returned.  To prove optimality, bounds on every partition and schedule are used:
for chains of moderate length `StepStages` computes a bound for each set of stages, and lists those
that may be faster than the best plan.  These are scheduled, smallest bounds first, before and after
all others; if none is left, the plan is optimal.  If no stages fit beside the stash of even one
microbatch, the model is proved to fit nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from stagepack.evidence import SEARCHED
from stagepack.heuristics.pipeline.step_bound import step_bound
from stagepack.heuristics.pipeline.step_stages import StepStages, affordable
from stagepack.heuristics.schedule.lower_bounds import bounds
from stagepack.instances.packing.stage import stage_packing
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution, choices
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.check import measure
from stagepack.instances.schedule.partition import waiting
from stagepack.planning.stages import Level, Structure
from stagepack.planning.tries import ROUNDS, Tries, expressed
from stagepack.progress import clock
from stagepack.result import Result, Status

BALANCED = "bottleneck"
NEVER = 2**62
"""A bound on what is impossible."""
MOST, FAR = 1000, 4
"""Partitions that are looked at as they may be faster than the best plan, or, where there is none,
than so many times the bound."""
ASKED, SHARE = 4, 0.4
"""Times the limit of a question that they may take at once, and the part of it for each."""
Stage = tuple[int, int, int]
"""Layers [first, end), and the device."""


class Outcome(NamedTuple):
    """What came of the stages of a partition."""

    full: list[int]
    """Stages with too little room; empty where that is not what is wrong."""
    bound: int
    """On their schedules."""


@dataclass
class Resident(Tries):
    """Plans whose stages stay where they are."""

    model: PipelinePartition = field(kw_only=True)
    _seen: dict[PipelineSolution, Outcome] = field(default_factory=dict)

    def search(self) -> tuple[int, str, str]:
        """Try every number of microbatches in flight.

        Returns a bound on all such plans, its source, and why there are none, where that is proved.
        """
        loosest = self._with_stashes(1)
        least = self.ask(loosest.replace(objective=BALANCED))
        bound, source = self._bound(least)
        self.enough = bound
        if least.status is Status.INFEASIBLE:
            return bound, source, self.unsolved(least)
        stages = self._stages()
        if stages is not None:
            quick = stages.least()
            if quick is None:
                self._refuse_workless(stages, least)
                self.because = SEARCHED
                return bound, source, "no stages leave room for what one microbatch keeps"
            if quick.bound > bound:
                bound, source = quick.bound, "least step of all stages"
                self.because = SEARCHED
                self.enough = bound
            self._begin(least, quick.solution)
            if self.model.alternatives:
                stages = None  # more of them are of no choices of the model
            elif stages.relaxed and not self.ends():
                fixed = self.model.replace(free_order=False)
                tighter = self._bounding(fixed, stages.ends).least()
                self._begin(least, None if tighter is None else tighter.solution)
        left = bound if stages is None else self._rest(stages, least, bound)
        self.enough = left
        known = self.best
        for in_flight in self._in_flight():
            for objective in dict.fromkeys((str(self.model.objective), BALANCED)):
                whole = self._with_stashes(in_flight).replace(objective=objective)
                first = self._try(whole)
                # A partition's least is not the least step: more freedom may lead elsewhere.
                if whole.free_order:
                    self._try(whole, first, whole.replace(free_order=False))
                if whole.fewer_stages and len(whole.stage_devices) <= whole.n:
                    self._try(whole, first, whole.replace(fewer_stages=False))
        if stages is not None and self.best is not known:
            left = max(left, self._rest(stages, least, bound))
        if left > bound:
            bound, source = left, "schedules of all stages that may be faster"
            self.because = self.asked()
        return bound, source, ""

    def _stages(self) -> StepStages | None:
        """Return what bounds a step of all stages, whatever is chosen; None for long chains, or
        several stages a device.
        """
        if self.model.placed or not affordable(self.model):
            return None
        limit = self.limits["time_limit"]
        ends = math.inf if limit is None else clock() + limit
        # Layers that need not take cycles may be chosen to.
        some = bool(self.model.alternatives)
        return self._bounding(choices.least(self.model), ends, workless=some)

    def _bounding(
        self, model: PipelinePartition, ends: float, *, workless: bool = False
    ) -> StepStages:
        """Return what bounds a step of all stages of a `model`; the rest is as there."""
        return StepStages(model, self.microbatches, self.split, ends, workless)

    def _begin(self, least: Result[PipelineSolution], first: PipelineSolution | None) -> None:
        """Go on with stages of the least bound, where they are known and valid."""
        if first is not None and not self._with_stashes(1).check(first) and not self.ends():
            self._along(least, first)

    def _rest(self, stages: StepStages, least: Result[PipelineSolution], bound: int) -> int:
        """Schedule all stages that may be faster than the best plan; return what bounds them.

        `least` is of the partition with the least bottleneck.
        """
        if not self.model.training or self.ends():
            return bound
        limit = self.limits["time_limit"]
        if limit is not None:
            stages.ends = clock() + ASKED * limit
        best = FAR * bound if self.best is None else int(self.best[0])
        left, found = stages.within(best, MOST)
        asked = []
        for solution in found:
            cut = self._cut(least, solution)
            schedule = Structure(cut, {}, self.microbatches, split=self.split).schedule()
            if clock() < stages.ends:
                asked.append((bounds.bound(schedule, self._going)[0], solution))
        if len(asked) < len(found):
            return bound
        self.share = SHARE
        asked.sort(key=lambda one: one[0])
        for value, solution in asked:
            late = clock() > stages.ends or self.ends()
            if late or (self.best is not None and value >= self.best[0]):
                left = min(left, value)
                break
            left = min(left, self._along(least, solution).bound)
        self.share = 1.0
        return max(bound, left if self.best is None else min(left, int(self.best[0])))

    def _going(self, _: int) -> bool:
        return not self.ends()

    def _cut(self, least: Result[PipelineSolution], solution: PipelineSolution) -> Level:
        """Return stages as a level, an answer of the partition with the least bottleneck."""
        whole = self._with_stashes(1).replace(objective=BALANCED)
        return Level("partition", whole, expressed(whole, solution, least))

    def _along(self, least: Result[PipelineSolution], solution: PipelineSolution) -> Outcome:
        """Go on with stages, unless that was done."""
        if solution not in self._seen:
            self._seen[solution] = self._go_on(self._cut(least, solution), 0)
        return self._seen[solution]

    def _bound(self, least: Result[PipelineSolution]) -> tuple[int, str]:
        """Return a bound on every plan: work on a chain, or the least bottleneck within memory."""
        model = choices.least(self.model)
        bound, source = 0, "work in order"
        if not model.placed:  # no device waits until others had a microbatch, otherwise
            bound = step_bound(model, self.microbatches, split=self.split)
        if least.bound is not None:
            # Rounded up on its device, no stage takes less; a fraction may be a rounded one.
            each = least.bound * (1 if isinstance(least.bound, int) else 1 - 1e-9)
            within_memory = math.ceil(self.microbatches * (each + waiting(self.model)))
            if within_memory > bound:
                bound, source = within_memory, "least bottleneck within memory"
                self.because = self.asked()
        return bound, source

    def _with_stashes(self, in_flight: int) -> PipelinePartition:
        return self.model.replace(microbatches=in_flight)

    def _in_flight(self) -> Iterator[int]:
        """Yield the numbers of microbatches in flight for which partitions are made, falling."""
        most = min(self.microbatches, len(self.model.stage_devices))
        stashing = self.model.stash.any() or any(
            one.stash.any() for one in self.model.alternatives.values()
        )
        stashing &= self.model.training
        limited = any(device.memory is not None for device in self.model.cluster.devices)
        yield from range(most, 0, -1) if stashing and limited else (most,)

    def _try(
        self,
        whole: PipelinePartition,
        first: Result[PipelineSolution] | None = None,
        tighter: PipelinePartition | None = None,
    ) -> Result[PipelineSolution] | None:
        """Look for a plan whose stages are those of a partition, or of one with less memory.

        `first` is its own result, where it was asked; the stages of `tighter` are looked at
        instead. Returns the result of the whole; None where the time was over.
        """
        in_flight, partition = whole.microbatches, whole if tighter is None else tighter
        for lent in range(ROUNDS):
            if self.ends():
                return first
            result: Result[PipelineSolution] = self.ask(partition)
            first = result if first is None else first
            solution = result.solution
            if solution is None:
                if tighter is None:
                    self.note(in_flight, lent, result.status, result.reason)
                return first
            known = self._seen.get(solution)
            if known is None:
                cut = Level("partition", whole, expressed(whole, solution, first))
                known = self._seen[solution] = self._go_on(cut, lent)
            if not known.full:
                return first
            partition = _with_less(partition, solution, known.full)
        return first

    def _go_on(self, cut: Level, lent: int) -> Outcome:
        """Schedule the stages of a partition and place what they keep."""
        partition: Any = cut.instance
        in_flight = partition.microbatches
        given = Structure(cut, {}, self.microbatches, split=self.split)
        chain, stages = given.chain, cut.result.solution.stages
        full = [] if chain.placed else self._too_full(chain, stages)
        if full:
            self.note(in_flight, lent, Status.INFEASIBLE, "inputs of microbatches do not fit")
            return Outcome(full, NEVER)
        idle = self._workless(chain, stages)
        if idle:
            self.note(in_flight, lent, Status.INFEASIBLE, f"stage {idle[0]} takes no cycles")
            return Outcome([], NEVER)
        schedule = given.schedule()
        least = bounds.bound(schedule, self._going)[0]
        if self.best is not None and least >= self.best[0]:
            self.note(in_flight, lent, Status.FEASIBLE, "no schedule of its stages is faster")
            return Outcome([], least)
        return self.along(cut, schedule, self.ask(schedule), lent, least)

    def along(
        self,
        cut: Level,
        schedule: PipelineSchedule,
        timed: Result[ScheduleSolution],
        lent: int = 0,
        least: int = 0,
    ) -> Outcome:
        """Go on with stages, their `schedule` and its answer: place what they keep.

        `cut` are the stages, `timed` the answer; `least` is a bound on that schedule, and `lent`
        that of an :class:`.Attempt`.
        """
        partition: Any = cut.instance
        in_flight = partition.microbatches
        given = Structure(cut, {}, self.microbatches, split=self.split)
        chain, stages = given.chain, cut.result.solution.stages
        least = max(least, int(timed.bound or 0))
        if timed.solution is None or timed.objective is None:
            self.note(in_flight, lent, timed.status, timed.reason)
            return Outcome([], NEVER if timed.status is Status.INFEASIBLE else least)
        levels = [cut, Level("schedule", schedule, timed)]
        flying = [device.peak_memory for device in measure(schedule, timed.solution).devices]
        kept = [] if chain.placed else zip(stages, flying, strict=True)
        for at, (stage, nbytes) in enumerate(kept):
            packing = stage_packing(chain, stage, nbytes)
            if packing is None:
                continue
            placed = self.ask(packing)
            if placed.solution is None:
                self.note(in_flight, lent, placed.status, f"stage {at}: {placed.reason}")
                return Outcome([at], least)
            levels.append(Level(f"stage {at}", packing, placed))
        self.note(in_flight, lent, timed.status, "", timed.objective)
        self.offer(timed.objective, tuple(levels), given)
        return Outcome([], least)

    def _too_full(self, partition: PipelinePartition, stages: list[Stage]) -> list[int]:
        """Return the stages beside which not even one microbatch in flight fits."""
        found = []
        for at, (first, end, device) in enumerate(stages):
            memory = partition.cluster.devices[device].memory
            if memory is not None and partition.training:
                need = stage_memory(partition, first, end, device, 0)
                need += int(partition.stash[first:end].sum()) + int(partition.kept_bytes[first])
                if need > memory:
                    found.append(at)
        return found

    def _refuse_workless(self, stages: StepStages, least: Result[PipelineSolution]) -> None:
        """Raise what schedules say of stages without cycles, where no others fit."""
        found = self._bounding(self.model, stages.ends, workless=True).least()
        if found is not None and found.solution is not None:
            cut = self._cut(least, found.solution)
            if not cut.instance.check(found.solution):
                Structure(cut, {}, self.microbatches, split=self.split).schedule()

    def _workless(self, partition: PipelinePartition, stages: list[Stage]) -> list[int]:
        """Return the stages of which a pass takes no cycles, where layers say theirs."""
        if partition.compute_table is not None:
            return []
        passes = [(partition.forward, 0)]
        if partition.training:
            passes.append((partition.backward, int(self.split)))
        return [
            at
            for at, (first, end, device) in enumerate(stages)
            for speed in (partition.cluster.devices[device].speed,)
            if any(cycles[first:end].sum() <= least * speed for cycles, least in passes)
        ]


def _with_less(
    partition: PipelinePartition, solution: PipelineSolution, full: list[int]
) -> PipelinePartition:
    """Return a partition whose devices are too small for some stages of a solution."""
    devices, stages = list(partition.cluster.devices), solution.stages
    for at in full:
        counted = stage_memory(choices.settled(partition, solution), *stages[at], len(stages) - at)
        device = stages[at][2]
        devices[device] = msgspec.structs.replace(devices[device], memory=max(0, counted - 1))
    cluster = msgspec.structs.replace(partition.cluster, devices=tuple(devices))
    return partition.replace(cluster=cluster)
