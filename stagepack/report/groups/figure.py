"""The interactive charts of a plan: its groups over time and network; their rows and memory."""

from __future__ import annotations

from collections.abc import Sequence

from stagepack.contracts import JsonObject
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.report import format as as_text
from stagepack.report.extra import Figure
from stagepack.report.figures import LEGEND, ZOOM, graph_objects, inside, look, text
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
    lane_limit,
    plan_drawing,
    row_limit,
)
from stagepack.report.style import CAPACITY, GRID, MUTED, byte_step, byte_unit
from stagepack.report.view import Charts

LONGEST_MOVES = 60  # letters
MANY = 100
"""Cycles of a column from which on parts of a cycle are not seen."""
HATCH = {"shape": "/", "fgcolor": "white", "size": 7, "solidity": 0.25}


def plan_charts(
    instance: LayerGrouping, solutions: Sequence[GroupingSolution]
) -> dict[str, Charts]:
    """Return two figures for every plan, on equal axes: the map of its groups, and their rows.

    Parameters
    ----------
    instance : LayerGrouping
    solutions : sequence of GroupingSolution
    """
    plans = [plan_drawing(instance, solution) for solution in solutions]
    return {
        "map": Charts([_map(drawn, max(plan.cycles for plan in plans)) for drawn in plans]),
        "rows": Charts([_rows(drawn, plans) for drawn in plans]),
    }


# ---------------------------------------------------------------------- the map


def _map(drawn: PlanDrawing, last: int) -> Figure:
    go = graph_objects()
    groups, scale = drawn.groups, last / drawn.width
    edge = {"color": "white", "width": 0.6 if drawn.width <= 120 else 0}
    traces = [
        go.Bar(
            name=what, orientation="h", width=LANE, marker={"color": colour},
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
            marker={"color": [_colour(g) for g in groups], "line": _edges(groups)},
            text=[g.labels[1] for g in groups], **inside(11),
            hovertext=[_about(drawn, g) for g in groups], hoverinfo="text",
        )
    )  # fmt: skip
    for tone in (*CONNECTORS, ALONE):
        own = [g for g in groups if _tone(g) == tone]
        x: list[float | None] = []
        y: list[float | None] = []
        for g in own:
            x += [g.start, g.end, g.right * scale, g.left * scale, g.start, None]
            y += [GROUPS + LANE, GROUPS + LANE, OPERATORS, OPERATORS, GROUPS + LANE, None]
        traces.append(
            go.Scatter(
                x=x, y=y, fill="toself", fillcolor=tone, mode="lines", hoverinfo="skip",
                line={"color": "white", "width": 0.6}, showlegend=False,
            )
        )  # fmt: skip
    cells = [(at, g) for g in groups for at in range(g.left, g.right)]
    traces.append(
        go.Bar(
            orientation="h", width=LANE, showlegend=False, y=[OPERATORS + LANE / 2] * len(cells),
            base=[_short(at * scale, scale) for at, _ in cells],
            x=[_short(scale, scale)] * len(cells),
            marker={"color": [_colour(g) for _, g in cells], "line": edge},
            hovertext=[
                f"group {g.number}: {text(drawn.name(at)) or 'transfers alone'}"
                f"<br>{drawn.columns[at].cycles:,} cycles"
                for at, g in cells
            ], hoverinfo="text",
        )
    )  # fmt: skip
    figure = go.Figure(traces + _arcs(drawn, scale))
    figure.update_layout(**look("Groups over time, and the operators in them"))
    ticks = {"compute": COMPUTE, "transfers": TRANSFERS, "groups": GROUPS, "operators": OPERATORS}
    figure.update_layout(
        barmode="overlay", bargap=0, height=390, legend=LEGEND, hovermode="closest",
        uniformtext={"minsize": 9, "mode": "hide"},
        yaxis={
            "range": [FOOT, 0], "showgrid": False, "fixedrange": True, "ticks": "",
            "tickvals": [*(at + LANE / 2 for at in ticks.values()), ARCS + 1],
            "ticktext": [*ticks, "tensors"],
        },
    )  # fmt: skip
    figure.update_xaxes(title_text="Cycles", range=[0, last], tickformat="~s")
    return figure


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
                columns, depths = arc.points(ARCS, FOOT - ARCS, longest)
                x += [_short(column * scale, scale) for column in columns] + [None]
                y += [round(depth, 2) for depth in depths] + [None]
        found.append(
            graph_objects().Scatter(
                name=name, x=x, y=y, mode="lines", line={"color": colour, "width": 1},
                hoverinfo="skip",
            )
        )  # fmt: skip
    return found


def _short(place: float, scale: float) -> float:
    """Return a place on the map in as few digits as are seen: pages have thousands of them."""
    return round(place) if scale >= MANY else place


# ---------------------------------------------------------------------- rows and memory


