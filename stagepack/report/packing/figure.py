"""The interactive map of a memory.

Plotly draws axes, load and lines.  The rectangles below them are painted by the page's script as an
image, again at every zoom (``rectangles.js``), because a page with 30,000 shapes would be large and
slow.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import shown as safe
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from stagepack.report.extra import Figure
from stagepack.report.figures import LEGEND, LONGEST_LINE, ZOOM, graph_objects, look, text
from stagepack.report.format import byte_step, byte_unit
from stagepack.report.packing.numbers import (
    LOAD,
    LOAD_EDGE,
    STEPS,
    MemoryMap,
    colours,
    memory_map_of,
    thinned,
)
from stagepack.report.style import MUTED
from stagepack.report.view import Charts

HEIGHT = 600


def memory_maps(
    instance: LmemPacking, solutions: Sequence[PackingSolution], scale: str = "auto"
) -> Charts:
    """Return a figure for each of an `instance`'s `solutions`, on equal axes, and what is painted
    below them.

    `scale` is the axis of time, as for :func:`.plot`.  Rectangles are plain data: arrays in base64,
    what to write about each buffer.
    """
    maps = [memory_map_of(instance, solution, scale) for solution in solutions]
    top = max(drawn.top for drawn in maps)
    factor, unit = byte_unit(top / 4)
    figures = [_figure(instance, drawn, top, factor, unit) for drawn in maps]
    return Charts(figures, _rectangles(instance, solutions, maps, factor))


def _figure(instance: LmemPacking, drawn: MemoryMap, top: int, factor: int, unit: str) -> Figure:
    """Return the map with its load, of one solution."""
    go = graph_objects()
    places, in_use = thinned(drawn.places, drawn.load, STEPS)
    within = "%{x:,}" if drawn.scale == "time" else "section %{x:,}"
    traces = [
        go.Scatter(
            x=np.round(places, 3), y=in_use, yaxis="y2", mode="lines", fill="tozeroy",
            line={"shape": "hv", "color": LOAD_EDGE, "width": 1}, fillcolor=LOAD,
            hovertemplate=f"{within}: load %{{y:,}} bytes<extra></extra>", showlegend=False,
        )
    ]  # fmt: skip
    for name, value, colour, dash in drawn.lines():
        traces += [
            go.Scatter(
                name=text(name, LONGEST_LINE), legendgroup=name, mode="lines",
                x=list(drawn.span), y=[height] * 2, yaxis=axis,
                line={"color": colour, "width": 2 if dash == "solid" else 1.6, "dash": dash},
                hoverinfo="skip", showlegend=axis == "y",
            )
            for axis, height in (("y", value / factor), ("y2", value))
            if axis == "y" or dash != "solid"
        ]  # fmt: skip
    figure = go.Figure(traces)
    figure.update_layout(**look(f"Memory map{drawn.few}: {ZOOM}"))
    figure.update_layout(
        height=HEIGHT,
        hovermode="closest",
        legend=LEGEND,
        annotations=_beside(instance, drawn, factor),
        margin_r=56 if instance.banks is not None or len(drawn.bases) > 1 else 14,
    )  # fmt: skip
    figure.update_xaxes(
        title_text=drawn.axis,
        range=list(drawn.span),
        tickformat=",~f",
        dtick=1 if drawn.span[1] - drawn.span[0] <= 12 else None,
        anchor="y",
        showgrid=False,
    )
    highest = int(max(in_use, default=0))
    loads = range(0, 2 * highest + 2, byte_step(highest, 3))  # in the unit of the addresses
    figure.update_layout(
        yaxis={
            "domain": [0, 0.77], "title": {"text": f"Address ({unit})"}, "showgrid": False,
            "range": [0, top * 1.02 / factor], **_ticks(drawn, top, factor),
        },
        yaxis2={
            "domain": [0.81, 1], "anchor": "x", "title": {"text": f"Load ({unit})"},
            "rangemode": "tozero", "fixedrange": True,
            "tickvals": list(loads), "ticktext": [f"{load / factor:g}" for load in loads],
        },
    )  # fmt: skip
    return figure


def _ticks(drawn: MemoryMap, top: int, factor: int) -> JsonObject:
    """Return the ticks of addresses: those of each memory from its base on."""
    if len(drawn.bases) == 1:
        return {"dtick": byte_step(top) / factor, "tick0": 0}
    ticks = drawn.ticks()
    return {
        "tickvals": [at / factor for at, _ in ticks],
        "ticktext": [f"{address / factor:g}" for _, address in ticks],
    }


def _beside(instance: LmemPacking, drawn: MemoryMap, factor: int) -> list[JsonObject]:
    """Return the numbers of banks, or the names of memories, beside the map."""
    names = [(float(base), name) for base, name, _ in drawn.bases if name]
    return [
        {
            "x": 1, "xref": "paper", "xanchor": "left", "xshift": 3, "y": place / factor,
            "text": text(name), "showarrow": False, "font": {"size": 10, "color": MUTED},
        }
        for place, name in drawn.banks(instance) or names
    ]  # fmt: skip


def _rectangles(
    instance: LmemPacking,
    solutions: Sequence[PackingSolution],
    maps: Sequence[MemoryMap],
    factor: int,
) -> JsonObject:
    first = maps[0]
    buffers, place = np.unique(first.shown.buffer, return_inverse=True)
    whole = (first.shown.low == 0) & (first.shown.high == instance.size[first.shown.buffer])
    rectangles: JsonObject = {
        "colours": colours(),
        "number": _packed(buffers),
        "size": _packed(instance.size[buffers]),
        "buffer": _packed(place),
        "left": _packed(first.left),
        "right": _packed(first.right),
        "factor": factor,
        "fixed": np.flatnonzero(first.fixed[buffers]).tolist(),
        "reserved": [list(span) for span in first.reserved(instance)],
        "period": instance.period,
        "choices": [
            {
                "offset": _packed(_on_axis(solution, drawn)[buffers]),
                "clashing": np.flatnonzero(drawn.clashing[buffers]).tolist(),
                "memories": [[base, safe(name)] for base, name, _ in drawn.bases],
            }
            for solution, drawn in zip(solutions, maps, strict=True)
        ],
    }
    if instance.conflicts is None:
        rectangles["start"] = _packed(instance.start[buffers])
        rectangles["end"] = _packed(instance.end[buffers])
    if not whole.all():
        rectangles["low"] = _packed(first.shown.low)
        rectangles["high"] = _packed(first.shown.high)
    if instance.ids is not None:
        rectangles["ids"] = [safe(instance.ids[at]) for at in buffers.tolist()]
    if instance.banks is not None:
        rectangles["banks"] = [instance.banks.count, instance.banks.nbytes]
    if (instance.previous >= 0).any():
        rectangles["previous"] = _packed(instance.previous[buffers])
    return rectangles


def _on_axis(solution: PackingSolution, drawn: MemoryMap) -> Array:
    """Return the offsets of all buffers on the axis of addresses, memories above one another."""
    if solution.memory is None or len(drawn.bases) == 1:
        return solution.offsets
    bases = np.array([base for base, _, _ in drawn.bases])
    return np.asarray(solution.offsets + bases[solution.memory])


def _packed(values: Array) -> list[str]:
    """Return numbers as their type and base64: 32-bit integers where they fit, else doubles."""
    fits = len(values) == 0 or bool(np.abs(values).max() < 2**31 and (values % 1 == 0).all())
    kind = "<i4" if fits else "<f8"
    return [kind[1:], base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()]
