"""Small graphs of extreme structure, on which arrays that are too short by one are too short."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition


def graph(n: int, edges: list[tuple[int, int]], **options: Any) -> GraphPartition:
    """Return nodes of unlike times and traffic on two devices."""
    given: dict[str, Any] = {
        "accelerators": 2,
        "bandwidth": 1,
        "traffic": np.arange(n) % 4,
        **options,
    }
    return GraphPartition.from_edges(n, edges, time=np.arange(n) * 3 % 7 + 1, **given)


def structured(**options: Any) -> dict[str, GraphPartition]:
    """Return the graphs by name; options are those of all."""
    shapes = {
        "one": (1, []),
        "pair": (2, [(0, 1)]),
        "leaves": (4, []),
        "chain": (6, [(i, i + 1) for i in range(5)]),
        "star out": (5, [(0, i) for i in range(1, 5)]),
        "star in": (5, [(i, 4) for i in range(4)]),
        "complete": (5, [(i, j) for i in range(5) for j in range(i + 1, 5)]),
        "bipartite": (6, [(i, j) for i in range(3) for j in range(3, 6)]),
        "diamonds": (7, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]),
        "two chains": (5, [(0, 1), (1, 2), (3, 4)]),
    }
    return {name: graph(n, edges, **options) for name, (n, edges) in shapes.items()}
