"""The map of the stages: where each method cuts the chain of layers."""

from __future__ import annotations

from typing import Any

from stagepack.instances.answer import require_instance
from stagepack.instances.pipeline import PipelinePartition
from stagepack.plots.data import named
from stagepack.plots.frame import write
from stagepack.plots.pipeline import map_rows, map_scale
from stagepack.plots.style import INK, MUTED, area_colour, axes, heading, short
from stagepack.plots.target import target

FEW_LAYERS = 60  # up to so many layers, their borders are drawn too


def stage_map(
    instance: PipelinePartition,
    solutions: Any,
    path: Any = None,
    ax: Any = None,
    *,
    scale: str = "cycles",
    title: str | None = None,
) -> Any:
    """Draw one row a solution: its stages over the layers, by colour, with lines at the cuts.

    Parameters
    ----------
    instance : PipelinePartition
        The instance.
    solutions : mapping, or one or several solutions or results
        What to draw; the keys of a mapping are the labels of the rows.
    path : path-like or matplotlib Axes, optional
        Write the picture here, too: .png, .svg or .pdf, or an interactive page, .html.  Or where
        to draw.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    scale : {"cycles", "layers"}
        What the x axis measures.
    title : str, optional
        Title; the instance's name by default.

    Returns
    -------
    matplotlib Axes
    """
    require_instance(instance, "pipeline-partition")
    file, ax = target(path, ax)
    rows = map_rows(instance, named(solutions), scale)
    scale, place = map_scale(instance, scale)
    ax = axes(ax, 9.0, 1.3 + 0.42 * max(1, len(rows)))
    span = float(place[-1]) or 1.0
    for y, row in enumerate(rows):
        ax.barh(
            [y] * len(row.segments),
            [s.right - s.left for s in row.segments],
            left=[s.left for s in row.segments],
            height=0.72,
            color=[area_colour(s.stage) for s in row.segments],
        )
        for s in row.segments:
            share = (s.right - s.left) / span
            wide = (
                f"{s.stage}: {s.first}–{s.end - 1}"
                if s.end - s.first > 1
                else f"{s.stage}: {s.first}"
            )
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
        from matplotlib.ticker import EngFormatter

        ax.xaxis.set_major_formatter(EngFormatter())
        ax.set_xlabel(f"Cycles of the {instance.n:,} layers, in order")
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("Layer")
    ax.set_ylabel("Method")
    heading(ax, title if title is not None else instance.name, "stages (stage: layers)")
    ax.text(
        1.01, 1.02, str(instance.objective), transform=ax.transAxes, fontsize=8, color=MUTED,
    )  # fmt: skip
    write(ax, instance, solutions, file, scale)
    return ax
