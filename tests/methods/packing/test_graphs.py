"""Large conflict graphs: placed from their rows at once, whatever time is left for cliques."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import conflicts
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import graphs
from stagepack.progress import Progress
from stagepack.result import Result, Status, Termination
from stagepack.solve import solve


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Tests of heuristics before these leave work on the clock of the thread."""
    with effort.counting():
        yield


def drawn(n: int = 40) -> LmemPacking:
    random = np.random.default_rng(n)
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    pairs = pairs[random.random(len(pairs)) < 0.3]
    return LmemPacking.from_arrays(random.integers(1, 99, n), conflicts=pairs)


def solved(
    instance: LmemPacking,
    method: str,
    *,
    tuning: dict[str, Any] | None = None,
    deterministic: bool = False,
    **options: Any,
) -> Result[Any]:
    """Return the result of a run for which a single conflict is many."""
    changes = tuning or {}
    changes = {**changes, "graphs": {"conflicts": 1, **changes.get("graphs", {})}}
    more = {"tuning": changes, "deterministic": deterministic}
    return solve(instance, method, options=more, **options)


@pytest.mark.parametrize("method", ["auto", "exact", "portfolio", "best-fit-lifetime"])
def test_where_there_is_no_time_for_cliques_there_is_a_placement(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """12.8 million conflicts ended 47,239 times above the bound, in a gigabyte more."""
    tuning = {"graphs": {"covered": 1.0}}
    monkeypatch.setattr(Blocks, "_of", lambda *_, **__: pytest.fail("made a normal form"))
    result = solved(drawn(), method, time_limit=0.05, deterministic=True, tuning=tuning)
    assert result.termination is Termination.TIME_LIMIT
    assert result.objective is not None
    assert result.bound is not None
    assert result.objective < 2 * result.bound


def test_where_there_is_time_methods_go_on() -> None:
    instance = drawn(12)
    result = solved(instance, "exact", time_limit=1.0, deterministic=True)
    assert result.status is Status.OPTIMAL
    assert result.objective == solved(instance.replace(fixed=[-1] * 12), "cp-sat").objective


def test_without_a_limit_methods_go_on_too() -> None:
    """Placements were lowered for ever where no clique is as heavy as the optimum."""
    odd = LmemPacking.from_arrays([3] * 5, conflicts=[(at, (at + 1) % 5) for at in range(5)])
    result = solved(odd, "exact", time_limit=None)
    assert (result.status, result.objective) == (Status.OPTIMAL, 9)


def test_a_clique_that_does_not_fit_is_named() -> None:
    instance = LmemPacking.from_arrays(
        [5, 6, 7, 1], conflicts=[(0, 1), (0, 2), (1, 2), (2, 3)], capacity=17
    )
    result = solved(instance, "auto", time_limit=1.0, deterministic=True)
    assert result.status is Status.INFEASIBLE
    assert "18 bytes, 1 more than the capacity of 17" in result.reason


def test_what_does_not_fit_is_told_with_the_lowest_placement() -> None:
    tuning = {"graphs": {"covered": 1.0}}
    odd = LmemPacking.from_arrays(
        [3] * 5, conflicts=[(at, (at + 1) % 5) for at in range(5)], capacity=8
    )
    result = solved(odd, "auto", time_limit=0.05, deterministic=True, tuning=tuning)
    assert result.status is Status.UNKNOWN
    assert "9 bytes" in result.reason


@pytest.mark.parametrize(
    "given", [{"fixed": [0, *[-1] * 39]}, {"reserved": [(5, 9)]}, {"colocated": [(0, 1)]}]
)
def test_places_ranges_and_groups_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, list[Any]]
) -> None:
    monkeypatch.setattr(graphs, "place", lambda *_, **__: pytest.fail("knows none of them"))
    assert solved(drawn().replace(**given), "portfolio").solution is not None


def test_a_given_placement_is_never_made_worse() -> None:
    by_work: dict[str, Any] = {"deterministic": True, "tuning": {"graphs": {"covered": 1.0}}}
    instance = drawn()
    best = solved(instance, "auto", time_limit=0.3, **by_work)
    again = solved(instance, "auto", time_limit=0.02, warm_start=best.solution, **by_work)
    assert again.objective is not None
    assert best.objective is not None
    assert again.objective <= best.objective


def test_same_work_same_answer() -> None:
    tuning = {"graphs": {"covered": 1.0}}
    first, second = (
        solved(drawn(), "auto", time_limit=0.05, deterministic=True, tuning=tuning)
        for _ in range(2)
    )
    assert first.objective == second.objective
    assert first.solution is not None
    assert second.solution is not None
    assert first.solution.offsets.tolist() == second.solution.offsets.tolist()


def test_the_first_placement_is_completed_when_time_is_over() -> None:
    tuning = {"graphs": {"placed": 0.0}}
    result = solved(drawn(), "auto", time_limit=1e-9, tuning=tuning)
    assert result.termination is Termination.TIME_LIMIT
    assert result.trace.events[-1].source == "first fit"


@pytest.mark.parametrize("method", ["auto", "milp", "first-fit-size"])
def test_where_there_is_no_time_for_rows_conflicts_are_gone_through_as_listed(method: str) -> None:
    """12.8 million conflicts of a million buffers ended in a stack, 500,000 times the bound."""
    tuning = {"graphs": {"placed": 1.0, "least": 1.0}}
    instance = drawn()
    result = solved(instance, method, time_limit=1, deterministic=True, tuning=tuning)
    assert result.termination is Termination.FINISHED
    assert "a longer limit gives a lower placement" in result.reason
    assert [event.source for event in result.trace.incumbents] == ["first fit, as listed"]
    assert result.objective is not None
    assert result.objective < instance.size.sum() / 2


