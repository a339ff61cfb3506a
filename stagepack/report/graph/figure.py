"""Interactive charts of a partition: its graph in layers, and the traffic between its stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.profile import Array
from stagepack.report import format as as_text
from stagepack.report.extra import Figure
from stagepack.report.figures import BORDER, LEGEND, ZOOM, graph_objects, look, text
from stagepack.report.format import byte_unit
from stagepack.report.graph.layers import Layered, layered
from stagepack.report.graph.numbers import (
    CROSSING,
    RECEIVED,
    SENT,
    WITHIN,
    Flow,
    PartitionDrawing,
    amount,
    arc,
    diameters,
    duration,
    partition_drawing,
    reach,
    sides,
    summit,
)
from stagepack.report.style import CAPACITY, INK
from stagepack.report.view import Charts

WIDE, TALL, FOOT = 1050, 760, 40  # pixels of a graph, and below it
LARGEST, ROOM = 22, 0.72  # pixels of a node, and its share of what there is
BOWS = 2500  # pieces of edges, up to which they are bows
CLEAR = 0.03  # of the way between two stages, by which numbers keep off the arcs below them
NUMBERED = 10  # pixels of the smallest node, from which on all have the number of their stage


def partition_charts(
    instance: GraphPartition, solutions: Sequence[GraphSolution]
) -> dict[str, Charts]:
    """Return two figures for every solution, on equal axes: the graph, and the stages."""
    drawings = [partition_drawing(instance, solution) for solution in solutions]
    page = layered(instance, WIDE, TALL)
    return {
        "graph": Charts([_graph(drawn, page) for drawn in drawings]),
        "stages": Charts([_stages(drawn, drawings) for drawn in drawings]),
    }


def _graph(drawn: PartitionDrawing, page: Layered) -> Figure:
    """Return the graph with stages as colours."""
    go = graph_objects()
    cell = min(WIDE / page.columns, TALL / page.height, 1.6 * LARGEST)
    crossing = page.crossing(drawn.stage)
    steps = 6 if len(page.begin) <= BOWS else 1
    traces: list[Figure] = []
    for apart, name, colour in (
        (False, "stays on its device", WITHIN),
        (True, "crosses", CROSSING),
    ):
        lines = page.lines(np.flatnonzero(crossing == apart), steps)
        x, y = _joined(lines)
        traces.append(
            go.Scatter(
                name=name, x=x, y=y, mode="lines", hoverinfo="skip",
                line={"color": colour, "width": 0.8 + 0.4 * apart},
            )
        )  # fmt: skip
    traces.append(_nodes(drawn, page, min(ROOM * cell, LARGEST)))
    figure = go.Figure(traces)
    figure.update_layout(**look(f"Nodes in layers, coloured by stage: {ZOOM}"))
    figure.update_layout(
        height=round(cell * page.height) + FOOT + 60, legend=LEGEND, hovermode="closest",
        margin={"l": 14, "r": 14, "t": 62, "b": 10},
        xaxis={"range": [-0.6, page.columns - 0.4], "visible": False},
        yaxis={"range": [page.height + 0.3, -0.3], "visible": False},
    )  # fmt: skip
    return figure


def _joined(lines: Array | Sequence[Array]) -> tuple[list[float | None], list[float | None]]:
    """Return the coordinates of lines, with nothing between one and the next."""
    found: tuple[list[float | None], list[float | None]] = ([], [])
    for axis, values in zip(found, np.round(lines, 2).transpose(2, 0, 1).tolist(), strict=True):
        for line in values:
            axis += [*line, None]
    return found


def _nodes(drawn: PartitionDrawing, page: Layered, largest: float) -> Figure:
    """Return nodes as dots in the colours of their stages, with numbers where there is room."""
    instance, n = drawn.instance, drawn.instance.n
    colours = drawn.colours
    size = largest * diameters(instance)
    numbered = bool(size.min() >= NUMBERED)
    return graph_objects().Scatter(
        x=np.round(page.x[:n], 2).tolist(), y=np.round(page.y[:n], 2).tolist(),
        mode="markers+text" if numbered else "markers", showlegend=False,
        text=list(map(str, drawn.stage.tolist())) if numbered else None,
        textfont={"size": 9, "color": INK},
        marker={
            "color": [colours[stage] for stage in drawn.stage], "opacity": 1,
            "size": np.round(size, 1).tolist(),
            "symbol": np.where(instance.backward, "square", "circle").tolist(),
            "line": {"color": INK, "width": 0.6 if largest >= 5 else 0.3},
        },
        hovertext=[_about(drawn, node) for node in range(n)], hoverinfo="text",
    )  # fmt: skip


def _about(drawn: PartitionDrawing, node: int) -> str:
    instance, load = drawn.instance, drawn.loads[drawn.stage[node]]
    found = [
        f"{text(instance.node_name(node))}: stage {load.stage}, {instance.device_name(load.device)}"
    ]
    times = (
        (instance.accelerator, instance.time, ""),
        (instance.cpu, instance.cpu_time, " on a CPU"),
    )
    said = [
        f"time {duration(instance, time[node])}{where}" for may, time, where in times if may[node]
    ]
    if instance.memory[node]:
        said.append(as_text.quantity(int(instance.memory[node])))
    if instance.backward[node]:
        said.append("backward pass")
    return "<br>".join([*found, ", ".join(said)])


def _stages(drawn: PartitionDrawing, drawings: Sequence[PartitionDrawing]) -> Figure:
    """Draw what goes from stage to stage, and below time and memory of each."""
    largest = max(one.largest for one in drawings)
    count = max(len(one.loads) for one in drawings)
    figure = graph_objects().Figure(
        [*_flows(drawn), *_times(drawn), *(_memory(drawn, largest) if largest else ())]
    )
    figure.update_layout(**look("Traffic between stages; time and memory of their devices"))
    domains = [[0.66, 1], [0.3, 0.6], [0, 0.24]] if largest else [[0.5, 1], [0, 0.45], [0, 0]]
    quiet = {"showgrid": False, "zeroline": False, "fixedrange": True}
    figure.update_layout(
        barmode="overlay", height=640 if largest else 460, legend=LEGEND, hovermode="closest",
        xaxis={
            "range": list(sides(drawings)), "anchor": "y3" if largest else "y2",
            "tickvals": list(range(0, count, -(-count // 40))),
            "title": {"text": "Stage"}, "showgrid": False,
        },
        yaxis={**quiet, "domain": domains[0], "range": list(reach(drawings)),
               "title": {"text": drawn.traffic}, "showticklabels": False, "ticks": ""},
        yaxis2={"domain": domains[1], "title": {"text": drawn.time}, "tickformat": "~s",
                "range": [0, 1.08 * max(one.top for one in drawings) or 1], "fixedrange": True},
    )  # fmt: skip
    if largest:
        factor, unit = byte_unit(largest / 2)
        figure.update_layout(
            yaxis3={"domain": domains[2], "title": {"text": f"Memory ({unit})"},
                    "range": [0, 1.12 * largest / factor], "fixedrange": True, "anchor": "x"}
        )  # fmt: skip
    return figure


def _flows(drawn: PartitionDrawing) -> list[Figure]:
    """Return an arc for all that goes from one stage to another, as wide as its traffic."""
    go = graph_objects()
    most = max((flow.traffic for flow in drawn.flows), default=0) or 1
    written = [flow for flow in drawn.flows if flow.traffic]
    unit = drawn.instance.traffic_unit
    found = []
    for flow in drawn.flows:
        x, y = arc(flow)
        found.append(
            go.Scatter(
                x=np.round(x, 3).tolist(), y=np.round(y, 3).tolist(), mode="lines", opacity=0.55,
                line={"color": CROSSING, "width": 1 + 6 * flow.traffic / most}, showlegend=False,
                hovertext=_exchange(flow, unit), hoverinfo="text",
            )
        )  # fmt: skip
    found.append(
        go.Scatter(
            x=[(flow.source + flow.target) / 2 for flow in written],
            y=[summit(flow) + CLEAR for flow in written], mode="text", showlegend=False,
            text=[f"<b>{amount(flow.traffic, unit)}</b>" for flow in written],
            textfont={"size": 10, "color": INK}, textposition="top center",
            hovertext=[_exchange(flow, unit) for flow in written], hoverinfo="text",
        )
    )  # fmt: skip
    stages = [load.stage for load in drawn.loads]
    found.append(
        go.Scatter(
            x=stages, y=[0] * len(stages), mode="markers+text", showlegend=False,
            marker={"size": 20, "color": drawn.colours, "line": {"color": INK, "width": 0.8}},
            text=[str(stage) for stage in stages], textfont={"size": 11, "color": INK},
            hovertext=[_device(drawn, stage) for stage in stages], hoverinfo="text",
        )
    )  # fmt: skip
    return found


def _exchange(flow: Flow, unit: str) -> str:
    """Return what is to say of what goes from a stage to another one."""
    return (
        f"stage {flow.source} to stage {flow.target}: {as_text.plural(flow.tensors, 'tensor')}, "
        f"traffic {as_text.number(flow.traffic)} {unit}".rstrip()
    )


def _device(drawn: PartitionDrawing, stage: int) -> str:
    load = drawn.loads[stage]
    shared = f" and {load.replicas - 1} more" if load.replicas > 1 else ""
    return (
        f"stage {stage}: {drawn.instance.device_name(load.device)}{shared}<br>"
        f"{as_text.plural(load.nodes, 'node')}, {as_text.quantity(load.memory)}"
    )


def _times(drawn: PartitionDrawing) -> list[Figure]:
    """Return the bars of each stage: computing in its colour, receiving, sending."""
    passes = len({bar.name for bar in drawn.bars})
    width = 0.76 / (3 if drawn.apart else passes)
    found = []
    for part, name in enumerate(("computing (in colour)", "receiving", "sending")):
        left = [
            bar.stage - 0.38 + width * (part * drawn.apart + (bar.name == "backward"))
            for bar in drawn.bars
        ]
        colour: Any = (RECEIVED, SENT)[part - 1]
        if not part:
            colour = [drawn.colours[bar.stage] for bar in drawn.bars]
        found.append(
            graph_objects().Bar(
                name=name, yaxis="y2", x=[at + width / 2 for at in left], width=width,
                y=[bar.parts[part] for bar in drawn.bars],
                base=[0 if drawn.apart else sum(bar.parts[:part]) for bar in drawn.bars],
                marker={"color": colour, "line": BORDER},
                hovertext=[
                    f"{_device(drawn, bar.stage)}<br>{bar.name} {name.partition(' ')[0]}: "
                    f"{duration(drawn.instance, bar.parts[part])}"
                    for bar in drawn.bars
                ],
                hoverinfo="text",
            )
        )  # fmt: skip
    return found


def _memory(drawn: PartitionDrawing, largest: int) -> list[Figure]:
    """Return the bars of memory, and capacities where there are any."""
    go = graph_objects()
    factor, _ = byte_unit(largest / 2)
    stages = [load.stage for load in drawn.loads]
    bars = go.Bar(
        x=stages, y=[load.memory / factor for load in drawn.loads], width=0.76, yaxis="y3",
        showlegend=False, marker={"color": drawn.colours, "line": BORDER},
        hovertext=[_device(drawn, stage) for stage in stages], hoverinfo="text",
    )  # fmt: skip
    x: list[float | None] = []
    y: list[float | None] = []
    for stage, limit in enumerate(drawn.limits):
        if limit is not None:
            x += [stage - 0.42, stage + 0.42, None]
            y += [limit / factor, limit / factor, None]
    line = go.Scatter(
        name="capacity", x=x, y=y, yaxis="y3", mode="lines", hoverinfo="skip", showlegend=bool(x),
        line={"color": CAPACITY, "width": 1.6},
    )  # fmt: skip
    return [bars, line]
