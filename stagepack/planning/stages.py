"""What follows from a partition: its stages, their schedule, and what must be true of both.

The same functions make the schedule of a plan and check it.  Partitions are of chains or of graphs;
inside a stage there may be phases, whose cycles are then those of the stage's operations for a
bundle of microbatches, or groups, whose cycles are those of its F.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stagepack.contracts import Instance
from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.chain import sums
from stagepack.instances.graph.check import loads
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.stage import as_chain, stage_groups
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.stage import is_of_stage
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.phases.plan import plan as phase_plan
from stagepack.instances.phases.stage import held_on_chip, kept_on_chip, stage_phases
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.violation import Violation
from stagepack.report import format as as_text
from stagepack.result import Result

UNLIMITED = 2**62 - 1
FRACTIONS = 1000
"""Cycles of a unit of time of a graph whose times are no whole numbers."""
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
NAME = re.compile(r"stage (\d+)( backward)?")


@dataclass(frozen=True)
class Level:
    """One question of a plan, and its answer.

    Attributes
    ----------
    name : str
        "partition", "schedule", "network" (the groups of the whole, on one chip), "stage N", or
        "stage N backward".
    instance : instance
    result : Result
        Its bound is one of this level alone: of this partition, of this schedule.
    """

    name: str
    instance: Instance
    result: Result[Any]


Inside = Mapping[tuple[int, bool], Level]
"""Levels of stages by stage, and whether they are of the backward pass."""


def inside(levels: Sequence[Level]) -> dict[tuple[int, bool], Level]:
    """Return the levels of stages."""
    found = {}
    for level in levels:
        named = NAME.fullmatch(level.name)
        if named is not None:
            found[int(named[1]), bool(named[2])] = level
    return found


@dataclass(frozen=True)
class PlannedStage:
    """What runs on a device of a plan.

    Attributes
    ----------
    what : str
        Its layers, or how many nodes.
    device_name : str
    held : int
        Bytes beside those of microbatches in flight.
    capacity : int or None
    how : str
        "resident", or what there is inside: "3 phases", "5 groups".
    """

    what: str
    device_name: str
    held: int
    capacity: int | None
    how: str


@dataclass(frozen=True)
class Structure:
    """What a plan consists of beside the answers of its levels.

    Attributes
    ----------
    cut : Level
        The partition.
    inside : dict
        Levels of stages, see `Inside`.
    microbatches, bundle : int
        Of a step, and how many of them go through a stage with phases at a time.
    split : bool
    on_chip : tuple of (int or None)
        Bytes of every device's own memory where there is remote memory, too; else empty.
    """

    cut: Level
    inside: Inside
    microbatches: int
    bundle: int = 1
    split: bool = False
    on_chip: tuple[int | None, ...] = ()

    def memory(self, device: int) -> int | None:
        """Return the bytes of a device's own memory."""
        partition: Any = self.cut.instance
        if self.on_chip:
            return self.on_chip[device]
        known: int | None = partition.cluster.devices[device].memory
        return known

    # ------------------------------------------------------------------ the schedule

    def schedule(self) -> PipelineSchedule:
        """Return the schedule's instance.

        Raises
        ------
        InputError
            Where the partition is invalid, or a device too small for what its stages hold.
        """
        partition, answer = self.cut.instance, self.cut.result.solution
        if isinstance(partition, GraphPartition):
            return PipelineSchedule.from_graph(
                partition,
                answer,
                cycles=ticks(partition),
                microbatches=self.microbatches,
                split=self.split,
            )
        assert isinstance(partition, PipelinePartition)
        usual = self.bundle == 1 and not self.on_chip
        if usual and not any(self._times(stage) for stage in range(len(answer.stages))):
            return PipelineSchedule.from_partition(
                partition, answer, microbatches=self.microbatches, split=self.split
            )
        return self._in_bundles(partition, answer)

    def _times(self, stage: int) -> bool:
        """Whether cycles of a stage are those of what is inside it."""
        level = self.inside.get((stage, False))
        return level is not None and not isinstance(level.instance, LmemPacking)

    def _in_bundles(self, partition: PipelinePartition, answer: Any) -> PipelineSchedule:
        """Return the schedule of bundles of microbatches, with the cycles of what is inside."""
        count = self.microbatches // self.bundle
        usual = PipelineSchedule.from_partition(
            partition, answer, microbatches=count, split=self.split, limit=UNLIMITED
        )
        given: dict[str, Any] = {"latency": self.bundle * usual.latency, "limit": None}
        for name in ("forward", "backward", "weight"):
            cycles = getattr(usual, name)
            if cycles is not None:
                given[name] = (self.bundle * cycles).tolist()
        for name in ("memory_forward", "memory_backward", "memory_weight"):
            given[name] = (self.bundle * getattr(usual, name)).tolist()
        limits = []
        for at, (first, end, device) in enumerate(answer.stages):
            memory = self.memory(device)
            phased = False
            for backward in (False, True):
                level = self.inside.get((at, backward))
                if level is None or isinstance(level.instance, LmemPacking):
                    continue
                given["backward" if backward else "forward"][at] = max(
                    1, int(level.result.objective or 0)
                )
                phased = isinstance(level.instance, PhaseSchedule)
            if phased:
                for name in ("memory_forward", "memory_backward", "memory_weight"):
                    given[name][at] = 0
            held = stage_memory(partition, first, end, device, 0)
            limits.append(UNLIMITED if phased or memory is None else max(0, memory - held))
        if any(limit < UNLIMITED for limit in limits):
            given["limit"] = limits
        return PipelineSchedule.from_partition(
            partition, answer, microbatches=count, split=self.split, **given
        )

    # ------------------------------------------------------------------ the stages

    def stages(self) -> list[PlannedStage]:
        """Return what runs on each device of the schedule, in its order."""
        if isinstance(self.cut.instance, GraphPartition):
            return self._of_graph(self.cut.instance)
        assert isinstance(self.cut.instance, PipelinePartition)
        found = []
        for stage in estimate(self.cut.instance, self.cut.result).stages:
            levels = [self.inside.get((stage.stage, backward)) for backward in (False, True)]
            inner = [level for level in levels if level is not None]
            held, capacity = stage.memory - stage.stash, self.memory(stage.device)
            phased = [level for level in inner if isinstance(level.instance, PhaseSchedule)]
            if phased:
                held = held_on_chip(self.cut.instance, stage.first, stage.end)
                held += max(self._peak(stage.first, level) for level in phased)
            span = as_text.span(stage.first, stage.end)
            how = _how(inner)
            found.append(PlannedStage(span, stage.device_name, held, capacity, how))
        return found

    def _peak(self, first: int, level: Level) -> int:
        """Return the most bytes that phases need, I/O buffers and variables that stay included."""
        assert isinstance(self.cut.instance, PipelinePartition)
        assert isinstance(level.instance, PhaseSchedule)
        _, kept = kept_on_chip(self.cut.instance, first, level.instance)
        phases = phase_plan(level.instance, level.result).phases
        return kept + max(phase.peak + phase.buffer_bytes for phase in phases)

    def _of_graph(self, graph: GraphPartition) -> list[PlannedStage]:
        solution = self.cut.result.solution
        own = {load.device: load for load in loads(graph, solution)}
        held = sums(graph.memory, solution.assignment, graph.devices)
        found = []
        for device in sorted(own):
            inference = not graph.backward.any()
            limited = graph.capacity is not None and device < graph.accelerators
            found.append(
                PlannedStage(
                    as_text.plural(own[device].nodes, "node"),
                    graph.device_name(device),
                    own[device].memory if inference else int(held[device]),
                    int(graph.capacity[device]) if limited and graph.capacity is not None else None,
                    "resident",
                )
            )
        return found

    # ------------------------------------------------------------------ checking

    def misplaced(self, network: Level | None, flying: Sequence[int]) -> Iterator[Violation]:
        """Yield levels of stages that are not those of the partition's stages.

        Parameters
        ----------
        network : Level, optional
            The whole network, of which stages have groups.
        flying : sequence of int
            Bytes that microbatches in flight keep at most, by stage.
        """
        partition = self.cut.instance
        if not isinstance(partition, PipelinePartition):
            return
        if network is not None:
            assert isinstance(network.instance, LayerGrouping)
            chain = as_chain(network.instance, partition.cluster)
            same = chain.layer_names == partition.layer_names
            if not same or not np.array_equal(chain.forward, partition.forward):
                yield Violation("network", "it is not that of the partition")
                return
        for (at, backward), level in self.inside.items():
            name = level.name
            expected: PhaseSchedule | LayerGrouping | None = None
            if not 0 <= at < min(len(self.cut.result.solution.stages), len(flying)):
                yield Violation(f"{name}: instance", "there is no such stage")
                continue
            stage = self.cut.result.solution.stages[at]
            if isinstance(level.instance, PhaseSchedule):
                chip = level.instance.chip
                memory = self.memory(stage[2])
                kept, nbytes = kept_on_chip(partition, stage[0], level.instance)
                if memory is not None:
                    memory -= held_on_chip(partition, *stage[:2])
                    memory -= 0 if partition.training else nbytes
                chip = msgspec.structs.replace(chip, memory=memory)
                expected = stage_phases(
                    partition,
                    stage,
                    chip,
                    self.bundle,
                    backward=backward,
                    kept=None if partition.training else kept,
                    ahead=level.instance.prefetch and not partition.training,
                )
                if partition.training and (at, not backward) not in self.inside:
                    yield Violation(f"{name}: instance", "the other pass has no phases")
            elif isinstance(level.instance, LayerGrouping):
                if network is None:
                    yield Violation(f"{name}: instance", "nothing says of which network it is")
                    continue
                assert isinstance(network.instance, LayerGrouping)
                expected = stage_groups(network.instance, *stage[:2])
            elif isinstance(level.instance, LmemPacking) and not is_of_stage(
                level.instance, partition, stage, flying[at]
            ):
                yield Violation(f"{name}: instance", "it is not what the stage keeps")
            if expected is not None and expected.digest != level.instance.digest:
                yield Violation(f"{name}: instance", "it is not that of the stage")


def ticks(graph: GraphPartition) -> int:
    """Return the cycles of a schedule in which a unit of time of a graph is counted."""
    return 1 if graph.whole else FRACTIONS


def pace(cut: Level) -> float | None:
    """Return how many cycles of a schedule there are in a second; None where nobody knows."""
    if isinstance(cut.instance, PipelinePartition):
        return float(cut.instance.cluster.clock)
    assert isinstance(cut.instance, GraphPartition)
    unit = SECONDS.get(cut.instance.time_unit)
    return None if unit is None else ticks(cut.instance) / unit


def _how(levels: Sequence[Level]) -> str:
    """Return what there is inside a stage, in words."""
    for level in levels:
        solution = level.result.solution
        if isinstance(level.instance, PhaseSchedule):
            return as_text.plural(len(solution.boundaries) - 1, "phase")
        if isinstance(level.instance, LayerGrouping):
            return as_text.plural(solution.groups, "group")
    return "resident"
