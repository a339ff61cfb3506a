"""Incumbents and bounds over time."""

from __future__ import annotations

from typing import Any

from stagepack.plots.data import curves, named
from stagepack.plots.style import axes, heading, line_colour, quiet, save, short
from stagepack.plots.target import target
from stagepack.result import InputError, Result


def trace(
    results: Any, path: Any = None, ax: Any = None, *, log_time: bool = False, title: str = ""
) -> Any:
    """Draw the best objective (solid) and the best bound (dashed) of every run over its seconds.

    Parameters
    ----------
    results : Result, or several, or a mapping of them
        The runs; the keys of a mapping are their labels.
    path : path-like or matplotlib Axes, optional
        Write the picture here, too (.png, .svg or .pdf); or where to draw.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    log_time : bool
        Whether the axis of time is logarithmic.
    title : str
        Title; the instance's name by default.

    Returns
    -------
    matplotlib Axes
    """
    runs = named(results)
    file, ax = target(path, ax)
    for run in runs.values():
        if not isinstance(run, Result):
            raise InputError(
                f"a {type(run).__name__} has no trace", field="results", remedy="give results"
            )
    ax = axes(ax, 7.5, 3.6)
    for index, (label, result) in enumerate(runs.items()):
        incumbent, bound = curves(result)
        colour = line_colour(index)
        ax.plot(
            incumbent.times, incumbent.values, drawstyle="steps-post", color=colour,
            linewidth=1.6, marker="o", markersize=3, label=short(label),
        )  # fmt: skip
        ax.plot(
            bound.times, bound.values, drawstyle="steps-post", color=colour,
            linewidth=1.2, linestyle=(0, (4, 2)),
        )  # fmt: skip
    ax.plot([], [], color="0.4", linewidth=1.2, linestyle=(0, (4, 2)), label="bounds")
    from matplotlib.ticker import EngFormatter, MaxNLocator

    quiet(ax, "y")
    ax.set_xscale("log" if log_time else "linear")
    if not log_time:
        ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter("{x:g}")

    ax.yaxis.set_major_formatter(EngFormatter())
    names = {result.objective_name for result in runs.values() if result.objective_name}
    ax.set_xlabel("Time (s)")
    ax.set_ylabel("Objective" + (f": {names.pop()}" if len(names) == 1 else ""))
    instances = {result.instance for result in runs.values() if result.instance}
    name = title or (instances.pop() if len(instances) == 1 else "")
    heading(ax, name, "incumbents and bounds")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
    if file is not None:
        save(ax.figure, file)
    return ax
