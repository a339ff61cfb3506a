"""Bounds from fewer microbatches: the time between the first F and the last B of k in a row.

If a device can hold fewer microbatches than there are stages, an F must wait for the B of an
earlier microbatch to release memory.  Longest paths do not capture this waiting, but CP-SAT solves
small numbers of microbatches exactly.  In any schedule, k consecutive microbatches form a schedule
of k microbatches.  On the first stage, the time from their first F to their last B is therefore at
least the optimum for k.  This holds for every k consecutive microbatches of a longer schedule; it
is added as a constraint to the models of larger k, which makes these easier.  For k = m it is a
bound on the whole.  Schedules of few microbatches are also extended to all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagepack import solvers
from stagepack.formulations import schedule as formulations
from stagepack.heuristics.effort import left, spend, spent
from stagepack.heuristics.schedule import prolonging
from stagepack.heuristics.schedule.effort import ScheduleProgress
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.methods import Settings
from stagepack.methods.models import paced, run_model
from stagepack.progress import Part, Stopped

PACE = 0.8
"""Work of CP-SAT that takes about a second in these models."""

TURNS = (1.0, 4.0)
"""Work of CP-SAT on a number of microbatches, in turns."""

LARGEST = 5_000
"""Operations up to which there is something to hope for."""


def unsupported(instance: PipelineSchedule) -> str:
    """Return why fewer microbatches tell nothing of `instance`, or ''."""
    microbatches, limit = instance.microbatches, instance.limit
    if not instance.training or instance.split:
        return "is for F and B, each in one piece"
    if instance.d < instance.p or limit is None:
        return "is for stages with a device each, within a memory"
    if len(instance.operations) > LARGEST:
        return f"is for up to {LARGEST:,} operations"
    if (instance.memory_forward <= 0).any():
        return "is for F's that allocate memory"
    if (instance.memory_forward + instance.memory_backward < 0).any():
        return "is for B's that free at most what F's allocated"
    if int((instance.producers.first[1:] == instance.producers.first[:-1]).sum()) > 1:
        return "is for one first stage"
    first = instance.order[0]
    fit = int(limit[instance.devices[first]] // instance.memory_forward[first])
    if fit >= min(instance.p, int(microbatches[0])):
        return "is for memory that holds fewer F's than there are stages"
    return ""


class Stretches:
    """Fewer microbatches of an instance that is not :func:`unsupported`.

    Parameters
    ----------
    instance : PipelineSchedule
    progress : Progress
    engine : Engine
        CP-SAT, loaded.
    settings : Settings

    Attributes
    ----------
    cycles : dict of int to int
        By number of microbatches, what is proved of them.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        progress: ScheduleProgress,
        engine: solvers.Engine,
        settings: Settings,
    ) -> None:
        self.instance, self.progress = instance, progress
        self.cycles: dict[int, int] = {}
        self._engine, self._settings = engine, settings
        self._upper: dict[int, int] = {}
        self._orders: dict[int, Array] = {}
        self._untried = self._all()

    def find(self, work: float) -> None:
        """Solve more microbatches, for so many seconds of work, and go on there the next time."""
        end = spent() + work
        for count, most in self._untried:
            self._solve(count, min(most, PACE * left()))
            if not self.progress.keep_going() or spent() >= end:
                return

    def prolonged(self) -> list[Array]:
        """Return orders of all microbatches made of what was found since, the best first."""
        timing, found = Timing(self.instance), []
        for count, order in self._orders.items():
            short = Timing(self.instance.replace(microbatches=count))
            long = prolonging.prolonged(short, order, timing)
            if long is not None:
                found.append(long)
        self._orders.clear()
        return [order for _, order in sorted(found, key=lambda row: row[0])]

    def _all(self) -> Iterator[tuple[int, float]]:
        """Yield numbers of microbatches, and how much work to spend on each."""
        for most in TURNS:
            for count in range(1, int(self.instance.microbatches[0])):
                if count not in self._upper or self.cycles.get(count, 0) < self._upper[count]:
                    yield count, most

    def _solve(self, count: int, most: float) -> None:
        """Let CP-SAT work on so many microbatches; note what is proved, and the best order."""
        fewer = self.instance.replace(microbatches=count, objective=Objective.MAKESPAN)
        part: ScheduleProgress = Part(self.progress, fewer.evaluate, fewer.check)
        lower = self.cycles.get(count, self.cycles.get(count - 1, 0))
        upper = self._upper.get(count)
        if upper is None and count - 1 in self._upper:
            upper = self._upper[count - 1] + self._upper[1]  # one after all others
        after = int(self.instance.after.max())
        try:
            seconds = run_model(
                self._engine,
                lambda: formulations.CpSat(fewer, upper=upper, lower=lower, stretches=self.cycles),
                "CpSat",
                part,
                paced(self._settings, self._engine, pace=PACE),
                work=most,
                pace=PACE,
                conclude_infeasible=lambda: None,
            )
        except Stopped:
            return
        spend(seconds + formulations.LOADING * len(fewer.operations))
        if part.bound is not None:
            self.cycles[count] = max(lower, int(part.bound) - after)
        if part.solution is not None and part.objective is not None:
            self._upper[count] = int(part.objective)
            self._orders[count] = Timing(fewer).order_of(part.solution.start)
