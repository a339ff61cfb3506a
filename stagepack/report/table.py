"""Printed output: heads, tables and accounts of solutions, fitted to the width of the terminal."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stagepack.errors import shown
from stagepack.report import format as as_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from stagepack.catalog import Entry
    from stagepack.solve import MethodInfo

SPACE = 2  # columns between columns
SHORT, SHORTEST = 28, 8  # columns to which words are cut before others are given up, and after


@dataclass(frozen=True)
class Sheet:
    """A table of text, for terminals of any width and for pages."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    # Columns of words, which stand on the left and may lose their middle where there is little
    # room; all others hold numbers, which are never cut.
    words: Container[str] = ()
    # Columns that are given up, in this order, where a terminal is too narrow for all.
    spare: Sequence[str] = ()
    # A column of which a terminal shows equal neighbours once, an empty line between groups.
    by: str = ""
    title: str = ""  # on a page, where a sheet with a title can be opened and closed
    above: str = ""  # a line above the table in a terminal
    marks: Mapping[tuple[int, str], str] = field(default_factory=dict)  # styles of single cells
    most: int | None = None  # rows that a terminal shows
    what: str = "row"  # what a row is
    rest: str = ""  # where those are that are not shown
    widths: Sequence[int] = ()  # those of the columns in a terminal, as :meth:`fitted` finds them

    def first(self, most: int | None) -> Sheet:
        """Return the sheet of which at most so many rows are shown."""
        known = [limit for limit in (most, self.most) if limit is not None]
        return replace(self, most=min(known, default=None))

    def part(self, rows: Sequence[int]) -> Sheet:
        """Return the sheet of some rows, its columns as wide as before."""
        marks = {
            (at, name): self.marks[row, name]
            for at, row in enumerate(rows)
            for name in self.header
            if (row, name) in self.marks
        }
        return replace(self, rows=[self.rows[row] for row in rows], marks=marks)

    def without(self, column: str) -> Sheet:
        """Return the sheet less one column, if it has that."""
        if column not in self.header:
            return self
        keep = [at for at, name in enumerate(self.header) if name != column]
        return replace(
            self,
            header=[self.header[at] for at in keep],
            rows=[[row[at] for at in keep] for row in self.rows],
            widths=[self.widths[at] for at in keep] if self.widths else (),
        )

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """The rows that are shown."""
        return self.rows[: self.most]

    @property
    def over(self) -> set[int]:
        """Rows of which a cell is marked red: something is over its limit."""
        return {row for (row, _), style in self.marks.items() if "red" in style}

    @property
    def more(self) -> str:
        """A word about the rows that are not shown."""
        hidden = len(self.rows) - len(self.shown)
        if not hidden:
            return ""
        more = f"... and {hidden:,} more {self.what}{'' if hidden == 1 else 's'}"
        return f"{more} ({self.rest})" if self.rest else more

    def fitted(self, width: int) -> Sheet:
        """Return the sheet as it fits so many columns of a terminal.

        Words are cut to `SHORT` columns, then spare columns are given up, then words are cut to
        `SHORTEST`.  Where even that will not do, nothing is said of the widths.
        """
        for least in (SHORT, SHORTEST):
            sheet = self
            for column in ("", *self.spare):
                sheet = sheet.without(column)
                widths = sheet._narrowed(width, least)
                if sum(widths) + SPACE * (len(widths) - 1) <= width:
                    return replace(sheet, widths=widths)
        return sheet

    def _narrowed(self, width: int, least: int) -> list[int]:
        """Return the widths of the columns, words cut to no fewer than `least` as far as needed."""
        from rich.cells import cell_len

        columns = zip(*self.shown, strict=True) if self.shown else [()] * len(self.header)
        widths = [
            max(map(cell_len, map(shown, (name, *texts))))
            for name, texts in zip(self.header, columns, strict=True)
        ]
        over = sum(widths) + SPACE * (len(widths) - 1) - width
        for at, name in enumerate(self.header):
            if name in self.words:
                cut = max(0, min(over, widths[at] - max(least, len(name))))
                widths[at] -= cut
                over -= cut
        return widths

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.above:
            yield cell(self.above, "dim")
        yield (self if self.widths else self.fitted(options.max_width))._table()
        if self.more:
            yield cell(self.more)

    def _table(self) -> Table:
        table = _empty()
        for at, name in enumerate(self.header):
            width = self.widths[at] if self.widths else None
            word = name in self.words
            table.add_column(
                name,
                justify="left" if word else "right",
                no_wrap=word,
                overflow="ellipsis" if word else "fold",
                min_width=width,
                max_width=width,
                header_style="dim",
            )
        group = self.header.index(self.by) if self.by in self.header else None
        last = None
        for at, row in enumerate(self.shown):
            texts = [self._cell(at, column) for column in range(len(row))]
            if group is not None:
                if row[group] == last:
                    texts[group] = cell("")
                elif last is not None:
                    table.add_row()
                last = row[group]
            table.add_row(*texts)
        return table

    def _cell(self, at: int, column: int) -> Text:
        name, text = self.header[column], shown(self.rows[at][column])
        if self.widths and name in self.words:
            text = shown(text, self.widths[column])
        return cell(text, self.marks.get((at, name), ""))


