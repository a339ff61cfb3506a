"""Trying everything, against another program that does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph import everything
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition
from stagepack.progress import Stopped
from stagepack.result import Status
from tests.random_graphs import brute_force, random_instance


@pytest.mark.parametrize("seed", range(80))
def test_agrees_with_trying_everything_node_by_node(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    instance = random_instance(rng, int(rng.integers(2, 6)), wide=seed % 2 == 0)
    found, expected = everything.best(Compact.of(instance), lambda _: None), brute_force(instance)
    assert found is not None
    (best,) = found
    assert (best is None) == (expected is None)
    if best is None or expected is None:
        return
    assert instance.check(best) == ()
    value = Fraction(instance.evaluate(best))
    assert abs(value - expected[0]) <= Fraction(1, 10**9) * expected[0]


def test_too_many_partitions_are_given_up() -> None:
    tuning = TUNING.everything.changed({"most_partitions": 10})
    instance = GraphPartition.from_arrays(
        [3, 1, 4, 1, 5, 9], accelerators=3, producer=[], consumers=[], traffic=[]
    )
    assert everything.best(Compact.of(instance), lambda _: None, tuning) is None


def test_asks_whether_to_go_on() -> None:
    def pause(seconds: float) -> None:
        assert seconds > 0
        raise Stopped

    instance = GraphPartition.from_arrays(
        [3, 1, 4], accelerators=2, producer=[], consumers=[], traffic=[]
    )
    with pytest.raises(Stopped):
        everything.best(Compact.of(instance), pause)


@pytest.mark.parametrize("seed", [1038, 1043, 1080, 1113, 1313, 1413, 1456, 1728])
def test_auto_proves_small_graphs_whatever_the_figures_are(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    instance = random_instance(rng, int(rng.integers(3, 7)), wide=True)
    result = sp.solve(instance)
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.bound == result.objective
