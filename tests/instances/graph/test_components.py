"""Topological numbers against reachability, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.instances.graph.components import numbered, rows


@pytest.mark.parametrize("seed", range(60))
def test_numbers_rise_along_edges_and_are_one_on_a_circle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    edges = rng.integers(0, n, (int(rng.integers(0, 2 * n)), 2))
    found = numbered(n, edges)
    reaches = np.eye(n, dtype=bool)
    reaches[edges[:, 0], edges[:, 1]] = True
    for _ in range(n):
        reaches = reaches | (reaches.astype(int) @ reaches.astype(int) > 0)
    together = reaches & reaches.T
    assert ((found[:, None] == found[None, :]) == together).all()
    assert (found[edges[:, 0]] <= found[edges[:, 1]]).all()
    assert sorted(set(found.tolist())) == list(range(int(found.max()) + 1))


def test_rows_hold_each_value_once_and_rising() -> None:
    ptr, values = rows(4, np.array([2, 0, 2, 2, 0]), np.array([5, 1, 3, 5, 0]))
    assert ptr.tolist() == [0, 2, 2, 4, 4]
    assert values.tolist() == [0, 1, 3, 5]
