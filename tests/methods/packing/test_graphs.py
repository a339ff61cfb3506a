"""Large conflict graphs: placed from their rows at once, whatever time is left for cliques."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.constructive import conflicts
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.methods.packing import graphs, quick, whole
from stagepack.progress import Progress
from stagepack.result import Status, Termination
from stagepack.solve import solve


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MANY", 1)


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


@pytest.mark.parametrize("method", ["auto", "exact", "portfolio", "best-fit-lifetime"])
def test_where_there_is_no_time_for_cliques_there_is_a_placement(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """12.8 million conflicts ended 47,239 times above the bound, in a gigabyte more."""
    monkeypatch.setattr(graphs, "COVERED", 1.0)
    monkeypatch.setattr(Blocks, "_of", lambda *_: pytest.fail("made a normal form"))
    result = solve(drawn(), method, time_limit=0.05)
    assert result.termination is Termination.TIME_LIMIT
    assert result.objective is not None
    assert result.bound is not None
    assert result.objective < 2 * result.bound


def test_where_there_is_time_methods_go_on() -> None:
    instance = drawn(12)
    result = solve(instance, "exact", time_limit=1.0)
    assert result.status is Status.OPTIMAL
    assert result.objective == solve(instance.replace(fixed=[-1] * 12), "cp-sat").objective


def test_without_a_limit_methods_go_on_too() -> None:
    """Placements were lowered for ever where no clique is as heavy as the optimum."""
    odd = LmemPacking.from_arrays([3] * 5, conflicts=[(at, (at + 1) % 5) for at in range(5)])
    result = solve(odd, "exact", time_limit=None)
    assert (result.status, result.objective) == (Status.OPTIMAL, 9)


def test_a_clique_that_does_not_fit_is_named() -> None:
    instance = LmemPacking.from_arrays(
        [5, 6, 7, 1], conflicts=[(0, 1), (0, 2), (1, 2), (2, 3)], capacity=17
    )
    result = solve(instance, "auto", time_limit=1.0)
    assert result.status is Status.INFEASIBLE
    assert "18 bytes, 1 more than the capacity of 17" in result.reason


def test_what_does_not_fit_is_told_with_the_lowest_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "COVERED", 1.0)
    odd = LmemPacking.from_arrays(
        [3] * 5, conflicts=[(at, (at + 1) % 5) for at in range(5)], capacity=8
    )
    result = solve(odd, "auto", time_limit=0.05)
    assert result.status is Status.UNKNOWN
    assert "9 bytes" in result.reason


@pytest.mark.parametrize(
    "given", [{"fixed": [0, *[-1] * 39]}, {"reserved": [(5, 9)]}, {"colocated": [(0, 1)]}]
)
def test_places_ranges_and_groups_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, list[Any]]
) -> None:
    monkeypatch.setattr(graphs, "place", lambda *_: pytest.fail("knows none of them"))
    assert solve(drawn().replace(**given), "portfolio").solution is not None


def test_a_given_placement_is_never_made_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "COVERED", 1.0)
    instance = drawn()
    best = solve(instance, "auto", time_limit=0.3)
    again = solve(instance, "auto", time_limit=0.02, warm_start=best.solution)
    assert again.objective is not None
    assert best.objective is not None
    assert again.objective <= best.objective


def test_same_work_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "COVERED", 1.0)
    first, second = (
        solve(drawn(), "auto", time_limit=0.05, options={"deterministic": True}) for _ in range(2)
    )
    assert first.objective == second.objective
    assert first.solution is not None
    assert second.solution is not None
    assert first.solution.offsets.tolist() == second.solution.offsets.tolist()


def test_the_first_placement_is_completed_when_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "LEAST", 0.0)
    result = solve(drawn(), "auto", time_limit=1e-9)
    assert result.termination is Termination.TIME_LIMIT
    assert result.trace.events[-1].source == "first fit"


@pytest.mark.parametrize("method", ["auto", "milp", "first-fit-size"])
def test_where_there_is_no_time_for_rows_conflicts_are_gone_through_as_listed(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """12.8 million conflicts of a million buffers ended in a stack, 500,000 times the bound."""
    monkeypatch.setattr(graphs, "LEAST", 1.0)
    monkeypatch.setattr(whole, "LEAST", 1.0)
    instance = drawn()
    result = solve(instance, method, time_limit=1, options={"deterministic": True})
    assert result.termination is Termination.FINISHED
    assert "a longer limit gives a lower placement" in result.reason
    assert [event.source for event in result.trace.incumbents] == ["first fit, as listed"]
    assert result.objective is not None
    assert result.objective < instance.size.sum() / 2


def test_buffers_outside_of_the_cache_are_placed_from_rows_where_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """13 million conflicts of a million buffers, first fit of which takes 3 s, had none in 3."""
    monkeypatch.setattr(effort, "CACHED_BUFFERS", 0)
    monkeypatch.setattr(graphs, "LATE", 0.0)
    instance = drawn()
    assert instance.conflicts is not None
    limit = 2.3e-7 * len(instance.conflicts)
    result = solve(instance, "auto", time_limit=limit, options={"deterministic": True})
    assert result.trace.incumbents[0].source == "first fit"


def test_what_is_not_reached_goes_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LEAST", 1.0)
    monkeypatch.setattr(conflicts, "STEPS", 60)
    monkeypatch.setattr(conflicts, "LISTED", 0.01)
    instance = drawn()
    whole_time, some = (
        solve(instance, "auto", time_limit=limit, options={"deterministic": True})
        for limit in (9, 1)
    )
    assert some.termination is Termination.TIME_LIMIT
    assert whole_time.objective is not None
    assert some.objective is not None
    assert whole_time.objective < some.objective < instance.size.sum()


def test_a_given_placement_is_not_lost_where_there_is_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = drawn()
    best = solve(instance, "auto", time_limit=0.3)
    monkeypatch.setattr(graphs, "LEAST", 1.0)
    again = solve(instance, "auto", time_limit=0.3, warm_start=best.solution)
    assert again.objective == best.objective


def test_checks_of_answers_count_all_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limited by 1 s of work, 12.8 million conflicts of a million buffers took 3.7 s."""
    monkeypatch.setattr(effort, "EXAMINED", 1.0)
    result = solve(drawn(), "auto", time_limit=3, options={"deterministic": True})
    assert result.termination is Termination.TIME_LIMIT
    assert [event.source for event in result.trace.events if event.kind == "incumbent"] == [
        "first fit"
    ]


