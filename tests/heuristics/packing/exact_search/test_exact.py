"""The exact search against trying everything, on instances of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.packing.beam_search import beam
from stagepack.heuristics.packing.exact_search import (
    components,
    exact,
    exact_state,
    portfolio,
)
from stagepack.heuristics.packing.exact_search.canonical import CanonicalSearch
from stagepack.heuristics.packing.exact_search.exact_state import too_large
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from stagepack.solve import solve
from tests.heuristics.packing.oracle import (
    ABOVE_LOAD,
    KINDS,
    above_load,
    least_peak,
    planted,
    random_instance,
)

CEILING = 40
SOME_ORDERS = [0, 1, 3, 8]  # each focus, ranks computed anew or not


def peak_of(instance: LmemPacking, blocks: Blocks, offsets: Any) -> int:
    """Return the peak of an allocation after checking it."""
    solution = PackingSolution.of(instance, blocks.expand(offsets))
    assert not instance.check(solution)
    return int((blocks.expand(offsets) + instance.size).max())


@pytest.mark.parametrize("seed", range(4))
def test_beams_find_what_the_orders_do_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planted(np.random.default_rng(seed), 30, 64, 40)
    blocks = Blocks.of(instance)
    high = exact.decide(blocks, 1_000).offsets
    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", lambda *_, **__: 1)
    assert exact.decide(blocks, 64, node_limit=1_000).status is Status.UNKNOWN
    tuning = TUNING.changed({"exact": {"beams_late": 0, "beams_early": 0}})
    decision = exact.decide(blocks, 64, tuning=tuning)
    assert decision.status is Status.FEASIBLE
    assert peak_of(instance, blocks, decision.offsets) == 64
    found: list[Any] = []
    assert (
        exact.minimise(blocks, upper=high, on_solution=found.append, tuning=tuning)
        is Status.OPTIMAL
    )
    assert peak_of(instance, blocks, found[-1] if found else high) == 64


def test_searches_that_are_handed_on_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    high, load = exact.decide(blocks, 1_000).offsets, int(blocks.load.max())
    rounds: list[int] = []

    def limit(_: portfolio.CanonicalPortfolio, number: int) -> int:
        rounds.append(number)
        return 1

    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", limit)
    searches = exact.Searches(exact.prepared(blocks))
    ends = []
    for _ in range(2):
        decision = exact.decide(blocks, load, node_limit=40, searches=searches)
        assert decision.status is Status.UNKNOWN
        ends.append(rounds[-1])
    monkeypatch.setattr(exact._Descent, "_lower_peak", lambda *_, **__: None)
    exact.minimise(blocks, upper=high, lower=load, node_limit=40, searches=searches)
    assert 0 < ends[0] < ends[1] < rounds[-1]
    assert rounds == sorted(rounds)  # only what was interrupted is begun again


def test_rounds_go_on_where_they_were_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns shorter than a round began it again and again, and learned nothing more."""
    (component,) = components.Packing(Blocks.of(above_load(ABOVE_LOAD[0]))).components
    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", lambda *_, **__: 1)
    load, turns = component.capacity(component.bound), 0
    whole, stopped = (portfolio.CanonicalPortfolio(component) for _ in range(2))
    assert whole.round(load, 0, lambda: True) == exact_state.LIMIT
    while not stopped.rounds and turns < 100:
        stopped.round(load, 0, _asked(2))
        turns += 1
    assert stopped.rounds == whole.rounds == {load: 1}
    assert turns > 1
    assert stopped.searched == whole.searched  # nothing twice


