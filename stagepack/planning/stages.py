"""What a partition implies: its stages, their schedule, and the conditions on both.

The same functions build the schedule of a plan and check it.  Partitions are of chains or of
graphs.  Inside a stage there may be phases, whose cycles are the durations of the stage's
operations for a bundle of microbatches, or groups, whose cycles are the durations of its F.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np

from stagepack.contracts import Instance
from stagepack.errors import InputError
from stagepack.instances.graph import GraphPartition
from stagepack.instances.graph.chains.chain import sums
from stagepack.instances.graph.chains.layers import device_layers
from stagepack.instances.graph.check import loads
from stagepack.instances.graph.problem import DeviceOrder
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.backward import Backward, recovered, weight_cycles
from stagepack.instances.groups.stage import as_profile, stage_backward, stage_groups
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.stage import is_of_stage, stage_packing
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.phases.plan import plan as phase_plan
from stagepack.instances.phases.stage import held_on_chip, kept_on_chip, stage_phases
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.check import by_device, device_memory, stage_memory
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.partition import waiting
from stagepack.instances.violation import Violation
from stagepack.report import format as as_text
from stagepack.result import Result

InstanceT = TypeVar("InstanceT", bound=Instance)
UNLIMITED = 2**62 - 1
FRACTIONS = 1000
"""Cycles of a unit of time of a graph whose times are no whole numbers."""
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TABLES = ("compute_table", "memory_table", "recv_cycles", "send_cycles")
"""What a chain is given instead of what its layers say."""
NAME = re.compile(r"stage (\d+)( backward)?")


@dataclass(frozen=True)
class Level:
    """One question of a plan, and its answer."""

    # "partition", "schedule", "network" (the groups of the whole, on one chip), "stage N", and the
    # last two with " backward".
    name: str
    instance: Instance
    result: Result[Any]  # its bound is one of this level alone: of this partition, of this schedule


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

    `what` says its layers, or how many nodes; `held` are bytes beside those of microbatches in
    flight; `how` is "resident", or what there is inside: "3 phases", "5 groups".
    """

    what: str
    device_name: str
    held: int
    capacity: int | None
    how: str


