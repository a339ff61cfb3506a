"""Memory of every device against its capacity."""

from __future__ import annotations

from typing import Any

from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import Estimate
from stagepack.plots.device_bars import finish_bars
from stagepack.plots.pipeline import capacities, device_labels, memory_stacks
from stagepack.plots.style import CAPACITY, area_colour, axes, byte_unit, heading, save
from stagepack.plots.target import figures_of


def memory_bars(
    instance: PipelinePartition | Estimate | None = None,
    solution: Any = None,
    path: Any = None,
    ax: Any = None,
    *,
    title: str | None = None,
    figures: Estimate | None = None,
) -> Any:
    """Draw the memory of every device by category, stacked, and a mark at its capacity.

    Parameters
    ----------
    instance : PipelinePartition
        The instance.
    solution : PipelineSolution or Result
        What to draw.
    path : path-like or matplotlib Axes, optional
        Write the picture here, too (.png, .svg or .pdf); or where to draw.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Title; the instance's name by default.
    figures : Estimate, optional
        Deprecated: an estimate in place of instance and solution.

    Returns
    -------
    matplotlib Axes
    """
    figures, file, ax = figures_of(figures or instance, solution, path, ax)
    ax = axes(ax, min(14.0, 4.5 + 0.35 * len(figures.stages)), 3.6)
    limits = capacities(figures)
    largest = max([stage.memory for stage in figures.stages] + [c for c in limits if c])
    factor, unit = byte_unit(largest)
    places = list(range(len(figures.stages)))
    floor = [0.0] * len(places)
    for index, stack in enumerate(memory_stacks(figures)):
        heights = [height / factor for height in stack.heights]
        ax.bar(
            places, heights, bottom=floor, width=0.7, color=area_colour(index),
            label=stack.name, edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    limited = [(j, c / factor) for j, c in enumerate(limits) if c is not None]
    if limited:
        ax.hlines(
            [c for _, c in limited], [j - 0.42 for j, _ in limited], [j + 0.42 for j, _ in limited],
            color=CAPACITY, linewidth=2, label="capacity",
        )  # fmt: skip
    if not ax.get_legend_handles_labels()[1]:
        ax.bar(places, floor, label="no memory figures", color="none")
    finish_bars(ax, device_labels(figures))
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"Memory ({unit})")
    heading(ax, title if title is not None else figures.instance, "memory")
    if file is not None:
        save(ax.figure, file)
    return ax