@pytest.mark.parametrize("between", [False, True])
def test_searches_go_on_in_the_midst(between: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another one began in between: then the round goes on with those to come."""
    (component,) = components.Packing(Blocks.of(above_load(ABOVE_LOAD[0]))).components
    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", lambda *_, **__: 8)
    load = component.capacity(component.bound)
    whole, stopped = (portfolio.CanonicalPortfolio(component) for _ in range(2))
    assert whole.round(load, 0, lambda: True) == exact_state.LIMIT
    run, begun = CanonicalSearch.run, []

    def in_pieces(search: CanonicalSearch, limit: int) -> int:
        begun.append(search.nodes == 0)
        piece = min(limit, search.nodes + 3)
        outcome = run(search, piece)
        early = outcome == exact_state.LIMIT and piece < limit
        return exact_state.RUNNING if early else outcome

    monkeypatch.setattr(CanonicalSearch, "run", in_pieces)
    while load not in stopped.rounds:
        stopped.round(load, 0, _asked(1))
        if between and load - 1 not in stopped.rounds:
            stopped.round(load - 1, 0, _asked(1))
    assert not all(begun)
    assert stopped.rounds[load] == 1
    assert (stopped.searched == whole.searched) is not between


def test_beams_that_are_handed_on_try_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    load = int(blocks.load.max())
    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", lambda *_, **__: 1)
    tuning = TUNING.changed({"exact": {"beams_late": 0, "beams_early": 0}})
    tried: list[tuple[object, int]] = []
    start = beam.BeamSearch.start

    def started(search: beam.BeamSearch, capacity: int, setting: beam.Setting, width: int) -> None:
        tried.append((setting, width))
        start(search, capacity, setting, width)

    monkeypatch.setattr(beam.BeamSearch, "start", started)
    searches = exact.Searches(exact.prepared(blocks, tuning=tuning), tuning=tuning)
    for turn in range(2):
        exact.decide(
            blocks, load, keep_going=_asked(60 * (turn + 1)), searches=searches, tuning=tuning
        )
    assert len(tried) > len(beam.FIRST)
    assert [setting for setting, _ in tried[: len(beam.FIRST)]] == list(beam.FIRST)
    assert tried[0] not in tried[1:]  # nothing begins anew


def test_rounds_are_of_orders_in_turn_then_of_drawn_ones_with_equal_work_for_each_limit() -> None:
    tuning = TUNING.changed({"exact": {"shortest": 0}})
    (component,) = components.Packing(
        Blocks.of(above_load(ABOVE_LOAD[0])), tuning=tuning
    ).components
    searches, random = (
        portfolio.CanonicalPortfolio(component, tuning=tuning),
        np.random.default_rng(0),
    )
    first, second, tenth = (list(searches._plan(number, random)) for number in (0, 1, 10))
    assert len(set(first + second)) == 2 * (
        TUNING.exact.steady_orders + TUNING.exact.turning_orders
    )
    assert not any(noise for _, _, noise in first + second)
    short = {order for level, order, _ in tenth if level == 1}
    assert short == set(portfolio.ORDERS)
    limits = [searches._limit(level) for level, _, _ in tenth]
    works = {limit: limits.count(limit) * limit for limit in limits}
    assert len(works) == len(TUNING.exact.short_levels) + 1
    assert set(works.values()) == {TUNING.exact.drawn * component.b << 10}


def test_hardly_any_drawn_orders_are_alike() -> None:
    blocks = Blocks.of(planted(np.random.default_rng(0), 30, 64, 40))
    component = max(components.Packing(blocks).components, key=lambda component: component.b)
    searches, number = portfolio.CanonicalPortfolio(component), TUNING.exact.first_rounds + 1
    ranks = [
        tuple(searches.search._state.blocks["rank"])
        for at in range(number, number + 4)
        for _ in searches._starts(64, at)
    ]
    assert len(ranks) > 4 * TUNING.exact.drawn
    assert len(set(ranks)) > 0.9 * len(ranks)


def test_a_packing_that_was_found_is_known_to_searches_handed_on() -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    searches = exact.Searches(exact.prepared(blocks))
    assert exact.decide(blocks, 17, searches=searches).nodes > 0
    again = exact.decide(blocks, 17, searches=searches)
    assert (again.status, again.nodes) == (Status.FEASIBLE, 0)


def _asked(times: int) -> Callable[[], bool]:
    """Return a `keep_going` that says no after so many times."""
    left = iter(range(times))
    return lambda: next(left, None) is not None


def test_what_is_found_at_the_load_is_proved_by_it() -> None:
    result = solve(planted(np.random.default_rng(5), 30, 64, 40), "exact", objective="peak")
    assert (result.status, result.objective) == (Status.OPTIMAL, 64)
    assert (result.bound, result.bound_source) == (64, "load bound")


@pytest.mark.parametrize("order", [None, *SOME_ORDERS])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_trying_everything(
    kind: str, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = TUNING
    if order is not None:
        monkeypatch.setattr(portfolio, "ORDERS", portfolio.ORDERS[order : order + 1])
        tuning = TUNING.changed({"exact": {"budget": 1}})  # pause after every node
    rng = np.random.default_rng(
        [KINDS.index(kind), len(portfolio.ORDERS) if order is None else order]
    )
    for _ in range(5):
        instance = random_instance(rng, kind)
        blocks = Blocks.of(instance)
        assert not exact.unsupported(blocks, tuning=tuning)
        best = least_peak(instance, CEILING)
        found: list[Any] = []
        bounds: list[int] = []
        status = exact.minimise(
            blocks, on_solution=found.append, on_bound=bounds.append, tuning=tuning
        )
        if best is None:
            assert exact.decide(blocks, CEILING, tuning=tuning).status is Status.INFEASIBLE
            assert status is Status.INFEASIBLE or bounds[-1] > CEILING
            continue
        assert status is Status.OPTIMAL
        assert peak_of(instance, blocks, found[-1]) == best == bounds[-1]
        assert bounds == sorted(set(bounds))
        for capacity in (best - 1, best, best + 3):
            decision = exact.decide(blocks, capacity, tuning=tuning)
            assert (decision.status is Status.FEASIBLE) == (capacity >= best)
            assert decision.bound <= best
            if decision.offsets is not None:
                assert peak_of(instance, blocks, decision.offsets) <= capacity
            else:
                assert decision.bound > capacity


@pytest.mark.parametrize("rows", ABOVE_LOAD)
@pytest.mark.parametrize("order", SOME_ORDERS)
def test_proves_optima_above_the_load(
    rows: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "ORDERS", portfolio.ORDERS[order : order + 1])
    blocks = Blocks.of(above_load(rows))
    load = int(blocks.load.max())
    assert exact.decide(blocks, load).status is Status.INFEASIBLE
    assert exact.decide(blocks, load).bound == load + 1
    assert exact.decide(blocks, load + 1).status is Status.FEASIBLE


@pytest.mark.parametrize("focus", [exact_state.LOWEST_BLOCK, exact_state.LOWEST_SECTION])
@pytest.mark.parametrize("rows", [*ABOVE_LOAD[:4], ABOVE_LOAD[8]])
def test_what_was_placed_elsewhere_is_not_tried_in_other_ways(rows: str, focus: int) -> None:
    start, end, size = np.array([row.split(",") for row in rows.split()], dtype=np.int64).T
    nodes = []
    for loose in (1, 5):  # stretches of time in which nothing is tight
        at = int(end.max()) + 3 * np.arange(loose)[:, None]
        instance = LmemPacking.from_arrays(
            np.append(size, np.tile([1, 1, 1, 2], loose)),
            np.append(start, np.add(at, [-1, 0, 0, 0])),
            np.append(end, np.add(at, [1, 2, 2, 3])),
        )
        blocks = Blocks.of(instance)
        (component,) = components.Packing(blocks).components
        search = CanonicalSearch(component)
        rank = np.arange(component.b)[::-1].copy()
        weight = np.zeros(component.b)
        search.start(component.capacity(int(blocks.load.max())), rank, weight, focus)
        assert search.run(10_000) == exact_state.EXHAUSTED
        nodes.append(search.nodes)
    assert nodes[1] < 1.5 * nodes[0]


@pytest.mark.parametrize("seed", range(30))
def test_planted_packings_are_never_infeasible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = planted(rng, 12, 20, int(rng.integers(8, 40)))
    blocks = Blocks.of(instance)
    decision = exact.decide(blocks, 20, node_limit=50_000)
    assert decision.status is not Status.INFEASIBLE
    if decision.offsets is not None:
        assert peak_of(instance, blocks, decision.offsets) <= 20


def test_arrays_grow_when_they_are_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planted(np.random.default_rng(3), 12, 20, 30)
    blocks = Blocks.of(instance)
    expected = exact.decide(blocks, 20, node_limit=50_000)
    whole = CanonicalSearch.__init__

    def short(self: CanonicalSearch, *args: Any, **options: Any) -> None:
        whole(self, *args, **options)
        now = self._state
        self._state = now._replace(trail=now.trail[:1], parts=now.parts[:1])

    monkeypatch.setattr(CanonicalSearch, "__init__", short)
    decision = exact.decide(blocks, 20, node_limit=50_000)
    assert (decision.status, decision.nodes) == (expected.status, expected.nodes)


def test_stops_when_told_and_keeps_what_it_found() -> None:
    instance = above_load(ABOVE_LOAD[-1])
    blocks = Blocks.of(instance)
    assert exact.decide(blocks, 17, keep_going=lambda: False).status in (
        Status.UNKNOWN,
        Status.FEASIBLE,
    )
    upper = np.cumsum(np.append(0, blocks.size[:-1]))
    bounds: list[int] = []
    status = exact.minimise(
        blocks, upper=upper, on_bound=bounds.append, keep_going=lambda: False, node_limit=0
    )
    assert status is Status.FEASIBLE
    assert bounds == [int(blocks.load.max())]


def test_a_packing_that_is_low_enough_is_taken() -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    low = exact.decide(blocks, 17).offsets
    assert low is not None
    decision = exact.decide(blocks, 17, warm=low)
    assert decision.nodes == 0
    assert decision.offsets is not None
    assert (decision.offsets == low).all()


def test_blocks_that_conflict_with_all_others_are_taken_out() -> None:
    instance = LmemPacking.from_arrays([5, 2, 2, 3], [0, 0, 2, 1], [4, 2, 4, 3])
    packing = components.Packing(Blocks.of(instance))
    assert not packing.components
    assert packing.peak == 10


def test_what_is_not_supported_is_named() -> None:
    high = LmemPacking.from_arrays([4, 4], [0, 0], [9, 3], fixed=[2**60, -1])
    assert "2**60" in exact.unsupported(Blocks.of(high))


@pytest.mark.parametrize("name", ["A", "C", "E", "G", "I", "K"])
def test_challenging_instances_of_minimalloc(name: str, data_dir: Path) -> None:
    rows = np.loadtxt(
        data_dir / "minimalloc" / f"{name}.1048576.csv", delimiter=",", skiprows=1, dtype=np.int64
    )
    instance = LmemPacking.from_arrays(rows[:, 3], rows[:, 1], rows[:, 2], capacity=1048576)
    blocks = Blocks.of(instance)
    decision = exact.decide(blocks, 1048576, node_limit=500_000)
    assert decision.offsets is not None
    assert peak_of(instance, blocks, decision.offsets) <= 1048576
    if name == "C":
        found: list[Any] = []
        status = exact.minimise(blocks, on_solution=found.append, node_limit=500_000)
        assert status is Status.OPTIMAL
        assert peak_of(instance, blocks, found[-1]) == 1039360


PRIMES = [1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121]


@pytest.mark.parametrize(
    "options",
    [
        {"size": [3, 5, 7], "alignment": PRIMES[:3]},
        {"size": [3, 5, 7, 9], "alignment": [*PRIMES[:3], 1]},  # any top is possible
        {"size": [9, 5, 7, 4, 2], "alignment": PRIMES[:5], "gaps": [(1, 1, 3), (2, 0, 2, 0, 3)]},
        {"size": [3, 5, 7, 4], "alignment": [*PRIMES[:3], 6], "in_place": [(0, 1)]},
        {"size": [3, 5, 7, 4], "alignment": PRIMES[:4], "fixed": [-1, -1, -1, 5 * PRIMES[3]]},
        {"size": [3, 5, 7, 4], "alignment": PRIMES[:4], "reserved": [(2, 2_000_001)]},
        {"size": [3, 5, 7, 11, 13], "alignment": PRIMES[:5], "period": 4},
        {"size": [3, 5, 7], "alignment": PRIMES[:3], "colocated": [(0, 2)]},
        {"size": [3, 5, 7, 2], "alignment": PRIMES[:4], "conflicts": [(0, 1), (1, 2), (2, 3)]},
    ],
)
def test_alignments_that_have_nothing_in_common(options: dict[str, Any]) -> None:
    """The least peak is a million times the load: the bound leaps, and the clock is asked."""
    n = len(options["size"])
    times: dict[str, Any] = {} if "conflicts" in options else {"start": [0] * n, "end": [4] * n}
    instance = LmemPacking.from_arrays(**times, **options)
    blocks = Blocks.of(instance)
    found: list[Any] = []
    bounds: list[int] = []
    going = itertools.repeat(True, 2999)
    status = exact.minimise(
        blocks,
        on_solution=found.append,
        on_bound=bounds.append,
        keep_going=lambda: next(going, False),
    )
    assert status is Status.OPTIMAL
    assert peak_of(instance, blocks, found[-1]) == bounds[-1]
    assert len(bounds) < 300
    assert exact.decide(blocks, bounds[-1]).status is Status.FEASIBLE
    assert exact.decide(blocks, bounds[-1] - 1).status is Status.INFEASIBLE


def test_the_clock_is_asked_for_every_step_of_the_bound() -> None:
    instance = LmemPacking.from_arrays([3, 5, 7, 9], [0] * 4, [1] * 4, alignment=[*PRIMES[:3], 1])
    asked: list[int] = []
    bounds: list[int] = []

    def once() -> bool:
        asked.append(len(bounds))
        return len(asked) < 12

    status = exact.minimise(Blocks.of(instance), on_bound=bounds.append, keep_going=once)
    assert status is not Status.OPTIMAL
    assert len(asked) == 12
    assert np.diff(asked).max() <= 1


def test_the_clock_is_asked_while_components_are_made() -> None:
    n = 300
    times = np.repeat(np.arange(n // 3), 3)
    apart = LmemPacking.from_arrays(np.arange(n) % 7 + 1, times, times + 1, alignment=3)
    held = LmemPacking.from_arrays(
        [8] * n + [4] * n, [0] * 2 * n, [1] * 2 * n, fixed=[*range(0, 12 * n, 12), *[-1] * n]
    )
    shaped = apart.replace(in_place=[(3 * i, 3 * i + 1) for i in range(n // 3)])
    for instance in (apart, held, shaped):
        asked = Mock(return_value=True)
        exact.prepared(Blocks.of(instance), keep_going=asked)
        assert asked.call_count >= n // 3
        assert exact.minimise(Blocks.of(instance), keep_going=lambda: False) is Status.UNKNOWN
        found = exact.decide(Blocks.of(instance), 10**6, keep_going=lambda: False)
        assert found.status is Status.UNKNOWN


def test_steps_count_every_section_that_a_placement_looks_at() -> None:
    random = np.random.default_rng(5)
    n = 200
    pairs = np.sort(random.integers(0, n, (5 * n, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    blocks = Blocks.of(LmemPacking.from_arrays(random.integers(1, 99, n), conflicts=pairs))
    component = exact.prepared(blocks).components[0]
    assert isinstance(component, components.Component)
    sections = len(component.sections)
    tuning = TUNING.changed({"exact": {"budget": 10 * sections}})
    search = CanonicalSearch(component, tuning=tuning)
    search.start(10**6, np.arange(component.b), np.zeros(component.b), 0)
    searched = [0]
    while search.run(10**6) == exact_state.RUNNING:
        searched.append(search.nodes)
    begun = np.diff(searched)[:30]  # before it falls apart
    assert len(begun) == 30
    assert begun.max() <= 11


def test_addresses_beyond_the_search_are_told_of_ranges_and_fixed_offsets() -> None:
    plain = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1])
    assert too_large(Blocks.of(plain)) == ""
    for far in (
        plain.replace(fixed=[2**60, -1]),
        plain.replace(allowed=[(0, 2**60, 2**60 + 8)]),
    ):
        assert "2**60" in too_large(Blocks.of(far))


def test_beams_look_at_the_bound_for_as_long_as_the_peak_is_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    start = random.integers(0, 58, 120)
    end = np.minimum(60, start + random.integers(2, 30, 120))
    size = random.integers(1, 60, 120)
    load = np.array([size[(start <= t) & (t < end)].sum() for t in range(60)])
    room = load.max() - load  # blocks of one step fill it, so that nowhere is any left
    at = np.flatnonzero(room)
    rows = (np.append(size, room[at]), np.append(start, at), np.append(end, at + 1))
    blocks = Blocks.of(LmemPacking.from_arrays(*rows, objective="peak"))
    taken = {True: 0.0, False: 0.0}
    searched, beamed = exact._Effort.round, exact._Effort.beam

    def lowering(self: Any, *args: Any, beams: bool = True) -> int:
        before = effort.spent()
        outcome = searched(self, *args, beams=beams)
        taken[False] += 0 if beams else effort.spent() - before
        return outcome

    def at_the_bound(self: Any, *args: Any) -> int:
        before = effort.spent()
        outcome = beamed(self, *args)
        taken[True] += effort.spent() - before
        return outcome

    monkeypatch.setattr(exact._Effort, "round", lowering)
    monkeypatch.setattr(exact._Effort, "beam", at_the_bound)
    until = effort.spent() + 2.0
    status = exact.minimise(blocks, keep_going=lambda: effort.spent() < until)
    assert status is Status.FEASIBLE
    assert taken[True] > taken[False] / 2 > 0
