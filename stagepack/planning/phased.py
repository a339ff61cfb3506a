"""Plans of chains on devices with remote memory: stages that do not fit run in phases.

1. The chain is partitioned as if every device had room for all layers.
2. A bundle is a number of microbatches that go through the phases together; it divides the number
   of microbatches of a step.  For every size of bundle, each stage that does not fit on its device
   is scheduled in phases, forward and backward.  In inference, the variables of some layers may
   stay on the device, chosen so that the phases are short, and the variables of the next phase are
   loaded during computation.
3. The cycles of the phases are the durations of the stage's operations in the schedule.
4. Where they differ from what the partition assumed, the difference is added to the estimate of
   stages on this device (in long chains, to those of the layers in proportion), and the chain is
   partitioned again.

Bundles are tried in the order of their bounds; those whose bound is not below the best plan are
skipped.  Plans whose stages all fit on their devices are tried first.

Bounds: neither phases nor bundles take fewer cycles than a pipeline whose stages all fit.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stagepack.contracts import JsonObject
from stagepack.heuristics.pipeline.loaded_bound import SLACK, Loaded
from stagepack.heuristics.pipeline.loaded_steps import Passes, least_passes
from stagepack.heuristics.pipeline.step_stages import LeastStep, StepStages, affordable, least_step
from stagepack.instances.phases.chips import at_clock
from stagepack.instances.phases.stage import STAYS, held_on_chip, stage_phases, variables
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.profile import Array, Chip
from stagepack.planning.loading import Loading, divisors
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.resident import BALANCED, Resident, Stage
from stagepack.planning.stages import Level, Structure
from stagepack.planning.tries import ROUNDS, expressed, quickest
from stagepack.progress import clock
from stagepack.result import Result, Status


def phased(
    model: PipelinePartition, microbatches: int, split: bool, limits: JsonObject, remote: Chip
) -> ModelPlan:
    """Return the fastest plan of a `model` that is found, with phases or without.

    Those without are `split` or not; backward passes in phases stay whole.  All have so many
    `microbatches`; `limits` are of each question, `remote` is the chip.
    """
    resident = Resident(model.name, microbatches, split, limits, model=model)
    resident.search()
    chip = at_clock(remote, float(model.cluster.clock))
    search = Phased(
        model.name, microbatches, False, limits, model=model, chip=chip, whole=not split
    )
    search.attempts, search.best = resident.attempts, resident.best
    search.interrupted = resident.interrupted
    bound, source = search.unlimited(split), "least step of all stages"
    loads = search.bound()
    if loads > bound:
        bound, source = loads, "work and loads of what fits no device"
    search.enough = bound
    reason = search.search()
    found = search.plan(bound, source, reason)
    return found if found.levels else dataclasses.replace(found, on_chip=search._on_chip)


PATIENCE = 3
"""Partitions in a row that may be no better before others are begun with."""


@dataclass
class Phased(Loading):
    """Plans with phases; if `whole`, not even backward passes of stages that stay are split."""

    model: PipelinePartition = field(kw_only=True)
    whole: bool = True
    _steps: dict[int, LeastStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        devices = self.model.cluster.devices
        cluster = msgspec.structs.replace(
            self.model.cluster,
            devices=tuple(msgspec.structs.replace(device, memory=None) for device in devices),
        )
        self.free = self.model.replace(cluster=cluster)
        self._on_chip = tuple(device.memory for device in devices)

    def search(self) -> str:
        """Try partitions and bundles; return why none can fit, where that is proved."""
        if all(memory is None for memory in self._on_chip):
            return ""
        first = self.ask(self.free)
        if first.solution is None:
            return self.unsolved(first) if first.status is Status.INFEASIBLE else ""
        for bundle in sorted(divisors(self.microbatches), key=lambda one: self.of(one).bound):
            if self.best is not None and self.best[0] <= self.of(bundle).bound:
                break
            least = self.of(bundle).solution
            filled = PipelineSolution.in_order(self._loaded(bundle, sure=True).boundaries())
            for begin in dict.fromkeys((filled, least or first.solution)):
                self._try(first, bundle, begin)
        return "" if self.best is not None else self._too_large()

    def unlimited(self, split: bool) -> int:
        """Return a bound on all plans: that of stages on devices with room for everything."""
        return least_step(self.free, self.microbatches, split=split)

    def bound(self) -> int:
        """Return a bound on all plans: each stage stays, or loads variables for each pass."""
        return min(self.of(bundle).bound for bundle in divisors(self.microbatches))

    def of(self, bundle: int) -> LeastStep:
        """Return a bound on plans with such bundles, and stages that have it.

        The first bundle passes all stages, which load at least what they have no room for, and the
        busiest one works on.  Of chains of moderate length that is the least of all partitions.
        """
        if bundle not in self._steps:
            self._steps[bundle] = self._least(bundle)
        return self._steps[bundle]

    def _least(self, bundle: int) -> LeastStep:
        """Return what :meth:`of` keeps."""
        together = self._together(bundle)
        if not affordable(self.model):
            return LeastStep(together)
        found = self.stages(bundle, least_passes(self.model, bundle, self.chip)).least()
        if found is None:
            return LeastStep(together)
        return LeastStep(max(together, found.bound), found.solution)

    def stages(self, bundle: int, passes: Passes) -> StepStages:
        """Return all stages for a `bundle`, with what `passes` (F and B of all ranges of layers, by
        device) through them take at least.
        """
        model, limit = self.model, self.limits["time_limit"]
        given = self.free.replace(
            forward=bundle * model.forward, backward=bundle * model.backward, microbatches=1
        )
        ends = math.inf if limit is None else clock() + limit
        # Stages that stay may split their passes.
        split = not self.whole and bundle == 1
        return StepStages(given, self.microbatches // bundle, split, ends, passes=passes)

    def _together(self, bundle: int) -> int:
        """Return a bound on plans with such bundles from what all stages load together."""
        chain = self._loaded(bundle, sure=False)
        count = self.microbatches // bundle
        own = max(1.0, float(variables(self.free).sum()))
        share = max(0.0, 1 - chain.stages * chain.room / own)
        work, loads = chain.work[-1], share * chain.loads[-1]
        once = work + loads if self.model.training else max(work, loads)
        once = math.floor(once / count * (1 - SLACK))
        busiest = chain.bound()
        if self.model.training:
            return max(once, busiest)
        return max(busiest, once + busiest * (count - 1) // count)

    def _loaded(self, bundle: int, *, sure: bool) -> Loaded:
        """Return the chain with its loads, for all microbatches of a step.

        If `sure`, all that a stage may hold counts, so that what fits does; otherwise what it must.
        """
        chip, free, known = self.chip, self.free, self._on_chip
        rooms = [memory for memory in known if memory is not None]
        room = float(max(rooms)) if len(rooms) == len(known) else math.inf
        own = variables(free)
        held = own + sum(free.exclusive[name] for name in STAYS if name in free.exclusive)
        if sure:
            room -= float((free.temporary + free.carry).max()) + float(free.shared.nbytes.sum())
            held = sum(free.exclusive.values(), np.zeros(free.n, dtype=np.int64))
            if free.training:
                held = held + bundle * min(self.microbatches // bundle, free.k) * free.stash
        passes = (1 + free.training) * (self.microbatches // bundle)
        rate = chip.remote_bandwidth
        loads = passes * own / float(rate) if rate is not None else np.zeros(free.n)
        fastest = max(float(device.speed) for device in free.cluster.devices)
        work = self.microbatches * free.cycles / fastest
        cuts = np.flatnonzero(free.allowed_cuts)
        each = None
        if not free.training:
            each = 0.0 if rate is None else passes / float(rate)
        return Loaded(cuts, work, loads, held, room, free.k, each)

    def _try(self, first: Result[PipelineSolution], bundle: int, begin: PipelineSolution) -> None:
        """Cut the chain for a bundle, again and again with what the last stages took."""
        guess = self._guess(bundle)
        if self.free.check(begin):
            return
        solution: PipelineSolution | None = begin
        seen = set()
        better, made = 0, math.inf
        for lent in range(ROUNDS):
            if self.ends() or solution is None or solution in seen or lent - better > PATIENCE:
                return
            seen.add(solution)
            cut = Level("partition", self.free, expressed(self.free, solution, first))
            given = self._inside(cut, bundle, lent)
            if given is not None:
                self.timed(given, (), lent)
                takes = quickest(given.schedule())
                if takes < made:
                    better, made = lent, takes
                guess.learn(given)
            solution = guess.next()

    def _guess(self, bundle: int) -> _Measured | _Weighted:
        """Return what partitions go by before it is known how long phases take."""
        if not affordable(self.model):
            return _Weighted(self, bundle, self._weights(bundle))
        passes = least_passes(self.model, bundle, self.chip, apart=True)
        work = least_passes(self.free, bundle, self.chip)
        return _Measured(self, bundle, passes, work)

    def _weights(self, bundle: int) -> Array:
        """Return the cycles that layers may take for a microbatch: compute, or loads if more."""
        rate = self.chip.remote_bandwidth
        cycles = self.free.cycles.astype(np.float64)
        if rate is None:
            return cycles
        passes = 1 + 2 * self.model.training
        loads = passes * variables(self.free) / (float(rate) * bundle)
        return np.asarray(np.maximum(cycles, loads))

    def _inside(self, cut: Level, bundle: int, lent: int) -> Structure | None:
        """Return the stages of a partition with their phases; None where some have none."""
        inside = {}
        stages = cut.result.solution.stages
        count = self.microbatches // bundle
        for at, stage in enumerate(stages):
            if self._resident(stage, bundle * min(count, len(stages) - at)):
                continue
            for backward in (False, True)[: 1 + self.model.training]:
                if self.ends():
                    return None
                memory = self._on_chip[stage[2]]
                assert memory is not None
                found = self.phases(self.free, stage, memory, bundle, backward=backward)
                if found is None or found[1].solution is None:
                    status = Status.INFEASIBLE if found is None else found[1].status
                    reason = "code does not fit" if found is None else found[1].reason
                    self.note(count, lent, status, f"stage {at}: {reason}")
                    return None
                instance, result = found
                name = f"stage {at} backward" if backward else f"stage {at}"
                inside[at, backward] = Level(name, instance, result)
        return Structure(cut, inside, self.microbatches, bundle, False, self._on_chip)

    def _resident(self, stage: Stage, flying: int) -> bool:
        """Whether a stage can stay on its device with so many microbatches in flight."""
        first, end, device = stage
        memory = self._on_chip[device]
        need = stage_memory(self.free, first, end, device, 0)
        if self.model.training:
            each = int(self.model.stash[first:end].sum()) + int(self.model.kept_bytes[first])
            need += flying * each
        return memory is None or need <= memory

    def _too_large(self) -> str:
        """Return which layer no device can run, not even in a phase of its own; "" for none."""
        largest = max(memory for memory in self._on_chip if memory is not None)
        if None in self._on_chip:
            return ""
        for at in range(self.model.n):
            left = largest - held_on_chip(self.free, at, at + 1)
            name = self.model.layer_name(at)
            if left <= 0:
                return f"the code of {name} alone exceeds {largest:,} bytes"
            if stage_memory(self.free, at, at + 1, 0, 0) <= largest:
                continue
            if not self.model.allowed_cuts[[at, at + 1]].all():
                continue
            chip = msgspec.structs.replace(self.chip, memory=left)
            alone = stage_phases(self.free, (at, at + 1, 0), chip, 1)
            if self.ask(alone).status is Status.INFEASIBLE:
                return f"{name} does not fit {largest:,} bytes, not even in a phase of its own"
        return ""


@dataclass
class _Measured:
    """Guesses what stages take by their work and loads, and what others took beside that."""

    search: Phased
    bundle: int
    # F and B of all ranges of layers, by device: as guessed, and of stages that stay.
    passes: Passes
    work: Passes
    # By device, cycles of F and B beside the guess.
    more: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def learn(self, given: Structure) -> None:
        """Note what the stages of a plan take, those with phases."""
        schedule = given.schedule()
        taken = schedule.forward, schedule.backward
        for at, (first, end, device) in enumerate(given.cut.result.solution.stages):
            if (at, False) in given.inside:
                self.more[device] = tuple(
                    0.0 if cycles is None else float(cycles[at]) - float(table[first, end])
                    for cycles, table in zip(taken, self.passes[device], strict=True)
                )

    def next(self) -> PipelineSolution | None:
        """Return the best stages, for all that is known."""
        passes: Passes = []
        known: dict[object, tuple[Array, Array]] = {}  # like devices have one pair
        for device, (guessed, least) in enumerate(zip(self.passes, self.work, strict=True)):
            more = self.more.get(device, (0.0, 0.0))
            if (id(guessed), more) not in known:
                f, b = (
                    np.where(cycles > own, np.maximum(own, cycles + extra), own)
                    for cycles, own, extra in zip(guessed, least, more, strict=True)
                )
                known[id(guessed), more] = f, b
            passes.append(known[id(guessed), more])
        found = self.search.stages(self.bundle, passes).least()
        return None if found is None else found.solution


@dataclass
class _Weighted:
    """Lets the layers of each stage count together as much as the stage takes.

    Their weights, shape (n,), are cycles of a microbatch.
    """

    search: Phased
    bundle: int
    weights: Array

    def learn(self, given: Structure) -> None:
        """Note what the stages of a plan take."""
        schedule = given.schedule()
        taken = schedule.forward
        taken = taken if schedule.backward is None else taken + schedule.backward
        for (first, end, _), cycles in zip(given.cut.result.solution.stages, taken, strict=True):
            layers = slice(first, end)
            own = self.weights[layers].sum()
            if own > 0:
                self.weights[layers] *= float(cycles) / self.bundle / own

    def next(self) -> PipelineSolution | None:
        """Return the stages that are balanced best."""
        whole = np.maximum(1, np.rint(self.weights)).astype(np.int64)
        chain = self.search.free.replace(
            forward=whole, backward=np.zeros_like(whole), objective=BALANCED
        )
        solution: PipelineSolution | None = self.search.ask(chain).solution
        return solution
