"""Interactive figures of pipelines: the map of the stages, the load of the devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.estimate import Estimate
from stagepack.plots.data import named
from stagepack.plots.pipeline import (
    capacities,
    cycle_stacks,
    device_labels,
    map_rows,
    map_scale,
    memory_stacks,
)
from stagepack.plots.style import CAPACITY, GRID, INK, MUTED, TIMES, area_colour, byte_unit
from stagepack.report import format as as_text
from stagepack.report.figures import graph_objects, look, text


def stage_map(instance: PipelinePartition, solutions: Any) -> Any:
    """Return the map of the stages, one row a solution, with a switch between two scales.

    Parameters
    ----------
    instance : PipelinePartition
        The instance.
    solutions : mapping, or one or several solutions or results
        What to draw; the keys of a mapping are the labels of the rows.

    Returns
    -------
    plotly.graph_objects.Figure
        A single trace, however many stages.
    """
    go = graph_objects()
    solutions = named(solutions)
    rows = map_rows(instance, solutions)
    scale, place = map_scale(instance, "cycles")
    marks = [(row, s) for row in rows for s in row.segments]
    by_layer = ([s.first for _, s in marks], [s.end - s.first for _, s in marks])
    spans: dict[str, tuple[list[Any], list[Any]]] = {
        scale: ([s.left for _, s in marks], [s.right - s.left for _, s in marks]),
        "layers": by_layer,
    }
    base, width = spans[scale]
    unit = "cycles" if scale == "cycles" else "layers"
    hover = [
        f"<b>{text(row.label)}</b>, stage {s.stage} on {text(s.device_name)}"
        f"<br>layers {s.first:,}–{s.end - 1:,}"
        f"<br>compute {as_text.number(s.compute)}<br>transfer {as_text.number(s.transfer)}"
        f"<br>memory {as_text.quantity(s.memory)}"
        for row, s in marks
    ]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[text(row.label) for row, _ in marks],
            x=width,
            base=base,
            text=[str(s.stage) for _, s in marks],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": INK, "size": 11},
            constraintext="inside",
            marker={
                "color": [area_colour(s.stage) for _, s in marks],
                "line": {"color": INK, "width": 1},
            },
            hovertext=hover,
            hoverinfo="text",
            showlegend=False,
        )
    )
    values: list[dict[str, Any]] = [
        {
            "x": 1,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 6,
            "y": text(row.label),
            "text": as_text.number(row.value),
            "showarrow": False,
            "font": {"size": 11, "color": MUTED},
        }
        for row in rows
    ]
    longest = max([len(v["text"]) for v in values], default=0)
    figure.update_layout(
        **look(f"Stages over the layers (on the right: {instance.objective} objective)"),
        height=98 + 30 * max(1, len(rows)),
        bargap=0.28,
        annotations=values,
        uniformtext={"minsize": 8, "mode": "hide"},
    )
    figure.update_layout(margin_r=14 + 7 * longest)
    if scale == "cycles":
        figure.update_layout(
            updatemenus=[
                {
                    "type": "buttons",
                    "direction": "right",
                    "x": 1,
                    "xanchor": "right",
                    "y": 1,
                    "yanchor": "bottom",
                    "pad": {"b": 6},
                    "font": {"size": 11},
                    "bgcolor": "white",
                    "bordercolor": GRID,
                    "showactive": True,
                    "buttons": [
                        _scale_button("by cycles", spans["cycles"], "Cycles", float(place[-1])),
                        _scale_button("by layers", by_layer, "Layer", instance.n),
                    ],
                }
            ]
        )
    figure.update_xaxes(
        title_text="Cycles" if unit == "cycles" else "Layer", range=[0, float(place[-1])]
    )
    figure.update_yaxes(
        autorange="reversed", showgrid=False, ticks="", automargin=True, title_text="Method"
    )
    return figure


def _scale_button(
    label: str, span: tuple[list[Any], list[Any]], title: str, end: float
) -> dict[str, Any]:
    return {
        "label": label,
        "method": "update",
        "args": [
            {"base": [span[0]], "x": [span[1]]},
            {"xaxis.range": [0, end], "xaxis.title.text": title},
        ],
    }


def device_bars(figures: Estimate) -> Any:
    """Return compute and transfer of every device, stacked."""
    go = graph_objects()
    labels = _labels(figures)
    bars = [
        go.Bar(
            name=stack.name,
            x=labels,
            y=list(stack.heights),
            marker={"color": TIMES[stack.name], "line": {"color": "white", "width": 0.6}},
            hovertemplate="%{x}<br>" + stack.name + " %{y:,}<extra></extra>",
        )
        for stack in cycle_stacks(figures)
    ]
    figure = go.Figure(bars)
    figure.update_layout(**look("Compute and transfer of the devices"), **_bars())
    figure.update_yaxes(title_text="Cycles", tickformat="~s", rangemode="tozero")
    figure.update_xaxes(title_text="Device", type="category", showgrid=False)
    return figure


def memory_bars(figures: Estimate, beside: Sequence[Estimate] = ()) -> Any:
    """Return the memory of every device by category, stacked, with a mark at its capacity.

    The unit is one that also suits the estimates shown `beside` it.
    """
    go = graph_objects()
    labels, limits = _labels(figures), capacities(figures)
    together = [stage for one in (figures, *beside) for stage in one.stages]
    factor, unit = byte_unit(max(max(stage.memory, stage.capacity or 0) for stage in together))
    traces = [
        go.Bar(
            name=text(stack.name),
            x=labels,
            y=[height / factor for height in stack.heights],
            marker={"color": area_colour(index), "line": {"color": "white", "width": 0.6}},
            hovertemplate=f"%{{x}}<br>{text(stack.name)} %{{y:,.2f}} {unit}<extra></extra>",
        )
        for index, stack in enumerate(memory_stacks(figures))
    ]
    if any(limit is not None for limit in limits):
        traces.append(
            go.Scatter(
                name="capacity",
                x=labels,
                y=[None if limit is None else limit / factor for limit in limits],
                mode="markers",
                marker={
                    "symbol": "line-ew",
                    "size": max(8, min(44, 260 // len(labels))),
                    "line": {"color": CAPACITY, "width": 2.5},
                },
                hovertemplate=f"%{{x}}<br>capacity %{{y:,.2f}} {unit}<extra></extra>",
            )
        )
    figure = go.Figure(traces)
    figure.update_layout(**look("Memory of the devices against capacity"), **_bars())
    figure.update_yaxes(title_text=f"Memory ({unit})", rangemode="tozero")
    figure.update_xaxes(title_text="Device", type="category", showgrid=False)
    return figure


def _bars() -> dict[str, Any]:
    return {
        "barmode": "stack",
        "bargap": 0.28,
        "height": 340,
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "y": 1.0,
            "yanchor": "bottom",
            "font": {"size": 11},
        },
    }


def _labels(figures: Estimate) -> list[str]:
    return [text(label) for label in device_labels(figures)]
