"""Common parts of interactive figures (plotly), which show the same numbers as the static ones."""

from __future__ import annotations

import html
from collections.abc import Sequence
from types import ModuleType

from stagepack.contracts import JsonObject
from stagepack.errors import shown
from stagepack.report.extra import Figure, extra
from stagepack.report.style import CAPACITY, GRID, INK, MUTED, PAGE

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
LONGEST_NAME, LONGEST_LINE = 30, 60  # letters of a name, and of one with a number
ZOOM = "drag to zoom, double click to return"
LEGEND = {
    "orientation": "h",
    "x": 1,
    "xanchor": "right",
    "y": 1,
    "yanchor": "bottom",
    "font": {"size": 11},
    "traceorder": "normal",
}
"""Above the right end of a figure."""
BORDER = {"color": MUTED, "width": 0.6}
"""Around areas: without it, pale ones do not stand out from the page."""


def graph_objects() -> ModuleType:
    """Return ``plotly.graph_objects``."""
    return extra("plotly.graph_objects")


def look(title: str) -> JsonObject:
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
        "paper_bgcolor": PAGE,
        "plot_bgcolor": PAGE,
        "margin": {"l": 60, "r": 14, "t": 62, "b": 48},
        "hoverlabel": {"align": "left", "bgcolor": PAGE, "font": {"color": INK}},
    }


def inside(size: int, *, together: bool = False) -> JsonObject:
    """Return how the text within bars looks; where it does not fit, the page's script hides it.

    `size` is in pixels; the script takes a smaller one where that fits.  `together`: all texts of a
    trace are hidden as soon as one does not fit.
    """
    return {
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"size": size, "color": INK},
        "constraintext": "none",
        "meta": {"together": together},
    }


def buttons(*choices: tuple[str, str, Sequence[object]]) -> list[JsonObject]:
    """Return a menu of buttons above the right end: of each its label, method and arguments."""
    return [
        {
            "type": "buttons",
            "direction": "right",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "bottom",
            "pad": {"b": 6},
            "font": {"size": 11},
            "bgcolor": PAGE,
            "bordercolor": GRID,
            "buttons": [
                {"label": label, "method": method, "args": arguments}
                for label, method, arguments in choices
            ],
        }
    ]


def limit_line(name: str, end: float, height: float) -> Figure:
    """Return a dashed line at a limit of the lower panel, from the begin of time on.

    It ends at `end`; `name` is for the legend, the `height` the limit, in units of the axes.
    """
    return graph_objects().Scatter(
        name=name,
        x=[0, end],
        y=[height] * 2,
        yaxis="y2",
        mode="lines",
        hoverinfo="skip",
        line={"color": CAPACITY, "width": 1.4, "dash": "dash"},
    )


def text(label: str, longest: int = LONGEST_NAME) -> str:
    """Return a name that plotly shows as it is, shortened if it is long."""
    return html.escape(shown(label, longest), quote=False)
