"""The chart of a phase plan: phases, what compute and I/O do when, and the memory of each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagepack.report import format as as_text
from stagepack.report.canvas import (
    Drawn,
    engineering,
    limit_line,
    quiet,
    stacked,
    time_axis,
)
from stagepack.report.extra import Axes
from stagepack.report.format import byte_unit
from stagepack.report.phases.numbers import (
    COLOURS,
    ROWS,
    PhaseBars,
    band_colour,
    phase_bars,
    row_of,
)
from stagepack.report.style import GRID, INK, MUTED

if TYPE_CHECKING:
    from stagepack.instances.phases import PhaseSchedule


def draw(instance: PhaseSchedule, solution: Any, ax: Axes = None) -> Drawn:
    """Draw the phases, a row for each engine, and below the memory that every phase needs.

    On axes that are given the engines are alone.
    """
    answer = instance.solution_in(solution)
    drawn = phase_bars(instance, answer)
    if ax is None:
        ax, below = stacked((11.0, 4.6), (1.5, 1.5))
        _memory(below, drawn)
    _engines(ax, drawn)
    return Drawn(ax, f"{instance.evaluate(answer):,} cycles")


def _engines(ax: Axes, drawn: PhaseBars) -> None:
    from matplotlib.patches import Patch

    for index, band in enumerate(drawn.bands):
        width = band.width
        ax.barh(
            0, width, left=band.start, height=0.8, color=band_colour(index), edgecolor=MUTED,
            linewidth=0.6,
        )  # fmt: skip
        room = 95 * width / max(1, drawn.end_time)  # letters
        text = f"{band.name}: {as_text.span(band.first, band.end)}"
        text = text if len(text) <= room else band.name
        if len(text) <= room:
            middle = band.start + width / 2
            ax.text(middle, 0, text, ha="center", va="center", fontsize=7, color=INK)
    thin = drawn.end_time / 400  # outlines would hide what is no wider
    for what, colour in COLOURS.items():
        own = drawn.of(what)
        for row in (1, 2):
            bars = [(e.start, e.end - e.start) for e in own if row_of(e) == row]
            if bars:
                wide = [not drawn.folded and width > thin for _, width in bars]
                ax.broken_barh(
                    bars, (row - 0.4, 0.8), facecolor=colour, edgecolor=MUTED,
                    linewidth=[0.4 if outlined else 0 for outlined in wide],
                )  # fmt: skip
    quiet(ax, "x")
    ax.set_xlim(0, drawn.end_time)
    ax.set_ylim(2.5, -0.5)
    ax.set_yticks(range(3), ROWS)
    engineering(ax.xaxis)
    present = [what for what in COLOURS if drawn.of(what)]
    ax.legend(
        handles=[Patch(facecolor=COLOURS[what], edgecolor=MUTED, label=what) for what in present],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0), ncols=len(present), frameon=False, fontsize=8,
        handlelength=1.2, columnspacing=1.0,
    )  # fmt: skip


def _memory(below: Axes, drawn: PhaseBars) -> None:
    highest = max([band.peak for band in drawn.bands] + [drawn.capacity or 0])
    factor, unit = byte_unit(highest / 2)
    for index, band in enumerate(drawn.bands):
        below.bar(
            band.start, band.peak / factor, width=band.width, align="edge",
            color=band_colour(index), edgecolor=MUTED, linewidth=0.6,
        )  # fmt: skip
    if drawn.capacity is not None:
        limit_line(below, drawn.capacity / factor, "capacity")
    quiet(below, "y")
    below.grid(axis="y", color=GRID)
    below.set_ylim(0, 1.12 * highest / factor)
    time_axis(below)
    below.set_ylabel(f"Memory ({unit})")
