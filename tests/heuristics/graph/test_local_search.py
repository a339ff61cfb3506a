"""Local search keeps its books right, its partitions valid, and nearly always finds the best."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics.graph.local_search import Search
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from tests.random_graphs import brute_force, random_instance


def searched(instance: GraphPartition, seed: int = 0) -> Search | None:
    """Return a search from some valid partition; None where there is none, or no search."""
    compact = Compact.of(instance)
    if Search.unsupported(compact):
        return None
    optimum = brute_force(instance)
    if optimum is None:
        return None
    known = GraphSolution.from_dict(optimum[1], instance)
    return Search(compact, *compact.stages(known), seed=seed)


def solution(search: Search) -> GraphSolution:
    return search.compact.assignment(search.stages, search.classes)


@pytest.mark.parametrize("seed", range(40))
def test_partitions_are_valid_and_worth_what_is_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, int(rng.integers(2, 7)))
    search = searched(instance, seed)
    if search is None:
        pytest.skip("no partition, or no search")
    optimum = search.value
    search.round(lambda moves: None)
    # It began at the optimum: nothing is better, and what is kept is as good.
    assert search.value == optimum
    found = solution(search)
    assert instance.check(found) == ()
    value = float(search.compact.value(search.value))
    assert instance.evaluate(found) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_books_are_right_after_many_moves() -> None:
    for seed in range(12):
        rng = np.random.default_rng(500 + seed)
        instance = random_instance(rng, 6, contiguous=bool(seed % 2))
        search = searched(instance, seed)
        if search is None:
            continue
        search.round(lambda moves: None)
        now = search._placed
        again = search._place(now.stage.copy(), 1)
        for name in ("inside", "spread", "time", "received", "sent", "held", "blocks"):
            assert np.array_equal(getattr(now, name), getattr(again, name)), name


def test_the_optimum_is_found_from_one_stage() -> None:
    missed = 0
    for seed in range(25):
        rng = np.random.default_rng(900 + seed)
        instance = random_instance(
            rng, 6, objective="sum", cpus=0, capacity=None, empty_devices=True, accelerators=3
        )
        compact = Compact.of(instance)
        optimum = brute_force(instance)
        if Search.unsupported(compact) or len(compact.class_count) > 1:
            continue
        assert optimum is not None
        search = Search(compact, np.zeros(compact.blocks, dtype=int), np.zeros(3, dtype=int))
        search.round(lambda moves: None)
        assert instance.check(solution(search)) == ()
        missed += float(compact.value(search.value)) > float(optimum[0]) * (1 + 1e-9)
    assert missed <= 1


def test_the_same_seed_gives_the_same_stages() -> None:
    instance = random_instance(np.random.default_rng(4), 6, objective="sum", capacity=None)
    runs = []
    for _ in range(2):
        search = searched(instance, 3)
        assert search is not None
        search.round(lambda moves: None)
        runs.append(search._placed.stage.tolist())
    assert runs[0] == runs[1]


def test_limits_are_asked_about_in_between() -> None:
    instance = random_instance(np.random.default_rng(4), 6, objective="sum", capacity=None)
    search = searched(instance)
    assert search is not None
    asked: list[int] = []
    search.round(asked.append)
    assert max(asked) <= 20_000
    assert sum(asked) >= 100_000
