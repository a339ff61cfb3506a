"""Orders and their cuts are the same whenever the kernels pause."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.graph import linear
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING, GraphTuning
from stagepack.instances.graph import Compact, GraphPartition
from tests.heuristics.graph.structured import graph, structured
from tests.random_graphs import random_instance

LEAVES = 20


GRAPHS = {
    "many leaves": graph(LEAVES, [], accelerators=3),
    "drawn": random_instance(np.random.default_rng(5), 7, contiguous=True),
    "virtual": random_instance(np.random.default_rng(8), 7, contiguous=False),
    **structured(),
}


def hunted(
    instance: GraphPartition, tuning: GraphTuning = TUNING
) -> tuple[list[tuple[int, list[int]]], int]:
    """Return what a search along orders finds, one after the other, and how often it paused."""
    paused, found = [0], []

    def pause() -> None:
        paused[0] += 1
        assert paused[0] < 50_000  # a search that sets up again and again never ends

    def offer(better: Found) -> None:
        found.append((better.whole, better.stage_of.tolist()))

    hunt = linear.Hunt(Staging.of(Compact.of(instance), tuning=tuning), pause, offer, 0)
    hunt.search(orders=3, patience=3, seconds=1e9)
    return found, paused[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_pauses_change_nothing(name: str) -> None:
    instance = GRAPHS[name]
    expected, paused = hunted(instance)
    for limit in (*range(1, 16), LEAVES, LEAVES + 1, 100, 1000):
        again, more = hunted(instance, TUNING.changed({"orders": {"chunk": limit}}))
        assert again == expected, limit
        assert more > paused or limit > LEAVES or name in ("one", "pair")


def test_many_leaves_are_cut() -> None:
    """To set up takes more steps than a search begins with."""
    n = effort.SHORT + 500
    leaves = Compact.of(GraphPartition.from_edges(n, [], time=[1] * n, accelerators=2))
    staging = Staging.of(leaves, tuning=TUNING.changed({"orders": {"chunk": n}}))
    hunt = linear.Hunt(staging, lambda: None, lambda _: None, 0)
    order = hunt._order(np.zeros(n, dtype=np.int32), TUNING.orders.depth_first)
    assert sorted(order) == list(range(n))
    assert hunt.try_order(order)
    assert hunt.best is not None
    assert hunt.best.whole >= n // 2
