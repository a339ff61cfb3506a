"""The comparison as a table for terminals of any width.

Numbers are never cut: a narrow terminal gets the instances as headings and, if need be, fewer
columns; only names may be shortened.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from stagepack.errors import shown
from stagepack.report import format as as_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from stagepack.compare import Comparison

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
SPACE = 2  # columns between columns
WORDS = ("instance", "method", "status")


def comparison_table(comparison: Comparison, width: int = 80) -> RenderableType:
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
                parts.append(Text(_short(shown(group), width), style="bold cyan", no_wrap=True))
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


def render(comparison: Comparison, width: int = 80, *, color: bool = False) -> str:
    """Return the table as text of at most `width` columns, with terminal colours if asked."""
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


def standing_of(comparison: Comparison, row: dict[str, Any]) -> str:
    """Return the status of a row in words."""
    instance = comparison.instances[row["instance"]]
    return as_text.standing(row["status"], row["objective"], instance)


def _cells(comparison: Comparison, row: dict[str, Any], several_seeds: bool) -> dict[str, str]:
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
    shown = None
    for row, line in zip(rows, lines, strict=True):
        texts = []
        for column in layout:
            text = _short(line[column], widths[column]) if column in WORDS else line[column]
            if column == "instance" and line[column] == shown:
                text = ""
            style = STATUS_STYLES.get(line["status"], "") if column == "status" else ""
            if row["best"] and column in ("objective", "ratio"):
                style = "bold green"
            texts.append(Text(text, style=style))
        first = shown is not None and line["instance"] != shown
        shown = line["instance"]
        if first and "instance" in layout:
            table.add_row()
        table.add_row(*texts)
    return table


def _short(name: str, width: int) -> str:
    """Return `name`, its middle left out where it is wider than `width`."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return name[: width - 1 - tail] + "…" + name[len(name) - tail :]


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


# ---------------------------------------------------------------------- other tables


def facts_table(lines: Iterable[tuple[str, str]], width: int = 80) -> RenderableType:
    """Return what :func:`stagepack.report.summary.lines` found, one fact a line."""
    table = plain(("fact", "value"), header=False)
    for fact, value in lines:
        table.add_row(cell(fact, "dim"), cell(value))
    return table


def methods_table(methods: Iterable[Any], width: int = 80) -> RenderableType:
    """Return methods as :func:`stagepack.methods` lists them: exact, own engine, what they do."""
    from rich.console import Group
    from rich.text import Text

    methods = list(methods)
    kinds = list(dict.fromkeys(method.kind for method in methods))
    if len(kinds) > 1:  # the same names mean different things
        parts: list[RenderableType] = []
        for kind in kinds:
            parts.append(Text(kind if kind == kinds[0] else f"\n{kind}", style="bold"))
            parts.append(methods_table([m for m in methods if m.kind == kind], width))
        return Group(*parts)
    table = plain(("method", "proves", "engine", "what it does"), wrap="what it does")
    for method in methods:
        about = method.description
        style = ""
        if not method.available:
            about, style = f"{about} (not here: {method.reason})", "dim"
        proves = "yes" if method.exact else "no"
        engine = method.engines[0] if method.engines else as_text.NOTHING
        table.add_row(*(cell(text, style) for text in (method.name, proves, engine, about)))
    return table


def catalog_table(entries: Iterable[Any], width: int = 80) -> RenderableType:
    """Return the catalog's entries: name and what it is."""
    table = plain(("name", "what it is"), wrap="what it is")
    for entry in entries:
        table.add_row(cell(entry.name), cell(entry.description))
    return table


def parameters_table(entry: Any, width: int = 80) -> RenderableType:
    """Return the parameters of one entry of the catalog: name, default, meaning."""
    from stagepack.instances.catalog import VOCABULARY

    table = plain(("parameter", "default", "what it is"), wrap="what it is")
    for name, default in entry.parameters.items():
        shown = as_text.NOTHING if default is None else _figure(default)
        known = VOCABULARY[name]
        choices = f": {', '.join(known.choices)}" if known.choices else ""
        table.add_row(cell(name), cell(shown), cell(known.description + choices))
    return table


def plain(
    columns: tuple[str, ...],
    *,
    left: tuple[str, ...] | None = None,
    header: bool = True,
    wrap: str = "value",
) -> Table:
    """Return an empty table without lines; all columns but `wrap` stay on one line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, SPACE, 0, 0), show_header=header)
    for column in columns:
        on_the_left = left is None or column in left
        justify: Literal["left", "right"] = "left" if on_the_left else "right"
        table.add_column(column, justify=justify, no_wrap=column != wrap, header_style="dim")
    return table


def natural(header: list[str], lines: list[list[str]]) -> int:
    """Return the width that a table needs to cut nothing."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    return sum(widths) + SPACE * (len(widths) - 1)


def narrowed(
    header: Sequence[str], rows: Sequence[Sequence[str]], given_up: Iterable[str], width: int
) -> tuple[list[str], list[list[str]]]:
    """Return a table that fits `width`, without as many of the columns `given_up` as it takes."""
    kept, lines = list(header), [list(row) for row in rows]
    for column in given_up:
        if natural(kept, lines) <= width:
            break
        if column in kept:
            place = kept.index(column)
            del kept[place]
            for line in lines:
                del line[place]
    return kept, lines


def cell(content: str, style: str = "") -> Any:
    """Return a cell that shows `content` as it is."""
    from rich.text import Text

    return Text(shown(content), style=style)


def _figure(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return as_text.number(value) if isinstance(value, int | float) else str(value)