def test_buffers_outside_of_the_cache_are_placed_from_rows_where_there_is_time() -> None:
    """13 million conflicts of a million buffers, first fit of which takes 3 s, had none in 3."""
    tuning = {"prices": {"cached_buffers": 0}, "scale": {"late": 0.0}}
    instance = drawn()
    assert instance.conflicts is not None
    limit = 2.3e-7 * len(instance.conflicts)
    result = solved(instance, "auto", time_limit=limit, deterministic=True, tuning=tuning)
    assert result.trace.incumbents[0].source == "first fit"


def test_what_is_not_reached_goes_on_top() -> None:
    tuning = {"graphs": {"placed": 1.0}, "conflicts": {"budget": 60, "listed": 0.01}}
    instance = drawn()
    whole_time, some = (
        solved(instance, "auto", time_limit=limit, deterministic=True, tuning=tuning)
        for limit in (9, 1)
    )
    assert some.termination is Termination.TIME_LIMIT
    assert whole_time.objective is not None
    assert some.objective is not None
    assert whole_time.objective < some.objective < instance.size.sum()


def test_a_given_placement_is_not_lost_where_there_is_no_time() -> None:
    instance = drawn()
    best = solved(instance, "auto", time_limit=0.3, deterministic=True)
    tuning = {"graphs": {"placed": 1.0}}
    again = solved(
        instance,
        "auto",
        time_limit=0.3,
        deterministic=True,
        warm_start=best.solution,
        tuning=tuning,
    )
    assert again.objective == best.objective


def test_checks_of_answers_count_all_conflicts() -> None:
    """Limited by 1 s of work, 12.8 million conflicts of a million buffers took 3.7 s."""
    tuning = {"prices": {"conflict_checked": 1.0}}
    result = solved(drawn(), "auto", time_limit=3, deterministic=True, tuning=tuning)
    assert result.termination is Termination.TIME_LIMIT
    assert [event.source for event in result.trace.events if event.kind == "incumbent"] == [
        "first fit"
    ]


def test_what_lies_outside_of_the_cache_counts_more() -> None:
    instance = drawn()
    with effort.counting():
        graph = conflicts.rows(instance, lambda: True)
        conflicts.first_fit(graph, np.arange(instance.n), lambda: True)
        near = effort.spent()
    tuning = TUNING.changed({"prices": {"cached_buffers": instance.n - 1, "uncached": 1_000.0}})
    with effort.counting():
        conflicts.first_fit(graph, np.arange(instance.n), lambda: True, tuning=tuning)
        assert effort.spent() > 10 * near


@pytest.mark.parametrize("capacity", [None, 900])
def test_first_fit_by_size_needs_no_cliques(
    monkeypatch: pytest.MonkeyPatch, capacity: int | None
) -> None:
    """It is the same placement: cliques took ten seconds of 1.5 million conflicts."""
    for n in (30, 60, 90):
        instance = drawn(n).replace(alignment=[1, 2, 4] * (n // 3), capacity=capacity)
        known = solved(instance, "first-fit-size", tuning={"graphs": {"conflicts": 10**9}})
        with monkeypatch.context() as patched:
            patched.setattr(Blocks, "_of", lambda *_, **__: pytest.fail("made a normal form"))
            result = solved(instance, "first-fit-size")
        assert result.objective == known.objective
        assert result.trace.events[-1].source in ("first-fit-size", "clique of conflicts")


@pytest.mark.parametrize("method", ["best-fit-lifetime", "anneal", "cp-sat", "beam"])
def test_where_time_is_over_first_fit_comes_in_place_of_a_stack(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Valleys over cliques, and stacks, were 50 times the bound."""
    tuning = {"graphs": {"conflicts": 10**9}, "scale": {"late_conflicts": 0}}
    instance = drawn(90)
    progress_over = iter([True] * 2)
    monkeypatch.setattr(Progress, "keep_going", lambda _: next(progress_over, False))
    result = solved(instance, method, tuning=tuning)
    known = solved(instance, "first-fit-size", tuning=tuning)
    assert result.objective is not None
    assert known.objective is not None
    assert result.objective <= known.objective


def lived(seed: int, n: int = 150) -> tuple[LmemPacking, LmemPacking]:
    """Return buffers with lifetimes, and the same ones, shuffled, with conflicts instead."""
    random = np.random.default_rng(seed)
    start = random.integers(0, n, n)
    end, size = start + random.integers(1, n // 8, n), 2 ** random.integers(0, 6, n)
    i, j = np.triu_indices(n, 1)
    meet = (start[i] < end[j]) & (start[j] < end[i])
    back, order = np.empty(n, dtype=np.int64), random.permutation(n)
    back[order] = np.arange(n)
    pairs = np.stack([back[i], back[j]], axis=1)[meet]
    timed = LmemPacking.from_arrays(size, start, end)
    return timed, LmemPacking.from_arrays(size[order], conflicts=pairs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("large", [False, True])
def test_conflicts_of_lifetimes_are_packed_as_these(seed: int, large: bool) -> None:
    timed, instance = lived(seed)
    result = (solved if large else solve)(instance, "auto", time_limit=10)
    assert result.status is Status.OPTIMAL
    assert result.objective == solve(timed, time_limit=10).objective
    assert result.bound_source == "load bound"
    assert sp.check_result(instance, result).verified


def test_what_does_not_fit_names_a_clique_of_buffers() -> None:
    timed, instance = lived(7)
    load = solve(timed, time_limit=10).bound
    assert load is not None
    result = solved(
        instance.replace(capacity=int(load) - 1, objective="fit"), "auto", time_limit=10
    )
    assert result.status is Status.INFEASIBLE
    assert result.evidence is not None
    assert result.evidence["rule"] == "clique"
