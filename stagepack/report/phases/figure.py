"""The interactive chart of a phase plan."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.contracts import JsonObject
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
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
from stagepack.report.format import byte_unit
from stagepack.report.phases.numbers import (
    COLOURS,
    ROWS,
    PhaseBars,
    band_colour,
    phase_bars,
    row_of,
)
from stagepack.report.view import Charts


def phase_charts(instance: PhaseSchedule, solutions: Sequence[PhaseSolution]) -> Charts:
    """Return a figure for every plan, on equal axes: phases, both engines, memory below."""
    bars = [phase_bars(instance, solution) for solution in solutions]
    last = max(drawn.end_time for drawn in bars)
    highest = max(band.peak for drawn in bars for band in drawn.bands)
    capacity = max((drawn.capacity or 0 for drawn in bars), default=0)
    top = max(highest, capacity if capacity <= 2.2 * highest else 0)
    return Charts([_figure(drawn, last, top) for drawn in bars])


def _figure(drawn: PhaseBars, last: int, top: int) -> Figure:
    factor, unit = byte_unit(top / 2)
    traces = [
        _phases(drawn),
        *(_engine(drawn, what, colour) for what, colour in COLOURS.items()),
        _memory(drawn, factor),
    ]
    if drawn.capacity is not None and drawn.capacity <= top:
        name = f"capacity {drawn.capacity:,}"
        traces.append(limit_line(name, last, drawn.capacity / factor))
    figure = graph_objects().Figure(traces)
    few = " (steps joined)" if drawn.folded else ""
    figure.update_layout(**look(f"Phases and engines{few}: {ZOOM}"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=470,
        legend=LEGEND,
        yaxis={"domain": [0.52, 1], "range": [2.5, -0.5], "tickvals": [0, 1, 2],
               "ticktext": list(ROWS), "showgrid": False, "fixedrange": True},
        yaxis2={"domain": [0, 0.42], "anchor": "x", "rangemode": "tozero", "fixedrange": True,
                "title": {"text": f"Memory ({unit})"}, "range": [0, 1.08 * top / factor]},
    )  # fmt: skip
    figure.update_xaxes(title_text="Cycles", range=[0, last], tickformat="~s", anchor="y2")
    return figure


def _marker(drawn: PhaseBars) -> JsonObject:
    """Return how the bars of the phases look."""
    return {"color": list(map(band_colour, range(len(drawn.bands)))), "line": BORDER}


def _phases(drawn: PhaseBars) -> Figure:
    bands = drawn.bands
    return graph_objects().Bar(
        y=[0] * len(bands), x=[band.width for band in bands], base=[band.start for band in bands],
        orientation="h", width=0.8, showlegend=False, marker=_marker(drawn),
        text=[band.name for band in bands], **inside(11),
        customdata=[
            (band.name, f"layers {band.first} to {band.end - 1}", band.mode, band.stop)
            for band in bands
        ],
        hovertemplate=(
            "%{customdata[0]}: %{customdata[1]}, %{customdata[2]}<br>"
            "[%{base:,}, %{customdata[3]:,})<extra></extra>"
        ),
    )  # fmt: skip


def _engine(drawn: PhaseBars, what: str, colour: str) -> Figure:
    """Return all that engines do of one sort."""
    own = drawn.of(what)
    return graph_objects().Bar(
        name=what, orientation="h", width=0.8,
        marker={"color": colour, "line": {"width": 0} if drawn.folded else BORDER},
        y=[row_of(e) for e in own], x=[e.end - e.start for e in own],
        base=[e.start for e in own], visible=True if own else "legendonly",
        showlegend=bool(own),
        customdata=[
            (drawn.bands[e.phase].name, "" if e.step < 0 else f", step {e.step}", e.end)
            for e in own
        ],
        hovertemplate=(
            f"{text(what)} of %{{customdata[0]}}%{{customdata[1]}}<br>"
            "[%{base:,}, %{customdata[2]:,})<extra></extra>"
        ),
    )  # fmt: skip


def _memory(drawn: PhaseBars, factor: int) -> Figure:
    """Return the most memory of every phase, in units of so many bytes."""
    bands = drawn.bands
    return graph_objects().Bar(
        x=[band.start + band.width / 2 for band in bands], width=[band.width for band in bands],
        y=[band.peak / factor for band in bands], yaxis="y2", showlegend=False,
        marker=_marker(drawn),
        customdata=[(band.name, band.peak, band.peak_at) for band in bands],
        hovertemplate=(
            "%{customdata[0]}: %{customdata[1]:,} bytes, %{customdata[2]}<extra></extra>"
        ),
    )  # fmt: skip
