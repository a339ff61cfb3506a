"""Interactive figures with plotly, drawn from the same numbers as the static plots."""

from __future__ import annotations

from typing import Any

from stagepack.errors import InputError
from stagepack.plots.data import curves, named
from stagepack.plots.style import GRID, INK, MUTED, line_colour
from stagepack.report.format import escape

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
LONGEST_NAME = 30


def trace(results: Any, unit: str = "") -> Any:
    """Return incumbents (solid) and bounds (dashed) of all runs over time, with a log switch.

    Parameters
    ----------
    results : mapping, or one or several results
        The runs; the keys of a mapping are their labels.
    unit : str
        What objectives are counted in.
    """
    go = graph_objects()
    lines = []
    for index, (label, result) in enumerate(named(results).items()):
        colour = line_colour(index)
        for kind, curve in zip(("objective", "bound"), curves(result), strict=True):
            if not curve.times:
                continue
            dashed = kind == "bound"
            lines.append(
                go.Scatter(
                    name=text(label),
                    legendgroup=label,
                    showlegend=not dashed or not result.trace.incumbents,
                    x=list(curve.times),
                    y=list(curve.values),
                    mode="lines" if dashed else "lines+markers",
                    line={
                        "shape": "hv",
                        "color": colour,
                        "width": 1.4 if dashed else 2,
                        "dash": "dash" if dashed else "solid",
                    },
                    marker={"size": 5},
                    hovertemplate=f"{text(label)}: {kind} %{{y:,}}"
                    "<br>after %{x:.4g} s<extra></extra>",
                )
            )
    times = [time for line in lines for time in line.x]
    decades: Any = 1 if not times or max(times) > 100 * min(times) else "D2"
    figure = go.Figure(lines)
    figure.update_layout(**look("Incumbents (solid) and bounds (dashed) over time"), height=360)
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 11}},
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
                "buttons": [
                    {
                        "label": name,
                        "method": "relayout",
                        "args": [
                            {"xaxis.type": kind, "xaxis.dtick": decades if kind == "log" else None}
                        ],
                    }
                    for name, kind in (("log time", "log"), ("linear", "linear"))
                ],
            }
        ],
    )
    figure.update_xaxes(title_text="Time (s)", type="log", tickformat="~g", dtick=decades)
    figure.update_yaxes(title_text="Objective" + (f" ({unit})" if unit else ""), tickformat="~s")
    return figure


def graph_objects() -> Any:
    """Return ``plotly.graph_objects``.

    Raises
    ------
    InputError
        When plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise InputError(
            "the report needs plotly", remedy="pip install 'stagepack[report]'"
        ) from error
    return go


def look(title: str) -> dict[str, Any]:
    """Return the layout that all figures share."""
    axis = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": MUTED,
        "title": {"font": {"size": 12}, "standoff": 8},
        "automargin": True,
    }
    return {
        "template": {"layout": {"xaxis": axis, "yaxis": axis}},
        "title": {
            "text": title,
            "font": {"size": 13.5, "color": INK},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 8},
        },
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 60, "r": 14, "t": 62, "b": 48},
        "hoverlabel": {"align": "left", "bgcolor": "white", "font": {"color": INK}},
    }


def text(label: str) -> str:
    """Return a name that plotly shows as it is, shortened if it is long."""
    if len(label) > LONGEST_NAME:
        label = label[: LONGEST_NAME // 2] + "…" + label[-(LONGEST_NAME // 2) + 1 :]
    return escape(label, quote=False)
