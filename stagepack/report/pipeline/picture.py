"""Pictures of pipelines: the map of their stages, the load and the memory of their devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import Estimate, estimate
from stagepack.report import format as as_text
from stagepack.report.canvas import (
    Drawn,
    as_written,
    axes,
    engineering,
    quiet,
    short,
    target,
    titled,
)
from stagepack.report.extra import Axes, Target
from stagepack.report.format import byte_unit
from stagepack.report.pipeline.numbers import (
    Stack,
    capacities,
    cycle_stacks,
    device_labels,
    map_rows,
    map_scale,
    memory_stacks,
)
from stagepack.report.search import named
from stagepack.report.style import CAPACITY, INK, MUTED, area_colour

FEW_LAYERS = 60  # up to so many layers, their borders are drawn too


def draw(
    instance: PipelinePartition, solution: Any, ax: Axes = None, *, scale: str = "cycles"
) -> Drawn:
    """Draw one row a solution: its stages over the layers, by colour, with lines at the cuts."""
    rows = map_rows(instance, named(solution), scale)
    scale, place = map_scale(instance, scale)
    ax = axes(ax, 9.0, 1.3 + 0.42 * max(1, len(rows)))
    span = float(place[-1]) or 1.0
    for y, row in enumerate(rows):
        ax.barh(
            [y] * len(row.segments),
            [s.right - s.left for s in row.segments],
            left=[s.left for s in row.segments],
            height=0.72,
            color=[area_colour(s.colour) for s in row.segments],
            edgecolor=MUTED,
            linewidth=0.6,
        )
        for s in row.segments:
            share = (s.right - s.left) / span
            wide = f"{s.stage}: {as_text.span(s.first, s.end)}"
            text = wide if share >= 0.016 * len(wide) else str(s.stage)
            if share >= 0.014 * len(text):
                middle = (s.left + s.right) / 2
                ax.text(middle, y, text, ha="center", va="center", fontsize=8, color=INK)
        ax.text(
            1.01, y, f"{row.value:,}" if isinstance(row.value, int) else f"{row.value:,.6g}",
            transform=ax.get_yaxis_transform(), va="center", fontsize=8, color=MUTED,
        )  # fmt: skip
    if instance.n <= FEW_LAYERS:
        for y in range(len(rows)):
            ax.vlines(place[1:-1], y - 0.36, y + 0.36, color="white", linewidth=0.7, alpha=0.8)
    for y, row in enumerate(rows):
        cuts = [s.left for s in row.segments[1:]]
        ax.vlines(cuts, y - 0.44, y + 0.44, color=INK, linewidth=1.0)
    ax.set_yticks(range(len(rows)), [short(row.label) for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, span)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(MUTED)
    ax.tick_params(axis="y", length=0)
    if scale == "cycles":
        engineering(ax.xaxis)
        ax.set_xlabel(f"Cycles of the {instance.n:,} layers, in order")
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("Layer")
    ax.set_ylabel("Method")
    ax.text(
        1.01, 1.02, str(instance.objective), transform=ax.transAxes, fontsize=8, color=MUTED,
    )  # fmt: skip
    return Drawn(ax, "stages (stage: layers)")


def device_bars(
    instance: PipelinePartition,
    solution: Any,
    path: Target = None,
    ax: Axes = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the compute and transfer cycles of every device, stacked, and the mean compute.

    Parameters
    ----------
    solution : PipelineSolution or Result
        What to draw.
    path, ax, title
        As for :func:`.plot`; pages have these bars beside the map of the stages.

    Returns
    -------
    matplotlib Axes
    """
    figures = estimate(instance, solution)
    file, ax = _axes(figures, path, ax)
    _stack(ax, cycle_stacks(figures))
    mean = sum(float(one.compute) for one in figures.devices) / len(figures.devices)
    ax.axhline(mean, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="mean compute")
    engineering(ax.yaxis)
    ax.set_ylabel("Cycles")
    return _finish(ax, figures, "compute and transfer", title, file)


def memory_bars(
    instance: PipelinePartition,
    solution: Any,
    path: Target = None,
    ax: Axes = None,
    *,
    title: str | None = None,
) -> Axes:
    """Draw the memory of every device by category, stacked, and a mark at its capacity.

    Parameters
    ----------
    instance, solution, path, ax, title
        As for :func:`device_bars`.

    Returns
    -------
    matplotlib Axes
    """
    figures = estimate(instance, solution)
    file, ax = _axes(figures, path, ax)
    limits = capacities(figures)
    largest = max([one.memory for one in figures.devices] + [c for c in limits if c])
    factor, unit = byte_unit(largest)
    _stack(ax, memory_stacks(figures), factor)
    limited = [(j, c / factor) for j, c in enumerate(limits) if c is not None]
    if limited:
        ax.hlines(
            [c for _, c in limited], [j - 0.42 for j, _ in limited],
            [j + 0.42 for j, _ in limited], color=CAPACITY, linewidth=2, label="capacity",
        )  # fmt: skip
    if not ax.get_legend_handles_labels()[1]:
        ax.bar(range(len(limits)), [0.0] * len(limits), label="no memory figures", color="none")
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"Memory ({unit})")
    return _finish(ax, figures, "memory", title, file)


def _axes(figures: Estimate, path: Target, ax: Axes) -> tuple[Path | None, Axes]:
    """Return the file to write, if any, and the axes of bars of the devices."""
    file, ax = target(path, ax)
    return file, axes(ax, min(14.0, 4.5 + 0.35 * len(figures.devices)), 3.6)


def _finish(ax: Axes, figures: Estimate, words: str, title: str | None, file: Path | None) -> Axes:
    """Name the devices below the bars, and write the picture."""
    _name_devices(ax, device_labels(figures))
    return titled(Drawn(ax, words), title if title is not None else figures.instance, file)


def _stack(ax: Axes, stacks: Sequence[Stack], factor: int = 1) -> None:
    floor = [0.0] * max((len(stack.heights) for stack in stacks), default=0)
    for stack in stacks:
        heights = [height / factor for height in stack.heights]
        ax.bar(
            range(len(heights)), heights, bottom=floor, width=0.7, color=stack.colour,
            label=stack.name, edgecolor=MUTED, linewidth=0.6,
        )  # fmt: skip
        floor = [a + b for a, b in zip(floor, heights, strict=True)]


def _name_devices(ax: Axes, labels: list[str]) -> None:
    """Name the devices below the bars without overlap, and put the legend beside them."""
    quiet(ax, "y")
    every = -(-len(labels) // 32)
    long = max(map(len, labels)) * len(labels) > 60
    ax.set_xticks(
        range(0, len(labels), every), [as_written(label) for label in labels[::every]],
        rotation=90 if long else 0, fontsize=8 if len(labels) > 12 else None,
    )  # fmt: skip
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_xlabel("Device")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
