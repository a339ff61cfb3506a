"""Colours, units and the one way to get at matplotlib, for all plots.

The colours are Paul Tol's *light* (areas, black text on them stays readable) and *bright* (lines)
schemes, which people with any common colour blindness can tell apart.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.errors import InputError, shown

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
PEAK = "#222222"
BOUND = "#2f6fb0"
CLASH = "#c1121f"
RESERVED = "#8a929c"

UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def area_colour(index: int) -> str:
    """Return the colour of stage or category `index`; neighbours always differ."""
    return AREAS[index % len(AREAS)]


def buffer_colours() -> tuple[str, ...]:
    """Return the colours that buffers take in turn: the areas' colours in three tints."""
    return tuple(_tint(colour, share) for share in (0.0, 0.4, 0.2) for colour in AREAS)


def _tint(colour: str, share: float) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def line_colour(index: int) -> str:
    """Return the colour of curve `index`."""
    return LINES[index % len(LINES)]


def byte_unit(largest: float) -> tuple[int, str]:
    """Return (bytes per unit, name) of the unit in which `largest` bytes read well."""
    for factor, name in UNITS:
        if largest >= factor:
            return factor, name
    return 1, "B"


def byte_step(span: float, ticks: int = 8) -> int:
    """Return a distance of ticks in bytes, a power of two, that gives `span` about so many."""
    return 1 << max(0, round(math.log2(max(span, 1.0) / ticks)))


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise InputError(
            "plots need matplotlib", remedy="pip install 'stagepack[report]'"
        ) from error
    return plt


def axes(ax: Any, width: float, height: float) -> Any:
    """Return `ax`, or the axes of a new figure of `width` x `height` inches."""
    if ax is not None:
        return ax
    figure = pyplot().figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def close(figure: Any) -> None:
    """Let a figure go that nobody will look at: pyplot would keep it."""
    pyplot().close(figure)


def quiet(ax: Any, grid: str) -> None:
    """Take away the box, and draw a faint grid behind along axis `grid` ("x" or "y")."""
    for side in ("top", "right", "left" if grid == "x" else "bottom"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, length=3)


SHORTEST = 12  # letters to which a name in a title may be cut
LONGEST = 32  # and those of a label in a legend


def heading(ax: Any, name: str, words: str, **place: Any) -> None:
    """Write ``name — words`` above `ax`; a name that is too wide for the axes loses its middle.

    A legend above the right end of the axes keeps its room.

    Parameters
    ----------
    ax : matplotlib Axes
    name, words : str
        Name of the instance (or nothing), and what is shown of it.
    **place
        As for ``ax.set_title``: ``y``, ``pad``.
    """
    room = ax.get_window_extent().width
    legend = ax.get_legend()
    if legend is not None and not place:
        box = legend.get_window_extent()
        if box.x0 < ax.get_window_extent().x1 - 1 and box.y1 > ax.get_window_extent().y1 + 1:
            room -= box.width + 12
    letters = len(name)
    while True:
        title = " — ".join(filter(None, (short(name, letters), words)))
        text = ax.set_title(title, loc="left", fontsize=10, **place)
        width = text.get_window_extent().width
        if width <= room or letters <= SHORTEST:
            return
        letters = max(
            SHORTEST, min(letters - 1, letters - int((width - room) / width * len(title)))
        )


def short(name: str, letters: int = LONGEST) -> str:
    """Return `name` as it is drawn, its middle left out where it has more letters."""
    return as_written(shown(name, letters))


def as_written(name: str) -> str:
    """Return a name that matplotlib draws as it is written: no control characters, no formulas."""
    return shown(name).replace("$", r"\$")


def save(figure: Any, path: str | Path) -> None:
    """Write a figure of matplotlib, whole or not at all.

    Raises
    ------
    InputError
        When the ending of the name is no picture's, or the file cannot be written.
    """
    kind = require_picture(path)
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=160)
    files.write(path, stream.getvalue())


def require_picture(path: str | Path) -> str:
    """Return the format that the ending of a name asks for.

    Raises
    ------
    InputError
        When it is no picture's.
    StagepackError
        When matplotlib is not installed.
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in pyplot().FigureCanvasBase.get_supported_filetypes():
        raise InputError(
            f"{Path(path).name} is no name of a picture",
            file=path,
            remedy="end it in .png, .svg, .pdf or .html",
        )
    return kind
