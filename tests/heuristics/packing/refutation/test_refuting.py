"""Refutations that pause after any work, or whose arrays are short, write the same proofs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.heuristics.packing.refutation.refuting import Refutation, Window
from stagepack.heuristics.packing.refutation.refuting_kernels import LIMIT, REFUTED, RUNNING
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.oracle import ABOVE_LOAD, above_load
from tests.heuristics.packing.structured import structured

NODES = 60


def searches(tuning: PackingTuning = TUNING) -> Iterator[Refutation]:
    """Yield searches that are to refute a capacity at the load, or to find out that it fits."""
    instances: list[LmemPacking] = [*structured().values(), *map(above_load, ABOVE_LOAD)]
    for instance in instances:
        blocks = Blocks.of(instance)
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        alive = np.zeros((blocks.b, blocks.sections), dtype=bool)
        for i, first, end in zip(owner, blocks.first, blocks.end, strict=True):
            alive[i, first:end] = True
        window = Window(blocks.size, alive, int((blocks.size @ alive).max()))
        for lowest_section in (False, True):
            order = blocks.size.astype(float)
            yield Refutation(window, order, lowest_section=lowest_section, tuning=tuning)


def ended(search: Refutation, limit: int = NODES) -> tuple[int, int, list[int]]:
    outcome = RUNNING
    while outcome == RUNNING:
        outcome = search.run(limit, lambda: False)
    return outcome, search.nodes, search.steps() if outcome == REFUTED else []


def test_pauses_change_nothing() -> None:
    expected = [ended(search) for search in searches()]
    assert sum(outcome == REFUTED for outcome, _, _ in expected) > 10
    for work in (*range(1, 12), 30, 100, 300):
        tuning = TUNING.changed({"windows": {"log_budget": work}})
        assert [ended(search) for search in searches(tuning)] == expected, work


def test_limits_of_nodes_and_short_arrays_count_none_twice() -> None:
    for search, again in zip(searches(), searches(), strict=True):
        expected = ended(search)
        tree = again._tree
        again._tree = tree._replace(past=tree.past[:1], steps=tree.steps[:1])
        limit = 0
        while (found := ended(again, limit))[0] == LIMIT and limit < NODES:
            assert again.nodes == limit
            limit += 1
        assert found == expected
