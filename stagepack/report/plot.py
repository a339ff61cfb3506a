"""The function `plot`, which draws the solution of any problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.report.canvas import close, target, titled
from stagepack.report.extra import Axes
from stagepack.report.html import write_figure
from stagepack.report.view import no_picture, require_scale, view
from stagepack.result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stagepack.contracts import Instance, Solution


def plot(
    instance: Instance,
    solution: Solution | Result[Solution] | Mapping[str, object] | Sequence[object],
    path: str | Path | None = None,
    ax: Axes | None = None,
    *,
    scale: str | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a solution: the map of the stages or of the memory, the chart of a schedule or a plan.

    On axes that are given, the main part of the picture is alone.

    Parameters
    ----------
    instance : instance of any problem
    solution : solution or Result
        Of chains also several, in a list or by labels: a row each.
    path : path-like or matplotlib Axes, optional
        The file to write: .png, .svg or .pdf, or an interactive page, .html.  Or where to draw.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    scale : str, optional
        Pipelines: "cycles" or "layers".  Packings: "auto", "time" or "sections".
    title : str, optional
        Title; the instance's name by default.

    Returns
    -------
    matplotlib Axes or Path
        The axes; where a file is written, its path.

    Raises
    ------
    InputError
        For what is no solution of the instance, another scale, or a file that cannot be written;
        when matplotlib, or plotly for a page, is not installed.
    """
    require_instance(instance)
    if title is not None and not isinstance(title, str):
        raise InputError(f"{title!r} is no text", field="title", remedy="give a text, or None")
    kind = view(instance.kind)
    if not kind.drawn:
        raise no_picture(instance.kind, "instance")
    file, ax = target(path, ax)
    require_scale(kind, instance.kind, scale)
    if file is not None and file.suffix.lower() == ".html" and ax is None:
        write_figure(instance, solution, file, scale)
        return file
    drawn = kind.picture(instance, solution, ax, scale)
    titled(drawn, title if title is not None else instance.name, file)
    if file is None:
        return drawn.ax
    if ax is None:
        close(drawn.ax.figure)
    return file
