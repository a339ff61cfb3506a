"""The data of the pictures of a partition: nodes, stages, crossing tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.arrays import distinct
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.check import Load, loads, plain, stage_order
from stagepack.instances.graph.data import GraphData
from stagepack.instances.profile import Array
from stagepack.report import format as as_text
from stagepack.report.style import area_colour, tint


class Flow(NamedTuple):
    """What a device sends to another one: how many tensors, and their traffic together."""

    source: int
    target: int
    tensors: int
    traffic: Number


def flows(instance: GraphData, solution: GraphSolution) -> list[Flow]:
    """Return what crosses from device to device, each tensor once for every reading device."""
    device, k = solution.assignment, instance.devices
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    source, target = device[instance.producer[tensor]], device[instance.consumers]
    apart = source != target
    pairs = distinct(tensor[apart] * k + target[apart])
    tensor, target = pairs // k, pairs % k
    links, which = np.unique(device[instance.producer[tensor]] * k + target, return_inverse=True)
    traffic = np.zeros(len(links), dtype=instance.traffic.dtype)
    np.add.at(traffic, which, instance.traffic[tensor])
    counts = np.bincount(which, minlength=len(links))
    return [
        Flow(link // k, link % k, count, amount)
        for link, count, amount in zip(
            links.tolist(), counts.tolist(), traffic.tolist(), strict=True
        )
    ]


RECEIVED, SENT, CROSSING = "#9aa5b4", "#d5dae1", "#aa3377"
WITHIN = "#c3c9d1"
"""Edges of which both ends are on one device."""
CPU = "#a3a3a3"
LEAST = 0.5  # diameter of a node of no time, that of the longest is 1
STEEP = 0.5  # height of an arc from stage to stage, for each stage that it passes
ALONE = (Objective.OVERLAP, Objective.REPLICATED)
"""A device does all at once: bars stand side by side."""


class Bar(NamedTuple):
    """A bar of a stage: time, received, sent, on top of one another or side by side."""

    stage: int  # its number
    name: str  # which pass, if there are bars for each; else ""
    parts: tuple[float, float, float]  # time, received, sent


class PartitionDrawing(NamedTuple):
    """A partition in numbers."""

    instance: GraphPartition  # the graph and its devices
    stage: Array  # (nodes,): of each node
    loads: list[Load]  # by stage
    bars: list[Bar]  # what each device does
    flows: list[Flow]  # between stages instead of devices

    @property
    def colours(self) -> list[str]:
        """Of each stage; those of CPUs are grey."""
        return [
            CPU if load.device >= self.instance.accelerators else stage_colour(load.stage)
            for load in self.loads
        ]

    @property
    def apart(self) -> bool:
        """Whether time, received and sent stand side by side."""
        return self.instance.objective in ALONE

    @property
    def traffic(self) -> str:
        """Title of what goes between stages, with its unit."""
        unit = self.instance.traffic_unit
        return f"Traffic ({unit})" if unit else "Traffic"

    @property
    def time(self) -> str:
        """Title of times, with what they are counted in."""
        return f"Time ({self.instance.time_unit})" if self.instance.time_unit else "Time"

    @property
    def top(self) -> float:
        """The height of the highest bar."""
        return max((max(b.parts) if self.apart else sum(b.parts) for b in self.bars), default=0)

    @property
    def largest(self) -> int:
        """The most bytes of a device, or that one has room for."""
        return max([load.memory for load in self.loads] + [c for c in self.limits if c])

    @property
    def limits(self) -> list[int | None]:
        """Bytes of the device of each stage."""
        capacity = self.instance.capacity
        if capacity is None:
            return [None] * len(self.loads)
        return [
            int(capacity[load.device]) if load.device < self.instance.accelerators else None
            for load in self.loads
        ]

    def label(self, load: Load) -> str:
        """Return what the device of a stage is called below its bars."""
        name = self.instance.device_name(load.device).removeprefix("device ")
        return name if load.replicas == 1 else f"{name} (x {load.replicas})"


def stage_colour(stage: int) -> str:
    """Return the colour of a stage: eight, then their tints."""
    colour = area_colour(stage)
    return colour if stage % 16 < 8 else tint(colour, 0.5)


def partition_drawing(instance: GraphPartition, solution: GraphSolution) -> PartitionDrawing:
    """Return the numbers of a partition."""
    order = stage_order(instance, solution)
    stage_of = np.empty(instance.devices, dtype=np.int64)
    stage_of[order] = np.arange(len(order))
    whole = loads(instance, solution)
    if instance.objective == Objective.FORWARD_BACKWARD and instance.backward.any():
        passes = {"forward": False, "backward": True}
        bars = [
            _bar(load, name)
            for name, which in passes.items()
            for load in loads(instance, solution, which)
        ]
        bars.sort(key=lambda bar: bar.stage)
    else:
        bars = [_bar(load) for load in whole]
    between = [
        flow._replace(source=int(stage_of[flow.source]), target=int(stage_of[flow.target]))
        for flow in flows(instance, solution)
    ]
    return PartitionDrawing(instance, stage_of[solution.assignment], whole, bars, between)


def _bar(load: Load, name: str = "") -> Bar:
    """Return the bar of a stage, of one pass where `name` says which."""
    time, received, sent = (float(plain(part)) for part in (load.time, load.received, load.sent))
    return Bar(load.stage, name, (time, received, sent))


def diameters(instance: GraphPartition) -> Array:
    """Return how large each node is drawn: 1 for the longest, by the root of time."""
    time = np.where(instance.accelerator, instance.time, instance.cpu_time)
    longest = float(np.quantile(time, 0.98)) or float(time.max())
    share = np.minimum(time / longest, 1) if longest else np.ones(instance.n)
    return np.asarray(LEAST + (1 - LEAST) * np.sqrt(share))


def arc(flow: Flow, steps: int = 40) -> tuple[list[float], list[float]]:
    """Return points along the arc of a flow, above the stages, or below where it leads back.

    Points are `steps` + 1.
    """
    angle = np.linspace(np.pi, 0, steps + 1)
    middle, half = (flow.source + flow.target) / 2, (flow.target - flow.source) / 2
    return (middle + half * np.cos(angle)).tolist(), (summit(flow) * np.sin(angle)).tolist()


def duration(instance: GraphPartition, time: Number) -> str:
    """Return a time with what it is counted in."""
    return f"{as_text.number(time)} {instance.time_unit}".rstrip()


def worth(instance: GraphPartition, value: Number | None) -> str:
    """Return an objective value with what it is counted in."""
    return f"{as_text.number(value)} {unit(instance)}".rstrip()


def unit(instance: GraphPartition) -> str:
    """Return what the objective is counted in."""
    return "bytes" if instance.objective == Objective.MEMORY else instance.time_unit


def amount(traffic: Number, unit: str = "") -> str:
    """Return traffic as it is written along an arc: bytes as memory is, other units in thousands.

    `unit` is a :attr:`.GraphData.traffic_unit`.
    """
    if unit == "bytes":
        return as_text.quantity(round(traffic))
    for factor, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if traffic >= 0.9995 * factor:
            return f"{traffic / factor:.3g} {letter}"
    return f"{traffic:.3g}"


def sides(drawings: Sequence[PartitionDrawing]) -> tuple[float, float]:
    """Return the ends of the axis of stages; few of them are not stretched over all of it."""
    count = max(len(drawn.loads) for drawn in drawings)
    spare = max(0.6, (5 - count) / 2)
    return -spare, count - 1 + spare


def summit(flow: Flow) -> float:
    """Return how high an arc goes; below 0 where it leads back."""
    span = flow.target - flow.source
    return float(np.sign(span) * (0.5 + STEEP * (abs(span) - 1)))


def reach(drawings: Sequence[PartitionDrawing]) -> tuple[float, float]:
    """Return the lowest and the highest of all arcs, with room for what is written there."""
    heights = [summit(flow) for drawn in drawings for flow in drawn.flows]
    low, high = min(heights, default=0), max(heights, default=0)
    spare = 0.16 * max(high - low, 1.0)
    return min(low, 0) - max(spare, 0.35), max(high, 0) + max(spare, 0.35)