def _rows(drawn: PlanDrawing, plans: Sequence[PlanDrawing]) -> Figure:
    go = graph_objects()
    top = lane_limit(plans)
    factor, unit = byte_unit(top / 4)
    chip = drawn.instance.chip
    columns, groups = drawn.columns, drawn.groups
    traces = [
        go.Bar(
            x=[(g.left + g.right) / 2 for g in groups], width=[g.right - g.left for g in groups],
            y=[1] * len(groups), yaxis="y3", showlegend=False,
            marker={"color": [_colour(g) for g in groups], "line": _edges(groups)},
            text=[g.labels[1] for g in groups], **inside(11),
            hovertext=[_about(drawn, g) for g in groups], hoverinfo="text",
        ),
        go.Bar(
            name="the row", x=[at + 0.5 for at in range(drawn.width)], width=0.94,
            y=[column.cycles for column in columns], marker={"color": GRID},
            hovertext=[_column(drawn, at) for at in range(drawn.width)], hoverinfo="text",
        ),
    ]  # fmt: skip
    for what, colour in WORK.items():
        traces.append(
            go.Bar(
                name=what, marker={"color": colour}, width=0.4,
                x=[at + (0.3 if what == "compute" else 0.7) for at in range(drawn.width)],
                y=[getattr(column, what) for column in columns],
                base=[column.load for column in columns] if what == "store" else None,
                hoverinfo="skip",  # the row behind it tells all
            )
        )  # fmt: skip
    figure = go.Figure(traces + _memory(drawn, top, factor))
    bank = chip.memory // chip.banks
    figure.update_layout(**look(f"Rows of the groups, and their memory: {ZOOM}"))
    figure.update_layout(
        barmode="overlay", bargap=0, height=680, legend=LEGEND, hovermode="closest",
        uniformtext={"minsize": 8, "mode": "hide"},
        shapes=[_line(at / factor, GRID) for at in range(bank, top, bank)]
        + ([_line(chip.memory / factor, CAPACITY)] if top == chip.memory else []),
        yaxis3={"domain": [0.955, 1], "range": [0, 1], "visible": False, "fixedrange": True},
        yaxis={
            "domain": [0.66, 0.945], "title": {"text": "Cycles of a row, all slices"},
            "tickformat": "~s", "fixedrange": True,
            "range": [0, max(row_limit([c.cycles for c in plan.columns]) for plan in plans)],
        },
        yaxis2={
            "domain": [0, 0.62], "anchor": "x", "range": [0, 1.02 * top / factor],
            "title": {"text": f"Address in a lane ({unit})"}, "showgrid": False,
            "dtick": byte_step(top) / factor, "tick0": 0,
        },
    )  # fmt: skip
    figure.update_xaxes(
        title_text="Rows of the groups (with several slices time is a circle)",
        range=[0, max(plan.width for plan in plans)], anchor="y2", showgrid=False,
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
            marker: JsonObject = {"color": colour, "line": {"color": "white", "width": 0.6}}
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
    return found


def _line(height: float, colour: str) -> JsonObject:
    """Return a line across the memory, behind all else."""
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "y0": height,
        "y1": height, "layer": "below", "line": {"color": colour, "width": 1},
    }  # fmt: skip


# ---------------------------------------------------------------------- words and colours


def _colour(group: Group) -> str:
    return ALONE if group.alone else BANDS[group.number % len(BANDS)]


def _tone(group: Group) -> str:
    return ALONE if group.alone else CONNECTORS[group.number % len(BANDS)]


def _edges(groups: Sequence[Group]) -> JsonObject:
    """Return the borders of groups; grey around those that run from global memory."""
    return {"color": [MUTED if g.alone else "white" for g in groups], "width": 0.8}


def _about(drawn: PlanDrawing, group: Group) -> str:
    """Return what is to say of a group."""
    own = [name for name in map(drawn.name, range(group.left, group.right)) if name]
    names = text(own[0]) if len(own) == 1 else f"{text(own[0])} to {text(own[-1])}"
    slices = f", {as_text.plural(group.rounds, 'slice')} a core" if group.rounds > 1 else ""
    return (
        f"group {group.number}: {group.cut or 'from global memory'}{slices}"
        f"<br>{as_text.plural(len(own), 'operator')}: {names}"
        f"<br>{group.end - group.start:,} cycles, compute {group.total('compute'):,}, "
        f"load {group.total('load'):,}, store {group.total('store'):,}"
    )


def _column(drawn: PlanDrawing, at: int) -> str:
    """Return what is to say of a column."""
    column = drawn.columns[at]
    name = text(drawn.name(at)) or "transfers alone"
    moves = f"<br>{text(column.moves, LONGEST_MOVES)}" if column.moves else ""
    return (
        f"group {column.group}: {name}<br>{column.cycles:,} cycles, compute {column.compute:,}, "
        f"load {column.load:,}, store {column.store:,}{moves}"
    )
