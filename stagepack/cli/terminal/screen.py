"""What people and scripts see: consoles, JSON on stdout, on stderr what runs while they watch."""

from __future__ import annotations

import abc
import codecs
import contextlib
import io
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.errors import shown
from stagepack.files import finite, json_text
from stagepack.progress import compilation
from stagepack.report.format import gap as percent
from stagepack.report.format import number, standing
from stagepack.result import relative_gap

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from stagepack.compare.outcomes import Cell

LOG = logging.getLogger("stagepack")

MOST_LINES = 8  # cells under way that are named
NARROWEST = 40  # columns
LETTERS = {"–": "-", "—": "-", "−": "-", "…": "~", "·": ".", "×": "x", "µ": "u", "�": "?"}
"""What stands for a letter that a terminal does not know."""


def terminal(*, aside: bool = False) -> Console:
    """Return the console of stdout, or of stderr, as wide as the terminal (or COLUMNS) says."""
    from stagepack.cli.terminal.console import Screen

    return Screen(soft_wrap=False, stderr=aside)


def print_parts(parts: Iterable[RenderableType], *, outputs: Iterable[Path | None] = ()) -> None:
    """Print heads, tables and accounts, an empty line between any two.

    They go to stdout, but to stderr (where ``-q`` drops them) if one of `outputs` is stdout: what
    a pipe takes is the document alone.

    The command writes `outputs`.
    """
    aside = any(output is not None and files.is_stdout(output) for output in outputs)
    if aside and LOG.getEffectiveLevel() > logging.INFO:
        return
    console = terminal(aside=aside)
    for place, part in enumerate(parts):
        if place:
            console.print()
        console.print(part)


def complain(line: str) -> None:
    """Print one line on stderr, if there is one."""
    with contextlib.suppress(OSError):
        _print(shown(" ".join(line.split())), sys.stderr)


def say(text: str, end: str = "\n") -> None:
    """Print `text` on stdout in the letters that it takes; :class:`OSError` when it does not get
    through.

    ``typer.echo`` writes UTF-8 even where ``PYTHONIOENCODING`` says ASCII.
    """
    _print(text, sys.stdout, end)


def _print(text: str, stream: TextIO | None, end: str = "\n") -> None:
    if stream is not None:  # closed by who called
        stream.write(text + end)
        stream.flush()


def plain_letters() -> None:
    """Let terminals without Unicode get other letters instead of an error."""
    codecs.register_error("stagepack", _other_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="stagepack")


def legible_width() -> None:
    """Take a ``COLUMNS`` of 0 as not given, and one in which no table fits as the least that does.

    Rich prints nothing at all in 0 columns.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) == 0:
        del os.environ["COLUMNS"]
    elif given.isdecimal() and int(given) < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)


def _other_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(LETTERS.get(c) or ascii(c)[1:-1] for c in letters), error.end


class Stderr(logging.Handler):
    """Log lines on stderr, wherever that leads when they are written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


@contextlib.contextmanager
def engines_silenced() -> Iterator[None]:
    """Let nothing be seen of what engines, or their processes, write behind Python's back.

    Our own words still reach stderr.  With ``-v`` the engines' stderr does, too: of a solver that
    crashes it holds the last words.
    """
    with contextlib.ExitStack() as stack:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, nowhere)
        _redirect(1, sys.stdout, nowhere, stack)
        if LOG.getEffectiveLevel() > logging.DEBUG:
            spare = _redirect(2, sys.stderr, nowhere, stack)
            if spare is not None:
                sys.stderr, before = spare, sys.stderr
                stack.callback(setattr, sys, "stderr", before)
        yield


def _redirect(
    descriptor: int, stream: TextIO | None, target: int, stack: contextlib.ExitStack
) -> TextIO | None:
    """Let `descriptor` lead to `target`, and return a stream to where `stream` led, if there."""
    try:
        if stream is not None:
            stream.flush()
        kept = os.dup(descriptor)
    except (OSError, ValueError):  # closed: nothing to protect
        return None
    stack.callback(os.close, kept)
    stack.callback(os.dup2, kept, descriptor)
    os.dup2(target, descriptor)
    try:
        if stream is None or stream.fileno() != descriptor:
            return None
    except (OSError, ValueError):
        return None
    spare = os.fdopen(
        kept, "w", buffering=1, encoding=stream.encoding, errors=stream.errors, closefd=False
    )
    stack.callback(spare.close)
    return spare


def figure(value: Number | None) -> str:
    """Return a number as people read it."""
    return "none" if value is None else number(value)


def command_line() -> str:
    """Return the command that is running, quoted for a shell."""
    return shlex.join(["stagepack", *sys.argv[1:]])


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    say(json_text(finite(document)))


def write_json(path: Path, document: object) -> None:
    """Write a JSON document to a file, whole or not at all."""
    files.write(path, json_text(finite(document)) + "\n")


# ---------------------------------------------------------------------- while something runs


