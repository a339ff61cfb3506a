"""Charts of a partition: its graph in layers, what goes from stage to stage, and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.report.canvas import Drawn, as_written, engineering, quiet, short
from stagepack.report.extra import Axes, extra
from stagepack.report.format import byte_unit
from stagepack.report.graph.layers import Layered, layered
from stagepack.report.graph.numbers import (
    CROSSING,
    RECEIVED,
    SENT,
    WITHIN,
    PartitionDrawing,
    amount,
    arc,
    diameters,
    partition_drawing,
    reach,
    sides,
    summit,
    worth,
)
from stagepack.report.style import CAPACITY, GRID, INK, MUTED

if TYPE_CHECKING:
    from stagepack.instances.graph import GraphPartition

WIDTH, HIGHEST = 11.0, 7.0  # inches, of the graph
TALLEST = 0.44  # inches, of a node
NAMED = 0.42  # inches from layer to layer, from which on nodes have names
POINTS = 72.0
LINES = 6000  # up to so many pieces of edges are bows
LABELLED = 24  # stages, up to which flows have their traffic written
WORDS = 6.5  # size
SHORT = 6  # letters that are left of a name at least


def draw(instance: GraphPartition, solution: Any, ax: Axes = None) -> Drawn:
    """Draw the graph with stages as colours; below it what goes between stages, and devices.

    On axes that are given the graph is alone.
    """
    answer = instance.solution_in(solution)
    drawn = partition_drawing(instance, answer)
    page = layered(instance, WIDTH, HIGHEST)
    if ax is None:
        ax, between, below, memory = _axes(drawn, page)
        _between(between, drawn)
        _bars(below, drawn)
        if memory is not None:
            _memory(memory, drawn)
        _name_stages(below if memory is None else memory, drawn)
    _graph(ax, drawn, page)
    return Drawn(ax, f"{instance.objective} {worth(instance, instance.evaluate(answer))}")


def _axes(drawn: PartitionDrawing, page: Layered) -> tuple[Axes, Axes, Axes, Axes | None]:
    """Return axes of a new figure: graph, flows, times and, where there is any, memory."""
    low, high = reach([drawn])
    heights = [_tall(page) * page.height, min(2.4, max(0.8, 0.42 * (high - low))), 1.5]
    if drawn.largest:
        heights.append(1.2)
    pyplot = extra("matplotlib.pyplot", "plots need")
    figure = pyplot.figure(
        figsize=(WIDTH, sum(heights) + 0.35 * len(heights)), layout="constrained"
    )
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    ax, between = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    below = figure.add_subplot(grid[2], sharex=between)
    memory = figure.add_subplot(grid[3], sharex=between) if drawn.largest else None
    for one in (between, below)[: len(heights) - 2]:
        one.tick_params(labelbottom=False)
    return ax, between, below, memory


def _tall(page: Layered) -> float:
    """Return the height in inches of what has a height of 1 on a page."""
    return min(TALLEST, HIGHEST / page.height, max(0.8 * WIDTH / page.columns, 0.05))


def _graph(ax: Axes, drawn: PartitionDrawing, page: Layered) -> None:
    """Draw the graph: boxes with names where there is room, else dots."""
    ax.set_xlim(-0.6, page.columns - 0.4)
    ax.set_ylim(page.height + 0.2, -0.2)
    ax.axis("off")
    _edges(ax, drawn, page)
    wide = WIDTH / (page.columns + 0.2)
    half = min(0.42, 0.62 / wide)
    names = _names(drawn.instance, int(2 * half * wide * POINTS / (0.66 * WORDS)))
    if wide >= NAMED and all(names):
        _boxes(ax, drawn, page, half, names)
    else:
        _dots(ax, drawn, page, min(wide, _tall(page)))


def _edges(ax: Axes, drawn: PartitionDrawing, page: Layered) -> None:
    """Draw what stays on a device below what crosses, as bows unless there are very many."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    steps = 10 if len(page.begin) <= LINES else 1
    crossing = page.crossing(drawn.stage)
    many = len(page.begin) > 400
    for apart, colour, width in ((False, WITHIN, 0.5), (True, CROSSING, 0.7)):
        lines = page.lines(np.flatnonzero(crossing == apart), steps)
        ax.add_collection(
            LineCollection(
                list(lines), colors=colour, linewidths=width if many else 1.6 * width,
                zorder=1 + apart, capstyle="round", rasterized=steps == 1,
            ),
            autolim=False,
        )  # fmt: skip
    handles = [
        Line2D([], [], color=WITHIN, label="stays on its device"),
        Line2D([], [], color=CROSSING, label="crosses"),
    ]
    ax.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False,
        fontsize=8, handlelength=1.4, columnspacing=1.0, borderaxespad=0.1,
    )  # fmt: skip


