"""Plain tables for terminals, and the cells that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from stagepack.errors import shown
from stagepack.report import format as as_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SPACE = 2  # columns between columns


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
    from stagepack.instances.problem import VOCABULARY, choices

    table = plain(("parameter", "default", "what it is"), wrap="what it is")
    for name, default in entry.parameters.items():
        shown = as_text.NOTHING if default is None else _figure(default)
        known = VOCABULARY[name]
        words = ", ".join(choices(known, entry.kind))
        table.add_row(cell(name), cell(shown), cell(known.description + (words and f": {words}")))
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
