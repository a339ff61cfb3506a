"""The comparison as a table for terminals of any width.

Numbers are never cut: a narrow terminal gets the instances as headings and, if need be, fewer
columns; only names may be shortened.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stagepack.compare.outcomes import Outcomes
from stagepack.errors import shown
from stagepack.report import format as as_text
from stagepack.report.table import SPACE, Sheet
from stagepack.report.templating import part

if TYPE_CHECKING:
    from rich.console import RenderableType

STATUS_STYLES = {
    "OPTIMAL": "green",
    "fits": "green",
    "FEASIBLE": "yellow",
    "INFEASIBLE": "magenta",
    "UNKNOWN": "red",
    "n/a": "dim",
    "error": "bold red",
    "skipped": "dim",
}
LAYOUTS = (
    ("instance", "method", "status", "objective", "bound", "gap", "time", "ratio"),
    ("method", "status", "objective", "bound", "gap", "time", "ratio"),
    ("method", "status", "objective", "bound", "gap", "time"),
    ("method", "status", "objective", "gap", "time"),
    ("method", "status", "objective", "time"),
    ("method", "objective"),
)
"""Columns, from the widest layout to the narrowest; without `instance` it becomes a heading."""
SHORTEST_NAME = 8  # columns to which the name of an instance or method may be shortened
PREFERRED_NAME = 28  # and to which it is shortened before columns are given up
MOST_ROWS = 200  # of a table in a notebook
WORDS = ("instance", "method", "status")


def comparison_table(comparison: Outcomes, width: int = 80) -> RenderableType:
    """Return the comparison as something that rich prints in `width` columns.

    One line a cell, grouped by kind and instance, the best objective of each in bold; below, why
    cells have no answer and, loudly, any contradiction.
    """
    from rich.console import Group
    from rich.text import Text

    rows = comparison.rows
    several_seeds = len({row["seed"] for row in rows}) > 1
    lines = [_cells(comparison, row, several_seeds) for row in rows]
    layout, widths = _fit(lines, width)
    # One table a kind where instances fit beside their rows, else one an instance.
    by = "problem" if "instance" in layout else "instance"
    kinds = list(dict.fromkeys(row["problem"] for row in rows))
    parts: list[RenderableType] = []
    for kind in kinds:
        if len(kinds) > 1:
            parts.append(Text(f"\n{kind}\n" if parts else f"{kind}\n", style="bold"))
        of_kind = [row for row in rows if row["problem"] == kind]
        groups = list(dict.fromkeys(row[by] for row in of_kind))
        for group in groups:
            chosen = [i for i, row in enumerate(rows) if (row[by], row["problem"]) == (group, kind)]
            if by == "instance":
                if group != groups[0]:
                    parts.append(Text(""))
                parts.append(Text(shown(group, width), style="bold cyan", no_wrap=True))
            some_rows, some_lines = [rows[i] for i in chosen], [lines[i] for i in chosen]
            parts.append(_table(some_rows, some_lines, layout, widths))
    notes = list(_notes(rows))
    if notes:
        parts.append(Text(""))
    parts += notes
    if comparison.interrupted:
        parts.append(Text("\nInterrupted: the comparison is not complete.", style="yellow"))
    for claim in comparison.contradictions:
        parts.append(
            Text(f"\nCONTRADICTION (a bug in Stagepack): {shown(claim)}", style="bold red")
        )
    return Group(*parts)


def render(comparison: Outcomes, width: int = 80, *, color: bool = False) -> str:
    """Return the table as text.

    Parameters
    ----------
    comparison : Outcomes
    width : int
        Columns that no line exceeds.
    color : bool
        With the escape sequences of terminal colours.
    """
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    console.print(comparison_table(comparison, width))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def standing_of(comparison: Outcomes, row: dict[str, Any]) -> str:
    """Return the status of a row in words."""
    instance = comparison.instances[row["instance"]]
    return as_text.standing(row["status"], row["objective"], instance)


def _cells(comparison: Outcomes, row: dict[str, Any], several_seeds: bool) -> dict[str, str]:
    return {
        "instance": shown(row["instance"]),
        "method": row["method"] + (f" #{row['seed']}" if several_seeds else ""),
        "status": standing_of(comparison, row),
        "objective": as_text.number(row["objective"]),
        "bound": as_text.number(row["bound"]),
        "gap": as_text.gap(row["gap"]),
        "time": as_text.seconds(row["runtime"]),
        "ratio": as_text.ratio(row["ratio"]),
    }


def _fit(lines: list[dict[str, str]], width: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the widest layout that fits, and the width of each of its columns."""
    natural = {
        column: max([len(column), *(len(line[column]) for line in lines)]) for column in LAYOUTS[0]
    }
    for least in (PREFERRED_NAME, SHORTEST_NAME):
        for layout in LAYOUTS:
            widths = {column: natural[column] for column in layout}
            over = sum(widths.values()) + SPACE * (len(layout) - 1) - width
            for column in ("instance", "method"):
                if column in widths and over > 0:
                    cut = min(over, max(0, widths[column] - max(least, len(column))))
                    widths[column] -= cut
                    over -= cut
            if over <= 0:
                return layout, widths
    return layout, widths


def _table(
    rows: list[dict[str, Any]],
    lines: list[dict[str, str]],
    layout: tuple[str, ...],
    widths: dict[str, int],
) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, SPACE, 0, 0))
    for column in layout:
        left = column in WORDS
        table.add_column(
            column,
            justify="left" if left else "right",
            no_wrap=True,
            min_width=widths[column],
            max_width=widths[column],
            header_style="dim",
        )
    last = None
    for row, line in zip(rows, lines, strict=True):
        texts = []
        for column in layout:
            text = shown(line[column], widths[column]) if column in WORDS else line[column]
            if column == "instance" and line[column] == last:
                text = ""
            style = STATUS_STYLES.get(line["status"], "") if column == "status" else ""
            if row["best"] and column in ("objective", "ratio"):
                style = "bold green"
            texts.append(Text(text, style=style))
        first = last is not None and line["instance"] != last
        last = line["instance"]
        if first and "instance" in layout:
            table.add_row()
        table.add_row(*texts)
    return table


def _notes(rows: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """Yield why cells have no answer, equal reasons together."""
    from rich.text import Text

    reasons: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        if row["reason"] and row["objective"] is None:
            where = reasons.setdefault((row["status"], row["reason"]), {})
            where.setdefault(row["instance"], []).append(row["method"])
    for (status, reason), where in reasons.items():
        methods = dict.fromkeys(method for some in where.values() for method in some)
        places = next(iter(where)) if len(where) == 1 else f"{len(where):,} instances"
        text = Text(status, style=STATUS_STYLES.get(status, ""))
        text.append(shown(f" {places} ({', '.join(methods)}): {reason}"), style="not bold default")
        yield text


def fragment(comparison: Outcomes) -> str:
    """Return the table as HTML without scripts or styles, for a notebook."""
    several_seeds = len({row["seed"] for row in comparison.rows}) > 1
    cells = [_cells(comparison, row, several_seeds) for row in comparison.rows]
    rows = [list(line.values()) for line in cells]
    notes = [part("lines", [("Contradiction:", claim)]) for claim in comparison.contradictions]
    return "".join([part("sheet", Sheet(LAYOUTS[0], rows, WORDS, most=MOST_ROWS)), *notes])
