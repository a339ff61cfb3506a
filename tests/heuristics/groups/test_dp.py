"""Partitions against trying everything."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings

from stagepack.heuristics.groups import dp
from stagepack.heuristics.groups.dp import Partition
from stagepack.instances.groups import LayerGrouping
from tests.heuristics.groups.definitions import cheapest, placed
from tests.instances.groups.networks import networks


def yes() -> bool:
    return True


@given(networks(most=4, max_slices=4))
@settings(max_examples=25, deadline=None)
def test_agrees_with_trying_everything(whole: LayerGrouping) -> None:
    n = whole.n
    groups = {
        (a, b): cheapest(whole, range(a, b), placed) for a in range(n) for b in range(a + 1, n + 1)
    }
    best = min(
        sum(groups[pair] for pair in pairwise((0, *inner, n)))
        for count in range(n)
        for inner in combinations(range(1, n), count)
    )
    bounds: list[int] = []
    plan = dp.solve(Partition(whole, yes), bounds.append)
    assert plan is not None
    assert whole.check(plan) == ()
    assert whole.evaluate(plan) == best == bounds[-1]
    assert all(bound <= best for bound in bounds)


@given(networks(most=6, max_slices=6))
@settings(max_examples=25, deadline=None)
def test_rules_are_never_better(whole: LayerGrouping) -> None:
    best = dp.solve(Partition(whole, yes))
    assert best is not None
    for rule, eager in ((dp.layerwise, False), (dp.greedy_tail, True), (dp.clustered, True)):
        plan = rule(Partition(whole, yes, eager))
        assert plan is not None
        assert whole.check(plan) == ()
        assert whole.evaluate(plan) >= whole.evaluate(best)
