"""The exact search of blocks of any shape against trying everything, and its parts one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.heuristics import effort
from stagepack.heuristics.packing import window_bounds
from stagepack.heuristics.packing.exact_search import canonical, exact, exact_general
from stagepack.heuristics.packing.exact_search.components import Packing
from stagepack.heuristics.packing.exact_search.exact_general import ShapedPacking
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from tests.heuristics.packing.oracle import ABOVE_LOAD, KINDS, above_load, random_instance
from tests.packing_cases import brute_force, random_packing

RULES = (
    ("gaps",),
    ("in-place",),
    ("colocated",),
    ("gaps", "circular"),
    ("gaps", "alignment"),
    ("in-place", "conflicts"),
    ("colocated", "conflicts", "alignment"),
    ("gaps", "fixed", "in-place"),
    ("gaps", "allowed", "reserved", "colocated"),
    ("gaps", "in-place", "colocated", "alignment", "circular", "fixed"),
)
"""Rules that change heights or let offsets be shared, alone and together."""


def peak_of(instance: LmemPacking, blocks: Blocks, offsets: Any) -> int:
    """Return the peak of an allocation after checking it."""
    solution = PackingSolution.of(instance, blocks.expand(offsets))
    assert not instance.check(solution)
    return int((blocks.expand(offsets) + instance.size).max())


def agrees(instance: LmemPacking, tuning: PackingTuning = TUNING) -> None:
    """See that the least peak is that of trying everything, and a unit below it nothing fits."""
    instance = instance.replace(objective="peak")
    blocks = Blocks.of(instance)
    assert not exact.unsupported(blocks)
    best = brute_force(instance)
    found: list[Any] = []
    bounds: list[int] = []
    status = exact.minimise(blocks, on_solution=found.append, on_bound=bounds.append, tuning=tuning)
    if best is None:
        assert status is Status.INFEASIBLE
        return
    least = int(instance.evaluate(best))
    assert status is Status.OPTIMAL
    assert peak_of(instance, blocks, found[-1]) == least == bounds[-1]
    for capacity in (least - 1, least, least + 2):
        decision = exact.decide(blocks, capacity, tuning=tuning)
        assert (decision.status is Status.FEASIBLE) == (capacity >= least)
        assert decision.bound <= least
        if decision.offsets is None:
            assert decision.bound > capacity
        else:
            assert peak_of(instance, blocks, decision.offsets) <= capacity


@pytest.mark.parametrize("rules", RULES, ids="+".join)
def test_agrees_with_trying_everything(rules: tuple[str, ...]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def try_one(seed: int) -> None:
        agrees(random_packing(np.random.default_rng(seed), features=rules))

    try_one()


@pytest.mark.parametrize("order", range(len(exact_general.ORDERS)))
def test_every_order_agrees_even_when_paused_all_the_time(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_general, "ORDERS", exact_general.ORDERS[order : order + 1])
    tuning = TUNING.changed({"general": {"budget": 1}})
    for seed in range(8):
        rng = np.random.default_rng([order, seed])
        agrees(random_packing(rng, features=RULES[seed % len(RULES)]), tuning)


@pytest.mark.parametrize("kind", KINDS)
def test_full_heights_give_what_the_other_search_gives(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(8):
        blocks = Blocks.of(random_instance(rng, kind))
        for capacity in (5, 9, 14):
            one = exact.decide_packing(Packing(blocks), capacity)
            other = exact.decide_packing(ShapedPacking(blocks), capacity)
            assert one.status is other.status


@pytest.mark.parametrize("rows", ABOVE_LOAD)
def test_proves_optima_above_the_load(rows: str) -> None:
    blocks = Blocks.of(above_load(rows))
    load = int(blocks.load.max())
    assert exact.decide_packing(ShapedPacking(blocks), load).bound == load + 1
    assert exact.decide_packing(ShapedPacking(blocks), load + 1).status is Status.FEASIBLE


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_forbidden_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.permutation(["gaps", "in-place", "colocated", "circular"])[:3].tolist()
    blocks = Blocks.of(random_packing(rng, features=features))
    pieces = np.stack([blocks.first, blocks.end, blocks.low, blocks.high], axis=1)
    near_ptr, near = blocks.neighbours()
    shared = {tuple(pair) for pair in blocks.may_share.tolist()}
    for i in range(blocks.b):
        mine = pieces[blocks.piece_ptr[i] : blocks.piece_ptr[i + 1]].tolist()
        for j in near[near_ptr[i] : near_ptr[i + 1]].tolist():
            theirs = pieces[blocks.piece_ptr[j] : blocks.piece_ptr[j + 1]].tolist()
            expected = {
                d
                for a, b, low, high in mine
                for c, e, bottom, top in theirs
                for d in range(-20, 21)
                if a < e and c < b and d + low < top and bottom < d + high
            }
            if (min(i, j), max(i, j)) in shared:
                expected.discard(0)
            assert _told(blocks, i, j, pieces) == expected


def _told(blocks: Blocks, i: int, j: int, pieces: Any) -> set[int]:
    """Return the forbidden distances of two blocks that the kernel tells."""
    near_ptr, near = blocks.neighbours()
    none = np.zeros(blocks.b + 1, dtype=np.int64)
    share_ptr, share = none, none[:0]
    if len(blocks.may_share):
        one, other = np.concatenate([blocks.may_share, blocks.may_share[:, ::-1]]).T
        order = np.lexsort((other, one))
        share = other[order]
        share_ptr = np.append(0, np.cumsum(np.bincount(one, minlength=blocks.b)))
    ptr, spans = exact_general.forbidden(near_ptr, near, blocks.piece_ptr, pieces, share_ptr, share)
    entry = near_ptr[i] + near[near_ptr[i] : near_ptr[i + 1]].tolist().index(j)
    rows = spans[ptr[entry] : ptr[entry + 1]].tolist()
    assert rows == sorted(rows)
    return {d for low, high in rows for d in range(low, high + 1)}


def test_interlocked_blocks_rise_together() -> None:
    # The second lies a byte above the first, or either wholly above the other: with alignments
    # of 2 and 3 neither rests on anything but the other at offsets 2 and 3.
    instance = LmemPacking.from_arrays(
        [10, 9],
        [0, 0],
        [2, 2],
        alignment=[2, 3],
        gaps=[(0, 0, 1, 0, 1), (0, 1, 2, 9, 10), (1, 0, 1, 0, 8), (1, 1, 2, 0, 8)],
    )
    agrees(instance)
    decision = exact.decide(Blocks.of(instance), 12)
    assert decision.offsets is not None
    assert decision.offsets.tolist() == [2, 3]


def test_a_chain_in_place_takes_one_place() -> None:
    n = 40
    instance = LmemPacking.from_arrays(
        [8] * n, range(n), range(2, n + 2), in_place=[(i, i + 1) for i in range(n - 1)]
    )
    blocks = Blocks.of(instance)
    assert exact.decide(blocks, 8).status is Status.FEASIBLE
    assert exact.decide(blocks, 7).status is Status.INFEASIBLE


@pytest.mark.parametrize(("second", "fits"), [(0, True), (1, False), (2, True)])
def test_fixed_blocks_may_share_or_clear_a_window(second: int, fits: bool) -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 3],
        [0, 2, 2],
        [3, 5, 5],
        gaps=[(0, 1, 3, 0, 2)],
        fixed=[0, second, -1],
        in_place=[(0, 1)],
    )
    agrees(instance)
    assert (exact.decide(Blocks.of(instance), 99).status is Status.FEASIBLE) == fits


def test_arrays_grow_when_they_are_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_packing(np.random.default_rng(4), features=("gaps", "in-place"), n=7)
    blocks = Blocks.of(instance)
    expected = exact.decide(blocks, 10)
    whole = exact_general.GeneralSearch.__init__

    def short(self: exact_general.GeneralSearch, *args: Any, **options: Any) -> None:
        whole(self, *args, **options)
        self._trail = self._trail[:1]
        self._parts = self._parts[:1]

    monkeypatch.setattr(exact_general.GeneralSearch, "__init__", short)
    decision = exact.decide(blocks, 10)
    assert (decision.status, decision.nodes) == (expected.status, expected.nodes)


def _hard() -> Blocks:
    rng = np.random.default_rng(5)
    n = 30
    start = rng.integers(0, n, n)
    end = start + rng.integers(3, 10, n)
    size = rng.integers(1, 300, n)
    gaps = [(i, int(start[i]), int(start[i]) + 2, 0, int(size[i]) // 2) for i in range(0, n, 2)]
    alignment = rng.choice([1, 16, 32, 64], n)
    return Blocks.of(
        LmemPacking.from_arrays(size, start, end, gaps=gaps, alignment=alignment.tolist())
    )


def test_arrays_do_not_grow_twice_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of new memory take their time, as steps do."""
    packing = exact.prepared(_hard())
    events: list[str] = []
    whole = exact_general.GeneralSearch.__init__

    def short(self: exact_general.GeneralSearch, *args: Any, **options: Any) -> None:
        whole(self, *args, **options)
        self._trail = self._trail[:1]

    def grow(array: Any, **options: Any) -> Any:
        events.append("grow")
        return canonical.longer(array, **options)

    def ask() -> bool:
        events.append("ask")
        return True

    monkeypatch.setattr(exact_general.GeneralSearch, "__init__", short)
    monkeypatch.setattr(exact_general, "longer", grow)
    with effort.counting():
        exact.decide_packing(packing, packing.bound, keep_going=ask, node_limit=10)
        assert effort.spent() > 0
    assert events.count("grow") > 6  # of three arrays each time
    assert all(len(list(group)) <= 3 for what, group in itertools.groupby(events) if what == "grow")


