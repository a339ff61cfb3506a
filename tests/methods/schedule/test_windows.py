from __future__ import annotations

import numpy as np

from benchmarks.layouts import gpt
from stagepack import solvers
from stagepack.heuristics.schedule.lower_bounds.bounds import bound
from stagepack.heuristics.schedule.lower_bounds.counting import counting_bound
from stagepack.heuristics.schedule.tuning import TUNING
from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution
from stagepack.methods import Settings
from stagepack.methods.schedule.windows import Window, Windows, unsupported
from stagepack.progress import Progress
from tests.random_schedules import optimum, random_schedule


def raised(instance: PipelineSchedule, least: int, work: float) -> int:
    """Return the bound of windows, where `least` is proved."""
    engine = solvers.engine("cp-sat")
    engine.load()
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    progress.raise_bound(least, "proved")
    Windows(instance, progress, engine, Settings()).raise_bound(work)
    assert progress.bound is not None
    return int(progress.bound)


def test_interleaved_stages_take_longer_than_all_that_is_counted() -> None:
    loose = gpt(4, 4, 8, split=False)
    instance = loose.replace(limit=np.full(4, 32))
    counted = counting_bound(instance, bound(instance)[0])
    assert raised(instance, counted, 1.0) >= counted + 100


class Unsolved(Windows):
    """Windows none of which is ever solved; notes which were asked about."""

    asked: list[Window]

    def _ask(self, window: Window, most: float) -> None:
        self.asked.append(window)


def test_longer_windows_wait_for_shorter_ones() -> None:
    instance = gpt(4, 4, 8, split=False)
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    windows = Unsolved(instance, progress, solvers.engine("cp-sat"), Settings())
    windows.asked, tuning = [], TUNING.windows
    windows.raise_bound(1.0)
    assert len(windows.asked) == 2 * (len(tuning.turns) + len(tuning.turns_apart))
    assert len({(window.back, window.moment) for window in windows.asked}) == 2


def test_it_never_exceeds_the_optimum() -> None:
    """Nor where windows may be as long as the optimum allows."""
    tried = 0
    for seed in range(30):
        instance = random_schedule(seed, objective=Objective.MAKESPAN)
        value = None if unsupported(instance) else optimum(instance)
        if value is not None:
            tried += 1
            assert raised(instance, value, 0.5) == value, f"seed {seed}"
    assert tried > 10


def test_what_it_is_not_for() -> None:
    instance = gpt(2, 2, 4, split=False, latency=0)
    assert unsupported(instance) == ""
    assert "makespan" in unsupported(instance.replace(objective="span"))
    assert "backward" in unsupported(PipelineSchedule.from_arrays([1, 1], microbatches=2))
    assert "operations" in unsupported(instance.replace(microbatches=1_000))