@dataclass(frozen=True)
class Structure:
    """What a plan consists of beside the answers of its levels.

    `cut` is the partition, and `inside` the levels of stages, see `Inside`.  Of the microbatches of
    a step, `bundle` go through a stage with phases at a time.  `on_chip` are bytes of every
    device's own memory where there is remote memory, too; else empty.
    """

    cut: Level
    inside: Inside
    microbatches: int
    bundle: int = 1
    split: bool = False
    on_chip: tuple[int | None, ...] = ()

    def memory(self, device: int) -> int | None:
        """Return the bytes of a device's own memory."""
        if self.on_chip:
            return self.on_chip[device]
        partition: Any = self.cut.instance
        if isinstance(partition, GraphPartition):
            sizes = partition.capacity
            limited = sizes is not None and device < partition.accelerators
            return int(sizes[device]) if sizes is not None and limited else None
        known: int | None = partition.cluster.devices[device].memory
        return known

    def layers(self, at: int) -> tuple[PipelinePartition, tuple[int, int, int]]:
        """Return the layers of a stage: a chain, its stage [first, end), and the device.

        Those of a graph are the nodes of one device; nodes that are no layers are refused.
        """
        partition, answer = self.cut.instance, self.cut.result.solution
        if isinstance(partition, GraphPartition):
            device = self.places[at]
            chain = device_layers(partition, answer, device, cycles=ticks(partition))
            return chain, (0, chain.n, 0)
        return self.chain, answer.stages[at]

    @cached_property
    def chain(self) -> PipelinePartition:
        """The chain that was cut, its layers as they were chosen."""
        assert isinstance(self.cut.instance, PipelinePartition)
        return settled(self.cut.instance, self.cut.result.solution)

    @property
    def places(self) -> list[int]:
        """The devices with work, in the order of those of the schedule."""
        answer = self.cut.result.solution
        if isinstance(self.cut.instance, GraphPartition):
            used: list[int] = np.unique(answer.assignment).tolist()
            return used
        return [device for _, _, device in answer.stages]

    def operators(self, at: int) -> tuple[list[int], str]:
        """Return the operators of a network that are on a stage, rising, and what it is called."""
        partition, answer = self.cut.instance, self.cut.result.solution
        if isinstance(partition, GraphPartition):
            device = self.places[at]
            here = (answer.assignment == device) & ~partition.backward
            return np.flatnonzero(here).tolist(), partition.device_name(device)
        first, end, _ = answer.stages[at]
        return [*range(first, end)], as_text.span(first, end)

    # ------------------------------------------------------------------ the schedule

    def schedule(self) -> PipelineSchedule:
        """Return the schedule's instance.

        Refuses an invalid partition, and a device too small for what its stages hold.
        """
        usual = self.bundle == 1 and not self.on_chip
        if usual and not any(self._times(at) for at in range(len(self.places))):
            return self._as_it_is(self.microbatches)
        return self._in_bundles()

    def _as_it_is(self, microbatches: int, **given: Any) -> PipelineSchedule:
        """Return the schedule that the partition leads to, but for what is given."""
        partition, answer = self.cut.instance, self.cut.result.solution
        given |= {"microbatches": microbatches, "split": self.split}
        if isinstance(partition, GraphPartition):
            return PipelineSchedule.from_graph(partition, answer, cycles=ticks(partition), **given)
        assert isinstance(partition, PipelinePartition)
        return PipelineSchedule.from_partition(partition, answer, **given)

    def _times(self, stage: int) -> bool:
        """Whether cycles of a stage are those of what is inside it."""
        level = self.inside.get((stage, False))
        return level is not None and not isinstance(level.instance, LmemPacking)

    def _in_bundles(self) -> PipelineSchedule:
        """Return the schedule of bundles of microbatches, with the cycles of what is inside."""
        count = self.microbatches // self.bundle
        usual = self._as_it_is(count, limit=UNLIMITED)
        given: dict[str, Any] = {"latency": self.bundle * usual.latency, "limit": None}
        for name in ("forward", "backward", "weight"):
            cycles = getattr(usual, name)
            if cycles is not None:
                given[name] = (self.bundle * cycles).tolist()
        for name in ("memory_forward", "memory_backward", "memory_weight"):
            given[name] = (self.bundle * getattr(usual, name)).tolist()
        limits = []
        for at, (device, held) in enumerate(zip(self.places, self._held(), strict=True)):
            memory = self.memory(device)
            phased = False
            for backward in (False, True):
                level = self.inside.get((at, backward))
                if level is None or isinstance(level.instance, LmemPacking):
                    continue
                turns = np.flatnonzero(usual.devices == at).tolist()
                if len(turns) > 1:
                    raise InputError(
                        "runs in several turns, which phases and groups do not",
                        field=usual.device_name(at),
                        remedy="give a contiguous partition",
                    )
                stage = turns[0]
                cycles = max(1, int(level.result.objective or 0))
                if backward and self.split and isinstance(level.instance, LayerGrouping):
                    weights = weight_cycles(level.instance)
                    given["weight"][stage] = max(1, weights)
                    cycles = max(1, cycles - weights)
                if not backward and isinstance(self.cut.instance, PipelinePartition):
                    cycles += self.bundle * waiting(self.cut.instance)
                given["backward" if backward else "forward"][stage] = cycles
                phased = isinstance(level.instance, PhaseSchedule)
                for name in ("memory_forward", "memory_backward", "memory_weight"):
                    given[name][stage] *= not phased
            limits.append(UNLIMITED if phased or memory is None else max(0, memory - held))
        if any(limit < UNLIMITED for limit in limits):
            given["limit"] = limits
        return self._as_it_is(count, **given)

    def _held(self) -> list[int]:
        """Return the bytes that each device with work holds all the time, if its stage stays."""
        partition, answer = self.cut.instance, self.cut.result.solution
        if isinstance(partition, GraphPartition):
            held = sums(partition.memory, answer.assignment, partition.devices)
            return [int(held[device]) for device in self.places]
        return [stage_memory(self.chain, first, end, at, 0) for first, end, at in answer.stages]

    # ------------------------------------------------------------------ the stages

    def stages(self) -> list[PlannedStage]:
        """Return what runs on each device of the schedule, in its order."""
        if isinstance(self.cut.instance, GraphPartition):
            return self._of_graph(self.cut.instance)
        assert isinstance(self.cut.instance, PipelinePartition)
        if self.cut.instance.placed:
            return self._of_rounds(self.cut.instance)
        found = []
        for stage in estimate(self.cut.instance, self.cut.result).stages:
            levels = [self.inside.get((stage.stage, backward)) for backward in (False, True)]
            inner = [level for level in levels if level is not None]
            held, capacity = stage.memory - stage.stash, self.memory(stage.device)
            phased = [level for level in inner if isinstance(level.instance, PhaseSchedule)]
            if phased:
                held = self._on_chip(stage.stage)
            span = as_text.span(stage.first, stage.end)
            span += f" ({stage.choices})" if stage.choices else ""
            how = _how(inner)
            found.append(PlannedStage(span, stage.device_name, held, capacity, how))
        return found

    def _on_chip(self, at: int) -> int:
        """Return the most bytes that a stage with phases needs, what stays included."""
        chain, (first, end, _) = self.layers(at)
        peaks = []
        for backward in (False, True):
            level = self.inside.get((at, backward))
            if level is not None:
                assert isinstance(level.instance, PhaseSchedule)
                _, kept = kept_on_chip(chain, first, level.instance)
                phases = phase_plan(level.instance, level.result).phases
                peaks.append(kept + max(phase.peak + phase.buffer_bytes for phase in phases))
        return held_on_chip(chain, first, end) + max(peaks)

    def _of_rounds(self, chain: PipelinePartition) -> list[PlannedStage]:
        """Return the stages of each device, where it has several."""
        placed = by_device(self.cut.result.solution)
        return [
            PlannedStage(
                "; ".join(as_text.span(first, end) for _, first, end in placed[device]),
                chain.device_name(device),
                device_memory(chain, [(first, end, 0) for _, first, end in placed[device]], device),
                self.memory(device),
                _how([]),
            )
            for device in sorted(placed)
        ]

    def _of_graph(self, graph: GraphPartition) -> list[PlannedStage]:
        solution = self.cut.result.solution
        own = {load.device: load for load in loads(graph, solution)}
        held = sums(graph.memory, solution.assignment, graph.devices)
        found = []
        for at, device in enumerate(self.places):
            levels = [self.inside.get((at, backward)) for backward in (False, True)]
            inner = [level for level in levels if level is not None]
            phased = any(isinstance(level.instance, PhaseSchedule) for level in inner)
            inference = not graph.backward.any()
            usual = own[device].memory if inference else int(held[device])
            found.append(
                PlannedStage(
                    as_text.plural(own[device].nodes, "node"),
                    graph.device_name(device),
                    self._on_chip(at) if phased else usual,
                    self.memory(device),
                    _how(inner),
                )
            )
        return found

    # ------------------------------------------------------------------ checking

    def misplaced(self, networks: Sequence[Level], flying: Sequence[int]) -> Iterator[Violation]:
        """Yield levels of stages that are missing, or not those of the partition's stages.

        `networks` are the whole network, of which stages have groups, and its backward pass;
        `flying` are bytes that microbatches in flight keep at most, by stage.
        """
        whole = [level.instance for level in networks]
        back = None
        if whole:
            back = self._way_back(whole)
            trouble = self._other_network(whole, back)
            if trouble:
                yield Violation("network", trouble)
                return
        for at in range(min(len(self.places), len(flying))):
            if (at, False) not in self.inside and self._has_inside(at, flying[at], bool(whole)):
                yield Violation(f"stage {at}", "its level is missing")
        for (at, behind), level in self.inside.items():
            name = f"{level.name}: instance"
            if not 0 <= at < min(len(self.places), len(flying)):
                yield Violation(name, "there is no such stage")
                continue
            trouble = ""
            if whole and not isinstance(level.instance, LayerGrouping):
                trouble = "a stage of a network has groups"
            elif isinstance(level.instance, PhaseSchedule):
                trouble = self._other_phases(at, behind, level.instance)
            elif isinstance(level.instance, LayerGrouping):
                trouble = self._other_groups(at, behind, level.instance, whole, back)
            elif isinstance(level.instance, LmemPacking) and not self._keeps(
                at, level.instance, flying[at]
            ):
                trouble = "it is not what the stage keeps"
            if trouble:
                yield Violation(name, trouble)

    def _has_inside(self, at: int, flying: int, networks: bool) -> bool:
        """Whether a plan has a level of a stage: of its groups, or of all that it keeps.

        Where there is remote memory, stages without phases have none.  Microbatches in flight keep
        at most so many bytes, `flying`; if `networks`, stages have groups.
        """
        if networks:
            return True
        if self.on_chip or not isinstance(self.cut.instance, PipelinePartition):
            return False
        partition = self.chain
        if partition.placed:  # what several stages keep is not placed together
            return False
        first, end, device = stage = self.cut.result.solution.stages[at]
        if stage_packing(partition, stage, flying) is not None:
            return True
        # Files that leave tensors out know where others are: then all stages did.
        packed = any(isinstance(level.instance, LmemPacking) for level in self.inside.values())
        return packed and stage_memory(partition, first, end, device, 0) + flying > 0

    def _other_phases(self, at: int, backward: bool, given: PhaseSchedule) -> str:
        """Return what is wrong with phases, which must be those of a stage; "" for nothing."""
        try:
            chain, stage = self.layers(at)
        except InputError as error:
            return str(error)
        memory = self.memory(self.places[at])
        kept, nbytes = kept_on_chip(chain, stage[0], given)
        if len(kept) != stage[1] - stage[0]:
            return "it is not that of the stage"
        if memory is not None:
            memory -= held_on_chip(chain, *stage[:2])
            memory -= 0 if chain.training else nbytes
        expected = stage_phases(
            chain,
            stage,
            msgspec.structs.replace(given.chip, memory=memory),
            self.bundle,
            backward=backward,
            kept=None if chain.training else kept,
            ahead=given.prefetch and not chain.training,
        )
        if chain.training and (at, not backward) not in self.inside:
            return "the other pass has no phases"
        return "" if expected.digest == given.digest else "it is not that of the stage"

    def _way_back(self, networks: Sequence[Instance]) -> Backward | None:
        """Return the backward pass of a network, in training."""
        whole = [one for one in networks if isinstance(one, LayerGrouping)]
        return recovered(*whole) if len(whole) == 2 else None

    def _other_network(self, networks: Sequence[Instance], back: Backward | None) -> str:
        """Return what is wrong with a network, which must be what was cut; "" for nothing."""
        partition: Any = self.cut.instance
        graph, network = isinstance(partition, GraphPartition), networks[0]
        training = partition.backward.any() if graph else partition.training
        if not isinstance(network, LayerGrouping) or bool(training) != (back is not None):
            return "it is not that of the partition"
        if self.bundle > 1 or self.on_chip:
            return "stages of remote memory have no groups"
        if not graph and any(getattr(partition, name) is not None for name in TABLES):
            return "the partition has tables, which no network says"
        layers = as_profile(network, back).layers
        names = [layer.name for layer in layers]
        forward = [layer.forward for layer in layers]
        behind = [] if back is None else [layer.backward for layer in layers]
        if isinstance(partition, GraphPartition):
            names += [f"{name}.backward" for name in names if back is not None]
            known = list(partition.ids or ()), partition.time.tolist()
            same = known == (names, forward + behind)
        else:
            known = list(partition.layer_names or ()), partition.forward.tolist()
            same = known == (names, forward)
            same &= back is None or partition.backward.tolist() == behind
        return "" if same else "it is not that of the partition"

    def _other_groups(
        self,
        at: int,
        behind: bool,
        given: LayerGrouping,
        networks: Sequence[Instance],
        back: Backward | None,
    ) -> str:
        """Return what is wrong with groups, which must be those of a stage; "" for nothing."""
        if not networks:
            return "nothing says of which network it is"
        network = networks[0]
        assert isinstance(network, LayerGrouping)
        members, name = self.operators(at)
        expected: LayerGrouping | None = stage_groups(network, members, name)
        if back is not None:
            other = stage_backward(back, members, name)
            expected = other if behind else expected
            if other is not None and (at, not behind) not in self.inside:
                return "the other pass has no groups"
        elif behind:
            expected = None
        same = expected is not None and expected.replace(order=given.order).digest == given.digest
        return "" if same else "it is not that of the stage"

    def _keeps(self, at: int, given: LmemPacking, flying: int) -> bool:
        """Whether buffers are those of a stage."""
        if isinstance(self.cut.instance, GraphPartition):
            return False
        return not self.chain.placed and is_of_stage(given, *self.layers(at), flying)


