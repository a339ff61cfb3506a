"""Local search keeps its books right, its partitions valid, and nearly always finds the best."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.graph import local_kernels
from stagepack.heuristics.graph.local_search import PartitionSearch
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from tests.heuristics.graph.structured import structured
from tests.random_graphs import brute_force, random_instance

USUAL = TUNING.annealing


def searched(seed: int, **options: Any) -> tuple[GraphPartition, PartitionSearch]:
    """Return the first graph drawn that has a partition and a search, which begins at the best."""
    rng = np.random.default_rng(seed)
    while True:
        instance = random_instance(rng, int(rng.integers(2, 7)), **options)
        compact = Compact.of(instance)
        optimum = None if PartitionSearch.unsupported(compact) else brute_force(instance)
        if optimum is not None:
            known = GraphSolution.from_dict(optimum[1], instance)
            return instance, PartitionSearch(compact, *compact.stages(known), seed=seed)


def solution(search: PartitionSearch) -> GraphSolution:
    return search.compact.assignment(search.stages, search.classes)


@pytest.mark.parametrize("seed", range(24))
def test_partitions_are_valid_and_worth_what_is_said(seed: int) -> None:
    instance, search = searched(seed)
    optimum = search.value
    search.round(lambda: None)
    # It began at the optimum: nothing is better, and what is kept is as good.
    assert search.value == optimum
    found = solution(search)
    assert instance.check(found) == ()
    value = float(search.compact.value(search.value))
    assert instance.evaluate(found) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_books_are_right_after_many_moves() -> None:
    for seed in range(12):
        _, search = searched(500 + seed, contiguous=bool(seed % 2))
        search.tuning = search.tuning.changed({"part": 1})
        search.round(lambda: None)
        now = search._placed
        paused: list[None] = []
        again = search._place(now.stage.copy(), 1, partial(paused.append, None))
        assert len(paused) == search.compact.nets  # the table is made in parts
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
        if PartitionSearch.unsupported(compact) or len(compact.class_count) > 1:
            continue
        assert optimum is not None
        search = PartitionSearch(
            compact, np.zeros(compact.blocks, dtype=int), np.zeros(3, dtype=int)
        )
        search.round(lambda: None)
        assert instance.check(solution(search)) == ()
        missed += float(compact.value(search.value)) > float(optimum[0]) * (1 + 1e-9)
    assert missed <= 1


def test_swaps_pass_where_full_devices_let_no_block_in() -> None:
    graph = GraphPartition.from_edges(
        4, [], time=[5, 5, 1, 1], memory=[1] * 4, capacity=2, accelerators=2
    )
    search = PartitionSearch(Compact.of(graph), np.array([0, 0, 1, 1]), np.zeros(2, dtype=int))
    search.round(lambda: None)
    assert graph.check(solution(search)) == ()
    assert graph.evaluate(solution(search)) == 6


def test_the_same_seed_gives_the_same_stages_however_often_it_is_asked() -> None:
    runs = []
    for chunk in (USUAL.chunk, USUAL.chunk, 1000):
        _, search = searched(4, objective="sum", capacity=None)
        search.tuning = USUAL.changed({"chunk": chunk})
        search.round(lambda: None)
        runs.append(search._placed.stage.tolist())
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("objective", ["sum", "overlap", "memory"])
def test_pauses_after_any_work_change_nothing(objective: str) -> None:
    short = USUAL.changed({"moves": 0, "least_moves": 100, "coolings": 2})
    for instance in structured(objective=objective, empty_devices=True).values():
        compact = Compact.of(instance)
        nowhere = np.zeros(compact.blocks, dtype=int)
        runs = []
        for chunk in (10**6, *range(1, 8), 50):
            tuning = short.changed({"chunk": chunk})
            search = PartitionSearch(compact, nowhere, np.zeros(1, dtype=int), tuning=tuning)
            search.round(lambda: None)
            placed = search._placed
            runs.append((placed.stage.tolist(), search.stages.tolist(), placed.state[:3].tolist()))
        assert runs == runs[:1] * len(runs)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_more_blocks_than_may_move_together_stay(most: int) -> None:
    """Interpreted: an array that is too short is an error."""
    n = 6
    chain = GraphPartition.from_edges(
        n, [(i, i + 1) for i in range(n - 1)], time=[1] * n, accelerators=3, bandwidth=1
    )
    tuning = USUAL.changed({"most_moved": most})
    search = PartitionSearch(
        Compact.of(chain), np.zeros(n, dtype=int), np.zeros(1, dtype=int), seed=2, tuning=tuning
    )
    placed = search._placed
    assert len(placed.queue) == len(placed.origin) == most
    anneal = inspect.unwrap(local_kernels.anneal)
    draws = local_kernels.Draws(4, 8, 4)
    anneal(local_kernels.SUM, 300, 10**6, 1.0, 10.0, False, draws, search._blocks, placed)
    assert sorted(np.unique(placed.stage)) != [0]
    assert placed.blocks.sum() == n


def test_work_is_counted_and_limits_are_asked_about_by_it() -> None:
    tuning = USUAL.changed({"chunk": 300_000, "least_moves": 40_000, "moves": 1})
    counted = []
    for readers in (1, 200):
        edges = [(u, v) for u in range(4) for v in range(4, 4 + readers)]
        nodes, asked = 4 + readers, list[float]()
        graph = GraphPartition.from_edges(
            nodes, edges, time=[1] * nodes, traffic=[3] * nodes, accelerators=2
        )
        search = PartitionSearch(
            Compact.of(graph),
            np.zeros(nodes, dtype=int),
            np.zeros(2, dtype=int),
            tuning=tuning,
        )

        def ask(heard: list[float] = asked) -> None:
            heard.append(effort.spent())

        with effort.counting(1e9):
            search.round(ask)
        steps = np.diff([0.0, *asked]) / tuning.step_price
        assert steps.max() < 2 * 300_000
        counted.append(asked[-1])
    # A move among many readers of few nets drags more along than one between two.
    assert counted[1] > 2 * counted[0]


def test_a_move_of_which_nothing_hangs_is_work_too() -> None:
    """Drawing and weighing it were not counted: of free stages twice the limit was used."""
    tuning = USUAL.changed({"least_moves": 4_000, "moves": 1})
    graph = GraphPartition.from_edges(4, [], time=[1] * 4, accelerators=2)
    nowhere = np.zeros(4, dtype=int)
    search = PartitionSearch(Compact.of(graph), nowhere, np.zeros(2, dtype=int), tuning=tuning)
    with effort.counting(1e9):
        search.round(lambda: None)
        assert effort.spent() > 4_000 * tuning.move_price


def test_moves_over_a_table_outside_of_the_cache_are_more_work() -> None:
    """Of a tree of 2^15 leaves a limit of 1 s of work took 2.8 s."""
    graph = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[1] * 3, traffic=[1, 1, 1], accelerators=2
    )
    spent = []
    for cached in (2**19, 1):
        tuning, nowhere = USUAL.changed({"cached": cached}), np.zeros(3, dtype=int)
        search = PartitionSearch(Compact.of(graph), nowhere, np.zeros(2, dtype=int), tuning=tuning)
        with effort.counting(1e9):
            search.round(lambda: None)
            spent.append(effort.spent())
    assert spent[1] > 1.4 * spent[0]


def test_a_stage_of_fixed_devices_that_is_empty_stays_so_where_stashes_count() -> None:
    """Another stage before it would keep the stashes of two more microbatches."""
    graph = GraphPartition.from_edges(
        5, [(2, 3), (3, 4)], time=[20, 21, 16, 5, 6], cpu_time=[0, 35, 51, 38, 59],
        cpu=[False, True, True, True, True], traffic=[4, 0, 11, 14, 3], memory=[4, 1, 6, 11, 16],
        stash=[3, 5, 4, 7, 7], colour=[-1, 0, -1, 1, -1], backward=[0, 0, 0, 0, 1], capacity=77,
        accelerators=1, cpus=1, device_order="fixed", microbatches=4,
    )  # fmt: skip
    result = sp.solve(graph, "local-search")
    assert result.objective == 68
