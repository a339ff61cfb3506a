"""What people and scripts see: consoles, progress on stderr, JSON on stdout."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stagepack import files
from stagepack.errors import shown
from stagepack.result import Termination, finite

if TYPE_CHECKING:
    from rich.console import Console


LETTERS = {"–": "-", "—": "-", "−": "-", "…": "~", "·": ".", "×": "x", "µ": "u", "�": "?"}
"""What stands for a letter that a terminal does not know."""


def terminal() -> Console:
    """Return the console of stdout, as wide as the terminal (or COLUMNS) says."""
    from stagepack.cli.console import Screen

    return Screen(soft_wrap=False)


def complain(line: str) -> None:
    """Print one line on stderr, if there is one."""
    with contextlib.suppress(OSError):
        typer.echo(shown(" ".join(line.split())), err=True)


def plain_letters() -> None:
    """Let terminals without Unicode get other letters instead of an error."""
    codecs.register_error("stagepack", _other_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="stagepack")


def _other_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(LETTERS.get(c) or ascii(c)[1:-1] for c in letters), error.end


@contextlib.contextmanager
def native_output_on_stderr() -> Iterator[None]:
    """Send what solvers print behind Python's back to stderr: stdout carries the answer alone."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept, errors = os.dup(1), sys.__stderr__.fileno() if sys.__stderr__ else 2
    except OSError:  # no stdout to protect
        yield
        return
    try:
        os.dup2(errors, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class Spinner:
    """A line on stderr while something runs, if a person is watching."""

    def __init__(self, text: str, silent: bool) -> None:
        self._text, self._status = shown(text).replace("[", "\\["), None
        if not silent and sys.stderr.isatty() and logging.getLogger("stagepack").level > 10:
            from stagepack.cli.console import Screen

            self._status = Screen(stderr=True).status(self._text) if self._text else None

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _update(self, news: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._text}: {news}")


class Cells:
    """Progress of a comparison on stderr: a bar for a person, a line a cell for a log."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent or logging.getLogger("stagepack").level > logging.INFO
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Callable[[dict[str, Any], int, int], None]:
        return self._on_result

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _on_result(self, row: dict[str, Any], done: int, total: int) -> None:
        if self._silent:
            return
        what = f"{row['instance']} {row['method']} {row['status']}"
        if not sys.stderr.isatty():
            complain(f"{done}/{total} {what}")
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            from stagepack.cli.console import Screen

            self._bar = Progress(
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                console=Screen(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, description=what)


def figure(value: Any) -> str:
    """Return a number as people read it."""
    from stagepack.report.format import number

    return "none" if value is None else number(value)


def words(termination: Termination) -> str:
    """Return a termination in small letters: ``time limit``."""
    return termination.value.lower().replace("_", " ")


def command_line() -> str:
    """Return the command that is running, quoted for a shell."""
    return shlex.join(["stagepack", *sys.argv[1:]])


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(finite(document), indent=2, allow_nan=False))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document to a file, whole or not at all."""
    files.write(path, json.dumps(finite(document), indent=2, allow_nan=False) + "\n")
