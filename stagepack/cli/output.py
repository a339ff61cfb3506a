"""Output files of commands: checked before a run starts, and never lost if writing fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stagepack import files
from stagepack.cli.terminal.screen import (
    command_line,
    complain,
    print_json,
    print_parts,
    write_json,
)
from stagepack.contracts import JsonObject
from stagepack.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType


def require_writable(*targets: Path | None, source: str = "") -> None:
    """Refuse what cannot be written, or is named twice, before anything is solved.

    Parameters
    ----------
    *targets : Path, optional
    source : str
        What is read, perhaps as FILE#name; it is never written over.

    Raises
    ------
    InputError
        Naming the file.
    """
    seen: set[str] = set()
    sources = {os.path.realpath(file) for file in (source, source.rpartition("#")[0]) if file}
    for target in targets:
        if target is None:
            continue
        if str(target) == "-":
            remedy = "name a file; --json prints to stdout"
            raise InputError("is no file", file=target, remedy=remedy)
        files.require_writable(target)
        place = os.path.realpath(target)
        if place in seen and (not os.path.exists(place) or os.path.isfile(place)):
            raise InputError(
                "is named for two outputs", file=target, remedy="give each a file of its own"
            )
        if place in sources and os.path.isfile(place):
            raise InputError(
                "is a file that the command reads", file=target, remedy="name another file"
            )
        seen.add(place)


def apart(output: Path | None, *, as_json: bool) -> Path | None:
    """Return the file that gets JSON; none where it is stdout, which has one document already."""
    return None if as_json and output is not None and files.is_stdout(output) else output


class Rescue:
    """Notes which files could not be written, so that the answer goes to stdout instead."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def attempt(self, write: Callable[[Path], object], target: Path | None) -> None:
        """Write a file, if one is asked for; a failure ends nothing but this.

        Parameters
        ----------
        write : callable
        target : Path, optional
        """
        try:
            if target is not None:
                write(target)
        except InputError as error:
            self.failures.append(str(error))
        except (KeyboardInterrupt, MemoryError, OSError) as error:
            self.failures.append(f"an output was not written ({type(error).__name__})")

    def __bool__(self) -> bool:
        return bool(self.failures)

    def tell(self, what: str) -> None:
        """Say on stderr what failed, and that `what` is on stdout."""
        for failure in self.failures:
            complain(f"error: {failure}")
        if self.failures:
            complain(f"{what} is on stdout instead")


class Findings(Protocol):
    """What a command found: for scripts, and for people."""

    def to_dict(self) -> JsonObject:
        """Return plain JSON data."""
        ...

    def contents(self) -> Sequence[RenderableType]:
        """Return what is printed."""
        ...


def answer(
    found: Findings,
    what: str,
    output: Path | None,
    *others: tuple[Callable[[Path], object], Path | None],
    as_json: bool,
) -> Rescue:
    """Write what was found where it is asked for, print it, and return what could not be written.

    Parameters
    ----------
    found : a front, a plan, ...
    what : str
        What stdout holds in full where a file could not be written.
    output : Path, optional
        Gets the JSON.
    *others : (callable, Path or None)
        How each other file is written, and where.
    as_json : bool
        Print JSON.
    """
    document = {**found.to_dict(), "command": command_line()}
    output = apart(output, as_json=as_json)
    rescue = Rescue()
    for write, target in ((lambda path: write_json(path, document), output), *others):
        rescue.attempt(write, target)
    if as_json or rescue:
        rescue.tell(what)
        print_json(document)
    else:
        print_parts(found.contents(), outputs=(output, *(target for _, target in others)))
    return rescue
