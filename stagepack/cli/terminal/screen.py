"""What people and scripts see: consoles, progress on stderr, JSON on stdout."""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stagepack import files
from stagepack.contracts import Number
from stagepack.errors import shown
from stagepack.files import finite, json_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


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

    Parameters
    ----------
    parts : iterable of renderables
    outputs : iterable of Path or None
        What the command writes.
    """
    aside = any(output is not None and files.is_stdout(output) for output in outputs)
    if aside and logging.getLogger("stagepack").getEffectiveLevel() > logging.INFO:
        return
    console = terminal(aside=aside)
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(part)


def complain(line: str) -> None:
    """Print one line on stderr, if there is one."""
    with contextlib.suppress(OSError):
        _print(shown(" ".join(line.split())), sys.stderr)


def say(text: str, end: str = "\n") -> None:
    """Print `text` on stdout in the letters that it takes.

    ``typer.echo`` writes UTF-8 even where ``PYTHONIOENCODING`` says ASCII.

    Raises
    ------
    OSError
        When it does not get through.
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
        if logging.getLogger("stagepack").getEffectiveLevel() > logging.DEBUG:
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
    from stagepack.report.format import number

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
