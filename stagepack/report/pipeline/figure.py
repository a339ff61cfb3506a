"""Interactive figures of pipelines: the map of their stages, the load of their devices."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.contracts import JsonObject, Number
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import Estimate
from stagepack.report import format as as_text
from stagepack.report.extra import Figure
from stagepack.report.figures import (
    BORDER,
    LEGEND,
    buttons,
    graph_objects,
    inside,
    look,
    text,
)
from stagepack.report.format import byte_unit
from stagepack.report.pipeline.numbers import (
    MapRow,
    Segment,
    Stack,
    capacities,
    cycle_stacks,
    device_labels,
    map_rows,
    map_scale,
    memory_stacks,
)
from stagepack.report.search import named
from stagepack.report.style import CAPACITY, INK, MUTED, area_colour

TICKS = {"cycles": "~s", "layers": ","}


Spans = tuple[Sequence[Number], Sequence[Number]]
"""Where the bars of a map begin, and how wide they are."""


def stage_map(instance: PipelinePartition, solutions: object) -> Figure:
    """Return the map of the stages, one row a solution, with a switch between two scales.

    A single trace, however many stages.  Keys of a mapping of `solutions` are labels of rows.
    """
    rows = map_rows(instance, named(solutions))
    scale, place = map_scale(instance, "cycles")
    marks = [(row, s) for row in rows for s in row.segments]
    by_layer = ([s.first for _, s in marks], [s.end - s.first for _, s in marks])
    spans: dict[str, Spans] = {
        scale: ([s.left for _, s in marks], [s.right - s.left for _, s in marks]),
        "layers": by_layer,
    }
    figure = graph_objects().Figure(_stages(marks, *spans[scale]))
    values = [_value(row) for row in rows]
    longest = max([len(v["text"]) for v in values], default=0)
    figure.update_layout(
        **look(f"Stages over the layers (on the right: {instance.objective} objective)"),
        height=98 + 30 * max(1, len(rows)),
        bargap=0.28,
        annotations=values,
    )
    figure.update_layout(margin_r=14 + 7 * longest)
    if scale == "cycles":
        figure.update_layout(
            updatemenus=buttons(
                _scale("cycles", spans["cycles"], "Cycles", float(place[-1])),
                _scale("layers", by_layer, "Layer", instance.n),
            )
        )
    figure.update_xaxes(
        title_text="Cycles" if scale == "cycles" else "Layer",
        tickformat=TICKS[scale],
        range=[0, float(place[-1])],
    )
    figure.update_yaxes(
        autorange="reversed", showgrid=False, ticks="", automargin=True, title_text="Method"
    )
    return figure


def _stages(
    marks: Sequence[tuple[MapRow, Segment]], base: Sequence[Number], width: Sequence[Number]
) -> Figure:
    """Return one trace with the bars of all stages, from `base` on so wide."""
    hover = [
        f"<b>{text(row.label)}</b>, stage {s.stage} on {text(s.device_name)}"
        f"<br>layers {as_text.span(s.first, s.end)}"
        f"<br>compute {as_text.number(s.compute)}<br>transfer {as_text.number(s.transfer)}"
        f"<br>memory {as_text.quantity(s.memory)}"
        for row, s in marks
    ]
    return graph_objects().Bar(
        orientation="h",
        y=[text(row.label) for row, _ in marks],
        x=width,
        base=base,
        text=[str(s.stage) for _, s in marks],
        **inside(11),
        marker={
            "color": [area_colour(s.colour) for _, s in marks],
            "line": {"color": INK, "width": 1},
        },
        hovertext=hover,
        hoverinfo="text",
        showlegend=False,
    )


def _value(row: MapRow) -> JsonObject:
    """Return what a solution is worth, on the right of its row."""
    return {
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 6,
        "y": text(row.label),
        "text": as_text.number(row.value),
        "showarrow": False,
        "font": {"size": 11, "color": MUTED},
    }


def _scale(unit: str, span: Spans, title: str, end: float) -> tuple[str, str, list[JsonObject]]:
    """Return a button that shows another scale."""
    bars = {"base": [span[0]], "x": [span[1]]}
    axis = {"range": [0, end], "title.text": title, "tickformat": TICKS[unit]}
    return f"by {unit}", "update", [bars, {f"xaxis.{key}": value for key, value in axis.items()}]


def device_bars(figures: Estimate) -> Figure:
    """Return compute and transfer of every device, stacked."""
    figure = _bars(figures, cycle_stacks(figures), "Compute and transfer of the devices")
    figure.update_yaxes(title_text="Cycles", tickformat="~s", rangemode="tozero")
    return figure


def memory_bars(figures: Estimate, beside: Sequence[Estimate] = ()) -> Figure:
    """Return the memory of every device by category, stacked, with a mark at its capacity.

    The unit is one that also suits the estimates shown `beside` it.
    """
    together = [stage for one in (figures, *beside) for stage in one.devices]
    factor, unit = byte_unit(max(max(stage.memory, stage.capacity or 0) for stage in together))
    title = "Memory of the devices against capacity"
    figure = _bars(figures, memory_stacks(figures), title, factor, f",.2f}} {unit}")
    limits = capacities(figures)
    if any(limit is not None for limit in limits):
        figure.add_scatter(
            name="capacity",
            x=_labels(figures),
            y=[None if limit is None else limit / factor for limit in limits],
            mode="markers",
            marker={
                "symbol": "line-ew",
                "size": max(8, min(44, 260 // len(limits))),
                "line": {"color": CAPACITY, "width": 2.5},
            },
            hovertemplate=f"%{{x}}<br>capacity %{{y:,.2f}} {unit}<extra></extra>",
        )
    figure.update_yaxes(title_text=f"Memory ({unit})", rangemode="tozero")
    return figure


def _bars(
    figures: Estimate, stacks: Sequence[Stack], title: str, factor: int = 1, form: str = ",}"
) -> Figure:
    """Return stacked bars of the devices; `form` is that of a height, and what follows it."""
    go = graph_objects()
    figure = go.Figure(
        [
            go.Bar(
                name=text(stack.name),
                x=_labels(figures),
                y=[height / factor for height in stack.heights],
                marker={"color": stack.colour, "line": BORDER},
                hovertemplate=f"%{{x}}<br>{text(stack.name)} %{{y:{form}<extra></extra>",
            )
            for stack in stacks
        ]
    )
    figure.update_layout(
        **look(title),
        barmode="stack",
        bargap=0.28,
        height=340,
        showlegend=True,
        legend={**LEGEND, "x": 0, "xanchor": "left"},
    )
    figure.update_xaxes(title_text="Device", type="category", showgrid=False)
    return figure


def _labels(figures: Estimate) -> list[str]:
    return [text(label) for label in device_labels(figures)]
