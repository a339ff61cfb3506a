from __future__ import annotations

from dataclasses import dataclass

import pytest

from stagepack.heuristics.schedule.effort import CHECK, OFFER, RATE, Effort
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination
from tests.random_schedules import lone_microbatches


@dataclass(frozen=True)
class Limited:
    seed: int = 0
    deterministic: bool = True
    time_limit: float | None = 2.0


INSTANCE = PipelineSchedule.from_arrays([1, 1], microbatches=2)


def running() -> Progress[ScheduleSolution]:
    return Progress(INSTANCE.evaluate, INSTANCE.check)


def test_work_ends_a_run_that_is_to_repeat() -> None:
    progress = running()
    effort = Effort(progress, Limited())
    assert effort.keep_going(RATE)
    assert (effort.spent, effort.left) == (1.0, 1.0)
    assert not effort.keep_going(RATE)
    assert progress.stop_reason() is Termination.TIME_LIMIT


def test_work_limits_nothing_where_the_clock_does() -> None:
    effort = Effort(running(), Limited(deterministic=False))
    assert effort.keep_going(100 * RATE)
    assert Effort(running(), Limited(time_limit=None)).keep_going(100 * RATE)


def test_a_part_ends_without_the_whole_but_counts_in_it() -> None:
    effort = Effort(running(), Limited())
    part = effort.part(1.0)
    assert not part.keep_going(RATE)
    assert effort.keep_going()
    assert effort.spent == 1.0


def test_a_run_with_nothing_in_hand_goes_on_unless_interrupted() -> None:
    progress = running()
    effort = Effort(progress, Limited())
    effort.look(3 * RATE)
    progress.offer(lone_microbatches(INSTANCE), "test")
    with pytest.raises(Stopped):
        effort.look()
    progress = running()
    progress.interrupt()
    with pytest.raises(Stopped):
        Effort(progress).look()


def test_a_check_is_work_and_the_clock_is_asked_when_work_is_spent() -> None:
    progress = running()
    effort = Effort(progress, Limited())
    assert effort.offer(lone_microbatches(INSTANCE), "test")
    assert effort.spent == (OFFER + CHECK * 4) / RATE
    asked: list[str] = []

    def going() -> bool:
        asked.append("")
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "keep_going", going)
        effort.keep_going(3 * RATE)
        effort.keep_going(3 * RATE)
    assert len(asked) == 2
