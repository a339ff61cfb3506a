"""Incumbents and bounds over time: their curves, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stagepack.contracts import JsonObject, Solution
from stagepack.errors import InputError, a
from stagepack.report.canvas import axes, engineering, heading, quiet, save, short, target
from stagepack.report.extra import Axes, Figure
from stagepack.report.figures import buttons, graph_objects, look, text
from stagepack.report.format import numbered
from stagepack.report.style import line_colour
from stagepack.result import Result


def named(solutions: object) -> JsonObject:
    """Return solutions or results by label: of a mapping, or of one or several results."""
    if isinstance(solutions, Mapping | list | tuple) and not solutions:
        raise InputError("holds none", field="solution", remedy="give a solution or a result")
    if isinstance(solutions, Mapping):
        return {str(label): solution for label, solution in solutions.items()}
    if hasattr(solutions, "to_dict"):  # a single one
        solutions = [solutions]
    labelled: JsonObject = {}
    if isinstance(solutions, str) or not isinstance(solutions, Iterable):
        raise InputError(
            f"{a(type(solutions).__name__)} is no solution",
            field="solution",
            remedy="give a solution or a result, or several of them",
        )
    for solution in solutions:
        labelled[numbered(getattr(solution, "method", "") or "solution", labelled)] = solution
    return labelled


@dataclass(frozen=True)
class Curve:
    """A step curve: from each time on, the value holds until the next."""

    times: tuple[float, ...]
    values: tuple[float, ...]


WHOLE = ",.0f"
CLOSE = 1e-4  # relative: values no further apart need more digits than 10.5 M has
NEAR = 8  # whole objectives no further apart have a tick each
SHORTEST = 1e-4  # seconds: a logarithmic axis of time begins here


def curves(result: Result[Solution]) -> tuple[Curve, Curve]:
    """Return the incumbents and the bounds of a run over its seconds, up to its end."""
    found = []
    for events, last in (
        (result.trace.incumbents, result.objective),
        (result.trace.bounds, result.bound),
    ):
        points = [(max(event.time, SHORTEST), float(event.value)) for event in events]
        end = max([result.runtime, SHORTEST, *(time for time, _ in points)])
        if last is not None:
            points.append((end, float(last)))
        found.append(Curve(tuple(t for t, _ in points), tuple(v for _, v in points)))
    return found[0], found[1]


def _digits(values: Iterable[float]) -> str:
    """Return the format in which values differ that letters for thousands would make equal; ""."""
    known = list(values)
    largest = max(map(abs, known), default=0.0)
    if not known or max(known) - min(known) > CLOSE * largest:
        return ""
    return WHOLE if largest >= 1e6 else ",.10~g"


def trace(
    results: object,
    path: object = None,
    ax: Axes | None = None,
    *,
    log_time: bool = False,
    title: str = "",
) -> Figure:
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

    Raises
    ------
    InputError
        For what is no result, or a file that is no picture.
    """
    runs = named(results)
    file, ax = target(path, ax)
    for run in runs.values():
        if not isinstance(run, Result):
            raise InputError(
                f"{a(type(run).__name__)} has no trace", field="results", remedy="give results"
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
    from matplotlib.ticker import MaxNLocator

    quiet(ax, "y")
    ax.set_xscale("log" if log_time else "linear")
    if not log_time:
        ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter("{x:g}")

    digits = _digits(y for line in ax.lines for y in map(float, line.get_ydata()))
    if digits:
        ax.yaxis.set_major_locator(MaxNLocator("auto", integer=digits == WHOLE))
        ax.yaxis.set_major_formatter("{x:" + digits.replace("~", "") + "}")
    else:
        engineering(ax.yaxis)
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


def trace_figure(results: object, unit: str = "") -> Figure:
    """Return incumbents (solid) and bounds (dashed) of all runs over time, with a log switch.

    Keys of a mapping of `results` are their labels; `unit` is what objectives are counted in.
    """
    go = graph_objects()
    lines = []
    for index, (label, result) in enumerate(named(results).items()):
        colour = line_colour(index)
        for kind, curve in zip(("objective", "bound"), curves(result), strict=True):
            if not curve.times:
                continue
            dashed = kind == "bound"
            lines.append(
                go.Scatter(
                    name=text(label),
                    legendgroup=label,
                    showlegend=not dashed or not result.trace.incumbents,
                    x=list(curve.times),
                    y=list(curve.values),
                    mode="lines" if dashed else "lines+markers",
                    line={
                        "shape": "hv",
                        "color": colour,
                        "width": 1.4 if dashed else 2,
                        "dash": "dash" if dashed else "solid",
                    },
                    marker={"size": 5},
                    hovertemplate=f"{text(label)}: {kind} %{{y:,}}"
                    "<br>after %{x:.4g} s<extra></extra>",
                )
            )
    times = [time for line in lines for time in line.x]
    decades: int | str = 1 if not times or max(times) > 100 * min(times) else "D2"
    values = [float(value) for line in lines for value in line.y]
    near = bool(values) and max(values) - min(values) <= NEAR and all(map(float.is_integer, values))
    figure = go.Figure(lines)
    figure.update_layout(**look("Incumbents (solid) and bounds (dashed) over time"), height=360)
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": -0.26, "yanchor": "top", "font": {"size": 11}},
        updatemenus=buttons(
            *(
                (name, "relayout", [{"xaxis.type": kind, "xaxis.dtick": every}])
                for name, kind, every in (("log time", "log", decades), ("linear", "linear", None))
            )
        ),
    )
    figure.update_xaxes(title_text="Time (s)", type="log", tickformat="~g", dtick=decades)
    figure.update_yaxes(
        title_text="Objective" + (f" ({unit})" if unit else ""),
        tickformat="," if near else _digits(values) or "~s",
        dtick=1 if near else None,
    )
    return figure
