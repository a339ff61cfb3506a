"""Placements straight from a conflict graph: valid, no higher upside down, bounded by cliques."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import conflicts, conflicts_kernels
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.profile import Array
from tests.heuristics.packing.structured import structured


def going() -> bool:
    return True


def drawn(seed: int, n: int = 14, alignment: int = 1) -> LmemPacking:
    random = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    pairs = pairs[random.random(len(pairs)) < random.choice([0.2, 0.5, 0.9])]
    return LmemPacking.from_arrays(
        random.integers(1, 9, n), conflicts=[(1, 0), *pairs.tolist()], alignment=[alignment] * n
    )


def lowest_first_fit(instance: LmemPacking, order: Array) -> list[int]:
    """First fit by trying every offset."""
    assert instance.conflicts is not None
    met = {frozenset(pair) for pair in instance.conflicts.tolist()}
    offsets: dict[int, int] = {}
    for i in order.tolist():
        above = [j for j in offsets if frozenset((i, j)) in met]
        offsets[i] = next(
            at
            for at in itertools.count(0, int(instance.alignment[i]))
            if all(
                at >= offsets[j] + instance.size[j] or at + instance.size[i] <= offsets[j]
                for j in above
            )
        )
    return [offsets[i] for i in range(instance.n)]


@pytest.mark.parametrize("alignment", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_trying_every_offset(seed: int, alignment: int) -> None:
    instance = drawn(seed, alignment=alignment)
    graph = conflicts.rows(instance, going)
    order = np.random.default_rng(seed).permutation(instance.n)
    found = conflicts.first_fit(graph, order, going)
    assert found is not None
    assert found.tolist() == lowest_first_fit(instance, order)


@pytest.mark.parametrize("alignment", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_first_fit_as_listed_is_that_from_the_last_buffer_on(seed: int, alignment: int) -> None:
    instance = drawn(seed, alignment=alignment)
    found = conflicts.listed_fit(instance, going)
    assert found is not None
    assert found.tolist() == lowest_first_fit(instance, np.arange(instance.n)[::-1])


@pytest.mark.parametrize("turns", range(8))
def test_what_first_fit_does_not_reach_lies_on_top(turns: int) -> None:
    tuning = TUNING.changed({"conflicts": {"budget": 30}})
    instance, asked = drawn(3, alignment=4), iter([True] * turns)
    found = conflicts.listed_fit(instance, lambda: next(asked, False), tuning=tuning)
    assert found is not None
    assert instance.check(PackingSolution.of(instance, found)) == ()


def test_what_has_no_small_common_alignment_cannot_lie_on_top() -> None:
    odd = LmemPacking.from_arrays([1, 1], conflicts=[(0, 1)], alignment=[2**19 - 1, 2**17 - 1])
    assert conflicts.listed_fit(odd, lambda: False) is None


@pytest.mark.parametrize("seed", range(6))
def test_placements_are_valid_and_upside_down_none_is_higher(seed: int) -> None:
    instance = drawn(seed)
    graph, size = conflicts.rows(instance, going), instance.size
    placed = conflicts.first_fit(graph, np.arange(instance.n), going)
    assert placed is not None
    around, *_ = conflicts.weigh(graph, going)
    peak = int((placed + size).max())
    for found, source in itertools.islice(
        conflicts.placements(graph, np.arange(instance.n), placed, around, going),
        8 * TUNING.conflicts.sweeps,
    ):
        assert instance.check(PackingSolution.of(instance, found)) == ()
        if source == "first fit, upside down":
            assert int((found + size).max()) <= peak
        if source in ("first fit, upside down", conflicts.DIVE):
            peak = int((found + size).max())


@pytest.mark.parametrize("seed", range(6))
def test_no_clique_is_heavier_than_the_heaviest(seed: int) -> None:
    instance = drawn(seed, n=9)
    assert instance.conflicts is not None
    graph = conflicts.rows(instance, going)
    around, pair, two = conflicts.weigh(graph, going)
    assert int(instance.size[two].sum()) == pair
    met = {frozenset(ends) for ends in instance.conflicts.tolist()}
    heaviest = {
        k: max(
            int(instance.size[list(members)].sum())
            for members in itertools.combinations(range(9), k)
            if all(frozenset(ends) in met for ends in itertools.combinations(members, 2))
        )
        for k in (1, 2)
    }
    assert pair == max(heaviest.values())
    weight, members = conflicts.heavy_clique(graph, around, going)
    assert weight == instance.size[members].sum()
    assert all(frozenset(ends) in met for ends in itertools.combinations(members.tolist(), 2))


def test_where_all_conflict_the_clique_is_everybody() -> None:
    instance = LmemPacking.from_arrays(
        np.arange(1, 13), conflicts=np.stack(np.triu_indices(12, 1), axis=1)
    )
    graph = conflicts.rows(instance, going)
    around, *_ = conflicts.weigh(graph, going)
    weight, members = conflicts.heavy_clique(graph, around, going)
    assert (weight, len(members)) == (78, 12)


def test_two_sides_end_at_the_heaviest_pair() -> None:
    random = np.random.default_rng(3)
    pairs = np.column_stack((random.integers(0, 20, 90), random.integers(20, 40, 90)))
    instance = LmemPacking.from_arrays(random.integers(1, 99, 40), conflicts=pairs)
    graph = conflicts.rows(instance, going)
    order = conflicts.sides(graph, going)
    assert order is not None
    found = conflicts.first_fit(graph, order, going)
    assert found is not None
    assert int((found + instance.size).max()) == conflicts.weigh(graph, going)[1]


def test_an_odd_cycle_has_no_two_sides() -> None:
    cycle = LmemPacking.from_arrays([1] * 5, conflicts=[(at, (at + 1) % 5) for at in range(5)])
    assert conflicts.sides(conflicts.rows(cycle, going), going) is None


def test_parts_of_the_work_make_the_same() -> None:
    instance = drawn(1)

    def made(instance: LmemPacking, steps: int) -> list[list[int] | None]:
        tuning = TUNING.changed({"conflicts": {"budget": steps}})
        graph = conflicts.rows(instance, going, tuning=tuning)
        around, *_ = conflicts.weigh(graph, going, tuning=tuning)
        found = conflicts.first_fit(graph, np.arange(instance.n), going, tuning=tuning)
        listed = conflicts.listed_fit(instance, going, tuning=tuning)
        sides = conflicts.sides(graph, going, tuning=tuning)
        assert found is not None
        assert listed is not None
        parts = graph.other, around, found, listed
        return [*(part.tolist() for part in parts), None if sides is None else sides.tolist()]

    every = [one for one in structured().values() if not conflicts.unsupported(one)]
    for one in (instance, *every):
        at_once = made(one, 10**6)
        for steps in range(1, 12):
            assert made(one, steps) == at_once


def test_cliques_grow_in_any_parts() -> None:
    for one in (drawn(3), *structured().values()):
        if conflicts.unsupported(one):
            continue
        graph, found = conflicts.rows(one, going), []
        around, *_ = conflicts.weigh(graph, going)
        for steps in (10**6, *range(1, 12)):
            tuning = TUNING.changed({"conflicts": {"budget": steps, "clique_passes": 10**6}})
            weight, members = conflicts.heavy_clique(graph, around, going, tuning=tuning)
            found.append((weight, members.tolist()))
        assert found == found[:1] * len(found)


def test_asks_several_times_a_second() -> None:
    tuning = TUNING.changed({"conflicts": {"budget": conflicts_kernels.ROW}})
    graph, looks, none = (
        conflicts.rows(drawn(2), going, tuning=tuning),
        iter([True] * 5),
        np.zeros(14, np.int64),
    )
    assert (
        conflicts.first_fit(graph, np.arange(14), lambda: next(looks, False), tuning=tuning) is None
    )
    late = conflicts.placements(graph, np.arange(14), none, none, lambda: False, tuning=tuning)
    assert not list(late)


def test_first_fit_is_counted_by_neighbours_where_these_are_few() -> None:
    """Buffers alone counted as much as twelve neighbours: sweeps had half of their time."""
    n = 20_000
    pairs = np.stack([np.arange(n - 4), np.arange(4, n)], axis=1)
    graph = conflicts.rows(LmemPacking.from_arrays(np.ones(n), conflicts=pairs), lambda: True)
    before = effort.spent()
    conflicts.first_fit(graph, np.arange(n), lambda: True)
    assert effort.spent() - before < 2 * TUNING.conflicts.placed * len(graph.other)


@pytest.mark.parametrize("seed", range(6))
def test_a_dive_places_whoever_has_the_lowest_place(seed: int) -> None:
    instance = drawn(seed, alignment=1 + 3 * (seed % 2))
    graph, n = conflicts.rows(instance, going), instance.n
    order = np.random.default_rng(seed).permutation(n)
    meets: list[set[int]] = [set() for _ in range(n)]
    for i, j in [] if instance.conflicts is None else instance.conflicts.tolist():
        meets[i].add(j)
        meets[j].add(i)
    expected: dict[int, int] = {}
    while len(expected) < n:
        floor = {}
        for i in set(order.tolist()) - set(expected):
            top = max(
                (expected[j] + int(instance.size[j]) for j in meets[i] & set(expected)), default=0
            )
            floor[i] = -(-top // int(instance.alignment[i])) * int(instance.alignment[i])
        lowest = min(floor.values())
        expected[next(i for i in order.tolist() if floor.get(i) == lowest)] = lowest
    for budget in (1, 30, 10**6):
        tuning = TUNING.changed({"conflicts": {"budget": budget}})
        found = conflicts.dive(graph, order, going, tuning=tuning)
        assert found is not None
        assert found.tolist() == [expected[i] for i in range(n)]
    assert conflicts.dive(graph, order, lambda: False) is None


def test_peeling_finds_the_heaviest_of_crossing_cliques() -> None:
    few, many = range(1, 4), range(4, 14)
    pairs = [(0, i) for i in few] + [(i, j) for g in (few, many) for i in g for j in g if i < j]
    pairs += [(i, j) for i in few for j in list(many)[:3]]
    instance = LmemPacking.from_arrays([9, 8, 8, 8] + [4] * 10, conflicts=pairs)
    graph = conflicts.rows(instance, going)
    around, *_ = conflicts.weigh(graph, going)
    tuning = TUNING.changed({"conflicts": {"clique_passes": 0}})
    weight, members = conflicts.heavy_clique(graph, around, going, tuning=tuning)
    assert weight == max(40, 9 + 24, 24 + 12)
    assert members.tolist() == list(many)


def test_who_holds_nothing_is_in_no_clique() -> None:
    """Two of no bytes that do not conflict were left among those peeled: nobody could verify it."""
    instance = LmemPacking.from_arrays(
        [5, 6, 0, 0], conflicts=[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    )
    tuning = TUNING.changed({"conflicts": {"clique_passes": 0}})
    graph = conflicts.rows(instance, going)
    around, _, _ = conflicts.weigh(graph, going)
    weight, members = conflicts.heavy_clique(graph, around, going, tuning=tuning)
    assert (weight, members.tolist()) == (11, [0, 1])


@pytest.mark.parametrize(("neighbours", "dived"), [(4, 0), (6, 2)])
def test_dives_are_for_who_has_many_neighbours(neighbours: int, dived: int) -> None:
    """Of 200,000 buffers with two neighbours each, sweeps in place of dives end 7% lower."""
    n = 30
    pairs = [(i, (i + step) % n) for i in range(n) for step in range(1, neighbours // 2 + 1)]
    instance = LmemPacking.from_arrays([3] * n, conflicts=pairs)
    graph, order = conflicts.rows(instance, going), np.arange(n)
    around, *_ = conflicts.weigh(graph, going)
    offsets = conflicts.first_fit(graph, order, going)
    assert offsets is not None
    lowered = conflicts.placements(graph, order, offsets, around, going)
    sources = [source for _, source in itertools.islice(lowered, 20)]
    assert sources.count(conflicts.DIVE) == dived
