"""Files that commands write: refused early where they cannot work, never lost where they fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stagepack import files
from stagepack.cli.screen import complain
from stagepack.errors import InputError


def require_writable(*targets: Path | None) -> None:
    """Refuse what cannot be written, or is named twice, before anything is solved.

    Raises
    ------
    InputError
        Naming the file.
    """
    seen: set[str] = set()
    for target in targets:
        if target is None:
            continue
        files.require_writable(target)
        place = os.path.realpath(target)
        if place in seen and (not os.path.exists(place) or os.path.isfile(place)):
            raise InputError(
                "is named for two outputs", file=target, remedy="give each a file of its own"
            )
        seen.add(place)


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
