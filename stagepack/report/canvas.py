"""Static pictures with matplotlib: their targets, and what all of them have in common."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from stagepack import files
from stagepack.errors import InputError, shown
from stagepack.report.extra import Axes, Figure, extra
from stagepack.report.style import CAPACITY, GRID, INK, MUTED

SHORTEST = 12  # letters to which a name in a title may be cut
LONGEST = 32  # and those of a label in a legend


class Drawn(NamedTuple):
    """What the function of a kind that draws a solution returns."""

    ax: Axes  # the axes on which it is drawn
    words: str  # what is shown, for the title
    # Where the title stands, as for ``ax.set_title``: ``y``, ``pad``.
    place: Mapping[str, object] = MappingProxyType({})


def target(path: object, ax: Axes | None = None) -> tuple[Path | None, Axes]:
    """Return the file and the axes that were given; axes may stand in the place of the file."""
    if path is not None and not isinstance(path, str | os.PathLike):
        if ax is not None:
            raise _neither(path, "name the file to write")
        path, ax = None, path
    if ax is not None and not hasattr(ax, "add_collection"):
        raise _neither(ax, "name the file to write, or give axes of matplotlib")
    return (None if path is None else Path(path)), ax


def _neither(given: object, remedy: str) -> InputError:
    return InputError(f"{type(given).__name__} is no path and no axes", field="path", remedy=remedy)


def _pyplot() -> ModuleType:
    """Return ``matplotlib.pyplot``."""
    return extra("matplotlib.pyplot", "plots need")


def axes(ax: Axes, width: float, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure.

    A new one is `width` by `height` inches.
    """
    if ax is not None:
        return ax
    figure = _pyplot().figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def close(figure: Figure) -> None:
    """Let a figure go that nobody will look at: pyplot would keep it."""
    _pyplot().close(figure)


def stacked(size: tuple[float, float], ratios: Sequence[float]) -> list[Axes]:
    """Return the axes of a new figure, one above the other, that share the axis below the last.

    `size` is in inches, `ratios` are those of heights.
    """
    figure = _pyplot().figure(figsize=size, layout="constrained")
    found = list(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios))
    for ax in found[:-1]:
        ax.tick_params(labelbottom=False)
    return found


def quiet(ax: Axes, grid: str) -> None:
    """Take away the box, and draw a faint grid behind along axis `grid` ("x" or "y")."""
    for side in ("top", "right", "left" if grid == "x" else "bottom"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", colors=INK)
    ax.tick_params(length=3)


def limit_line(ax: Axes, height: float, label: str) -> None:
    """Draw a limit across the axes, its `label` above the left end.

    The `height` is in units of the axes' data.
    """
    ax.axhline(height, color=CAPACITY, linewidth=1.4)
    ax.text(
        0.004, height, label, transform=ax.get_yaxis_transform(), fontsize=7, color=CAPACITY,
        va="bottom",
    )  # fmt: skip


def engineering(*axis: Axes) -> None:
    """Let the numbers along some axes be written as 10 k, 2 M."""
    from matplotlib.ticker import EngFormatter

    for one in axis:
        one.set_major_formatter(EngFormatter())


def whole_numbers(axis: Axes) -> None:
    """Let the ticks along an axis be whole numbers: it counts devices, or cells."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", integer=True))


def time_axis(ax: Axes) -> None:
    """Let the axis below count cycles."""
    engineering(ax.xaxis)
    ax.set_xlabel("Cycles")


def heading(ax: Axes, name: str, words: str, **place: object) -> None:
    """Write ``name — words`` above `ax`; a name that is too wide for the axes loses its middle.

    `words` say what is shown of the instance of this `name`.  A legend above the right end of the
    axes keeps its room.  `place` is as for ``ax.set_title``: ``y``, ``pad``.
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


def titled(drawn: Drawn, name: str, file: Path | None) -> Axes:
    """Give what is `drawn` its title, write it where a `file` is given, and return its axes.

    `name` begins the title; the `file` is a .png, .svg or .pdf.
    """
    heading(drawn.ax, name, drawn.words, **drawn.place)
    if file is not None:
        save(drawn.ax.figure, file)
    return drawn.ax


def own_picture(draw: Callable[[Axes], object], path: object, ax: Axes | None) -> Axes:
    """Draw on `ax` or a new figure, write it where a path is given, and return the axes.

    `draw` is given axes; in the place of `path` there may be those to draw on.
    """
    file, given = target(path, ax)
    ax = axes(given, 6.4, 3.8)
    draw(ax)
    if file is not None:
        save(ax.figure, file)
        if given is None:
            close(ax.figure)
    return ax


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure of matplotlib, whole or not at all."""
    files.write(path, encoded(figure, require_picture(path), 160))


def encoded(figure: Figure, kind: str, dpi: int) -> bytes:
    """Return a figure of matplotlib as the bytes of a file.

    `kind` is "png", "svg" or "pdf"; `dpi` counts where it is made of dots.
    """
    stream = io.BytesIO()
    with warnings.catch_warnings():  # a name may hold letters that the font does not have
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(stream, format=kind, dpi=dpi)
    return stream.getvalue()


def require_picture(path: str | Path) -> str:
    """Return the format that the ending of a name asks for."""
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in _pyplot().FigureCanvasBase.get_supported_filetypes():
        raise InputError(
            "is no name of a picture",
            file=path,
            remedy="end it in .png, .svg, .pdf or .html",
        )
    return kind
