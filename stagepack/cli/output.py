"""Files that commands write: refused early where they cannot work, never lost where they fail."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

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
    """Notes which files could not be written, so that the answer goes to stdout instead.

    Each file is written in a ``with`` block of its own; a failure ends the block alone.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if isinstance(error, InputError):
            self.failures.append(str(error))
        elif isinstance(error, KeyboardInterrupt | MemoryError | OSError):
            self.failures.append(f"an output was not written ({type(error).__name__})")
        else:
            return False
        return True

    def __bool__(self) -> bool:
        return bool(self.failures)

    def tell(self, what: str) -> None:
        """Say on stderr what failed, and that `what` is on stdout."""
        for failure in self.failures:
            complain(f"error: {failure}")
        if self.failures:
            complain(f"{what} is on stdout instead")
