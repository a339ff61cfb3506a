"""The chart of a schedule: the operations of each device over time, and its memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.report.canvas import (
    Drawn,
    as_written,
    axes,
    engineering,
    limit_line,
    quiet,
    stacked,
    time_axis,
)
from stagepack.report.extra import Axes
from stagepack.report.schedule.numbers import (
    COLOURS,
    LABELLED,
    ScheduleBars,
    device_label,
    kind_name,
    limits,
    schedule_bars,
)
from stagepack.report.style import INK, MUTED, line_colour

if TYPE_CHECKING:
    from stagepack.instances.schedule import PipelineSchedule

FEW = 1500  # up to so many operations, each has a border and, where there is room, its number


def draw(instance: PipelineSchedule, solution: Any, ax: Axes = None) -> Drawn:
    """Draw a row a device with a bar an operation, numbered by microbatch; memory below.

    On axes that are given the bars are alone.
    """
    answer = instance.solution_in(solution)
    drawn = schedule_bars(instance, answer)
    if ax is None:
        ax = _axes(instance, drawn)
    _bars(ax, drawn)
    _finish(ax, instance, drawn)
    return Drawn(ax, f"{instance.objective} {instance.evaluate(answer):,}")


def _axes(instance: PipelineSchedule, drawn: ScheduleBars) -> Axes:
    """Return axes of a new figure; where memory is used, it is drawn below them."""
    rows = max(1.2, (0.34 if instance.d <= 16 else 0.22) * instance.d)
    if not drawn.uses_memory:
        ax = axes(None, 11.0, rows + 1.2)
        ax.set_xlabel("Cycles")
        return ax
    ax, below = stacked((11.0, rows + 2.8), (rows, 1.5))
    _memory(below, instance, drawn)
    return ax


def _bars(ax: Axes, drawn: ScheduleBars) -> None:
    from matplotlib.collections import PolyCollection

    low, high = drawn.device - 0.42, drawn.device + 0.42
    x = np.column_stack([drawn.start, drawn.start, drawn.end, drawn.end])
    corners = np.stack([x, np.column_stack([low, high, high, low])], axis=2)
    few = len(drawn.start) <= FEW
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=list(drawn.colours()),
            edgecolors=MUTED if few else "none",
            linewidths=0.5 if few else 0,
            antialiased=few,
            rasterized=not few,  # an SVG of thousands of shapes is no use to anybody
        ),
        autolim=False,
    )
    if not few:
        return
    wide = 760.0 / max(1, drawn.end_time)  # points in all, about
    digits = len(str(int(drawn.microbatch.max(initial=0))))
    rooms: dict[tuple[int, int], float] = {}
    rows = list(zip(drawn.device.tolist(), drawn.kind.tolist(), strict=True))
    for row, length in zip(rows, (drawn.end - drawn.start).tolist(), strict=True):
        rooms[row] = min(rooms.get(row, math.inf), length * wide)
    for at, row in enumerate(rows):
        if rooms[row] >= 4.6 * digits:  # those of a kind in a row have labels, or none has
            ax.text(
                (drawn.start[at] + drawn.end[at]) / 2, drawn.device[at],
                str(int(drawn.microbatch[at])), ha="center", va="center",
                fontsize=min(7.0, 1.3 * rooms[row] / digits), color=INK, clip_on=True,
            )  # fmt: skip


def _finish(ax: Axes, instance: PipelineSchedule, drawn: ScheduleBars) -> None:
    from matplotlib.patches import Patch

    quiet(ax, "x")
    ax.set_xlim(0, drawn.end_time)
    ax.set_ylim(instance.d - 0.5, -0.5)
    every = -(-instance.d // 40)
    shown = range(0, instance.d, every)
    ax.set_yticks(
        list(shown), [as_written(device_label(instance, device)) for device in shown], fontsize=8
    )
    engineering(ax.xaxis)
    several = len(np.unique(drawn.tint)) > 1
    kinds = np.unique(drawn.kind).tolist()
    handles = [
        Patch(facecolor=COLOURS[kind][0], edgecolor=MUTED, label=kind_name(instance, kind))
        for kind in kinds
    ]
    notes = ["numbers are microbatches"] * bool(ax.texts) + ["tints by stage"] * several
    ax.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False,
        fontsize=8, title=", ".join(notes) or None, title_fontsize=7,
    )  # fmt: skip


def _memory(below: Axes, instance: PipelineSchedule, drawn: ScheduleBars) -> None:
    quiet(below, "y")
    for device, (times, values) in enumerate(drawn.lines()):
        below.step(
            times, values, where="post", color=line_colour(device), linewidth=1.0, label=str(device)
        )
    some = limits(instance, drawn)
    for limit, name in some.items():
        limit_line(below, limit, name)
    below.set_ylim(bottom=0)
    engineering(below.yaxis)
    time_axis(below)
    below.set_ylabel("Memory of device" if instance.d <= LABELLED else "Memory")
    if 1 < instance.d <= LABELLED:
        for device, (time, value) in enumerate(drawn.labels(list(some))):
            below.annotate(
                str(device), (time, value), (0, 1.5), textcoords="offset points", ha="center",
                va="bottom", fontsize=8, fontweight="bold", color=line_colour(device),
            )  # fmt: skip
    elif instance.d <= 16:
        below.legend(
            loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7, frameon=False,
            ncols=1 + (instance.d > 8), title="device", title_fontsize=7,
        )  # fmt: skip
