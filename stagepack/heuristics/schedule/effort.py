"""The cost of work on schedules in steps, and whether to continue after it.

A step is about the time that a compiled loop takes for one arc of a longest path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stagepack.heuristics import effort
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination

RATE = 165_000_000
"""Steps in a second."""

PART = 500_000
"""Steps, operations, arcs or events in a kernel call: 3 ms of steps, some hundredths of a second of
operations."""

ScheduleProgress = Progress[ScheduleSolution]

Going = Callable[[int], bool]
"""Whether to go on, asked several times a second with the steps since the last time."""

OFFER, CHECK = 100_000, 0.8
"""Steps of checking a solution, and for each operation, arc between two, and rule for the arcs."""

LONG = RATE // 10
"""Steps of a check from which on it must end before the run, where there is a solution."""


def asking(progress: ScheduleProgress) -> Going:
    """Return what counts steps, and says whether there is a reason and the time to go on."""

    def keep_going(steps: int) -> bool:
        effort.spend(steps / RATE)
        return progress.keep_going() and effort.left() > 0

    return keep_going


def looking(progress: ScheduleProgress) -> Callable[[int], None]:
    """Return what counts steps, and raises :class:`Stopped` where the run is over.

    One that has nothing yet is not over unless it is interrupted.
    """
    keep_going = asking(progress)

    def look(steps: int) -> None:
        going = keep_going(steps)
        if progress.interrupted or not (going or progress.solution is None):
            raise Stopped

    return look


def affords(instance: PipelineSchedule, progress: ScheduleProgress, steps: int = 0) -> bool:
    """Whether `steps`, and then the check of a solution, end before the run."""
    return progress.remaining * RATE >= steps + _checking(instance)


def offer(
    instance: PipelineSchedule,
    progress: ScheduleProgress,
    solution: ScheduleSolution,
    source: str,
) -> None:
    """Offer a solution that keeps all rules to the progress; its check counts as work.

    Where there is one already, and not the time for a long check, the run is over.  `source` is who
    found it.
    """
    steps = _checking(instance)
    if steps > LONG and progress.solution is not None and not affords(instance, progress):
        progress.stop(Termination.TIME_LIMIT)
        return
    effort.spend(steps / RATE)
    progress.offer(solution, source)


def _checking(instance: PipelineSchedule) -> int:
    """Return the steps of checking a solution."""
    operations = instance.operations
    return OFFER + int(CHECK * (len(operations) + operations.arcs + len(operations.after)))


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
