"""Local search that goes on where it was left, and where it begins."""

from __future__ import annotations

import pytest

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.methods import Settings
from stagepack.methods.graph import searches
from stagepack.methods.graph.exact import CompactSearch
from stagepack.methods.graph.improve import Annealing
from stagepack.progress import Progress

QUICK = TUNING.changed({"annealing": {"least_moves": 400, "moves": 4}})


def begun(operators: int = 60) -> tuple[GraphPartition, Progress[GraphSolution]]:
    instance = sp.load("graph/random/branchy", operators=operators, devices=4)
    assert isinstance(instance, GraphPartition)
    progress = Progress[GraphSolution](instance.evaluate, instance.check)
    progress.offer(sp.solve(instance, method="equal-work").solution, "equal-work")
    return instance, progress


@pytest.mark.parametrize("calls", [[5], [1, 1, 1, 1, 1], [2, 3]])
def test_rounds_of_several_calls_are_those_of_one(calls: list[int]) -> None:
    instance, progress = begun()
    annealing = Annealing(Compact.of(instance), progress, 3, QUICK.annealing)
    for rounds in calls:
        annealing.run(rounds=rounds, patience=9)
    _, alone = begun()
    Annealing(Compact.of(instance), alone, 3, QUICK.annealing).run(rounds=5, patience=9)
    assert progress.solution == alone.solution
    assert len(alone.trace.events) > 2


@pytest.mark.parametrize("much", [False, True])
def test_many_orders_that_bring_little_do_not_move_local_search(much: bool) -> None:
    instance, progress = begun()
    tuning = QUICK.changed({"auto": {"little": 0.0 if much else 1.0}})
    settings, runs = Settings(tuning=tuning), list[list[object]]()
    for orders in (False, True):
        _, progress = begun()
        with effort.counting():
            search = CompactSearch(instance, progress, settings)
            if orders:
                searches._along_many_orders(search, 1.0)
            search.annealing.run(rounds=2, patience=9)
        assert search.annealing._search is not None
        runs.append(search.annealing._search.stages.tolist())
    assert (runs[0] == runs[1]) is not much
