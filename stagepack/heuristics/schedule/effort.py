"""What a run may spend: seconds, or, where it is to repeat, work that stands for seconds.

Work is counted in steps, about what a compiled loop takes for one arc of a longest path.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from stagepack.instances.schedule import ScheduleSolution
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination

RATE = 90_000_000
"""Steps in a second."""

OFFER, CHECK = 100_000, 10
"""Steps of checking a solution, and for each of its operations."""


class Settings(Protocol):
    """What of the settings of a run matters here."""

    @property
    def seed(self) -> int:
        """Of the random numbers."""

    @property
    def deterministic(self) -> bool:
        """Whether to be limited by work instead of time."""

    @property
    def time_limit(self) -> float | None:
        """The limit of the run, for turning it into work."""


class Effort:
    """The clock of a run, or its work.

    Parameters
    ----------
    progress : Progress
        Whose clock it is; it is told when the work is done.
    settings : Settings, optional
        Without them, or without a limit, work is counted but limits nothing.

    Attributes
    ----------
    spent : float
        Seconds that the work so far stands for.
    limit : float or None
        Seconds that all work may stand for.
    """

    def __init__(self, progress: Progress[Any], settings: Settings | None = None) -> None:
        self.progress = progress
        self.spent = 0.0
        limited = settings is not None and settings.deterministic
        self.limit = settings.time_limit if settings is not None and limited else None
        self._whole: Effort | None = None

    def part(self, seconds: float) -> Effort:
        """Return an effort that ends after work of some seconds, or with this one."""
        part = Effort(self.progress)
        part.limit, part._whole = seconds, self
        return part

    @property
    def left(self) -> float:
        """Seconds that work may still stand for."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.spent)

    def spend(self, seconds: float) -> None:
        """Count work that stands for some seconds."""
        self.spent += seconds
        if self._whole is not None:
            self._whole.spend(seconds)
        elif not self.left:
            self.progress.stop(Termination.TIME_LIMIT)

    def offer(self, solution: ScheduleSolution, source: str) -> bool:
        """Offer a solution to the progress; its check counts as work."""
        self.spend((OFFER + CHECK * len(solution.start)) / RATE)
        return self.progress.offer(solution, source)

    def keep_going(self, steps: int = 0) -> bool:
        """Count steps; return whether there is a reason and the time to go on."""
        self.spend(steps / RATE)
        return self.progress.keep_going() and self.left > 0

    def look(self, steps: int = 0) -> None:
        """Count steps; raise :class:`Stopped` where the run is over, unless it has nothing yet."""
        going = self.keep_going(steps)
        if self.progress.interrupted or not (going or self.progress.solution is None):
            raise Stopped
