"""Structured graphs: stars, chains, complete bipartite ones, nodes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition
from tests.random_graphs import OBJECTIVES
from tests.structured.figures import Draw, figures, some

SMALL = 6
SIZES = (20, 64, 200, 250, 256, 1_000, 4_000, 4_096, 8_000, 10_000, 20_000)
MOST_EDGES = 100_000


def _shape(edges: Callable[[int], Any]) -> Callable[[Draw, int], GraphPartition]:
    def make(draw: Draw, n: int) -> GraphPartition:
        found = np.array(edges(n), dtype=np.int64).reshape(-1, 2)[:MOST_EDGES]
        order = np.argsort(found[:, 0], kind="stable")
        found = found[order]
        one = some(draw)  # a tensor for all readers, or one for each
        producer = np.unique(found[:, 0]) if one else found[:, 0]
        ends = (
            np.searchsorted(found[:, 0], producer, side="right")
            if one
            else np.arange(1, 1 + len(found))
        )
        place = np.argsort(draw.permutation(n)) if some(draw, 0.3) else np.arange(n)
        return GraphPartition.from_arrays(
            figures(draw, n),
            producer=place[producer],
            consumers=place[found[:, 1]],
            consumer_ptr=np.concatenate(([0], ends)),
            traffic=figures(draw, len(producer)) if len(producer) else [],
            **_options(draw, n),
        )

    return make


def _options(draw: Draw, n: int) -> dict[str, Any]:
    """Return devices, as many as nodes now and then, colours, memory and what is minimised."""
    k = int(draw.choice([1, 2, 3] if n <= SMALL else [1, 2, 7, 8, 16, min(n, 64)]))
    objective = str(draw.choice([*OBJECTIVES]))
    found: dict[str, Any] = {"accelerators": k, "objective": objective}
    found["memory"] = memory = figures(draw, n)
    found["contiguous"] = some(draw, 0.8)
    if some(draw, 0.3):
        found["empty_devices"] = k > n
    if some(draw, 0.3):
        found["capacity"] = int(memory.sum()) // k + int(draw.integers(0, 1 + int(memory.max())))
    if some(draw, 0.3):
        found["colour"] = draw.choice([0, 2, n // 2, n]) > np.arange(n)
        found["colour"] = np.where(found["colour"], np.arange(n) // int(draw.choice([1, 2, n])), -1)
    if some(draw, 0.2):
        found["backward"] = np.arange(n) >= int(draw.choice([0, n // 2, n]))
        found["colour"] = np.minimum(np.arange(n), np.arange(n)[::-1])
    if objective != "replicated" and some(draw, 0.2):
        found["speeds"] = 1 + np.arange(k) % 2
    if some(draw, 0.2):
        found["device_order"] = "fixed"
    return found


def _bipartite(n: int) -> Any:
    """Half of the nodes, or as many as there are edges for, read all the others."""
    half = min(n // 2, int(MOST_EDGES**0.5))
    return [(u, half + v) for u in range(half) for v in range(half)]


def _layers(n: int) -> Any:
    width = max(1, int(n**0.5))
    return [(v - 1 - at, v) for v in range(1, n) for at in range(min(v, 2 + v % 2, width))]


SHAPES: dict[str, Callable[[Draw, int], GraphPartition]] = {
    "apart": _shape(lambda n: []),
    "chain": _shape(lambda n: [(v, v + 1) for v in range(n - 1)]),
    "leaves": _shape(lambda n: [(0, v) for v in range(1, n)]),
    "roots": _shape(lambda n: [(v, n - 1) for v in range(n - 1)]),
    "bipartite": _shape(_bipartite),
    "layers": _shape(_layers),
    "tree": _shape(lambda n: [((v - 1) // 2, v) for v in range(1, n)]),
    "diamonds": _shape(
        lambda n: [
            (v - d, v)
            for v in range(1, n)
            for d in ((1, 2) if v % 3 == 0 else (1 + (v % 3 == 2),))
            if v >= d
        ]
    ),
    "pairs": _shape(lambda n: [(v, v + 1) for v in range(0, n - 1, 2)]),
    "skips": _shape(lambda n: [(u, v) for v in range(1, n) for u in {v - 1, 0}]),
}
