"""The interactive map of a memory.

Plotly draws axes, load and lines; the rectangles are painted below them by the page's script, as
an image that is painted anew at every zoom (see :mod:`.painting`): a page with 30,000 shapes would
be large and slow.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from stagepack.errors import shown as safe
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from stagepack.plots.packing import MemoryMap, memory_map_of, thinned
from stagepack.plots.style import (
    BOUND,
    CAPACITY,
    INK,
    MUTED,
    PEAK,
    buffer_colours,
    byte_step,
    byte_unit,
)
from stagepack.report.figures import graph_objects, look, text

HEIGHT = 600
MOST_BANKS = 64  # up to so many banks are numbered
STEPS = 3000  # points of the load


def memory_maps(
    instance: LmemPacking, solutions: Sequence[PackingSolution], scale: str = "auto"
) -> tuple[list[Any], dict[str, Any]]:
    """Return a figure for every solution, on equal axes, and what is painted below them.

    Parameters
    ----------
    instance : LmemPacking
    solutions : sequence of PackingSolution
    scale : {"auto", "time", "sections"}
        The axis of time, as for :func:`stagepack.plots.memory_map`.

    Returns
    -------
    figures : list of plotly.graph_objects.Figure
    painting : dict
        Plain data: arrays in base64, what to write about each buffer.
    """
    maps = [memory_map_of(instance, solution, scale) for solution in solutions]
    top = max(drawn.top for drawn in maps)
    factor, unit = byte_unit(top / 4)
    figures = [_figure(instance, drawn, top, factor, unit) for drawn in maps]
    return figures, _painting(instance, solutions, maps, factor)


def _figure(instance: LmemPacking, drawn: MemoryMap, top: int, factor: int, unit: str) -> Any:
    go = graph_objects()
    places, in_use = thinned(drawn.places, drawn.load, STEPS)
    within = "%{x:,}" if drawn.scale == "time" else "section %{x:,}"
    traces = [
        go.Scatter(
            x=np.round(places, 3), y=in_use, yaxis="y2", mode="lines", fill="tozeroy",
            line={"shape": "hv", "color": "#5b7390", "width": 1}, fillcolor="#b9c7d8",
            hovertemplate=f"{within}: load %{{y:,}} bytes<extra></extra>", showlegend=False,
        )
    ]  # fmt: skip
    for name, value, colour, dash in _lines(drawn):
        traces += [
            go.Scatter(
                name=text(name), x=list(drawn.span), y=[height] * 2, mode="lines", yaxis=axis,
                line={"color": colour, "width": 2 if dash == "solid" else 1.6, "dash": dash},
                hoverinfo="skip", showlegend=axis == "y", legendgroup=name,
            )
            for axis, height in (("y", value / factor), ("y2", value))
            if axis == "y" or dash != "solid"
        ]  # fmt: skip
    figure = go.Figure(traces)
    few = f" (the {len(drawn.shown):,} largest rectangles)" if drawn.hidden else ""
    figure.update_layout(**look(f"Memory map{few}: drag to zoom, double click to return"))
    figure.update_layout(
        height=HEIGHT,
        hovermode="closest",
        legend={
            "orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom",
            "font": {"size": 11}, "traceorder": "normal",
        },
        annotations=_bank_names(instance, drawn, factor),
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
    figure.update_layout(
        yaxis={
            "domain": [0, 0.77], "title": {"text": f"Address ({unit})"}, "showgrid": False,
            "range": [0, top * 1.02 / factor], **_ticks(drawn, top, factor),
        },
        yaxis2={
            "domain": [0.81, 1], "anchor": "x", "title": {"text": "Load (bytes)"},
            "rangemode": "tozero", "tickformat": "~s", "nticks": 4, "fixedrange": True,
        },
    )  # fmt: skip
    return figure


def _lines(drawn: MemoryMap) -> list[tuple[str, int, str, str]]:
    """Return names, addresses, colours and dashes of the lines across the map."""
    found = []
    for base, name, capacity in drawn.bases:
        of = f"capacity of {name}" if name else "capacity"
        if capacity is not None:
            found.append((f"{of} {capacity:,}", base + capacity, CAPACITY, "solid"))
        if base:
            found.append((f"{name} begins", base, INK, "solid"))
    if len(drawn.bases) == 1:
        found.append((f"peak {drawn.peak:,}", drawn.peak, PEAK, "dash"))
    if drawn.bound is not None:
        found.append((f"load bound {drawn.bound:,}", drawn.bound, BOUND, "dot"))
    return found


def _ticks(drawn: MemoryMap, top: int, factor: int) -> dict[str, Any]:
    step = byte_step(top)
    if len(drawn.bases) == 1:
        return {"dtick": step / factor, "tick0": 0}
    ends = [base for base, _, _ in drawn.bases[1:]] + [drawn.top]
    ticks = [
        (at / factor, f"{(at - base) / factor:g}")
        for (base, _, _), end in zip(drawn.bases, ends, strict=True)
        for at in range(base, end, step)
    ]
    return {"tickvals": [at for at, _ in ticks], "ticktext": [label for _, label in ticks]}


def _bank_names(instance: LmemPacking, drawn: MemoryMap, factor: int) -> list[dict[str, Any]]:
    """Return the numbers of banks, or the names of memories, beside the map."""
    beside = [(base, name) for base, name, _ in drawn.bases if name]
    if instance.banks is not None and -(-drawn.top // instance.banks.nbytes) <= MOST_BANKS:
        count = min(instance.banks.count, -(-drawn.top // instance.banks.nbytes))
        middles = [(bank + 0.5) * instance.banks.nbytes for bank in range(count)]
        beside = [
            (int(middle), f"bank {bank}") for bank, middle in enumerate(middles)
            if middle <= drawn.top and bank % -(-count // 16) == 0
        ]  # fmt: skip
    return [
        {
            "x": 1, "xref": "paper", "xanchor": "left", "xshift": 3, "y": place / factor,
            "text": text(name), "showarrow": False, "font": {"size": 10, "color": MUTED},
        }
        for place, name in beside
    ]  # fmt: skip


# ---------------------------------------------------------------------- what is painted


def _painting(
    instance: LmemPacking,
    solutions: Sequence[PackingSolution],
    maps: Sequence[MemoryMap],
    factor: int,
) -> dict[str, Any]:
    first = maps[0]
    buffers, place = np.unique(first.shown.buffer, return_inverse=True)
    whole = (first.shown.low == 0) & (first.shown.high == instance.size[first.shown.buffer])
    painting: dict[str, Any] = {
        "colours": list(buffer_colours()),
        "number": _packed(buffers),
        "size": _packed(instance.size[buffers]),
        "buffer": _packed(place),
        "left": _packed(first.left),
        "right": _packed(first.right),
        "factor": factor,
        "fixed": np.flatnonzero(first.fixed[buffers]).tolist(),
        "reserved": [list(span) for span in instance.reserved],
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
        painting["start"] = _packed(instance.start[buffers])
        painting["end"] = _packed(instance.end[buffers])
    if not whole.all():
        painting["low"] = _packed(first.shown.low)
        painting["high"] = _packed(first.shown.high)
    if instance.ids is not None:
        painting["ids"] = [safe(instance.ids[at]) for at in buffers.tolist()]
    if instance.banks is not None:
        painting["banks"] = [instance.banks.count, instance.banks.nbytes]
    if (instance.previous >= 0).any():
        painting["previous"] = _packed(instance.previous[buffers])
    return painting


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
