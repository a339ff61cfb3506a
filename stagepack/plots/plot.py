"""The one door to the pictures of solutions, whatever the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagepack.instances.answer import require_instance
from stagepack.plots.memory_map import memory_map
from stagepack.plots.phase_chart import phase_chart
from stagepack.plots.schedule_chart import schedule_chart
from stagepack.plots.stage_map import stage_map
from stagepack.plots.style import close
from stagepack.plots.target import target
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from stagepack.instances.types import Instance, Solution

DRAWN = {
    "pipeline-partition": stage_map,
    "lmem-packing": memory_map,
    "pipeline-schedule": schedule_chart,
    "phase-schedule": phase_chart,
}
"""What draws a solution, by kind of problem."""
SCALED = ("pipeline-partition", "lmem-packing")


def plot(
    instance: Instance,
    solution: Solution | Result[Any],
    path: Any = None,
    ax: Any = None,
    *,
    scale: str | None = None,
    title: str | None = None,
) -> Any:
    """Draw a solution: the map of the stages or of the memory, the chart of a schedule or a plan.

    Parameters
    ----------
    instance : instance of any problem
    solution : solution or Result
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
        For what is no solution of the instance, another scale, or a file that cannot be written.
    StagepackError
        When matplotlib, or plotly for a page, is not installed.
    """
    require_instance(instance)
    draw = DRAWN.get(instance.kind)
    if draw is None:
        raise InputError(f"there is no picture of a {instance.kind}", field="instance")
    file, ax = target(path, ax)
    options: dict[str, Any] = {"title": title}
    if scale is not None:
        if instance.kind not in SCALED:
            raise InputError(
                f"a {instance.kind} has one scale", field="scale", remedy="leave it out"
            )
        options["scale"] = scale
    if file is not None and file.suffix.lower() == ".html" and ax is None:
        from stagepack.report.html import write_figure

        write_figure(instance, instance.solution_in(solution), file, scale)  # type: ignore[arg-type]
        return file
    drawn = draw(instance, solution, file, ax, **options)  # type: ignore[operator]
    if file is None:
        return drawn
    if ax is None:
        close(drawn.figure)
    return file
