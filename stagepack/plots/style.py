"""Colours, units and the one way to get at matplotlib, for all plots.

The colours are Paul Tol's *light* (areas, black text on them stays readable) and *bright* (lines)
schemes, which people with any common colour blindness can tell apart.
"""

from __future__ import annotations

from typing import Any

from stagepack.result import StagepackError

AREAS = (
    "#77aadd",
    "#ee8866",
    "#44bb99",
    "#eedd88",
    "#ffaabb",
    "#99ddff",
    "#bbcc33",
    "#d3c5e5",
)
LINES = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#aa3377",
    "#b8860b",
    "#3aa6c4",
    "#555555",
    "#e07b00",
)
INK = "#222222"
MUTED = "#6b7280"
GRID = "#e3e6ea"
TIMES = {"compute": "#4477aa", "receive": "#66ccee", "send": "#ccbb44", "host": "#bbbbbb"}
CAPACITY = "#aa3377"

UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def area_colour(index: int) -> str:
    """Return the colour of stage or category `index`; neighbours always differ."""
    return AREAS[index % len(AREAS)]


def line_colour(index: int) -> str:
    """Return the colour of curve `index`."""
    return LINES[index % len(LINES)]


def byte_unit(largest: float) -> tuple[int, str]:
    """Return (bytes per unit, name) of the unit in which `largest` bytes read well."""
    for factor, name in UNITS:
        if largest >= factor:
            return factor, name
    return 1, "B"


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``.

    Raises
    ------
    StagepackError
        When matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise StagepackError("plots need matplotlib: pip install 'stagepack[report]'") from error
    return plt


def axes(ax: Any, width: float, height: float) -> Any:
    """Return `ax`, or the axes of a new figure of `width` x `height` inches."""
    if ax is not None:
        return ax
    figure = pyplot().figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def quiet(ax: Any, grid: str) -> None:
    """Take away the box, and draw a faint grid behind along axis `grid` ("x" or "y")."""
    for side in ("top", "right", "left" if grid == "x" else "bottom"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, length=3)