def _dots(ax: Axes, drawn: PartitionDrawing, page: Layered, room: float) -> None:
    """Draw nodes as dots, squares in the backward pass, larger where they take longer."""
    n, backward = drawn.instance.n, drawn.instance.backward
    size = (diameters(drawn.instance) * min(0.78 * room, 0.16) * POINTS) ** 2
    colours = np.array(drawn.colours)[drawn.stage]
    edge = 0.4 if room >= 0.05 else 0.0
    for which, marker in ((~backward, "o"), (backward, "s")):
        own = np.flatnonzero(which)
        ax.scatter(
            page.x[:n][own], page.y[:n][own], s=size[own] * (0.8 if marker == "s" else 1),
            c=list(colours[own]), marker=marker, linewidths=edge, edgecolors=INK, zorder=3,
        )  # fmt: skip


def _boxes(
    ax: Axes, drawn: PartitionDrawing, page: Layered, half: float, names: Sequence[str]
) -> None:
    """Draw nodes as boxes with their names, round ones in the forward pass."""
    from matplotlib.patches import FancyBboxPatch

    instance, colours = drawn.instance, drawn.colours
    for node, name in enumerate(names):
        x, y = float(page.x[node]), float(page.y[node])
        ax.add_patch(
            FancyBboxPatch(
                (x - half, y - 0.33), 2 * half, 0.66, facecolor=colours[drawn.stage[node]],
                edgecolor=INK, linewidth=0.5,
                boxstyle="square,pad=0" if instance.backward[node] else
                f"round,pad=0,rounding_size={0.25 * half}", mutation_aspect=2.0, zorder=3,
            )
        )  # fmt: skip
        ax.text(x, y, name, ha="center", va="center", fontsize=WORDS, color=INK, zorder=4)


def _names(instance: GraphPartition, letters: int) -> list[str]:
    """Return what is written in each node, "" where there is no room."""
    return [_fitting(_words(instance, node), letters) for node in range(instance.n)]


def _words(instance: GraphPartition, node: int) -> list[str]:
    """Return what a node may be called, the best first."""
    label = "" if instance.names is None else instance.names[node]
    ids = [instance.node_id(node)]
    if instance.backward[node]:  # which its shape tells, so that "conv.grad" may be "conv"
        ids.append(ids[0].rpartition(".")[0])
    names = [label, label.partition("(")[0], label.rpartition("/")[2], *ids]
    return [name for name in names if name] or [str(node)]


def _fitting(names: Sequence[str], letters: int) -> str:
    """Return the first name that has room, or what is left of the last one."""
    whole = next((as_written(name) for name in names if len(name) <= letters), "")
    return whole or (as_written(f"…{names[-1][1 - letters :]}") if letters >= SHORT else "")


