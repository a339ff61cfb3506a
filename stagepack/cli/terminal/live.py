"""What a person sees on stderr while something runs; nothing where nobody watches."""

from __future__ import annotations

import abc
import logging
import sys
import time
from typing import TYPE_CHECKING, Self

from stagepack.cli.terminal.screen import complain, figure
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.errors import shown
from stagepack.progress import compilation
from stagepack.report.format import gap as percent
from stagepack.report.format import standing
from stagepack.result import relative_gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType
    from rich.live import Live

    from stagepack.compare.outcomes import Cell

LOG = logging.getLogger("stagepack")
MOST_LINES = 8  # cells under way that are named


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
        from stagepack.cli.terminal.console import Screen

        console = Screen(stderr=True)
        level = logging.getLogger("stagepack").getEffectiveLevel()
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
    """Seconds, incumbent and bound of a running solve, on one line.

    Parameters
    ----------
    name, method : str
        What is solved, and how (or what else is done with it).
    """

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

        Parameters
        ----------
        solution : solution
        objective : number
        bound : number or None
            None: nothing new.
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

    Parameters
    ----------
    instances : mapping
        What is compared, by label.
    announcement : str
        Told when the first cell begins: by then nothing is left to refuse.
    """

    def __init__(self, instances: Mapping[str, Instance], announcement: str = "") -> None:
        self._instances, self._announcement = instances, announcement
        self._running: dict[Cell, float] = {}
        self._done, self._total = 0, 0
        self._began = time.monotonic()
        super().__init__()

    def begun(self, cell: Cell, done: int, total: int) -> None:
        """Take a cell that begins.

        Parameters
        ----------
        cell : Cell
        done, total : int
            Cells that have ended; all cells.
        """
        if self._announcement:
            LOG.info(self._announcement)
            self._announcement = ""
        self._running[cell] = time.monotonic()
        self._done, self._total = done, total

    def ended(self, row: JsonObject, done: int, total: int) -> None:
        """Take a cell that has ended.

        Parameters
        ----------
        row : dict
            Its line of the table.
        done, total : int
            Cells that have ended; all cells.
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
