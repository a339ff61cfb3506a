"""Lifetimes behind conflicts: found where there are some, never where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form import intervals
from stagepack.instances.packing.normal_form.blocks import Blocks

Array = np.ndarray[Any, np.dtype[Any]]
Pairs = Iterable[tuple[int, int]]


def found(n: int, pairs: Pairs, keep_going: Any = lambda: True) -> Any:
    """Return the lifetimes that explain pairs, which are compared with them."""
    array = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    spans = intervals.lifetimes(array, intervals.neighbours(array, n, lambda: True), keep_going)
    if spans is not None:
        first, end, sections = spans
        assert meeting(first.tolist(), end.tolist()) == {(i, j) for i, j in array.tolist()}
        alive = [frozenset(np.flatnonzero((first <= t) & (t < end))) for t in range(sections)]
        # Each section is a clique that is in no other one.
        assert not any(one <= other for one, other in product(alive, alive) if one is not other)
    return spans


def meeting(first: list[int], end: list[int]) -> set[tuple[int, int]]:
    nodes = combinations(range(len(first)), 2)
    return {(i, j) for i, j in nodes if first[i] < end[j] and first[j] < end[i]}


def orders(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all orders in which so many ends of each node can follow each other."""
    if not any(left):
        yield ()
    for i, ends in enumerate(left):
        if ends:
            for rest in orders((*left[:i], ends - 1, *left[i + 1 :])):
                yield (i, *rest)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_agrees_with_trying_everything(n: int) -> None:
    every = list(combinations(range(n), 2))
    real = set()
    for order in orders((2,) * n):
        first = [order.index(i) for i in range(n)]
        end = [2 * n - order[::-1].index(i) for i in range(n)]
        real.add(frozenset(meeting(first, end)))
    for kept in product((False, True), repeat=len(every)):
        pairs = frozenset(pair for pair, keep in zip(every, kept, strict=True) if keep)
        assert (found(n, pairs) is not None) == (pairs in real), pairs


def drawn(seed: int) -> tuple[int, set[tuple[int, int]]]:
    """Return conflicts of lifetimes: short, long or nested ones, many of them alike."""
    rng = np.random.default_rng(seed)
    n, span = int(rng.integers(1, 50)), int(rng.integers(2, 70))
    first = rng.integers(0, span, n)
    end = first + rng.integers(1, max(2, span // int(rng.integers(1, 9)) + 1), n)
    if seed % 3 == 0:
        end = np.where(rng.random(n) < 0.5, first + 1, 2 * span - first)
    return n, meeting(first.tolist(), end.tolist())


@pytest.mark.parametrize("part", [10, 1_000_000])
def test_lifetimes_are_found_whenever_there_are_some(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "PART", part)
    for seed in range(30):
        assert found(*drawn(seed)) is not None, seed


def test_what_is_found_of_other_graphs_is_right() -> None:
    rng, explained = np.random.default_rng(1), 0
    for seed in range(200):
        n, pairs = drawn(seed)
        changed = {(i, j) for i, j in rng.integers(0, n, (2, 2)).tolist() if i < j}
        explained += found(n, pairs ^ changed) is not None
    assert 0 < explained < 200


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (3, 6)],
        [(0, 1), (0, 2), (1, 2), (0, 3), (1, 4), (2, 5)],
    ],
    ids=["a circle without a chord", "three long legs", "a triangle with three legs"],
)
def test_there_are_no_lifetimes(pairs: Pairs) -> None:
    assert found(7, pairs) is None


def test_whoever_has_no_time_is_told_nothing() -> None:
    n, pairs = drawn(4)
    for questions in range(3):
        left = iter(range(questions))
        assert found(n, pairs, lambda left=left: next(left, None) is not None) is None


def test_conflicts_of_lifetimes_have_their_normal_form() -> None:
    n, pairs = drawn(8)
    size = np.arange(1, n + 1)
    blocks = Blocks.of(LmemPacking.from_arrays(size, conflicts=sorted(pairs)))
    assert blocks.linear
    assert blocks.plain
    owner = range(n)
    alive = [
        sum(size[i] for i in owner if blocks.first[i] <= t < blocks.end[i])
        for t in range(blocks.sections)
    ]
    assert blocks.load.tolist() == alive


def test_the_time_that_was_too_short_is_not_remembered() -> None:
    n, pairs = drawn(8)
    instance = LmemPacking.from_arrays([1] * n, conflicts=sorted(pairs))
    assert not Blocks.of(instance, lambda: False).linear
    assert Blocks.of(instance, lambda: True).linear
