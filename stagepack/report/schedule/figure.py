"""The interactive chart of a schedule."""

from __future__ import annotations

import itertools
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
    """Return a figure for every solution, on equal axes: bars on devices, memory below."""
    bars = [schedule_bars(instance, solution) for solution in solutions]
    last = max(drawn.end_time for drawn in bars)
    return Charts([_figure(instance, drawn, last) for drawn in bars])


def _figure(instance: PipelineSchedule, drawn: ScheduleBars, last: int) -> Figure:
    go = graph_objects()
    names = [text(device_label(instance, device)) for device in range(instance.d)]
    traces, memory = _bars(go, instance, drawn), drawn.uses_memory
    if memory:
        traces += _memory(go, instance, drawn, names)
    rows = max(170, 34 * instance.d if instance.d <= 16 else 20 * instance.d)
    below = 190 if memory else 0
    share = below / (rows + below)
    figure = go.Figure(traces)
    figure.update_layout(**look(f"Schedule: {ZOOM}"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=rows + below + 110, legend=LEGEND,
    )  # fmt: skip
    figure.update_xaxes(
        title_text="Cycles", range=[0, last], tickformat="~s", anchor="y2" if memory else "y",
    )  # fmt: skip
    figure.update_layout(
        yaxis={
            "domain": [share + (0.05 if memory else 0), 1], "showgrid": False,
            "range": [instance.d - 0.5, -0.5], "tickvals": list(range(instance.d)),
            "ticktext": names, "fixedrange": True,
        }
    )  # fmt: skip
    if memory:
        figure.update_layout(
            yaxis2={
                "domain": [0, share - 0.02], "title": {"text": "Memory of device"},
                "rangemode": "tozero", "tickformat": "~s", "nticks": 4, "fixedrange": True,
                "anchor": "x",
            }
        )  # fmt: skip
    return figure


def _bars(go: ModuleType, instance: PipelineSchedule, drawn: ScheduleBars) -> list[Figure]:
    """Return the operations, those of each kind and tint as one trace."""
    traces = []
    kinds, tints = np.unique(drawn.kind).tolist(), np.unique(drawn.tint).tolist()
    for kind, tint in itertools.product(kinds, tints):
        own = np.flatnonzero((drawn.kind == kind) & (drawn.tint == tint))
        name = kind_name(instance, kind)
        traces.append(
            go.Bar(
                name=name, legendgroup=name, showlegend=tint == 0, orientation="h",
                y=drawn.device[own], x=(drawn.end - drawn.start)[own], base=drawn.start[own],
                width=0.84,
                marker={"color": COLOURS[kind][tint % len(COLOURS[kind])], "line": BORDER},
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
    return traces


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
