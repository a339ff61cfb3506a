"""Shortest paths over ideals against trying every partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.heuristics.groups import dp
from stagepack.heuristics.groups.dag import IdealSearch, TooManyArcsError
from stagepack.heuristics.groups.dp import FAR, Partition
from stagepack.heuristics.groups.ideals import Network, around, chains, lattice
from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.heuristics.groups.placement import Placements
from stagepack.heuristics.groups.tuning import TUNING, PathsTuning
from stagepack.instances.groups import LayerGrouping
from stagepack.progress import Stopped
from tests.heuristics.groups.definitions import cheapest, loaded, placed
from tests.instances.groups.networks import add, conv, grouping, networks


def yes() -> bool:
    return True


def search(whole: LayerGrouping, tuning: PathsTuning = TUNING.paths) -> IdealSearch:
    oracle = Oracle(whole, branching=True)
    return IdealSearch(Network(whole, tuning), oracle, Placements(oracle, yes), yes)


def partitions(n: int) -> Iterator[list[list[int]]]:
    """Yield all partitions of operators."""
    if not n:
        yield []
        return
    for groups in partitions(n - 1):
        yield [*groups, [n - 1]]
        for at, group in enumerate(groups):
            yield [*groups[:at], [*group, n - 1], *groups[at + 1 :]]


def runs(whole: LayerGrouping, groups: list[list[int]]) -> bool:
    """Whether groups can run one after the other."""
    done: set[int] = set()
    waiting = list(groups)
    while waiting:
        ready = [
            group
            for group in waiting
            if all(t in done or t in group or t >= whole.n for at in group for t in whole.reads[at])
        ]
        if not ready:
            return False
        done |= {at for group in ready for at in group}
        waiting = [group for group in waiting if group not in ready]
    return True


@given(networks(most=5, max_slices=3, order="free", timesteps="nearest"))
@settings(max_examples=25, deadline=None)
def test_agrees_with_trying_everything(whole: LayerGrouping) -> None:
    known: dict[tuple[int, ...], int] = {}

    def cost(group: list[int]) -> int:
        key = tuple(group)
        if key not in known:
            known[key] = cheapest(whole, key, placed)
        return known[key]

    best = min(sum(map(cost, groups)) for groups in partitions(whole.n) if runs(whole, groups))
    assert best < NONE
    bounds: list[int] = []
    every = lattice(Network(whole), 10**6, yes)
    assert every is not None
    plan = search(whole).better(every, FAR, bounds.append)
    assert plan is not None
    assert whole.check(plan) == ()
    assert whole.evaluate(plan) == best == bounds[-1]
    assert all(bound <= best for bound in bounds)
    # What is known of a plan leaves out nothing better, and proves that there is none.
    assert max(every[0]) <= best
    again = search(whole).better(every, best + 1)
    assert again is not None
    assert whole.evaluate(again) == best
    assert search(whole).better(every, best, bounds.append) is None
    assert bounds[-1] == best


@given(networks(most=7, max_slices=4, order="free"))
@settings(max_examples=25, deadline=None)
def test_the_given_order_is_the_interval_search(whole: LayerGrouping) -> None:
    intervals = dp.solve(Partition(whole, yes))
    assert intervals is not None
    network = Network(whole)
    plan = search(whole).better(chains(network, [range(whole.n)]), FAR)
    assert plan is not None
    assert whole.evaluate(plan) == whole.evaluate(intervals)


@given(networks(most=7))
@settings(max_examples=25, deadline=None)
def test_lattices(whole: LayerGrouping) -> None:
    network = Network(whole)
    every = lattice(network, 10**6, yes)
    expected = {
        mask
        for mask in range(2**whole.n)
        if all(mask >> k & 1 == 0 or not network.before[k] & ~mask for k in range(whole.n))
    }
    assert every is not None
    assert set(every) == expected
    assert [a.bit_count() <= b.bit_count() for a, b in pairwise(every)] == [True] * (len(every) - 1)
    assert every[2**whole.n - 1] == (0, 0)
    assert set(chains(network, [range(whole.n)])) <= expected


@given(networks(most=7), st.integers(0, 6), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_windows_have_all_ideals_between_two(whole: LayerGrouping, first: int, most: int) -> None:
    network = Network(whole)
    every = lattice(network, 10**6, yes)
    assert every is not None
    first = min(first, whole.n - 1)
    known, end = around(network, range(whole.n), [0, whole.n], first, most)
    low, high = 2**first - 1, 2**end - 1
    window = {mask for mask in every if mask & low == low and mask | high == high}
    assert set(known) == window | {0, 2**whole.n - 1}
    assert len(window) <= most or end == first + 1
    assert all(every[mask] == left for mask, left in known.items())
    assert all(a.bit_count() <= b.bit_count() for a, b in pairwise(known))


@given(networks(most=5, max_slices=3, order="free"))
@settings(max_examples=25, deadline=None)
def test_groups_take_no_less_than_what_is_left_shrinks_by(whole: LayerGrouping) -> None:
    every = lattice(Network(whole), 10**6, yes)
    assert every is not None
    for start, end in product(every, repeat=2):
        members = [at for at in range(whole.n) if (start ^ end) >> at & 1]
        if start & end == start < end:
            least = np.subtract(every[start], every[end]).max()
            assert cheapest(whole, members, loaded) >= least


def test_what_is_left_is_loaded_by_the_reader_of_the_fewest_rows() -> None:
    """One reader needs 7 of 8 rows and columns; the other may have run."""
    whole = grouping(
        [conv("a", "x", 8, 8, 1), conv("b", "x", 8, 2, 4, stride=(3, 3), padding=(0,) * 4)],
        order="free",
    )
    known = lattice(Network(whole), 100, yes)
    assert known is not None
    x, w, b = 8 * 7 * 7, 8 * 8 * 16, 8 * 2 * 2
    assert known[0b01].transfers == 10 + x // 4 + 10 + w // 4 + 12 + b // 2


def wide(branches: int) -> LayerGrouping:
    """Return operators beside one another."""
    found = [conv(f"a{at}", "x", 8, 8, kernel=1) for at in range(branches)]
    whole = add("s", *(op.name for op in found), channels=8, rows=8)
    return grouping([*found, whole], order="free", max_slices=2, max_group=8)


def test_wide_networks_are_given_up() -> None:
    network = Network(wide(300))
    assert lattice(network, 10_000, yes) is None
    with pytest.raises(Stopped):
        lattice(network, 10_000, lambda: False)


def test_too_many_arcs() -> None:
    whole = wide(6)
    every = lattice(Network(whole), 10_000, yes)
    assert every is not None
    with pytest.raises(TooManyArcsError):
        search(whole, replace(TUNING.paths, most_arcs=50)).better(every, FAR)
