"""Compute and transfer of every device."""

from __future__ import annotations

from typing import Any

from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import Estimate
from stagepack.plots.pipeline import cycle_stacks, device_labels
from stagepack.plots.style import INK, TIMES, as_written, axes, heading, quiet, save
from stagepack.plots.target import figures_of


def device_bars(
    instance: PipelinePartition | Estimate | None = None,
    solution: Any = None,
    path: Any = None,
    ax: Any = None,
    *,
    title: str | None = None,
    figures: Estimate | None = None,
) -> Any:
    """Draw the compute and transfer cycles of every device, stacked, and the mean compute.

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
    places = list(range(len(figures.stages)))
    floor = [0.0] * len(places)
    for stack in cycle_stacks(figures):
        ax.bar(
            places, stack.heights, bottom=floor, width=0.7, color=TIMES[stack.name],
            label=stack.name, edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        floor = [a + b for a, b in zip(floor, stack.heights, strict=True)]
    mean = sum(float(stage.compute) for stage in figures.stages) / len(places)
    ax.axhline(mean, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="mean compute")
    finish_bars(ax, device_labels(figures))
    from matplotlib.ticker import EngFormatter

    ax.yaxis.set_major_formatter(EngFormatter())
    ax.set_ylabel("Cycles")
    heading(ax, title if title is not None else figures.instance, "compute and transfer")
    if file is not None:
        save(ax.figure, file)
    return ax


def finish_bars(ax: Any, labels: list[str]) -> None:
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