def test_stops_when_told_and_repeats_with_a_limit_of_nodes() -> None:
    blocks = _hard()
    upper = np.cumsum(np.append(0, -(-blocks.size[:-1] // 64) * 64))
    bounds: list[int] = []
    status = exact.minimise(
        blocks, upper=upper, on_bound=bounds.append, keep_going=lambda: False, node_limit=10
    )
    assert status is Status.FEASIBLE
    assert bounds
    load = int(blocks.load.max())
    once, again = (exact.decide(blocks, load + 2, node_limit=3000) for _ in range(2))
    assert (once.status, once.nodes) == (again.status, again.nodes)
    asked: list[None] = []

    def go_on() -> bool:
        asked.append(None)
        return len(asked) < 3

    assert exact.decide(blocks, load + 2, keep_going=go_on).status in (
        Status.UNKNOWN,
        Status.FEASIBLE,
    )


def test_a_packing_that_is_low_enough_is_taken() -> None:
    blocks = Blocks.of(random_packing(np.random.default_rng(1), features=("gaps", "in-place"), n=6))
    found: list[Any] = []
    exact.minimise(blocks, on_solution=found.append)
    decision = exact.decide(blocks, int((found[-1] + blocks.size).max()), warm=found[-1])
    assert decision.nodes == 0
    assert decision.offsets is not None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_windows_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=("gaps", "in-place", "alignment"), n=6)
    instance = instance.replace(objective="peak", capacity=None)
    blocks = Blocks.of(instance)
    best = brute_force(instance)
    assert best is not None
    least = int(instance.evaluate(best))
    packing = ShapedPacking(blocks, 0, max(1, blocks.sections // 2))
    assert exact.decide_packing(packing, least).status is Status.FEASIBLE
    for window in window_bounds.windows(blocks, passes=1):
        assert window.bound <= least


def test_too_many_pairs_are_refused() -> None:
    n = 1100
    instance = LmemPacking.from_arrays([1] * n, [0] * n, [2] * n, in_place=[(0, 1)])
    assert "too many" in exact.unsupported(Blocks.of(instance))
    assert not exact.unsupported(Blocks.of(instance.replace(in_place=[])))


def test_blocks_that_meet_no_other_count_as_work_and_go_together() -> None:
    def work(n: int) -> tuple[float, int]:
        at = 2 * np.arange(n)
        instance = LmemPacking.from_arrays([1] * n, at, at + 1, in_place=[(0, 1)])
        blocks = Blocks.of(instance)
        questions = itertools.count()
        with effort.counting():
            ShapedPacking(blocks, keep_going=lambda: next(questions) >= 0)
            return effort.spent(), next(questions)

    (few, _), (many, questions) = work(100), work(400)
    assert many > 3 * few > 0
    assert questions < 10  # not one for each
