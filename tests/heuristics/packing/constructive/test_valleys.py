"""Valleys of a skyline, and the ring."""

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import valleys
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import Gap, LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.constructive.test_greedy import random_plain
from tests.heuristics.packing.structured import structured
from tests.packing_cases import FEATURES, random_packing


def lowest_valley_first(spans: valleys.Spans, classes: Array) -> list[int]:
    """Fill the lowest valley, of several the first one: the definition, in linear time."""
    size, sections = spans.blocks.size, spans.blocks.sections
    height = [0] * sections
    offsets = [-1] * len(size)
    while min(offsets) < 0:
        low = min(height)
        begin = height.index(low)
        end = begin
        while end < sections and height[end] == low:
            end += 1
        inside = [
            (classes[i], spans.first[i], i)
            for i in range(len(size))
            if offsets[i] < 0 and begin <= spans.first[i] and spans.end[i] <= end
        ]
        if not inside:
            walls = [height[s] for s in (begin - 1, end) if 0 <= s < sections]
            height[begin:end] = [min(walls)] * (end - begin)
            continue
        _, _, i = min(inside)
        offsets[i] = low
        height[spans.first[i] : spans.end[i]] = [low + int(size[i])] * int(spans.length[i])
    return offsets


@pytest.mark.parametrize("key", valleys.KEYS)
def test_filling_valleys_does_what_the_definition_says(key: str) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 17, 150):
        instance = random_plain(rng, n, longest=60)
        spans = valleys.Spans(Blocks.of(instance))
        classes = valleys.classes_by(key, spans)
        offsets = valleys.place(spans, classes)
        assert offsets is not None
        assert instance.check(PackingSolution(offsets)) == ()
        assert offsets.tolist() == lowest_valley_first(spans, classes)


@pytest.mark.parametrize("features", [(), *((one,) for one in FEATURES), FEATURES])
def test_valleys_take_buffers_of_every_kind(features: tuple[str, ...]) -> None:
    rng = np.random.default_rng(2)
    placed = 0
    for n in range(3, 40):
        instance = random_packing(rng, n=n, features=features)
        spans = valleys.Spans(Blocks.of(instance))
        for key in valleys.KEYS:
            offsets = valleys.place(spans, valleys.classes_by(key, spans))
            if offsets is None:
                continue
            placed += 1
            whole = spans.blocks.expand(offsets)
            broken = instance.check(PackingSolution.of(instance, whole))
            assert {violation.rule for violation in broken} <= {"capacity", "bank"}
    assert placed


def test_pauses_change_nothing() -> None:
    for instance in structured().values():
        spans = valleys.Spans(Blocks.of(instance))
        for key in valleys.KEYS:
            found = []
            for steps in (TUNING.valleys.budget, *range(1, 8)):
                tuning = TUNING.changed({"valleys": {"budget": steps}})
                offsets = valleys.place(spans, valleys.classes_by(key, spans), tuning=tuning)
                found.append(None if offsets is None else offsets.tolist())
            assert found == found[:1] * len(found)


def test_fine_classes_waste_less_than_powers_of_two() -> None:
    fine = coarse = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        start = rng.integers(0, 10_000, 10_000)
        instance = LmemPacking.from_arrays(
            rng.integers(1, 100_000, 10_000), start, start + rng.integers(1, 600, 10_000)
        )
        spans = valleys.Spans(Blocks.of(instance))
        found, other = (
            valleys.place(spans, valleys.classes_by(key, spans))
            for key in ("fine-length", "length")
        )
        assert found is not None
        assert other is not None
        fine += instance.evaluate(PackingSolution(found))
        coarse += instance.evaluate(PackingSolution(other))
    assert fine < 0.99 * coarse


def test_spans_around_a_circle_leave_out_the_longest_pause() -> None:
    instance = LmemPacking.from_arrays([1, 1, 1, 1], [8, 2, 0, 5], [13, 4, 10, 7], period=10)
    spans = valleys.Spans(Blocks.of(instance))
    sections = spans.blocks.sections
    assert spans.length.max() == sections
    assert spans.first[0] < sections < spans.end[0]
    assert spans.length[0] < sections


def test_valleys_below_reserved_addresses_are_filled() -> None:
    start = np.arange(40)
    instance = LmemPacking.from_arrays(
        [40] * 40, start, start + 3, alignment=[8] * 40, reserved=[(100, 110), (124, 150)]
    )
    spans = valleys.Spans(Blocks.of(instance))
    offsets = valleys.place(spans, valleys.classes_by("length", spans))
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert set(offsets.tolist()) == {0, 40, 152}


