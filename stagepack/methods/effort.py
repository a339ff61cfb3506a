"""Counted work of a method, and limits of work for runs that must be reproducible."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from stagepack.heuristics import effort
from stagepack.methods import Settings
from stagepack.progress import Progress

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
    by_work = settings.deterministic and limit is not None
    with effort.counting(limit if by_work or planned else None) as spent:
        if by_work and limit is not None:
            progress.limit_by(spent, limit)
        yield


def counted(
    run: Callable[[InstanceT, Progress[SolutionT], Settings], None],
) -> Callable[[InstanceT, Progress[SolutionT], Settings], None]:
    """Return a method that counts its work; see :func:`counting`."""

    def runs(instance: InstanceT, progress: Progress[SolutionT], settings: Settings) -> None:
        with counting(progress, settings):
            run(instance, progress, settings)

    return runs
