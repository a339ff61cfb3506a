"""The map of a memory: which buffer holds which addresses when, and the load above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.report.canvas import Drawn, as_written, axes, quiet
from stagepack.report.extra import Axes
from stagepack.report.format import byte_step, byte_unit
from stagepack.report.packing.numbers import (
    CLASH,
    LOAD,
    LOAD_EDGE,
    RESERVED,
    STEPS,
    Line,
    MemoryMap,
    colours,
    memory_map_of,
    thinned,
)
from stagepack.report.style import GRID, INK, MUTED

if TYPE_CHECKING:
    from stagepack.instances.packing import LmemPacking

FEW = 1500  # up to so many rectangles, each has a border and, where there is room, its name
LETTERS = 90  # that numbers below the map may have in all
ABOVE = (1.03, 0.2)  # where the load begins above the map, and its height, in heights of the map
DASHES: JsonObject = {"solid": "-", "dash": (0, (5, 3)), "dot": (0, (1, 1.6))}
WIDTHS = {"solid": 1.8, "dash": 1.3, "dot": 1.5}


def draw(instance: LmemPacking, solution: Any, ax: Axes = None, *, scale: str = "auto") -> Drawn:
    """Draw the rectangles of all buffers over time and address, and the load over time above.

    Buffers take colours in turn; fixed ones have a thick border, those in a bank conflict a red
    one; reserved addresses are hatched; banks, capacity, peak and load bound are lines.  The load
    has inset axes of its own.
    """
    drawn = memory_map_of(instance, solution, scale)
    ax = axes(ax, 10.0, 6.4)
    factor, unit = byte_unit(drawn.top / 4)
    _rectangles(ax, instance, drawn, factor)
    _banks(ax, instance, drawn, factor)
    for low, high in drawn.reserved(instance):
        ax.axhspan(
            low / factor, high / factor, facecolor="none", edgecolor=RESERVED,
            hatch="////", linewidth=0,
        )  # fmt: skip
    lines = _lines(ax, drawn, factor)
    _finish(ax, drawn, factor, unit)
    _load(ax, drawn, factor, unit, lines)
    what = f"{instance.n:,} buffer{'' if instance.n == 1 else 's'}{drawn.few}"
    # Above the legend, which is above the load.
    return Drawn(ax, what, {"y": sum(ABOVE), "pad": 20})


def _rectangles(ax: Axes, instance: LmemPacking, drawn: MemoryMap, factor: int) -> None:
    from matplotlib.collections import PolyCollection

    low, high = drawn.low / factor, drawn.high / factor
    x = np.column_stack([drawn.left, drawn.left, drawn.right, drawn.right])
    y = np.column_stack([low, high, high, low])
    corners = np.stack([x, y], axis=2)
    tints = np.array(colours())
    few = len(drawn.shown) <= FEW
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=tints[drawn.shown.buffer % len(tints)],
            edgecolors=MUTED if few else "none",
            linewidths=0.5 if few else 0,
            antialiased=few,
            rasterized=not few,  # an SVG of 30,000 shapes is no use to anybody
        ),
        autolim=False,
    )
    for chosen, colour, width in ((drawn.fixed, INK, 1.6), (drawn.clashing, CLASH, 1.3)):
        marked = corners[chosen[drawn.shown.buffer]]
        if len(marked):
            ax.add_collection(
                PolyCollection(
                    list(marked), facecolors="none", edgecolors=colour, linewidths=width
                ),
                autolim=False,
            )
    if few:
        _names(ax, instance, drawn, low, high)


def _names(ax: Axes, instance: LmemPacking, drawn: MemoryMap, low: Any, high: Any) -> None:
    """Write the name of each buffer that has room for it."""
    box = ax.get_window_extent()
    pixels = 72 / ax.figure.dpi  # points
    wide = box.width * pixels / (drawn.span[1] - drawn.span[0])
    tall = box.height * pixels / (drawn.top / byte_unit(drawn.top / 4)[0])
    for at, buffer in enumerate(drawn.shown.buffer.tolist()):
        name = instance.buffer_id(buffer)
        width = (drawn.right[at] - drawn.left[at]) * wide
        height = (high[at] - low[at]) * tall * 0.75  # the load takes some of the room
        size = min(8.0, 0.72 * height, 1.5 * width / max(1, len(name)))
        if size >= 4.5:
            ax.text(
                (drawn.left[at] + drawn.right[at]) / 2, (low[at] + high[at]) / 2, as_written(name),
                ha="center", va="center", fontsize=size, color=INK, clip_on=True, zorder=5,
            )  # fmt: skip


def _banks(ax: Axes, instance: LmemPacking, drawn: MemoryMap, factor: int) -> None:
    """Shade every other bank, and number them."""
    if instance.banks is None:
        return
    nbytes, count = instance.banks.nbytes, instance.banks.count
    shown = min(count, -(-drawn.top // nbytes))

    for bank in range(shown):
        if bank % 2:
            ax.axhspan(
                bank * nbytes / factor, (bank + 1) * nbytes / factor, color=GRID, alpha=0.55,
                linewidth=0, zorder=0.5,
            )  # fmt: skip
        ax.axhline(bank * nbytes / factor, color=MUTED, linewidth=0.5, alpha=0.8)
    for middle, name in drawn.banks(instance):
        ax.text(
            1.004, middle / factor, name, fontsize=7, color=MUTED,
            transform=ax.get_yaxis_transform(), va="center",
        )  # fmt: skip


def _lines(ax: Axes, drawn: MemoryMap, factor: int) -> list[tuple[Line, Any]]:
    """Draw capacities, the peak and the load bound; return what the legend shows of them."""
    found = []
    for line in drawn.lines():
        begins = line.colour == INK and line.dash == "solid"
        handle = ax.axhline(
            line.address / factor, color=line.colour, linestyle=DASHES[line.dash],
            linewidth=1.2 if begins else WIDTHS[line.dash],
        )  # fmt: skip
        if not begins:
            handle.set_label(line.name)
            found.append((line, handle))
    for base, name, _ in drawn.bases if len(drawn.bases) > 1 else ():
        ax.axhline(base / factor, color=INK, linewidth=1.2)
        ax.text(
            1.006, base / factor, name, transform=ax.get_yaxis_transform(), fontsize=8,
            va="bottom",
        )  # fmt: skip
    return found


def _finish(ax: Axes, drawn: MemoryMap, factor: int, unit: str) -> None:
    """Set the limits, ticks and names of the axes."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    ax.set_xlim(*drawn.span)
    ax.set_ylim(0, drawn.top * 1.02 / factor)
    letters = len(f"{drawn.span[1]:,.0f}")
    ax.xaxis.set_major_locator(MaxNLocator(min(9, max(2, LETTERS // letters)), integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if len(drawn.bases) == 1:
        ax.yaxis.set_major_locator(MultipleLocator(byte_step(drawn.top) / factor))
    else:
        ticks = drawn.ticks()
        labels = [f"{address / factor:g}" for _, address in ticks]
        ax.set_yticks([at / factor for at, _ in ticks], labels)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=INK, length=3)
    ax.set_xlabel(drawn.axis)
    ax.set_ylabel(f"Address ({unit})")


def _load(
    ax: Axes, drawn: MemoryMap, factor: int, unit: str, lines: list[tuple[Line, Any]]
) -> None:
    """Draw the load above the map, on the same axis of time."""
    from matplotlib.ticker import MaxNLocator

    above = ax.inset_axes([0, ABOVE[0], 1, ABOVE[1]], sharex=ax)
    places, in_use = thinned(drawn.places, drawn.load / factor, STEPS)
    above.fill_between(places, in_use, step="post", color=LOAD, linewidth=0)
    above.step(places, in_use, where="post", color=LOAD_EDGE, linewidth=0.8)
    for line, _ in lines:
        if line.dash != "solid":
            above.axhline(
                line.address / factor, color=line.colour, linestyle=DASHES[line.dash], linewidth=1.0
            )
    quiet(above, "y")
    above.tick_params(labelbottom=False, labelsize=8)
    above.set_ylim(
        0, max(1, drawn.peak if len(drawn.bases) == 1 else 1, *drawn.load) * 1.08 / factor
    )
    above.yaxis.set_major_locator(MaxNLocator(3))
    above.set_ylabel(f"Load ({unit})", fontsize=8)
    above.legend(
        handles=[handle for _, handle in lines], loc="lower right", bbox_to_anchor=(1.0, 1.0),
        frameon=False, fontsize=8, ncols=4, borderaxespad=0.1, handlelength=2.2,
    )  # fmt: skip
