"""The program over ideals finds the same wherever it pauses, and in rooms that are too small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.graph import ideals
from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Staging
from stagepack.instances.graph import Compact, GraphPartition
from tests.heuristics.graph.structured import structured
from tests.random_graphs import random_instance


def instances() -> Iterator[GraphPartition]:
    yield from structured().values()
    yield from structured(accelerators=3, objective="overlap", empty_devices=True).values()
    for seed in range(4):
        options: dict[str, Any] = {"objective": "sum", "contiguous": bool(seed % 2), "bandwidth": 1}
        yield random_instance(np.random.default_rng(seed), 5, **options)


def lattices(grown: int) -> Iterator[tuple[list[int], list[list[int]], int | None]]:
    """Yield what is known of the ideals of each graph, and the value of the best partition."""
    for instance in instances():
        lattice = ideals.Lattice(Staging.of(Compact.of(instance)), lambda: None, grown)
        room, count = lattice._ideals, lattice.count
        used = room.first[count]
        rows = room.parent[:count], room.last[:count], room.next_block[:used], room.target[:used]
        best = lattice.best(FAR)
        value = None if best is None else best.whole
        yield room.first[: count + 1].tolist(), [row.tolist() for row in rows], value


@pytest.mark.parametrize("grown", [0, FAR])
def test_pauses_change_nothing(grown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stages grow to the end, and where pairs of ideals are looked at soon."""
    monkeypatch.setattr(ideals, "STEPS_OF_PAIR", 0)
    expected = list(lattices(grown))
    for chunk in (*range(1, 12), 20, 45):
        monkeypatch.setattr(ideals, "CHUNK", chunk)
        assert list(lattices(grown)) == expected, chunk


def test_rooms_that_are_full_at_every_step_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(lattices(FAR))
    for room, more in ((2, 2), (3, 2), (2, 16)):
        monkeypatch.setattr(ideals, "FIRST_ROOM", room)
        monkeypatch.setattr(ideals, "MORE_ROOM", more)
        assert list(lattices(FAR)) == expected