@dataclass(frozen=True)
class Account:
    """What a solution amounts to: figures of the whole as (what, text), and of its parts."""

    lines: Sequence[tuple[str, str]]
    sheet: Sheet | None = None

    def first(self, most: int | None) -> Account:
        """Return the account of which at most so many parts are shown."""
        return self if self.sheet is None else replace(self, sheet=self.sheet.first(most))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.lines:
            yield facts_table(self.lines)
        if self.lines and self.sheet is not None:
            yield ""
        if self.sheet is not None:
            yield self.sheet


@dataclass(frozen=True)
class Head:
    """The first lines about something: of each what stands out, and the rest."""

    lines: Sequence[tuple[str, str]]
    figures: Sequence[str] = ()  # stand on one line below them where they fit, else on a line each
    reason: str = ""  # stands below it all

    def in_columns(self, width: int | None = None) -> list[tuple[str, str]]:
        """Return all lines, safe to print, figures as they fit so many columns."""
        joined = ", ".join(self.figures)
        fits = width is None or len(joined) <= width
        rest = [*([joined] if fits else self.figures), self.reason]
        lines = [*self.lines, *(("", line) for line in rest if line)]
        return [(shown(bold), shown(text)) for bold, text in lines]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for bold, rest in self.in_columns(options.max_width):
            line = Text(bold, style="bold")
            yield line.append(f" {rest}" if bold and rest else rest, style="not bold")


def facts_table(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Return facts as (what, text), one a line."""
    table = _plain(("fact", "value"), header=False, wrap=("value",))
    for fact, value in lines:
        table.add_row(cell(fact, "dim"), cell(value))
    return table


def methods_table(methods: Iterable[MethodInfo]) -> RenderableType:
    """Return methods as :func:`stagepack.methods` lists them: exact, own engine, what they do."""
    from rich.console import Group
    from rich.text import Text

    methods = list(methods)
    kinds = list(dict.fromkeys(method.kind for method in methods))
    if len(kinds) > 1:  # the same names mean different things
        parts: list[RenderableType] = []
        for kind in kinds:
            parts.append(Text(kind if kind == kinds[0] else f"\n{kind}", style="bold"))
            parts.append(methods_table([m for m in methods if m.kind == kind]))
        return Group(*parts)
    table = _plain(("method", "proves", "engine", "what it does"))
    for method in methods:
        about = method.description
        style = ""
        if not method.available:
            about, style = f"{about} (not here: {method.reason})", "dim"
        proves = "yes" if method.exact else "no"
        engine = method.engines[0] if method.engines else as_text.NOTHING
        table.add_row(*(cell(text, style) for text in (method.name, proves, engine, about)))
    return table


def catalog_table(entries: Iterable[Entry]) -> RenderableType:
    """Return the catalog's entries: name and what it is."""
    table = _plain(("name", "what it is"))
    for entry in entries:
        table.add_row(cell(entry.name), cell(entry.description))
    return table


def clusters_table() -> list[RenderableType]:
    """Return devices by name, and links: figures, and their sources."""
    from stagepack.instances.accelerators import ACCELERATORS, LINKS

    devices = _plain(("device", "memory", "bf16", "bandwidth", "in a node", "between", "host"))
    links, sources = _plain(("link", "one direction", "latency")), _plain(("name", "what it is"))
    for name, known in ACCELERATORS.items():
        figures = f"{known.memory // 10**9} GB", f"{known.tflops:g} TFLOP/s"
        rate = f"{known.bandwidth:,} GB/s"
        ways = known.near, known.far, known.host
        devices.add_row(*map(cell, (name, *figures, rate, *ways)))
        sources.add_row(cell(name), cell(known.source))
    for name, (speed, latency, source) in LINKS.items():
        links.add_row(cell(name), cell(f"{speed:g} GB/s"), cell(f"{latency:g} us"))
        sources.add_row(cell(name), cell(source))
    return [devices, "", links, "", sources]


def parameters_table(entry: Entry) -> RenderableType:
    """Return the parameters of one entry of the catalog: name, default, meaning."""
    from stagepack.instances.problem import choices, word

    table = _plain(("parameter", "default", "what it is"))
    for name, default in entry.parameters.items():
        shown = as_text.NOTHING if default is None else _figure(default)
        known = word(name, entry.kind)
        words = ", ".join(
            (*choices(known, entry.kind), *([f"FILE{known.ending}"] * bool(known.ending)))
        )
        table.add_row(cell(name), cell(shown), cell(known.description + (words and f": {words}")))
    return table


def _plain(
    columns: Iterable[str],
    *,
    header: bool = True,
    wrap: Container[str] = ("what it is", "what it does"),
) -> Table:
    """Return an empty table of words without lines.

    `header`: it has a line of names; columns of `wrap` may become narrower than what is in them.
    """
    table = _empty(header)
    for column in columns:
        table.add_column(column, no_wrap=column not in wrap, header_style="dim")
    return table


def _empty(header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, SPACE, 0, 0), show_header=header)


def printed(content: RenderableType, width: int, *, color: bool = False) -> str:
    """Return `content` as rich prints it, `width` columns wide, perhaps in `color`."""
    from rich.console import Console

    stream = io.StringIO()
    Console(
        file=stream,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        legacy_windows=False,
    ).print(content)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def cell(content: str, style: str = "") -> Text:
    """Return a cell that shows `content` as it is."""
    from rich.text import Text

    return Text(shown(content), style=style)


def _figure(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return as_text.number(value) if isinstance(value, int | float) else str(value)
