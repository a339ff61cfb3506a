"""What charts over time have in common: the memory below, the title, the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stagepack.plots.style import heading, pyplot, save


def with_memory(size: tuple[float, float], ratios: tuple[float, float]) -> tuple[Any, Any]:
    """Return two axes of a new figure, one above the other, that share the axis of time."""
    figure = pyplot().figure(figsize=size, layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    upper.tick_params(labelbottom=False)
    return upper, lower


def finish(
    ax: Any, instance: Any, answer: Any, path: str | Path | None, title: str | None, worth: str
) -> Any:
    """Give a chart its title and write it, where a path is given; return its axes.

    Parameters
    ----------
    ax : matplotlib Axes
    instance, answer : instance of any problem and its solution
    path : path-like, optional
        .png, .svg or .pdf, or an interactive page, .html.
    title : str, optional
        The instance's name by default.
    worth : str
        What the solution is worth, in words.
    """
    name = title if title is not None else instance.name
    heading(ax, name, worth)
    write(ax, instance, answer, path)
    return ax


def write(
    ax: Any, instance: Any, answer: Any, path: str | Path | None, scale: str | None = None
) -> None:
    """Write a chart where a path is given, as a picture or as an interactive page."""
    if path is not None and Path(path).suffix.lower() == ".html":
        from stagepack.report.html import write_figure

        write_figure(instance, answer, path, scale)
    elif path is not None:
        save(ax.figure, path)
