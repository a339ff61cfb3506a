"""The data of the pictures of pipelines, for static and interactive ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.estimate import Estimate, estimate
from stagepack.instances.profile import Array
from stagepack.report.style import area_colour
from stagepack.result import Result

SCALES = ("cycles", "layers")
TIMES = {"compute": "#4477aa", "receive": "#66ccee", "send": "#ccbb44", "host": "#bbbbbb"}


@dataclass(frozen=True)
class Segment:
    """A stage on the map: where it lies and what to say about it."""

    stage: int
    first: int
    end: int
    left: float
    right: float
    device_name: str
    compute: Number
    transfer: Number
    memory: int
    colour: int


@dataclass(frozen=True)
class MapRow:
    """The stages of one solution."""

    label: str
    value: Number
    segments: tuple[Segment, ...]


def map_scale(instance: PipelinePartition, scale: str) -> tuple[str, Array]:
    """Return the scale to use and the place of every cut on it, shape (n + 1,).

    Cycles where the instance has any by layer (``"cycles"``), else the layers' numbers
    (``"layers"``), as where layers take alternatives, whose cycles differ by row.
    """
    if scale not in SCALES:
        raise InputError(
            f"unknown scale {scale!r}", field="scale", remedy="choose " + " or ".join(SCALES)
        )
    if scale == "cycles" and instance.cycles.any() and not instance.alternatives:
        return "cycles", np.concatenate([[0], np.cumsum(instance.cycles)])
    return "layers", np.arange(instance.n + 1)


def map_rows(
    instance: PipelinePartition,
    solutions: Mapping[str, PipelineSolution | Result[PipelineSolution]],
    scale: str = "cycles",
) -> list[MapRow]:
    """Return one row a solution (or result that has one), its stages placed on the scale.

    `solutions` are by label; widths stand for "cycles" or "layers", the `scale`.
    """
    _, place = map_scale(instance, scale)
    rows = []
    for label, solution in solutions.items():
        if isinstance(solution, Result) and solution.solution is None and len(solutions) > 1:
            continue
        figures = estimate(instance, solution)
        segments = tuple(
            Segment(
                stage=s.stage,
                first=s.first,
                end=s.end,
                left=float(place[s.first]),
                right=float(place[s.end]),
                device_name=s.device_name,
                compute=s.compute,
                transfer=s.transfer,
                memory=s.memory,
                colour=s.device if figures.placed else s.stage,
            )
            for s in figures.stages
        )
        rows.append(MapRow(label, abs(figures.objective), segments))  # tokens count below 0
    return rows


@dataclass(frozen=True)
class Stack:
    """One layer of stacked bars: a name and a height for every device."""

    name: str
    heights: tuple[float, ...]
    colour: str


def device_labels(figures: Estimate) -> list[str]:
    """Return the names of the devices in use, in the order of the stages, each once."""
    names = [stage.device_name for stage in figures.devices]
    if all(name == f"device {s.device}" for name, s in zip(names, figures.devices, strict=True)):
        return [str(stage.device) for stage in figures.devices]
    if len(set(names)) < len(names):
        return [f"{s.device}: {name}" for name, s in zip(names, figures.devices, strict=True)]
    return names


def cycle_stacks(figures: Estimate) -> list[Stack]:
    """Return compute and the parts of transfer, those that occur, for every device."""
    columns = {"compute": "compute", "receive": "recv", "send": "send", "host": "host"}
    stacks = [
        Stack(name, tuple(float(getattr(s, column)) for s in figures.devices), TIMES[name])
        for name, column in columns.items()
    ]
    return [stack for stack in stacks if stack.name == "compute" or any(stack.heights)]


def memory_stacks(figures: Estimate) -> list[Stack]:
    """Return the bytes of every category that occurs, for every device.

    A category has the same colour in all plans of an instance, whichever others occur there.
    """
    found: dict[str, tuple[float, ...]] = {
        name: tuple(float(stage.exclusive.get(name, 0)) for stage in figures.devices)
        for name in dict.fromkeys(name for s in figures.devices for name in s.exclusive)
    }
    rest = {"shared": "shared", "temporary": "temporary", "carried": "carry", "stashed": "stash"}
    for name, column in rest.items():
        found[name] = tuple(float(getattr(stage, column)) for stage in figures.devices)
    return [
        Stack(name, heights, area_colour(at))
        for at, (name, heights) in enumerate(found.items())
        if any(heights)
    ]


def capacities(figures: Estimate) -> list[int | None]:
    """Return the bytes of every device; None without a limit."""
    return [stage.capacity for stage in figures.devices]
