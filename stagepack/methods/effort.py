"""Counted work of a method, and limits of work for runs that must be reproducible."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from stagepack.heuristics import effort
from stagepack.methods import Settings
from stagepack.progress import Progress
from stagepack.result import Termination

InstanceT = TypeVar("InstanceT")
SolutionT = TypeVar("SolutionT")


@contextlib.contextmanager
def counting(
    progress: Progress[SolutionT], settings: Settings, *, planned: bool = False
) -> Iterator[None]:
    """Count the work of the block, and let `progress` end by it where runs are to repeat.

    Parameters
    ----------
    progress : Progress
    settings : Settings
    planned : bool
        Whether the block plans with the work that is left where the wall clock ends it, too.
    """
    limit = settings.time_limit
    if settings.deterministic and limit is not None:
        progress.limit_by(effort.spent, limit)
    with effort.counting(limit if settings.deterministic or planned else None):
        try:
            yield
        finally:
            if progress.stop_reason() is Termination.TIME_LIMIT:
                progress.stop(Termination.TIME_LIMIT)  # by a clock that stops here


def counted(
    run: Callable[[InstanceT, Progress[SolutionT], Settings], None],
) -> Callable[[InstanceT, Progress[SolutionT], Settings], None]:
    """Return a method that counts its work; see :func:`counting`."""

    def runs(instance: InstanceT, progress: Progress[SolutionT], settings: Settings) -> None:
        with counting(progress, settings):
            run(instance, progress, settings)

    return runs
