"""Clique covers: every conflict is covered, by cliques, within the room that is made for them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from stagepack.instances.packing.normal_form import cover
from stagepack.instances.packing.normal_form.cover import clique_cover

Array = np.ndarray[Any, np.dtype[Any]]
Edges = Iterable[tuple[int, int]]


def multipartite(universal: int, *parts: int) -> tuple[int, Edges]:
    """Return a complete multipartite graph, and so many nodes that are adjacent to all."""
    part = [
        *range(universal),
        *(universal + p for p, size in enumerate(parts) for _ in range(size)),
    ]
    return len(part), [(i, j) for i, j in combinations(range(len(part)), 2) if part[i] != part[j]]


def sharing(cliques: int, size: int, shared: int) -> tuple[int, Edges]:
    """Return cliques that have some nodes in common."""
    n = shared + cliques * size
    groups = [
        [*range(shared), *range(shared + c * size, shared + (c + 1) * size)] for c in range(cliques)
    ]
    return n, {pair for group in groups for pair in combinations(group, 2)}


def random(seed: int) -> tuple[int, Edges]:
    """Return a random graph in which some nodes are adjacent to all."""
    rng = np.random.default_rng(seed)
    n, density, universal = int(rng.integers(1, 30)), rng.random(), int(rng.integers(0, 6))
    pairs = combinations(range(n), 2)
    return n, [(i, j) for i, j in pairs if i < universal or rng.random() < density]


GRAPHS = {
    "alone": (1, []),
    "empty": (5, []),
    "pair": (2, [(0, 1)]),
    "complete": multipartite(9),
    "star": (9, [(0, leaf) for leaf in range(1, 9)]),
    "bipartite": multipartite(0, 8, 8),
    "universal-bipartite": multipartite(6, 20, 20),
    "universal-tripartite": multipartite(4, 5, 5, 5),
    "sharing": sharing(6, 3, 4),
    "grid": (16, [(4 * r + c, 4 * r + c + 1) for r, c in product(range(4), range(3))]),
    **{f"random-{seed}": random(seed) for seed in range(40)},
}


def covered(name: str, keep_going: Any = lambda: True) -> tuple[list[int], list[int], int, bool]:
    """Return a cover of a graph after it was checked."""
    n, edges = GRAPHS[name]
    pairs = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
    low, high = np.ascontiguousarray(pairs.T)
    weight = np.arange(n, dtype=np.int64) * 7 % 5 + 1
    node, clique, count, short = clique_cover(low, high, weight, keep_going)
    conflicts = {(int(i), int(j)) for i, j in pairs}
    members: list[list[int]] = [[] for _ in range(count)]
    for i, c in zip(node.tolist(), clique.tolist(), strict=True):
        members[c].append(i)
    assert len(node) <= n + 2 * len(pairs)
    found = {(min(p), max(p)) for group in members for p in combinations(group, 2)}
    assert found == conflicts
    assert all(len(set(group)) == len(group) > 0 for group in members)
    assert set(node.tolist()) == set(range(n))
    return node.tolist(), clique.tolist(), count, short


@pytest.mark.parametrize("name", GRAPHS)
def test_covers_need_no_more_room_than_there_is(name: str) -> None:
    *_, short = covered(name)
    assert not short


@pytest.mark.parametrize("name", GRAPHS)
def test_pauses_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = covered(name)
    for part in range(1, 8):
        monkeypatch.setattr(cover, "PART", part)
        assert covered(name) == expected, part


@pytest.mark.parametrize("name", ["complete", "universal-bipartite", "sharing", "random-7"])
def test_what_is_cut_short_is_a_cover_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover, "PART", 3)
    asked, allowed = 0, 0

    def keep_going() -> bool:
        nonlocal asked
        asked += 1
        return asked < allowed

    while covered(name, keep_going)[3]:
        asked, allowed = 0, allowed + 1 + allowed // 8
    assert allowed > 3
