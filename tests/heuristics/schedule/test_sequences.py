from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.schedule import annealing, sequences
from stagepack.heuristics.schedule.timing import Timing, entering
from stagepack.heuristics.schedule.tuning import TUNING
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from tests.heuristics.schedule.cases import looped, vee
from tests.random_schedules import optimum, random_schedule


@pytest.mark.parametrize("seed", range(60))
def test_lists_are_schedules_within_memory_and_no_better_than_the_optimum(seed: int) -> None:
    instance = random_schedule(seed)
    if sequences.unsupported(instance):
        assert not instance.training
        return
    timing, value = Timing(instance), optimum(instance)
    for order in sequences.lists(timing, lambda _: True):
        assert timing.fits(order)
        start = timing.best(order)
        assert start is not None
        solution = ScheduleSolution.of(instance, start)
        assert instance.check(solution) == ()
        assert value is not None
        assert instance.evaluate(solution) >= value


def test_the_shortest_list_comes_first_and_groups_interleave() -> None:
    """With a third less memory than interleaved 1F1B, in which it takes 57 cycles."""
    instance = looped(4, 2, 8).replace(memory_forward=2, memory_backward=-2, limit=14)
    timing = Timing(instance)
    ends = [timing.value(order) for order in sequences.lists(timing, lambda _: True)]
    assert ends[0] == min(end for end in ends if end is not None) == 62


def test_long_lists_are_asked_about_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    timing, steps = Timing(looped(4, 2, 8)), list[int]()
    whole = sequences.lists(timing, lambda _: True)
    look = TUNING.lists.choice_price
    monkeypatch.setattr(sequences, "PART", 10 * look * timing.d)

    def keep_going(each: int) -> bool:
        steps.append(each)
        return True

    parts = sequences.lists(timing, keep_going)
    assert max(steps) == max(TUNING.lists.sequence_price, 10 * look * timing.d)
    assert sum(steps) > len(parts) * look * timing.n * timing.d
    assert [one.tolist() for one in parts] == [other.tolist() for other in whole]


def test_no_more_lists_than_there_is_time_for() -> None:
    timing = Timing(vee(3, 4))
    assert sequences.lists(timing, lambda _: False) == []
    assert "backward" in sequences.unsupported(PipelineSchedule.from_arrays([1], microbatches=1))
    wide = PipelineSchedule.from_arrays([1] * 2_000, [1] * 2_000, microbatches=1)
    assert "operations" in sequences.unsupported(wide)


@pytest.mark.parametrize("seed", range(20))
def test_rows_enter_what_they_leave_for(seed: int) -> None:
    instance = random_schedule(seed)
    operations = instance.operations
    first, row, lag = entering(instance)
    entered = {
        (int(before), r, int(wait))
        for r in range(len(operations.count))
        for before, wait in zip(
            row[first[r] : first[r + 1]], lag[first[r] : first[r + 1]], strict=True
        )
    }
    left = np.repeat(np.arange(len(operations.count)), np.diff(operations.first))
    arcs = zip(left.tolist(), operations.after.tolist(), operations.lag.tolist(), strict=True)
    assert entered == {(u, v, wait) for u, v, wait in arcs if u != v}


def test_coolings_get_longer_and_large_instances_have_fewer_moves() -> None:
    small, large = Timing(vee(3, 4)), Timing(vee(30, 800))
    kinds = len(TUNING.annealing.heats)
    settings = [annealing.cooling(number, small) for number in range(2 * kinds)]
    assert len(set(settings)) == 2 * kinds
    assert settings[kinds].moves > settings[0].moves == TUNING.annealing.moves
    assert 1 <= annealing.cooling(0, large).moves < settings[0].moves