def elapsed(seconds: float) -> str:
    """Return a time that runs: ``0 s``, ``59 s``, ``2:05``, ``1:00:00``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes = f"{rest // 60}:{rest % 60:02d}"
    return minutes if not hours else f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def _compiling() -> str:
    """Return that kernels are compiled, here or in children, while they are."""
    return ", compiling kernels" if compilation.under_way else ""


class _Live(abc.ABC):
    """Lines on stderr that are drawn anew several times a second, while a person watches."""

    def __init__(self) -> None:
        console = terminal(aside=True)
        level = LOG.getEffectiveLevel()
        # With -q nothing is said, with -v everything, line by line.
        watched = console.is_terminal and not console.is_dumb_terminal
        self.told = level <= logging.INFO
        self.live: Live | None = None
        if watched and level == logging.INFO and sys.stderr.isatty():
            from rich.live import Live

            self.live = Live(
                get_renderable=self.picture, console=console, transient=True, refresh_per_second=8
            )

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    @abc.abstractmethod
    def picture(self) -> RenderableType:
        """Return what is drawn now."""


class Solving(_Live):
    """Seconds, incumbent and bound of a running solve by a `method`, on one line."""

    def __init__(self, name: str, method: str) -> None:
        from rich.spinner import Spinner

        self._what = shown(f"{name}, {method}")
        self._objective: Number | None = None
        self._bound: Number | None = None
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        super().__init__()

    def incumbent(self, solution: object, objective: Number, bound: Number | None) -> None:
        """Take an incumbent, as `on_incumbent` of :func:`stagepack.solve` has it.

        That is, a `solution` and its `objective`; a `bound` of None is nothing new.
        """
        self._objective, self._bound = objective, bound if bound is not None else self._bound

    def bound(self, bound: Number, source: str) -> None:
        """Take a better bound."""
        self._bound = bound

    def line(self) -> str:
        """Return the line: figures first, since a narrow terminal shows its beginning only."""
        parts = [elapsed(time.monotonic() - self._began) + _compiling()]
        if self._objective is not None:
            parts.append(f"incumbent {figure(self._objective)}")
        if self._bound is not None:
            parts.append(f"bound {figure(self._bound)}")
        gap = relative_gap(self._objective, self._bound)
        if gap is not None:
            parts.append(f"gap {percent(gap)}")
        return "   ".join([*parts, self._what])

    def picture(self) -> RenderableType:
        """Return a turning sign and the line."""
        from rich.text import Text

        self._spinner.update(text=Text(self.line(), no_wrap=True, overflow="ellipsis"))
        return self._spinner


class Cells(_Live):
    """Progress of a comparison: a bar and the cells under way for a person, else a line a cell.

    `instances` are compared, by label.  The `announcement` is told when the first cell begins: by
    then nothing is left to refuse.
    """

    def __init__(self, instances: Mapping[str, Instance], announcement: str = "") -> None:
        self._instances, self._announcement = instances, announcement
        self._running: dict[Cell, float] = {}
        self._done, self._total = 0, 0
        self._began = time.monotonic()
        super().__init__()

    def begun(self, cell: Cell, done: int, total: int) -> None:
        """Take a cell that begins.

        `done` cells of `total` have ended.
        """
        if self._announcement:
            LOG.info(self._announcement)
            self._announcement = ""
        self._running[cell] = time.monotonic()
        self._done, self._total = done, total

    def ended(self, row: JsonObject, done: int, total: int) -> None:
        """Take a cell that has ended.

        `row` is its line of the table; `done` cells of `total` have ended.
        """
        self._done, self._total = done, total
        for cell in list(self._running):
            if (cell.instance, cell.method, cell.seed) == (
                row["instance"], row["method"], row["seed"],
            ):  # fmt: skip
                del self._running[cell]
        if self.told and self.live is None:
            instance = self._instances[row["instance"]]
            status = standing(row["status"], row["objective"], instance)
            complain(f"{done:,}/{total:,} {row['instance']} {row['method']} {status}")

    def count(self) -> str:
        """Return how many cells are done, for how long they have been running, what compiles."""
        since = elapsed(time.monotonic() - self._began)
        if not self._total:
            return f"{since}, loading"
        return f"{self._done:,}/{self._total:,}  {since}{_compiling()}"

    def lines(self) -> list[str]:
        """Return a line for each cell under way: for how long, which instance and method."""
        now = time.monotonic()
        under_way = sorted(self._running.items(), key=lambda item: item[1])
        several_seeds = len({cell.seed for cell, _ in under_way}) > 1
        found = [
            f"{elapsed(now - began):>7}  {shown(cell.instance)}  {cell.method}"
            + (f" #{cell.seed}" if several_seeds else "")
            for cell, began in under_way[:MOST_LINES]
        ]
        more = len(under_way) - MOST_LINES
        return [*found, f"         and {more:,} more"] if more > 0 else found

    def picture(self) -> RenderableType:
        """Return the bar, and below it the cells under way."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, self._total), completed=self._done, width=20)
        head.add_row(bar, Text(self.count(), no_wrap=True))
        texts = (Text(line, no_wrap=True, overflow="ellipsis") for line in self.lines())
        return Group(head, *texts)
