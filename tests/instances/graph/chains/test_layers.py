"""Nodes of a device as layers: worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

import stagepack as sp
from stagepack.instances.graph.chains.layers import device_layers

AHEAD = [(0, 1), (0, 2), (1, 3), (2, 3)]


def graph(**changes: Any) -> sp.GraphPartition:
    """Return a diamond whose nodes write 1, 2, 4 and 8 bytes."""
    given: dict[str, Any] = {
        "time": [3, 5, 7, 9],
        "traffic": [1, 2, 4, 8],
        "memory": [10, 20, 30, 40],
        "bandwidth": 2,
        "accelerators": 2,
        "speeds": 2,
    }
    return sp.GraphPartition.from_edges(4, AHEAD, **{**given, **changes})


def test_all_that_crosses_a_cut_counts() -> None:
    whole = device_layers(graph(), sp.GraphSolution.of(graph(), (0, 0, 0, 0)), 0)
    # 0 writes 1 byte for 1 and 2; 1 writes 2 and 2 writes 4 for 3, which nobody reads.
    assert whole.in_bytes.tolist() == [0, 1, 1 + 2, 2 + 4, 0]
    assert whole.forward.tolist() == [2, 3, 4, 5]
    assert whole.exclusive["parameters"].tolist() == [10, 20, 30, 40]


def test_other_devices_write_and_read() -> None:
    solution = sp.GraphSolution.of(graph(), (0, 1, 0, 1))
    first, second = (device_layers(graph(), solution, device) for device in range(2))
    assert first.layer_names == ("0", "2")
    assert first.in_bytes.tolist() == [0, 1, 1 + 4]
    assert second.in_bytes.tolist() == [1 + 4, 4 + 2, 0]


def test_gradients_cross_the_other_way() -> None:
    n = 4
    back = [(n + v, n + u) for u, v in AHEAD]
    model = sp.GraphPartition.from_edges(
        2 * n, [*AHEAD, (3, 7), *back], time=[3, 5, 7, 9, 2, 2, 2, 2], accelerators=2,
        traffic=[1, 2, 4, 8, 0, 16, 32, 64], colour=[*range(n)] * 2, bandwidth=2,
        backward=[False] * n + [True] * n, memory=[10, 20, 30, 40, 0, 0, 0, 0],
        parameters=[4, 5, 6, 7, 0, 0, 0, 0], stash=[1, 2, 3, 4, 0, 0, 0, 0],
    )  # fmt: skip
    solution = sp.GraphSolution.of(model, (0, 0, 1, 1) * 2)
    first, second = (device_layers(model, solution, device) for device in range(2))
    # Of node 3 the gradient for 1, as large as that for 2, comes in, and 0 gets that of 1.
    assert first.in_bytes.tolist() == [0, max(1, 16 + 32), max(1 + 2, 32 + 64)]
    assert second.in_bytes.tolist() == [max(1 + 2, 32 + 64), max(2 + 4, 64), 0]
    assert first.exclusive["parameters"].tolist() == [4, 5]
    assert first.exclusive["gradients"].tolist() == [6, 15]
    assert first.backward.tolist() == [2, 2]
    assert np.array_equal(first.stash, [1, 2])
