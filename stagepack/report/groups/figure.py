"""Interactive charts of a plan: groups over time and over the network, their rows and memory."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.contracts import JsonObject
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.report import format as as_text
from stagepack.report.extra import Figure
from stagepack.report.figures import BORDER, LEGEND, ZOOM, graph_objects, inside, look, text
from stagepack.report.format import byte_step, byte_unit
from stagepack.report.groups.numbers import (
    ALONE,
    ARCS,
    BANDS,
    COMPUTE,
    CONNECTORS,
    CROSSING,
    FOOT,
    GROUPS,
    LANE,
    OPERATORS,
    ROLES,
    TRANSFERS,
    WORK,
    Group,
    PlanDrawing,
    bank_lines,
    lane_limit,
    plan_drawing,
    row_limit,
)
from stagepack.report.style import CAPACITY, GRID, MUTED, PAGE
from stagepack.report.view import Charts

LONGEST_MOVES = 60  # letters
STEPS = 4  # of which an arc is made, and rounded
MANY = 100
"""Cycles of a column from which on parts of a cycle are not seen."""
HATCH = {"shape": "/", "fgcolor": "white", "size": 7, "solidity": 0.25}


def plan_charts(
    instance: LayerGrouping, solutions: Sequence[GroupingSolution]
) -> dict[str, Charts]:
    """Return two figures for every plan: the map of its groups, on equal axes, and their rows.

    Of the rows, thousands of bars, a page of several plans draws those of one.
    """
    plans = [plan_drawing(instance, solution) for solution in solutions]
    return {
        "map": Charts([_map(drawn, max(plan.cycles for plan in plans)) for drawn in plans]),
        "rows": Charts([_rows(drawn) for drawn in plans], first=True),
    }


def _map(drawn: PlanDrawing, last: int) -> Figure:
    go = graph_objects()
    groups, scale = drawn.groups, last / drawn.width
    traces = [
        go.Bar(
            name=what, orientation="h", width=LANE, marker={"color": colour, "line": BORDER},
            y=[(TRANSFERS, COMPUTE)[what == "compute"] + LANE / 2] * len(groups),
            base=[g.start + (g.total("load") if what == "store" else 0) for g in groups],
            x=[g.total(what) for g in groups],
            customdata=[g.number for g in groups],
            hovertemplate=f"group %{{customdata}}: {what} %{{x:,}} cycles<extra></extra>",
        )
        for what, colour in WORK.items()
    ]  # fmt: skip
    traces.append(
        go.Bar(
            orientation="h", width=LANE, showlegend=False, y=[GROUPS + LANE / 2] * len(groups),
            base=[g.start for g in groups], x=[g.end - g.start for g in groups],
            marker=_marker(groups, BORDER),
            text=[g.labels[1] for g in groups], **inside(11), **_told(drawn),
        )
    )  # fmt: skip
    traces += [*_connectors(groups, scale), _operators(drawn, scale)]
    figure = go.Figure(traces + _arcs(drawn, scale))
    figure.update_layout(**look("Groups over time, and the operators in them"))
    ticks = {"compute": COMPUTE, "transfers": TRANSFERS, "groups": GROUPS, "operators": OPERATORS}
    figure.update_layout(
        barmode="overlay", bargap=0, height=390, legend=LEGEND, hovermode="closest",
        yaxis={
            "range": [FOOT, 0], "showgrid": False, "fixedrange": True, "ticks": "",
            "tickvals": [*(at + LANE / 2 for at in ticks.values()), ARCS + 1],
            "ticktext": [*ticks, "tensors"],
        },
    )  # fmt: skip
    figure.update_xaxes(title_text="Cycles", range=[0, last], tickformat="~s")
    return figure


def _connectors(groups: Sequence[Group], scale: float) -> list[Figure]:
    """Lead from the time of each group to its operators."""
    go, traces = graph_objects(), []
    for tone in (*CONNECTORS, ALONE):
        own = [g for g in groups if _tone(g) == tone]
        x: list[float | None] = []
        y: list[float | None] = []
        for g in own:
            right, left = (_short(at * scale, scale) for at in (g.right, g.left))
            x += [g.start, g.end, right, left, g.start, None]
            y += [GROUPS + LANE, GROUPS + LANE, OPERATORS, OPERATORS, GROUPS + LANE, None]
        traces.append(
            go.Scatter(
                x=x, y=y, fill="toself", fillcolor=tone, mode="lines", hoverinfo="skip",
                line={"color": PAGE, "width": 0.6}, showlegend=False,
            )
        )  # fmt: skip
    return traces


def _operators(drawn: PlanDrawing, scale: float) -> Figure:
    """Draw a cell for each operator, of the colour of its group."""
    edge = BORDER if drawn.width <= 120 else {"width": 0}
    cells = [(at, g) for g in drawn.groups for at in range(g.left, g.right)]
    return graph_objects().Bar(
        orientation="h", width=LANE, showlegend=False, y=[OPERATORS + LANE / 2] * len(cells),
        base=[_short(at * scale, scale) for at, _ in cells],
        x=[_short(scale, scale)] * len(cells), marker=_marker([g for _, g in cells], edge),
        customdata=[(g.number, _named(drawn, at), drawn.columns[at].cycles) for at, g in cells],
        hovertemplate="group %{customdata[0]}: %{customdata[1]}"
        "<br>%{customdata[2]:,} cycles<extra></extra>",
    )  # fmt: skip


def _arcs(drawn: PlanDrawing, scale: float) -> list[Figure]:
    """Return the tensors below the operators, those that go through global memory on top."""
    longest = max((arc.right - arc.left for arc in drawn.arcs), default=1)
    found = []
    for crossing, name, colour in (
        (False, "stays in local memory", MUTED),
        (True, "through global memory", CROSSING),
    ):
        x: list[float | None] = []
        y: list[float | None] = []
        for arc in drawn.arcs:
            if arc.crossing == crossing:
                columns, depths = arc.points(ARCS, FOOT - ARCS, longest, STEPS)
                x += [_short(column * scale, scale) for column in columns] + [None]
                y += [round(depth, 2) for depth in depths] + [None]
        found.append(
            graph_objects().Scatter(
                name=name, x=x, y=y, mode="lines", hoverinfo="skip",
                line={"color": colour, "width": 1, "shape": "spline", "smoothing": 1.3},
            )
        )  # fmt: skip
    return found


def _short(place: float, scale: float) -> float:
    """Return a place on the map in as few digits as are seen: pages have thousands of them."""
    return round(place) if scale >= MANY else place


def _rows(drawn: PlanDrawing) -> Figure:
    go = graph_objects()
    top = lane_limit(drawn)
    factor, unit = byte_unit(top / 4)
    chip = drawn.instance.chip
    columns, groups = drawn.columns, drawn.groups
    traces = [
        go.Bar(
            x=[(g.left + g.right) / 2 for g in groups], width=[g.right - g.left for g in groups],
            y=[1] * len(groups), yaxis="y3", showlegend=False,
            marker=_marker(groups, BORDER),
            text=[g.labels[1] for g in groups], **inside(11), **_told(drawn),
        ),
        go.Bar(
            name="the row", x0=0.5, dx=1, width=0.94, y=[column.cycles for column in columns],
            marker={"color": GRID}, customdata=[_column(drawn, at) for at in range(drawn.width)],
            hovertemplate="group %{customdata[0]}: %{customdata[1]}<br>%{y:,} cycles, "
            "compute %{customdata[2]:,}, load %{customdata[3]:,}, store %{customdata[4]:,}"
            "<br>%{customdata[5]}<extra></extra>",
        ),
    ]  # fmt: skip
    for what, colour in WORK.items():
        traces.append(
            go.Bar(
                name=what, marker={"color": colour}, width=0.4,
                x0=0.3 if what == "compute" else 0.7, dx=1,
                y=[getattr(column, what) for column in columns],
                base=[column.load for column in columns] if what == "store" else None,
                hoverinfo="skip",  # the row behind it tells all
            )
        )  # fmt: skip
    figure = go.Figure(traces + _memory(drawn, top, factor))
    figure.update_layout(**look(f"Rows of the groups, and their memory: {ZOOM}"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=680, legend=LEGEND, hovermode="closest",
        shapes=[_line(at / factor, GRID) for at in bank_lines(drawn)]
        + ([_line(chip.memory / factor, CAPACITY)] if top == chip.memory else []),
        yaxis3={"domain": [0.955, 1], "range": [0, 1], "visible": False, "fixedrange": True},
        yaxis={
            "domain": [0.66, 0.945], "title": {"text": "Cycles of a row, all slices"},
            "tickformat": "~s", "fixedrange": True,
            "range": [0, row_limit([c.cycles for c in drawn.columns])],
        },
        yaxis2={
            "domain": [0, 0.62], "anchor": "x", "range": [0, 1.02 * top / factor],
            "title": {"text": f"Address in a lane ({unit})"}, "showgrid": False,
            "dtick": byte_step(top) / factor, "tick0": 0,
        },
    )  # fmt: skip
    figure.update_xaxes(
        title_text="Rows of the groups<br>(with several slices time is a circle)",
        range=[0, drawn.width], anchor="y2", showgrid=False,
        showticklabels=False, ticks="",
    )  # fmt: skip
    return figure


def _memory(drawn: PlanDrawing, top: int, factor: int) -> list[Figure]:
    """Return what takes room in local memory, by its role."""
    alone = [group for group in drawn.groups if group.alone]
    found = [
        graph_objects().Bar(
            name="from global memory", yaxis="y2", x=[g.left + 0.5 for g in alone], width=1,
            y=[1.02 * top / factor] * len(alone), marker={"color": ALONE}, hoverinfo="skip",
            showlegend=bool(alone),
        )
    ]  # fmt: skip
    for role, colour in ROLES.items():
        for resident in (False, True):
            own = [box for box in drawn.boxes if box.role == role and box.resident == resident]
            if not own:
                continue
            marker: JsonObject = {"color": colour, "line": BORDER}
            found.append(
                graph_objects().Bar(
                    name=f"{role}, for all slices" if resident else role, yaxis="y2",
                    x=[(box.left + box.right) / 2 for box in own],
                    width=[box.right - box.left for box in own],
                    base=[box.low / factor for box in own],
                    y=[(box.high - box.low) / factor for box in own],
                    marker={**marker, "pattern": HATCH} if resident else marker,
                    text=[text(box.name) for box in own], **inside(10),
                    customdata=[(box.group, box.low, box.high) for box in own],
                    hovertemplate=(
                        f"%{{text}} ({role}) in group %{{customdata[0]}}<br>"
                        "bytes [%{customdata[1]:,}, %{customdata[2]:,}) of a lane<extra></extra>"
                    ),
                )
            )  # fmt: skip
    if top == drawn.instance.chip.memory:  # the line is a shape, which legends do not know
        found.append(
            graph_objects().Scatter(
                name="end of the lane", x=[None], y=[None], yaxis="y2", mode="lines",
                line={"color": CAPACITY, "width": 1},
            )
        )  # fmt: skip
    return found


def _line(height: float, colour: str) -> JsonObject:
    """Return a line across the memory, behind all else."""
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "y0": height,
        "y1": height, "layer": "below", "line": {"color": colour, "width": 1},
    }  # fmt: skip


def _colour(group: Group) -> str:
    return ALONE if group.alone else BANDS[group.number % len(BANDS)]


def _marker(groups: Sequence[Group], line: JsonObject) -> JsonObject:
    return {"color": [_colour(group) for group in groups], "line": line}


def _tone(group: Group) -> str:
    return ALONE if group.alone else CONNECTORS[group.number % len(BANDS)]


def _told(drawn: PlanDrawing) -> JsonObject:
    """Return what the pointer says of groups."""
    return {
        "customdata": [_about(drawn, group) for group in drawn.groups],
        "hovertemplate": "group %{customdata[0]}: %{customdata[1]}<br>%{customdata[2]}"
        "<br>%{customdata[3]:,} cycles, compute %{customdata[4]:,}, load %{customdata[5]:,}, "
        "store %{customdata[6]:,}<extra></extra>",
    }


def _about(drawn: PlanDrawing, group: Group) -> tuple[int | str, ...]:
    own = [name for name in map(drawn.name, range(group.left, group.right)) if name]
    names = text(own[0]) if len(own) == 1 else f"{text(own[0])} to {text(own[-1])}"
    slices = f", {as_text.plural(group.rounds, 'slice')} a core" if group.rounds > 1 else ""
    return (
        group.number,
        f"{group.cut or 'from global memory'}{slices}",
        f"{as_text.plural(len(own), 'operator')}: {names}",
        *(group.total(what) for what in ("cycles", *WORK)),
    )


def _named(drawn: PlanDrawing, at: int) -> str:
    """Return what a column computes, in words."""
    return text(drawn.name(at)) or "transfers alone"


def _column(drawn: PlanDrawing, at: int) -> tuple[int | str, ...]:
    column = drawn.columns[at]
    work = column.compute, column.load, column.store
    return column.group, _named(drawn, at), *work, text(column.moves, LONGEST_MOVES)
