"""Equal work takes equal time on the clock of work."""

from collections.abc import Callable

import numpy as np
import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import dive, greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.exact_search.canonical import CanonicalSearch
from stagepack.heuristics.packing.exact_search.components import Component
from stagepack.heuristics.packing.exact_search.exact_state import FOUND, LOWEST_BLOCK
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.constructive.test_greedy import random_plain


@pytest.mark.parametrize("what", ["greedy", "dive", "exact", "annealing"])
def test_equal_work_takes_equal_time(what: str) -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(3), 200, longest=60))
    low = greedy.place(blocks, RULES["first-fit-start"])
    assert low is not None
    run: Callable[[], object] = {
        "greedy": lambda: greedy.place(blocks, RULES["classes"]),
        "dive": lambda: dive.place(blocks, np.arange(blocks.b)),
        "exact": lambda: exact.decide(blocks, int(blocks.load.max()), node_limit=1000),
        "annealing": lambda: annealing.improve(blocks, low, target=0, legs=2),
    }[what]
    times = []
    for _ in range(2):
        with effort.counting():
            run()
            times.append(effort.spent())
    assert times[0] == times[1] > 0


def test_neighbours_that_are_placed_already_are_one_step_each() -> None:
    steps = [straight(30), straight(60)]
    assert steps[1] < 5 * 60 * 60
    assert steps[1] < 4.2 * steps[0]  # twice the nodes, twice the neighbours of each


def straight(n: int) -> int:
    """Return the steps of a search that places n blocks, all alive at once, without going back."""
    instance = LmemPacking.from_arrays(
        np.arange(1, n + 1), [0] * n, [1] * n, allowed=[(i, 0, 10_000) for i in range(n)]
    )
    blocks = Blocks.of(instance)
    (component,) = exact.prepared(blocks).components
    assert isinstance(component, Component)
    search = CanonicalSearch(component)
    rank, none = np.arange(n)[::-1].copy(), np.zeros(n)
    search.start(component.capacity(int(blocks.size.sum())), rank, none, LOWEST_BLOCK)
    with effort.counting():
        assert search.run(10 * n) == FOUND
        spent = effort.spent() - TUNING.prices.call
    assert search.nodes == n
    return round(spent / search.step)
