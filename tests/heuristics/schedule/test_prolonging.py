from __future__ import annotations

import pytest

from stagepack.heuristics.schedule.prolonging import fewer, more, prolonged
from stagepack.heuristics.schedule.rules import RULES, apply
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import PipelineSchedule


def loop(p: int, v: int, m: int, *, split: bool = False) -> PipelineSchedule:
    """Return v rounds of p devices, whose memory is that of 1F1B."""
    stages = p * v
    return PipelineSchedule.from_arrays(
        [10] * stages, [10] * stages, [10] * stages if split else None, microbatches=m,
        devices=[*range(p)] * v, memory_forward=2, memory_backward=-1 if split else -2,
        memory_weight=-1 if split else 0, limit=4 * p * v,
    )  # fmt: skip


def test_fewer_microbatches_are_two_for_each_device() -> None:
    short = fewer(loop(4, 2, 16))
    assert short is not None
    assert short.microbatches.tolist() == [8] * 8
    assert fewer(loop(4, 2, 11)) is None
    uneven = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=[9, 12], edges=[])
    assert fewer(uneven) is None


@pytest.mark.parametrize(
    ("rule", "instance"),
    [
        ("1f1b", loop(4, 1, 20)),
        ("1f1b", loop(6, 1, 30)),
        ("interleaved-1f1b", loop(3, 4, 9)),
    ],
)
def test_what_repeats_goes_on_without_a_loss(rule: str, instance: PipelineSchedule) -> None:
    """As many microbatches more take as long as their work, where the ramps are the same."""
    short = fewer(instance)
    assert short is not None
    solution, _ = apply(RULES[rule], short)
    assert solution is not None
    timing = Timing(short)
    before = short.evaluate(solution)
    found = prolonged(timing, timing.order_of(solution.start), Timing(instance))
    assert found is not None
    value, order = found
    long = Timing(instance)
    assert long.value(order) == value
    assert long.fits(order)
    assert sorted(order.tolist()) == list(range(long.n))
    assert value == before + int((instance.work - short.work).max())


def test_what_is_cut_out_takes_its_work_and_nothing_else() -> None:
    short = loop(3, 4, 6)
    instance = more(short)
    assert instance is not None
    assert instance.microbatches.tolist() == [9] * 12
    solution, _ = apply(RULES["interleaved-1f1b"], instance)
    assert solution is not None
    timing = Timing(instance)
    found = prolonged(timing, timing.order_of(solution.start), Timing(short))
    assert found is not None
    value, order = found
    assert Timing(short).value(order) == value
    assert Timing(short).fits(order)
    assert value == instance.evaluate(solution) - int((instance.work - short.work).max())


def test_more_microbatches_are_for_devices_of_several_stages_whose_ramps_touch() -> None:
    assert more(loop(4, 2, 7)) is None
    assert more(loop(4, 2, 12)) is None
    assert more(loop(4, 1, 8)) is None
    assert more(loop(1, 4, 2)) is None


def test_orders_without_a_part_that_repeats_are_left_alone() -> None:
    instance = loop(2, 2, 8)
    short = fewer(instance)
    assert short is not None
    solution, _ = apply(RULES["gpipe"], short)  # one row after the other
    assert solution is not None
    timing = Timing(short)
    assert prolonged(timing, timing.order_of(solution.start), Timing(instance)) is None