def _between(ax: Axes, drawn: PartitionDrawing) -> None:
    """Draw what goes from stage to stage: arcs as wide as their traffic, those back below."""
    most = max((flow.traffic for flow in drawn.flows), default=0) or 1
    count, unit = len(drawn.loads), drawn.instance.traffic_unit
    for flow in drawn.flows:
        xs, ys = arc(flow)
        ax.plot(
            xs, ys, color=CROSSING, alpha=0.55, linewidth=0.6 + 4.0 * flow.traffic / most,
            solid_capstyle="butt", zorder=1,
        )  # fmt: skip
        if count <= LABELLED and flow.traffic:
            ax.text(
                (flow.source + flow.target) / 2, summit(flow), amount(flow.traffic, unit),
                fontsize=WORDS, ha="center", va="center", color=INK, zorder=4,
                bbox={"boxstyle": "square,pad=0.12", "color": "white", "alpha": 0.85},
            )  # fmt: skip
    size = min(15.0, 0.55 * WIDTH * POINTS / (count + 1))
    ax.scatter(
        range(count), [0] * count, s=size**2, c=drawn.colours, edgecolors=INK, linewidths=0.6,
        zorder=3,
    )  # fmt: skip
    for load in drawn.loads:
        if size >= 8:
            ax.text(
                load.stage, 0, str(load.stage), ha="center", va="center", fontsize=7, color=INK,
                zorder=5,
            )  # fmt: skip
    ax.set_ylim(*reach([drawn]))
    ax.set_yticks([])
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel(drawn.traffic.replace(" ", "\n"))


def _bars(ax: Axes, drawn: PartitionDrawing) -> None:
    """Draw time, received and sent of each stage; one bar a pass where both count."""
    from matplotlib.patches import Patch

    passes = len({bar.name for bar in drawn.bars})
    width = 0.76 / (3 if drawn.apart else passes)
    for bar in drawn.bars:
        left = bar.stage - 0.38 + (width if bar.name == "backward" else 0)
        floor = 0.0
        colours = (drawn.colours[bar.stage], RECEIVED, SENT)
        for part, colour in zip(bar.parts, colours, strict=True):
            ax.bar(
                left, part, width, floor, align="edge", color=colour, edgecolor=MUTED,
                linewidth=0.5,
            )  # fmt: skip
            if drawn.apart:
                left += width
            else:
                floor += part
    quiet(ax, "y")
    ax.set_ylim(0, 1.08 * drawn.top or 1.0)
    engineering(ax.yaxis)
    ax.set_ylabel(drawn.time if passes == 1 else f"{drawn.time}\n(forward, backward)")
    handles = [
        Patch(facecolor="white", edgecolor=MUTED, label="computing (in colour)"),
        Patch(facecolor=RECEIVED, edgecolor=MUTED, label="receiving"),
        Patch(facecolor=SENT, edgecolor=MUTED, label="sending"),
    ]
    ax.legend(
        handles=handles,
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=8,
        handlelength=1.2, columnspacing=1.0, borderaxespad=0.1,
    )  # fmt: skip


def _memory(ax: Axes, drawn: PartitionDrawing) -> None:
    """Draw the bytes of each device, and its limit."""
    factor, unit = byte_unit(drawn.largest / 2)
    count = len(drawn.loads)
    ax.bar(
        range(count), [load.memory / factor for load in drawn.loads], width=0.76,
        color=drawn.colours, edgecolor=MUTED, linewidth=0.5,
    )  # fmt: skip
    limited = [(at, limit / factor) for at, limit in enumerate(drawn.limits) if limit is not None]
    quiet(ax, "y")
    ax.grid(axis="y", color=GRID)
    if limited:
        ax.hlines(
            [limit for _, limit in limited], [at - 0.42 for at, _ in limited],
            [at + 0.42 for at, _ in limited], color=CAPACITY, linewidth=1.6, label="capacity",
        )  # fmt: skip
        ax.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8,
            handlelength=1.2, borderaxespad=0.1,
        )  # fmt: skip
    ax.set_ylim(0, 1.12 * drawn.largest / factor)
    ax.set_ylabel(f"Memory ({unit})")


def _name_stages(ax: Axes, drawn: PartitionDrawing) -> None:
    """Name the devices below the bars."""
    count = len(drawn.loads)
    every = -(-count // 40)
    names = [short(drawn.label(load)) for load in drawn.loads[::every]]
    ax.set_xticks(range(0, count, every), names, fontsize=8 if count <= 24 else 7)
    ax.set_xlim(*sides([drawn]))
    ax.set_xlabel("Device of each stage")
