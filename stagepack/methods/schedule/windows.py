"""Bounds from windows: CP-SAT proves how long devices must be idle at the begin and at the end.

If devices have several stages, their idle time is caused in the first and last windows of the
schedule.  There the memory limits, the path of the first microbatches, and the stages that feed
them interact.  For one window after the other, short and cheap ones first, a model proves a lower
bound on the idle time of a device in the window.  Bounds of windows that do not overlap add up,
also with those of the counting bound (:mod:`stagepack.heuristics.schedule.lower_bounds.counting`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stagepack import solvers
from stagepack.evidence import TOLD
from stagepack.formulations.schedule import Idle
from stagepack.heuristics.effort import left, spend, spent
from stagepack.heuristics.schedule import effort
from stagepack.heuristics.schedule.effort import Looks, ScheduleProgress
from stagepack.heuristics.schedule.lower_bounds import counting
from stagepack.heuristics.schedule.tuning import TUNING, ScheduleTuning
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.methods import Settings
from stagepack.result import Status


def unsupported(instance: PipelineSchedule, tuning: ScheduleTuning = TUNING) -> str:
    """Return why no windows are asked about in `instance`, or ''."""
    if instance.objective is not Objective.MAKESPAN:
        return "is for the makespan"
    if not instance.training:
        return "needs backward operations"
    most = tuning.windows.operations
    if len(instance.operations) > most:
        return f"is for up to {most:,} operations"
    return counting.unsupported(instance, tuning.bounds)


class Window(NamedTuple):
    """The first, or if `back` the last, cycles of the device that is looked at; `moment` is how
    many.

    All devices do one thing at a time in the model if `every`; else that one, and where
    microbatches enter.
    """

    back: bool
    moment: int
    every: bool


class Windows:
    """Windows of an instance that is not :func:`unsupported`, and what is known of them.

    Bounds are raised at `progress`; the engine is CP-SAT, loaded.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        progress: ScheduleProgress,
        engine: solvers.Engine,
        settings: Settings,
    ) -> None:
        self.instance, self.progress = instance, progress
        self._engine, self._settings = engine, settings
        tuning = settings.tuned(TUNING)
        self._tuning, self._loading = tuning.windows, tuning.model.loading
        count = counting.Counting(instance, Looks(effort.asking(progress)), tuning.bounds)
        self._head, self._tail = count.ends()
        operations = instance.operations
        own = [(d, np.flatnonzero(operations.device == d)) for d in range(instance.d)]
        need = [instance.work[d] + self._head[v].min() + self._tail[v].min() for d, v in own]
        self._device = d = int(np.argmax(need))
        self._ramps = list(count.ramps(d, self._head, self._tail))
        self._tail -= instance.after[d]
        kind = operations.kind[own[d][1]]
        self._until = [
            int(side[own[d][1][kind == other]].min())
            for side, other in ((self._head, 1), (self._tail, 0))
        ]
        self._solved: set[Window] = set()
        self._untried = self._all()

    def raise_bound(self, work: float) -> None:
        """Ask about windows for so many seconds of work, and go on there the next time."""
        end = spent() + work
        for window, most in self._untried:
            self._ask(window, min(most, self._tuning.pace * left()))
            if not self.progress.keep_going() or spent() >= end:
                return

    def _all(self) -> Iterator[tuple[Window, float]]:
        """Yield windows, and how much work to spend on each, the cheapest first.

        A longer one takes more: where a window was not solved in a turn, those that hold it wait.
        """
        tuning = self._tuning
        turns = [(most, False) for most in tuning.turns]
        for most, every in [*turns, *((most, True) for most in tuning.turns_apart)]:
            unsolved = set[bool]()
            for share, back in itertools.product(tuning.shares, (True, False)):
                window = Window(back, int(share * self._until[back]), every)
                if back in unsolved or window in self._solved or self._known(window):
                    continue
                yield window, most
                if window not in self._solved:
                    unsolved.add(back)

    def _known(self, window: Window) -> bool:
        """Whether the best schedule known is idle in a window for no longer than is proved."""
        solution, operations = self.progress.solution, self.instance.operations
        if solution is None or self.progress.objective is None:
            return False
        own = operations.device == self._device
        start, duration = solution.start[own], operations.duration[own]
        if window.back:
            end = int(self.progress.objective) - int(self.instance.after[self._device])
            start = end - start - duration
        work = int(np.clip(window.moment - start, 0, duration).sum())
        return window.moment - work <= self._least(window)

    def _least(self, window: Window) -> int:
        """Return how many idle cycles of a window are proved."""
        moments, idle = self._ramps[window.back]
        return int(idle[moments <= window.moment].max(initial=0))

    def _ask(self, window: Window, most: float) -> None:
        """Let CP-SAT work on a window, and raise the bound."""
        head = self._tail if window.back else self._head
        if int((head < window.moment).sum()) > self._tuning.window:
            self._solved.add(window)
            return
        source = int(self.instance.devices[self.instance.order[0]])
        model = Idle(
            self.instance,
            head,
            self._device,
            window.moment,
            least=self._least(window),
            apart=range(self.instance.d) if window.every else (source,),
            back=window.back,
        )
        deterministic = self._settings.deterministic
        limits = solvers.Limits(
            time_limit=None if deterministic else max(0.0, self.progress.remaining),
            work_limit=most,
            threads=self._settings.threads,
            seed=self._settings.seed,
        )
        outcome = self._engine.solve(
            model.model,
            limits=limits,
            should_stop=lambda: not self.progress.keep_going(),
            parameters=model.parameters,
        )
        spend(outcome.work / self._tuning.pace + self._loading * len(model.y))
        if outcome.interrupted:
            self.progress.interrupt()
        if outcome.status is Status.OPTIMAL:
            self._solved.add(window)
        if outcome.bound is not None:
            self._learn(window, model.cycles(outcome.bound))

    def _learn(self, window: Window, idle: int) -> None:
        """Add a window to what is known of its device, and raise the bound."""
        if idle <= self._least(window):
            return
        moments, known = self._ramps[window.back]
        place = int(np.searchsorted(moments, window.moment))
        self._ramps[window.back] = (
            np.insert(moments, place, window.moment),
            np.insert(known, place, idle),
        )
        work, after = int(self.instance.work[self._device]), int(self.instance.after[self._device])
        first, last = self._ramps
        bound = counting.both_ends(work, after, first, last, int(self.progress.bound or 0))
        self.progress.raise_bound(bound, f"idle windows ({self._engine.name})", TOLD)
