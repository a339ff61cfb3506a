"""What is printed: heads, sheets of rows, accounts of solutions; each fits its terminal."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from stagepack.errors import shown
from stagepack.report import format as as_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

SPACE = 2  # columns between columns
BOUNDLESS = 100_000  # columns: more than any table needs


@dataclass(frozen=True)
class Sheet:
    """A table of text, for terminals of any width and for pages.

    Attributes
    ----------
    header : sequence of str
    rows : sequence of sequences of str
    words : container of str
        Columns of words, which stand on the left and may lose their ends where there is little
        room; all others hold numbers, which are never cut.
    spare : sequence of str
        Columns that are given up, in this order, where a terminal is too narrow for all.
    title : str
        On a page, where a sheet with a title can be opened and closed.
    above : str
        A line above the table in a terminal.
    marks : mapping of (row, column) to str
        Styles of single cells.
    most : int, optional
        Rows that a terminal shows.
    what : str
        What a row is.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Container[str] = ()
    spare: Sequence[str] = ()
    title: str = ""
    above: str = ""
    marks: Mapping[tuple[int, str], str] = field(default_factory=dict)
    most: int | None = None
    what: str = "row"

    def first(self, most: int | None) -> Sheet:
        """Return the sheet of which at most so many rows are shown."""
        known = [limit for limit in (most, self.most) if limit is not None]
        return replace(self, most=min(known, default=None))

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
        return f"... and {hidden:,} more {self.what}{'' if hidden == 1 else 's'}" if hidden else ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, table = self, self._table()
        for column in self.spare:
            if console.measure(table, options=options.update(width=BOUNDLESS)).maximum <= (
                options.max_width
            ):
                break
            sheet = sheet._without(column)
            table = sheet._table()
        if self.above:
            yield cell(self.above, "dim")
        yield table
        if self.more:
            yield cell(self.more)

    def _without(self, column: str) -> Sheet:
        if column not in self.header:
            return self
        keep = [at for at, name in enumerate(self.header) if name != column]
        rows = [[row[at] for at in keep] for row in self.rows]
        return replace(self, header=[self.header[at] for at in keep], rows=rows)

    def _table(self) -> Table:
        table = plain(tuple(self.header), left=self.words, wrap=self.words)
        for at, row in enumerate(self.shown):
            table.add_row(
                *(
                    cell(text, self.marks.get((at, name), ""), whole=False)
                    for name, text in zip(self.header, row, strict=True)
                )
            )
        return table


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
    """The first lines about something: of each what stands out, and the rest.

    Attributes
    ----------
    lines : sequence of (str, str)
    figures : sequence of str
        Stand on one line below them where they fit, else on a line each.
    reason : str
        Stands below it all.
    """

    lines: Sequence[tuple[str, str]]
    figures: Sequence[str] = ()
    reason: str = ""

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
    table = plain(("fact", "value"), header=False, wrap=("value",))
    for fact, value in lines:
        table.add_row(cell(fact, "dim"), cell(value))
    return table


def methods_table(methods: Iterable[Any]) -> RenderableType:
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
    table = plain(("method", "proves", "engine", "what it does"))
    for method in methods:
        about = method.description
        style = ""
        if not method.available:
            about, style = f"{about} (not here: {method.reason})", "dim"
        proves = "yes" if method.exact else "no"
        engine = method.engines[0] if method.engines else as_text.NOTHING
        table.add_row(*(cell(text, style) for text in (method.name, proves, engine, about)))
    return table


def catalog_table(entries: Iterable[Any]) -> RenderableType:
    """Return the catalog's entries: name and what it is."""
    table = plain(("name", "what it is"))
    for entry in entries:
        table.add_row(cell(entry.name), cell(entry.description))
    return table


def parameters_table(entry: Any) -> RenderableType:
    """Return the parameters of one entry of the catalog: name, default, meaning."""
    from stagepack.instances.problem import choices, word

    table = plain(("parameter", "default", "what it is"))
    for name, default in entry.parameters.items():
        shown = as_text.NOTHING if default is None else _figure(default)
        known = word(name, entry.kind)
        words = ", ".join(choices(known, entry.kind))
        table.add_row(cell(name), cell(shown), cell(known.description + (words and f": {words}")))
    return table


def plain(
    columns: Iterable[str],
    *,
    left: Container[str] | None = None,
    header: bool = True,
    wrap: Container[str] = ("what it is", "what it does"),
) -> Table:
    """Return an empty table without lines.

    Parameters
    ----------
    columns : iterable of str
    left : container of str, optional
        Columns that stand on the left; by default all do.
    header : bool
        Whether it has a line of names.
    wrap : container of str
        Columns that may become narrower than what is in them.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, SPACE, 0, 0), show_header=header)
    for column in columns:
        on_the_left = left is None or column in left
        justify: Literal["left", "right"] = "left" if on_the_left else "right"
        table.add_column(column, justify=justify, no_wrap=column not in wrap, header_style="dim")
    return table


def cell(content: str, style: str = "", *, whole: bool = True) -> Any:
    """Return a cell that shows `content` as it is; one that need not be `whole` is one line."""
    from rich.text import Text

    one_line: dict[str, Any] = {} if whole else {"no_wrap": True, "overflow": "ellipsis"}
    return Text(shown(content), style=style, **one_line)


def _figure(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return as_text.number(value) if isinstance(value, int | float) else str(value)
