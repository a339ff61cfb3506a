"""The interactive chart of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.report.extra import Figure
from stagepack.report.figures import (
    BORDER,
    LEGEND,
    ZOOM,
    graph_objects,
    inside,
    limit_line,
    look,
    text,
)
from stagepack.report.schedule.numbers import (
    COLOURS,
    LABELLED,
    LETTERS,
    ScheduleBars,
    device_label,
    kind_name,
    limits,
    schedule_bars,
)
from stagepack.report.style import line_colour
from stagepack.report.view import Charts


def schedule_charts(instance: PipelineSchedule, solutions: Sequence[ScheduleSolution]) -> Charts:
    """Return a figure for every solution, on equal axes: bars on devices, memory below.

    Parameters
    ----------
    instance : PipelineSchedule
    solutions : sequence of ScheduleSolution

    Returns
    -------
    Charts
    """
    bars = [schedule_bars(instance, solution) for solution in solutions]
    last = max(drawn.end_time for drawn in bars)
    return Charts([_figure(instance, drawn, last) for drawn in bars])


def _figure(instance: PipelineSchedule, drawn: ScheduleBars, last: int) -> Figure:
    go = graph_objects()
    names = [text(device_label(instance, device)) for device in range(instance.d)]
    traces: list[Figure] = []
    for kind in np.unique(drawn.kind).tolist():
        name = kind_name(instance, kind)
        for tint in np.unique(drawn.tint).tolist():
            own = np.flatnonzero((drawn.kind == kind) & (drawn.tint == tint))
            traces.append(
                go.Bar(
                    name=name, legendgroup=name, showlegend=tint == 0, orientation="h",
                    y=drawn.device[own], x=(drawn.end - drawn.start)[own], base=drawn.start[own],
                    width=0.84,
                    marker={
                        "color": COLOURS[kind][tint % len(COLOURS[kind])],
                        "line": BORDER,
                    },
                    text=list(map(str, drawn.microbatch[own].tolist())),
                    **inside(10, together=True),
                    customdata=np.column_stack(
                        [drawn.stage[own], drawn.microbatch[own], drawn.end[own]]
                    ),
                    hovertemplate=(
                        f"{LETTERS[kind]} of microbatch %{{customdata[1]}}, "
                        "stage %{customdata[0]}<br>[%{base:,}, %{customdata[2]:,})<extra></extra>"
                    ),
                )
            )  # fmt: skip
    uses_memory = drawn.uses_memory
    if uses_memory:
        traces += _memory(go, instance, drawn, names)
    figure = go.Figure(traces)
    rows = max(170, 34 * instance.d if instance.d <= 16 else 20 * instance.d)
    below = 190 if uses_memory else 0
    figure.update_layout(**look(f"Schedule: {ZOOM}"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=rows + below + 110, legend=LEGEND,
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
                "domain": [0, share - 0.02], "title": {"text": "Memory of device"},
                "rangemode": "tozero", "tickformat": "~s", "nticks": 4, "fixedrange": True,
                "anchor": "x",
            }
        )  # fmt: skip
    return figure


def _memory(
    go: ModuleType, instance: PipelineSchedule, drawn: ScheduleBars, names: Sequence[str]
) -> list[Figure]:
    """Return the memory of every device over time, and the limits near it."""
    found = [
        go.Scatter(
            x=times, y=values, yaxis="y2", mode="lines", showlegend=False,
            line={"shape": "hv", "width": 1.2, "color": line_colour(device)},
            hovertemplate=f"{names[device]}: %{{y:,}} from %{{x:,}} on<extra></extra>",
        )
        for device, (times, values) in enumerate(drawn.lines())
    ]  # fmt: skip
    some = limits(instance, drawn)
    if 1 < len(names) <= LABELLED:
        found += [
            go.Scatter(
                x=[time], y=[value], yaxis="y2", mode="text", text=[f"<b>{device}</b>"],
                textposition="top center", textfont={"color": line_colour(device), "size": 11},
                showlegend=False, hoverinfo="skip", cliponaxis=False,
            )
            for device, (time, value) in enumerate(drawn.labels(list(some)))
        ]  # fmt: skip
    return found + [limit_line(text(name), drawn.end_time, limit) for limit, name in some.items()]
