"""Charts of a plan: its groups over time and over the network, and their rows and memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.report import format as as_text
from stagepack.report.canvas import Drawn, engineering, quiet, short, stacked, target, titled
from stagepack.report.extra import Axes, Target
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
from stagepack.report.style import CAPACITY, GRID, INK, MUTED

if TYPE_CHECKING:
    from stagepack.instances.groups import GroupingSolution, LayerGrouping
    from stagepack.result import Result

WIDTH = 11.0  # inches
POINTS = 700  # across the columns, about
LABEL, LINES = 55, 6  # points of a figure of cycles, and how many may stand below each other
NAMED = 76  # columns up to which each has its name below
MANY = 150  # shapes of a colour beyond which their borders are thin
STEPS = 40  # of which an arc is made
LETTERS = 18  # of such a name
CIRCLE = "; with several slices time is a circle: what ends on the right goes on on the left"
SEPARATOR = "#b4bac2"

Corners = list[tuple[float, float]]
Span = tuple[int, int]


def draw(instance: LayerGrouping, solution: Any, ax: Axes = None) -> Drawn:
    """Draw the groups over time and over the operators, the cycles of their rows, their memory.

    On axes that are given the map of the groups is alone.
    """
    drawn = plan_drawing(instance, instance.solution_in(solution))
    if ax is None:
        ax, rows, memory = stacked((WIDTH, 9.0), (2.7, 1.6, 3.2))
        _detail(rows, memory, drawn, (0, drawn.width))
    _map(ax, drawn)
    return Drawn(ax, f"{drawn.cycles:,} cycles")


def group_rows(
    instance: LayerGrouping,
    solution: GroupingSolution | Result[GroupingSolution],
    path: Target = None,
    *,
    group: int = 0,
    title: str | None = None,
) -> Axes:
    """Draw the cycles of the rows of one group, and its memory below.

    Parameters
    ----------
    instance : LayerGrouping
        The instance.
    solution : GroupingSolution or Result
        What to draw.
    path, title
        As for :func:`.plot`; the pages show the rows of all groups.
    group : int
        Its number.

    Returns
    -------
    matplotlib Axes
        Those of the rows.
    """
    require_instance(instance, "layer-grouping")
    answer = instance.solution_in(solution)
    file, _ = target(path)
    drawn = plan_drawing(instance, answer)
    if not 0 <= group < len(drawn.groups):
        raise InputError(
            f"there are groups 0 to {len(drawn.groups) - 1:,}, no {group:,}", field="group"
        )
    one = drawn.groups[group]
    rows, memory = stacked((WIDTH, 6.4), (1.6, 3.2))
    _detail(rows, memory, drawn, (one.left, one.right))
    cut = f", {one.cut}" if one.cut else ""
    words = f"group {group}{cut}, {one.end - one.start:,} cycles"
    return titled(Drawn(rows, words), title if title is not None else instance.name, file)


def _map(ax: Axes, drawn: PlanDrawing) -> None:
    """Draw engines and groups over time, and how these lie on the operators; tensors below."""
    from matplotlib.ticker import EngFormatter

    scale = drawn.width / max(1, drawn.cycles)
    for begin, names in ((COMPUTE, ("compute",)), (TRANSFERS, ("load", "store"))):
        for what in names:
            bars = []
            for group in drawn.groups:
                before = group.total("load") if what == "store" else 0
                start = (group.start + before) * scale
                bars.append(_box(start, start + group.total(what) * scale, begin, begin + LANE))
            _fill(ax, bars, WORK[what])
    for group in drawn.groups:
        colour = ALONE if group.alone else BANDS[group.number % len(BANDS)]
        start, end = group.start * scale, group.end * scale
        low, high = GROUPS + LANE, OPERATORS
        bars = [_box(start, end, GROUPS, low), _box(group.left, group.right, high, high + LANE)]
        _fill(ax, bars, colour)
        joint = [(start, low), (end, low), (group.right, high), (group.left, high)]
        _fill(ax, [joint], ALONE if group.alone else CONNECTORS[group.number % len(BANDS)])
        text = _fitting((end - start) / drawn.width * POINTS, *group.labels)
        if text:
            middle = (start + end) / 2
            ax.text(
                middle, GROUPS + LANE / 2, text, ha="center", va="center", fontsize=7, color=INK,
            )  # fmt: skip
    _arcs(ax, drawn)
    ax.set_xlim(0, drawn.width)
    ax.set_ylim(FOOT, 0)
    for side in ("bottom", "left", "right"):
        ax.spines[side].set_visible(False)
    ax.spines["top"].set_color(MUTED)
    ax.set_yticks(
        [begin + LANE / 2 for begin in (COMPUTE, TRANSFERS, GROUPS, OPERATORS)] + [ARCS + 1],
        ["compute", "transfers", "groups", "operators", "tensors"],
    )
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", bottom=False)
    above = ax.secondary_xaxis("top", functions=(lambda x: x / scale, lambda t: t * scale))
    above.xaxis.set_major_formatter(EngFormatter())
    above.spines["top"].set_color(MUTED)
    above.tick_params(length=3, colors=INK, labelsize=8)
    above.set_xlabel("Cycles", fontsize=8, labelpad=2)


def _arcs(ax: Axes, drawn: PlanDrawing) -> None:
    """Draw tensors as arcs below the operators, those that leave their group on top."""
    from matplotlib.collections import LineCollection

    longest = max((arc.right - arc.left for arc in drawn.arcs), default=1)
    for crossing, colour in ((False, MUTED), (True, CROSSING)):
        lines = [
            list(zip(*arc.points(ARCS, FOOT - ARCS, longest, STEPS), strict=True))
            for arc in drawn.arcs
            if arc.crossing == crossing
        ]
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=0.8), autolim=False)


def _detail(rows: Axes, memory: Axes, drawn: PlanDrawing, span: Span) -> None:
    """Draw the columns of a span: their cycles above, what takes room below."""
    shown = [group for group in drawn.groups if span[0] <= group.left < span[1]]
    _rows(rows, drawn, span)
    _memory(memory, drawn, shown, span)
    for ax in (rows, memory):
        for group in shown[1:]:
            ax.axvline(group.left, color=SEPARATOR, linewidth=0.6, zorder=0.8)
    memory.set_xlim(*span)
    _names(memory, drawn, shown, span)


def _rows(ax: Axes, drawn: PlanDrawing, span: Span) -> None:
    from matplotlib.patches import Patch
    from matplotlib.ticker import EngFormatter

    columns = list(enumerate(drawn.columns[span[0] : span[1]], span[0]))
    _fill(ax, [_box(at + 0.04, at + 0.96, 0, column.cycles) for at, column in columns], GRID)
    for what, colour in WORK.items():
        bars = []
        for at, column in columns:
            foot = column.load if what == "store" else 0
            left = at + (0.1 if what == "compute" else 0.5)
            bars.append(_box(left, left + 0.4, foot, foot + getattr(column, what)))
        _fill(ax, bars, colour)
    top = row_limit([column.cycles for _, column in columns])
    line, last = 0, -math.inf
    for at, column in columns:
        if column.cycles > top:
            # Below the last one where that is near.
            line = (line + 1) % LINES if (at - last) * POINTS < LABEL * len(columns) else 0
            last = at
            said = f"↑ {EngFormatter(places=1)(column.cycles)}"
            height = (0.98 - 0.09 * line) * top
            ax.text(at + 1.1, height, said, fontsize=7, color=INK, va="top")
    quiet(ax, "y")
    ax.set_ylim(0, top)
    engineering(ax.yaxis)
    ax.set_ylabel("Cycles of a row,\nall slices")
    shown = {**WORK, "the row": GRID}
    _legend(ax, [Patch(facecolor=c, edgecolor=MUTED, label=what) for what, c in shown.items()])


def _memory(ax: Axes, drawn: PlanDrawing, shown: Sequence[Group], span: Span) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MultipleLocator

    chip, boxes = drawn.instance.chip, [box for group in shown for box in group.boxes]
    top = lane_limit(drawn)
    factor, unit = byte_unit(top / 4)
    for address in bank_lines(drawn):
        ax.axhline(address / factor, color=GRID, linewidth=0.9, zorder=0.5)
    present = [role for role in ROLES if any(box.role == role for box in boxes)]
    for role in present:
        for resident in (False, True):
            own = [box for box in boxes if box.role == role and box.resident == resident]
            corners = [
                _box(box.left, box.right, box.low / factor, box.high / factor) for box in own
            ]
            _fill(ax, corners, ROLES[role], hatch="////" if resident else "")
    _written(ax, boxes, span, top)
    outside = [_box(g.left, g.right, 0, 1.02 * top / factor) for g in shown if g.alone]
    _fill(ax, outside, ALONE)
    quiet(ax, "y")
    ax.grid(visible=False)
    ax.set_ylim(0, 1.02 * top / factor)
    if top == chip.memory:
        ax.axhline(chip.memory / factor, color=CAPACITY, linewidth=1.4)
    ax.yaxis.set_major_locator(MultipleLocator(byte_step(top) / factor))
    ax.set_ylabel(f"Address in a lane ({unit})")
    handles: list[Patch | Line2D] = [
        Patch(facecolor=ROLES[role], edgecolor=MUTED, label=role) for role in present
    ]
    if any(box.resident for box in boxes):
        handles.append(
            Patch(facecolor="white", edgecolor=MUTED, hatch="////", label="for all slices")
        )
    if any(group.alone for group in shown):
        handles.append(Patch(facecolor=ALONE, edgecolor=MUTED, label="from global memory"))
    banks = f"{as_text.plural(chip.banks, 'bank')} of {chip.bank_bytes:,} bytes"
    handles.append(Line2D([], [], color=GRID, label=banks))
    if top == chip.memory:
        handles.append(Line2D([], [], color=CAPACITY, label="end of the lane"))
    _legend(ax, handles)


def _written(ax: Axes, boxes: Iterable[Any], span: Span, top: int) -> None:
    """Write the name of what takes room, where there is some."""
    factor, _ = byte_unit(top / 4)
    for box in boxes:
        wide = (box.right - box.left) / (span[1] - span[0]) * POINTS
        tall = (box.high - box.low) / top * 190
        size = min(7.0, 0.8 * tall)
        names = short(box.name), short(box.name.rpartition("/")[2])
        text = _fitting(wide * 7.0 / max(size, 0.1), *names)
        if size >= 5 and text:
            middle = (box.left + box.right) / 2, (box.low + box.high) / 2 / factor
            ax.text(*middle, text, ha="center", va="center", fontsize=size, color=INK, zorder=5)


def _names(ax: Axes, drawn: PlanDrawing, shown: Sequence[Group], span: Span) -> None:
    """Name the columns: all of them, or the groups where there are too many."""
    ax.tick_params(axis="x", labelsize=6.5, length=2)
    if span[1] - span[0] <= NAMED:
        places = range(*span)
        labels = [_brief(drawn.name(at)) for at in places]
        ax.set_xticks([at + 0.5 for at in places], labels, rotation=90)
        ax.set_xlabel(f"Rows of the groups{CIRCLE}")
        return
    least = (span[1] - span[0]) / 40
    kept: list[tuple[float, str]] = []
    for group in shown:
        if not kept or (group.left + group.right) / 2 - kept[-1][0] >= least:
            kept.append(((group.left + group.right) / 2, str(group.number)))
    ax.set_xticks([at for at, _ in kept], [name for _, name in kept])
    ax.set_xlabel(f"Groups, each as wide as it has rows{CIRCLE}")


def _box(left: float, right: float, low: float, high: float) -> Corners:
    return [(left, low), (right, low), (right, high), (left, high)]


def _fill(ax: Axes, shapes: Sequence[Corners], colour: str, *, hatch: str = "") -> None:
    from matplotlib.collections import PolyCollection

    if shapes:
        width = 0.5 if len(shapes) <= MANY else 0.2
        ax.add_collection(
            PolyCollection(
                shapes, facecolors=colour, edgecolors=MUTED, linewidths=width, hatch=hatch or None,
            ),
            autolim=False,
        )  # fmt: skip


def _legend(ax: Axes, handles: Sequence[object]) -> None:
    ax.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles),
        frameon=False, fontsize=8, handlelength=1.2, columnspacing=1.0, borderaxespad=0.1,
    )  # fmt: skip


def _brief(name: str) -> str:
    """Return a name of at most `LETTERS`: the last of its parts where it is longer."""
    return short(name if len(name) <= LETTERS else name.rpartition("/")[2], LETTERS)


def _fitting(points: float, *texts: str) -> str:
    """Return the first text that has room at a size of 7, or ""."""
    return next((text for text in texts if 4.2 * len(text) <= points - 2), "")
