"""The program over ideals finds the same wherever it pauses, and in rooms that are too small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stagepack.heuristics.graph import ideals
from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Staging
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition
from tests.heuristics.graph.structured import structured
from tests.random_graphs import random_instance


def instances() -> Iterator[GraphPartition]:
    yield from structured().values()
    yield from structured(accelerators=3, objective="overlap", empty_devices=True).values()
    for seed in range(4):
        options: dict[str, Any] = {"objective": "sum", "contiguous": bool(seed % 2), "bandwidth": 1}
        yield random_instance(np.random.default_rng(seed), 5, **options)


def lattices(**changes: float) -> Iterator[tuple[list[int], list[list[int]], int | None]]:
    """Yield what is known of the ideals of each graph, and the value of the best partition."""
    tuning = TUNING.changed({"ideals": changes})
    for instance in instances():
        lattice = ideals.Lattice(Staging.of(Compact.of(instance), tuning=tuning), lambda: None)
        room, count = lattice._ideals, lattice.count
        used = room.first[count]
        rows = room.parent[:count], room.last[:count], room.next_block[:used], room.target[:used]
        best = lattice.best(FAR)
        value = None if best is None else best.whole
        yield room.first[: count + 1].tolist(), [row.tolist() for row in rows], value


def test_pauses_change_nothing() -> None:
    expected = list(lattices())
    for chunk in (*range(1, 12), 20, 45):
        assert list(lattices(chunk=chunk)) == expected, chunk


def test_rooms_that_are_full_at_every_step_grow() -> None:
    expected = list(lattices())
    for room, more in ((2, 2), (3, 2), (2, 16)):
        assert list(lattices(first_room=room, growth=more)) == expected