def test_what_lies_outside_of_the_cache_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = drawn()
    with effort.counting():
        graph = conflicts.rows(instance, lambda: True)
        conflicts.first_fit(graph, np.arange(instance.n), lambda: True)
        near = effort.spent()
    monkeypatch.setattr(effort, "CACHED_BUFFERS", instance.n - 1)
    monkeypatch.setattr(effort, "LOOKED_UP", 1_000.0)
    with effort.counting():
        conflicts.first_fit(graph, np.arange(instance.n), lambda: True)
        assert effort.spent() > 10 * near


@pytest.mark.parametrize("capacity", [None, 900])
def test_first_fit_by_size_needs_no_cliques(
    monkeypatch: pytest.MonkeyPatch, capacity: int | None
) -> None:
    """It is the same placement: cliques took ten seconds of 1.5 million conflicts."""
    for n in (30, 60, 90):
        instance = drawn(n).replace(alignment=[1, 2, 4] * (n // 3), capacity=capacity)
        with monkeypatch.context() as patched:
            patched.setattr(graphs, "MANY", 10**9)
            known = solve(instance, "first-fit-size")
        with monkeypatch.context() as patched:
            patched.setattr(Blocks, "_of", lambda *_: pytest.fail("made a normal form"))
            result = solve(instance, "first-fit-size")
        assert result.objective == known.objective
        assert result.trace.events[-1].source in ("first-fit-size", "clique of conflicts")


@pytest.mark.parametrize("method", ["best-fit-lifetime", "anneal", "cp-sat", "beam"])
def test_where_time_is_over_first_fit_comes_in_place_of_a_stack(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Valleys over cliques, and stacks, were 50 times the bound."""
    monkeypatch.setattr(graphs, "MANY", 10**9)
    monkeypatch.setattr(quick, "MOST_CONFLICTS", 0)
    instance = drawn(90)
    progress_over = iter([True] * 2)
    monkeypatch.setattr(Progress, "keep_going", lambda _: next(progress_over, False))
    result = solve(instance, method)
    known = solve(instance, "first-fit-size")
    assert result.objective is not None
    assert known.objective is not None
    assert result.objective <= known.objective
