"""The interactive chart of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.plots.schedule import COLOURS, KINDS, device_label, limits, schedule_bars
from stagepack.plots.style import CAPACITY, INK, line_colour
from stagepack.report.figures import graph_objects, look, text

LETTERS = "FBW"


def schedule_charts(instance: PipelineSchedule, solutions: Sequence[ScheduleSolution]) -> list[Any]:
    """Return a figure for every solution, on equal axes: bars on devices, memory below.

    Parameters
    ----------
    instance : PipelineSchedule
    solutions : sequence of ScheduleSolution

    Returns
    -------
    list of plotly.graph_objects.Figure
    """
    last = max(schedule_bars(instance, solution).end_time for solution in solutions)
    return [_figure(instance, solution, last) for solution in solutions]


def _figure(instance: PipelineSchedule, solution: ScheduleSolution, last: int) -> Any:
    go = graph_objects()
    drawn = schedule_bars(instance, solution)
    names = [text(device_label(instance, device)) for device in range(instance.d)]
    traces: list[Any] = []
    for kind in np.unique(drawn.kind).tolist():
        name = KINDS[kind] if instance.split or kind == 0 else "backward"
        for tint in np.unique(drawn.tint).tolist():
            own = np.flatnonzero((drawn.kind == kind) & (drawn.tint == tint))
            traces.append(
                go.Bar(
                    name=name, legendgroup=name, showlegend=tint == 0, orientation="h",
                    y=drawn.device[own], x=(drawn.end - drawn.start)[own], base=drawn.start[own],
                    width=0.84,
                    marker={
                        "color": COLOURS[kind][tint % len(COLOURS[kind])],
                        "line": {"color": "white", "width": 0.5},
                    },
                    text=[str(i) for i in drawn.microbatch[own].tolist()],
                    textposition="inside", insidetextanchor="middle", textangle=0,
                    textfont={"size": 10, "color": INK}, constraintext="both",
                    customdata=np.column_stack(
                        [drawn.stage[own], drawn.microbatch[own], drawn.end[own]]
                    ),
                    hovertemplate=(
                        f"{LETTERS[kind]} of microbatch %{{customdata[1]}}, "
                        "stage %{customdata[0]}<br>[%{base:,}, %{customdata[2]:,})<extra></extra>"
                    ),
                )
            )  # fmt: skip
    uses_memory = any(values.any() for _, values in drawn.memory)
    if uses_memory:
        traces += _memory(go, instance, drawn, names)
    figure = go.Figure(traces)
    rows = max(170, 34 * instance.d if instance.d <= 16 else 20 * instance.d)
    below = 190 if uses_memory else 0
    figure.update_layout(**look("Schedule: drag to zoom, double click to return"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=rows + below + 110,
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom",
                "font": {"size": 11}, "traceorder": "normal"},
    )  # fmt: skip
    share = below / (rows + below)
    figure.update_xaxes(
        title_text="Cycles", range=[0, last], tickformat="~s",
        anchor="y2" if uses_memory else "y",
    )  # fmt: skip
    figure.update_layout(
        yaxis={
            "domain": [share + (0.05 if uses_memory else 0), 1], "showgrid": False,
            "range": [instance.d - 0.5, -0.5], "tickvals": list(range(instance.d)),
            "ticktext": names, "fixedrange": True,
        }
    )  # fmt: skip
    if uses_memory:
        figure.update_layout(
            yaxis2={
                "domain": [0, share - 0.02], "title": {"text": "Memory"}, "rangemode": "tozero",
                "tickformat": "~s", "nticks": 4, "fixedrange": True, "anchor": "x",
            }
        )  # fmt: skip
    return figure


def _memory(go: Any, instance: PipelineSchedule, drawn: Any, names: Sequence[str]) -> list[Any]:
    """Return the memory of every device over time, and the limits near it."""
    found = []
    for device, (times, values) in enumerate(drawn.memory):
        found.append(
            go.Scatter(
                x=np.append(times, drawn.end_time), y=np.append(values, values[-1]), yaxis="y2",
                mode="lines", line={"shape": "hv", "width": 1.2, "color": line_colour(device)},
                hovertemplate=f"{names[device]}: %{{y:,}} from %{{x:,}} on<extra></extra>",
                showlegend=False,
            )
        )  # fmt: skip
    found += [
        go.Scatter(
            name=f"limit {limit:,}", x=[0, drawn.end_time], y=[limit] * 2, yaxis="y2",
            mode="lines", line={"color": CAPACITY, "width": 1.4, "dash": "dash"},
            hoverinfo="skip",
        )
        for limit in limits(instance, drawn)
    ]  # fmt: skip
    return found