def require_one_each(model: InstanceT) -> InstanceT:
    """Return an instance; refuse a chain with what plans do not know."""
    if not isinstance(model, PipelinePartition):
        return model
    for wrong, field, problem in (
        (model.objective == "moves", "objective", "plans know no previous cut"),
    ):
        if wrong:
            raise InputError(
                problem,
                field=field,
                remedy="solve the partition, then its schedule (PipelineSchedule.from_partition)",
            )
    return model


def told(cut: Instance) -> list[str]:
    """Return what a partition takes as it is told, in words: orders, and stages of devices."""
    each = "one stage a device"
    if isinstance(cut, PipelinePartition):
        said, free, some = ["layers in this order"], cut.free_order, cut.fewer_stages
        each = f"{len(cut.stage_devices)} stages on {cut.k} devices" if cut.placed else each
    else:
        assert isinstance(cut, GraphPartition)
        said, free, some = [], cut.device_order is DeviceOrder.ANY, cut.empty_devices
    said += [] if free else ["devices in this order"]
    return [*said, f"at most {each}" if some else each]


def ticks(graph: GraphPartition) -> int:
    """Return the cycles of a schedule in which a unit of time of a graph is counted."""
    return 1 if graph.whole else FRACTIONS


def pace(cut: Instance) -> float | None:
    """Return how many cycles of a schedule of `cut` are in a second; None where nobody knows."""
    if isinstance(cut, PipelinePartition):
        return float(cut.cluster.clock)
    assert isinstance(cut, GraphPartition)
    if cut.clock is not None:
        return ticks(cut) * float(cut.clock)
    unit = SECONDS.get(cut.time_unit)
    return None if unit is None else ticks(cut) / unit


def _how(levels: Sequence[Level]) -> str:
    """Return what there is inside a stage, in words: "3 phases", "2 + 5 groups" of both passes."""
    phases = [len(one.result.solution.boundaries) - 1 for one in levels if _is(one, PhaseSchedule)]
    if phases:
        return as_text.plural(phases[0], "phase")
    groups = [one.result.solution.groups for one in levels if _is(one, LayerGrouping)]
    more = "".join(f"{count} + " for count in groups[:-1])
    return more + as_text.plural(groups[-1], "group") if groups else "resident"


def _is(level: Level, kind: type[Instance]) -> bool:
    return isinstance(level.instance, kind)
