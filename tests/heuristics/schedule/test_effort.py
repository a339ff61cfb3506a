from __future__ import annotations

from typing import Any

import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.schedule import effort as costs
from stagepack.heuristics.schedule.effort import CHECK, OFFER, RATE
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.methods import Settings, counted
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination
from tests.random_schedules import lone_microbatches

LIMITED = Settings(deterministic=True, time_limit=2.0)
INSTANCE = PipelineSchedule.from_arrays([1, 1], microbatches=2)


def running() -> Progress[ScheduleSolution]:
    return Progress(INSTANCE.evaluate, INSTANCE.check)


def test_work_ends_a_run_that_is_to_repeat() -> None:
    progress = running()

    def run(*_: Any) -> None:
        assert costs.asking(progress)(RATE)
        assert (effort.spent(), effort.left()) == (1.0, 1.0)
        assert not costs.asking(progress)(RATE)

    before = effort.spent()
    counted(run)(INSTANCE, progress, LIMITED)
    assert effort.spent() == before
    assert progress.stop_reason() is Termination.TIME_LIMIT


@pytest.mark.parametrize("settings", [Settings(time_limit=2.0), Settings(deterministic=True)])
def test_work_limits_nothing_where_the_clock_does(settings: Settings) -> None:
    progress = running()

    def run(*_: Any) -> None:
        assert costs.asking(progress)(100 * RATE)

    counted(run)(INSTANCE, progress, settings)
    assert progress.stop_reason() is None


def test_a_part_ends_without_the_whole_but_counts_in_it() -> None:
    progress = running()
    with effort.counting(2.0):
        with effort.lending(1, 1.0):
            assert not costs.asking(progress)(RATE)
        assert costs.asking(progress)(0)
        assert effort.left() == 1.0


def test_a_run_with_nothing_in_hand_goes_on_unless_interrupted() -> None:
    progress = running()
    with effort.counting(2.0):
        costs.looking(progress)(3 * RATE)
        progress.offer(lone_microbatches(INSTANCE), "test")
        with pytest.raises(Stopped):
            costs.looking(progress)(0)
    progress = running()
    progress.interrupt()
    with pytest.raises(Stopped):
        costs.looking(progress)(0)


def test_no_long_check_begins_that_would_end_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagepack.heuristics.schedule.effort.LONG", OFFER)
    checked: list[ScheduleSolution] = []

    def check(solution: ScheduleSolution) -> tuple[object, ...]:
        checked.append(solution)
        return ()

    progress = Progress(INSTANCE.evaluate, check)
    progress.limit_by(effort.spent, effort.spent() + OFFER / RATE)
    costs.offer(INSTANCE, progress, lone_microbatches(INSTANCE), "late, but the first")
    costs.offer(INSTANCE, progress, lone_microbatches(INSTANCE), "too late")
    assert progress.stop_reason() is Termination.TIME_LIMIT
    assert len(checked) == 1


def test_a_check_is_work_and_the_clock_is_asked_when_work_is_spent() -> None:
    progress = running()
    operations = INSTANCE.operations
    with effort.counting():
        costs.offer(INSTANCE, progress, lone_microbatches(INSTANCE), "test")
        checked = len(operations) + operations.arcs + len(operations.after)
        assert effort.spent() == (OFFER + int(CHECK * checked)) / RATE
    asked: list[str] = []

    def going() -> bool:
        asked.append("")
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "keep_going", going)
        costs.asking(progress)(3 * RATE)
        costs.asking(progress)(3 * RATE)
    assert len(asked) == 2
