"""What work on schedules costs, in steps, and what a search may spend of it.

A step is about what a compiled loop takes for one arc of a longest path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from stagepack.heuristics import effort
from stagepack.instances.schedule import ScheduleSolution
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination

RATE = 90_000_000
"""Steps in a second."""

PART = 500_000
"""Operations, arcs or events in a kernel call: less than a tenth of a second."""

Going = Callable[[int], bool]
"""Whether to go on, asked several times a second with the steps since the last time."""

OFFER, CHECK = 100_000, 3
"""Steps of checking a solution, and for each of its operations and of the arcs between them."""

LONG = RATE // 10
"""Steps of a check from which on it must end before the run, where there is a solution."""


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
    """What a search may spend of the clock of work, and whom it asks whether to go on.

    Parameters
    ----------
    progress : Progress
    seconds : float
        Of work, from now on.
    arcs : int
        Those of the instance that are checked.
    """

    def __init__(self, progress: Progress[Any], seconds: float = math.inf, arcs: int = 0) -> None:
        self.progress = progress
        self.arcs = arcs
        self._end = effort.spent() + seconds

    def part(self, seconds: float) -> Effort:
        """Return an effort that ends after work of some seconds, or with this one."""
        return Effort(self.progress, min(seconds, self._end - effort.spent()), self.arcs)

    @property
    def left(self) -> float:
        """Seconds that work may still stand for."""
        return max(0.0, min(self._end - effort.spent(), effort.left()))

    def offer(self, solution: ScheduleSolution, source: str) -> bool:
        """Offer a solution to the progress; its check counts as work.

        Where there is one already, and not the time for a long check, the run is over.
        """
        progress = self.progress
        steps = OFFER + CHECK * (len(solution.start) + self.arcs)
        if steps > LONG and progress.solution is not None and progress.remaining < steps / RATE:
            progress.stop(Termination.TIME_LIMIT)
            return False
        effort.spend(steps / RATE)
        return progress.offer(solution, source)

    def keep_going(self, steps: int = 0) -> bool:
        """Count steps; return whether there is a reason and the time to go on."""
        effort.spend(steps / RATE)
        return self.progress.keep_going() and self.left > 0

    def look(self, steps: int = 0) -> None:
        """Count steps; raise :class:`Stopped` where the run is over, unless it has nothing yet."""
        going = self.keep_going(steps)
        if self.progress.interrupted or not (going or self.progress.solution is None):
            raise Stopped


class Looks:
    """Looks at the clock between parts of long loops; raises :class:`Stopped` at the end of it."""

    def __init__(self, keep_going: Going | None = None) -> None:
        self._keep_going = keep_going

    def at(self, steps: int) -> None:
        """Count steps, and go on if there is time."""
        if self._keep_going is not None and not self._keep_going(steps):
            raise Stopped

    def parts(self, count: int, each: float = 1.0) -> Iterator[tuple[int, int]]:
        """Yield [low, high) of `count` things of `each` steps, and look after every one."""
        for low in range(0, count, PART):
            high = min(count, low + PART)
            yield low, high
            self.at(int(each * (high - low)))
