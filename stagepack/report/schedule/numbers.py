"""The data of the chart of a schedule: bars on devices, memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution

LABELLED = 8  # more lines of memory than these are not named where they run
LETTERS = ("F", "B", "W")
COLOURS = (
    ("#77aadd", "#a9c8e8", "#4f8fc9", "#cfe0f2"),
    ("#ee8866", "#f5b8a3", "#d9653f", "#f9d9cd"),
    ("#44bb99", "#8fd6c2", "#2f9c7d", "#c3eadf"),
)
"""Tints by kind; the stages of one device take them in turn."""


@dataclass(frozen=True, eq=False)
class ScheduleBars:
    """The operations of a schedule as bars, and the memory of every device as steps."""

    # (operations,).
    kind: Array
    stage: Array
    microbatch: Array
    device: Array
    # (operations,): cycles.
    start: Array
    end: Array
    tint: Array  # (operations,): place of the stage among those of its device
    memory: tuple[tuple[Array, Array], ...]  # for every device: from times[i] on it holds values[i]
    end_time: int  # the last end

    @property
    def uses_memory(self) -> bool:
        """Whether any device ever holds anything."""
        return any(values.any() for _, values in self.memory)

    def lines(self) -> list[tuple[Array, Array]]:
        """Return the memory of every device as points to draw steps through, to the very end."""
        return [
            (np.append(times, self.end_time), np.append(values, values[-1]))
            for times, values in self.memory
        ]

    def labels(self, levels: Sequence[int]) -> list[tuple[float, int]]:
        """Return for every device a point (time, value) of its line, to write its name above.

        Of the middles of its steps, each line takes the one that is furthest from the other lines,
        from `levels` above it, and from the labels before, times and values as shares of the
        picture (wider than high). Costs O(d^2 s log s) for s steps of each of d devices.
        """
        top = max(1, *(int(values.max()) for _, values in self.memory))
        placed: list[tuple[float, int]] = []
        for device, (times, values) in enumerate(self.lines()):
            middle, height = (times[:-1] + times[1:]) / 2, values[:-1]
            room = np.minimum((times[1:] - times[:-1]) / self.end_time * 20, 1) * (height > 0)
            for other, (when, held) in enumerate(self.memory):
                if other != device:
                    there = held[np.searchsorted(when, middle, side="right") - 1]
                    room = np.minimum(room, 0.02 + np.abs(there - height) / top)
            for level in levels:
                above = (level - height) / top
                room = np.where(above > 0, np.minimum(room, above), room)
            for time, value in placed:
                away = np.hypot((middle - time) / self.end_time * 5, (height - value) / top)
                room = np.minimum(room, away)
            best = int(np.argmax(room))
            placed.append((float(middle[best]), int(height[best])))
        return placed

    def colours(self) -> Array:
        """Return the colour of every bar, shape (operations,)."""
        table = np.array(COLOURS)
        return np.asarray(table[self.kind, self.tint % table.shape[1]])


def schedule_bars(instance: PipelineSchedule, solution: ScheduleSolution) -> ScheduleBars:
    """Return what to draw of a solution, valid or not."""
    operations = instance.operations
    start = np.asarray(solution.start)
    end = start + operations.duration
    place = np.zeros(instance.p, dtype=np.int64)
    for device in range(instance.d):
        stages = np.flatnonzero(instance.devices == device)
        place[stages] = np.arange(len(stages))
    memory = []
    for device in range(instance.d):
        own = operations.device == device
        memory.append(_steps(start[own], end[own], operations.delta[own]))
    return ScheduleBars(
        kind=operations.kind,
        stage=operations.stage,
        microbatch=operations.microbatch,
        device=operations.device,
        start=start,
        end=end,
        tint=place[operations.stage],
        memory=tuple(memory),
        end_time=int(end.max()),
    )


def _steps(start: Array, end: Array, delta: Array) -> tuple[Array, Array]:
    """Return memory as steps: what grows does so at a start, what shrinks at an end."""
    when = np.where(delta > 0, start, end)
    times, place = np.unique(np.append(when, 0), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, place[:-1], delta)
    return times, np.cumsum(change)


def device_label(instance: PipelineSchedule, device: int) -> str:
    """Return the name of a device and, where it runs several stages, their numbers."""
    name, stages = instance.device_name(device), instance.stages_of(device)
    if stages == (device,):
        return name
    return f"{name} (stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))})"


def limits(instance: PipelineSchedule, drawn: ScheduleBars) -> dict[int, str]:
    """Return the different memory limits, less those far above all that is used, and their names.

    Where devices have limits of their own, the name of each says whose it is.
    """
    if instance.limit is None:
        return {}
    top = max(int(values.max()) for _, values in drawn.memory)
    different, first, users = np.unique(instance.limit, return_index=True, return_counts=True)
    found = {}
    for limit, device, count in np.column_stack((different, first, users)).tolist():
        whose = instance.device_name(device) if count == 1 else f"{count:,} devices"
        of = f" of {whose}:" if len(different) > 1 else ""
        if limit <= 2.2 * top:
            found[limit] = f"limit{of} {limit:,}"
    return found


def kind_name(instance: PipelineSchedule, kind: int) -> str:
    """Return the name of a kind of operations."""
    if kind == 0:
        return "forward"
    return ("backward", "weight gradient")[kind - 1] if instance.split else "backward"
