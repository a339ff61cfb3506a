"""Trying everything, against another program that does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph.everything import Everything
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition
from stagepack.progress import Stopped
from stagepack.result import Status
from tests.random_graphs import brute_force, random_instance


@pytest.mark.parametrize("seed", range(80))
def test_agrees_with_trying_everything_node_by_node(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    instance = random_instance(rng, int(rng.integers(2, 6)), wide=seed % 2 == 0)
    search, best = Everything(Compact.of(instance), lambda _: None), brute_force(instance)
    assert search.run()
    assert (search.best is None) == (best is None)
    if search.best is None or best is None:
        return
    assert instance.check(search.best) == ()
    value = Fraction(instance.evaluate(search.best))
    assert abs(value - best[0]) <= Fraction(1, 10**9) * best[0]


def test_too_many_placements_are_given_up() -> None:
    tuning = TUNING.everything.changed({"most_placements": 10})
    instance = GraphPartition.from_arrays(
        [3, 1, 4, 1, 5, 9], accelerators=3, producer=[], consumers=[], traffic=[]
    )
    assert not Everything(Compact.of(instance), lambda _: None, tuning).run()


def test_asks_whether_to_go_on() -> None:
    tuning = TUNING.everything.changed({"often": 1})

    def pause(seconds: float) -> None:
        assert seconds > 0
        raise Stopped

    instance = GraphPartition.from_arrays(
        [3, 1, 4], accelerators=2, producer=[], consumers=[], traffic=[]
    )
    with pytest.raises(Stopped):
        Everything(Compact.of(instance), pause, tuning).run()


@pytest.mark.parametrize("seed", [1038, 1043, 1080, 1113, 1313, 1413, 1456, 1728])
def test_auto_proves_small_graphs_whatever_the_figures_are(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    instance = random_instance(rng, int(rng.integers(3, 7)), wide=True)
    result = sp.solve(instance)
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.bound == result.objective
