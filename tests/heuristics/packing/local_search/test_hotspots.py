"""Hot spots of large packings."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import greedy, valleys
from stagepack.heuristics.packing.local_search import hotspots
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array


def memoryless(n: int, seed: int) -> LmemPacking:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, n, n)
    return LmemPacking.from_arrays(
        rng.integers(1, 1000, n), start, start + 1 + rng.exponential(40, n).astype(np.int64)
    )


def in_valleys(instance: LmemPacking) -> tuple[Blocks, Array]:
    spans = valleys.Spans(Blocks.of(instance))
    offsets = valleys.place(spans, valleys.classes_by("length", spans))
    assert offsets is not None
    return spans.blocks, offsets


def test_where_a_packing_is_highest_it_is_lowered() -> None:
    before = after = 0
    for seed in range(2):
        instance = memoryless(8_000, seed)
        blocks, start = in_valleys(instance)
        load, looks, told = int(blocks.load.max()), itertools.repeat(True, 600), list[Array]()
        found = hotspots.improve(
            blocks,
            start,
            target=load,
            seed=0,
            keep_going=functools.partial(next, looks, False),
            on_solution=told.append,
        )
        assert instance.check(PackingSolution(found)) == ()
        peaks = [int((offsets + blocks.size).max()) for offsets in (start, *told)]
        assert peaks == sorted(set(peaks), reverse=True)
        assert peaks[-1] == (found + blocks.size).max()
        before, after = before + peaks[0] - load, after + peaks[-1] - load
    assert after < 0.8 * before, (before, after)


def test_a_place_that_resists_is_given_up() -> None:
    instance = LmemPacking.from_arrays([3, 3, 2], [0, 2, 0], [2, 3, 1])
    start = np.array([2, 2, 0])  # the two of 3 bytes one after the other, on nothing
    looks = iter(range(50))
    hotspots.improve(
        Blocks.of(instance),
        start,
        target=4,  # out of reach
        seed=0,
        keep_going=lambda: next(looks, None) is not None,
        on_solution=lambda _: None,
        patience=3,
    )
    assert next(looks) > 3  # it ended before these were over


def test_windows_stop_growing_before_they_take_long() -> None:
    blocks, _ = in_valleys(memoryless(3000, 1))
    _, begin, stop = hotspots._window(blocks, slice(1000, 1040), 10**9, tuning=TUNING)
    assert stop - begin == blocks.sections
    tuning = TUNING.changed({"hot_spots": {"pair_limit": 1}})
    _, begin, stop = hotspots._window(blocks, slice(1000, 1040), 10**9, tuning=tuning)
    assert stop - begin == 3 * 40 + 2 * 8


def test_windows_around_what_lives_long_are_narrow() -> None:
    """A single one took most of ten seconds, where a few blocks of a million live that long."""
    blocks, _ = in_valleys(memoryless(3000, 1))
    tuning = TUNING.changed({"hot_spots": {"pair_limit": 1, "longest_pair_limit": 1}})
    _, begin, stop = hotspots._window(blocks, slice(900, 1200), 10**9, tuning=tuning)
    assert (begin, stop) == (900 - 8, 1200 + 8)


def test_large_windows_are_placed_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    place: Any = greedy.place_in_order

    def noted(window: Blocks, order: Array, **options: Any) -> Any:
        orders.append((window.end - window.first)[order])
        return place(window, order, **options)

    tuning = TUNING.changed({"hot_spots": {"pair_limit": 1}})
    monkeypatch.setattr(greedy, "place_in_order", noted)
    instance = memoryless(2000, 1)
    blocks, start = in_valleys(instance)
    looks = iter([True] * 40)
    found = hotspots.improve(
        blocks, start, target=0, seed=0, keep_going=lambda: next(looks, False),
        on_solution=lambda _: None, patience=4, tuning=tuning,
    )  # fmt: skip
    assert instance.check(PackingSolution(found)) == ()
    assert (found + blocks.size).max() <= (start + blocks.size).max()
    assert len(orders) > 1
    # What else comes first differs from try to try, but in classes of about twice the length.
    assert all((np.diff(np.ceil(np.log2(lengths.clip(32)))) <= 0).all() for lengths in orders)