def test_what_lives_in_pieces_far_apart_does_not_hold_its_place_meanwhile() -> None:
    rng = np.random.default_rng(4)
    start = rng.integers(0, 5000, 2000)
    colocated = [(i, 1999 - i) for i in range(100)]
    instance = LmemPacking.from_arrays(
        rng.integers(1, 100, 2000), start, start + 20, colocated=colocated
    )
    blocks = Blocks.of(instance)
    spans = valleys.Spans(blocks)
    assert len(spans.scattered) > 90
    offsets = valleys.place(spans, valleys.classes_by("length", spans))
    assert offsets is not None
    assert instance.check(PackingSolution.of(instance, blocks.expand(offsets))) == ()
    spanning = np.bincount(
        np.concatenate([np.arange(a, b) for a, b in zip(spans.first, spans.end, strict=True)]),
        np.repeat(blocks.size, spans.length),
    ).max()
    assert (offsets + blocks.size).max() < spanning / 2


def test_what_has_equal_lifetimes_goes_around_a_ring() -> None:
    rng = np.random.default_rng(3)
    start = np.arange(2000)
    instance = LmemPacking.from_arrays(rng.integers(1, 1000, 2000), start, start + 100)
    blocks = Blocks.of(instance)
    offsets = valleys.on_ring(valleys.Spans(blocks))
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert (offsets + blocks.size).max() <= 1.03 * blocks.load.max()


def test_there_is_no_ring_for_one_long_lifetime() -> None:
    start = np.arange(300)
    end = start + 3
    end[0] = 300
    instance = LmemPacking.from_arrays(np.full(300, 4), start, end)
    assert valleys.on_ring(valleys.Spans(Blocks.of(instance))) is None


def test_valleys_end_when_time_is_over() -> None:
    tuning = TUNING.changed({"valleys": {"budget": 10}})
    spans = valleys.Spans(Blocks.of(random_plain(np.random.default_rng(2), 100)), tuning=tuning)
    classes = valleys.classes_by("length", spans)
    assert valleys.place(spans, classes, keep_going=lambda: False, tuning=tuning) is None


def test_the_first_placement_asks_for_the_time_and_is_completed_all_the_same() -> None:
    tuning = TUNING.changed({"valleys": {"budget": 10}})
    spans = valleys.Spans(Blocks.of(random_plain(np.random.default_rng(2), 100)), tuning=tuning)
    asked: list[bool] = []

    def keep_going() -> bool:
        asked.append(True)
        return False

    classes = valleys.classes_by("length", spans)
    assert (
        valleys.place(spans, classes, keep_going=keep_going, complete=True, tuning=tuning)
        is not None
    )
    assert len(asked) > 10


def test_placing_anew_never_ends_higher_and_reports_what_it_finds() -> None:
    instance = random_plain(np.random.default_rng(5), 900, longest=300)
    blocks = Blocks.of(instance)
    spans = valleys.Spans(blocks)
    start = valleys.place(spans, valleys.classes_by("area", spans))
    assert start is not None
    peaks = [int((start + blocks.size).max())]
    looks = iter(range(50))
    found = valleys.improve(
        spans,
        start,
        "area",
        target=int(blocks.load.max()),
        known=np.inf,
        keep_going=lambda: next(looks, None) is not None,
        on_solution=lambda offsets: peaks.append(int((offsets + blocks.size).max())),
    )
    assert instance.check(PackingSolution(found)) == ()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (found + blocks.size).max()


@pytest.mark.parametrize("far", [0, 2**62])
def test_blocks_are_sorted_by_class_then_start_then_number(
    far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valleys, "FAR", far)
    rng = np.random.default_rng(6)
    classes, first = rng.integers(0, 4, 300), rng.integers(0, 20, 300)
    expected = np.lexsort((np.arange(300), first, classes))
    assert valleys._sorted(classes, first).tolist() == expected.tolist()


def test_placing_anew_is_not_led_by_what_was_made_otherwise() -> None:
    rng, start = np.random.default_rng(7), np.arange(2000)
    instance = LmemPacking.from_arrays(
        rng.integers(1, 1000, 2000), start, start + 100 + rng.integers(0, 9, 2000)
    )
    spans = valleys.Spans(Blocks.of(instance))
    size, load = spans.blocks.size, int(spans.blocks.load.max())
    offsets = valleys.place(spans, valleys.classes_by("length", spans))
    assert offsets is not None
    looks, reported = iter(range(30)), list[Array]()
    found = valleys.improve(
        spans,
        offsets,
        "length",
        target=load,
        known=load,  # a ring that is best possible
        keep_going=lambda: next(looks, None) is not None,
        on_solution=reported.append,
    )
    assert not reported
    assert (found + size).max() < (offsets + size).max()


def test_a_ring_of_blocks_that_take_no_room_is_none() -> None:
    instance = LmemPacking.from_arrays([3], [0], [1], gaps=[Gap(buffer=0, start=0, end=1)])
    assert valleys.on_ring(valleys.Spans(Blocks.of(instance))) is None
