"""Sweeps of labels are the same wherever they pause, and in rooms that are too small at first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.model import Model, unsupported
from stagepack.heuristics.graph.frontier.sweeps import Sweeps
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition
from tests.heuristics.graph.structured import structured
from tests.random_graphs import random_instance


def instances() -> Iterator[GraphPartition]:
    """Yield graphs that can be swept."""
    every = [*structured().values(), *structured(accelerators=3, objective="overlap").values()]
    every += [random_instance(np.random.default_rng(seed), 6) for seed in range(6)]
    yield from (instance for instance in every if not unsupported(instance))


def swept(share: float, delta: int, **changes: int) -> Iterator[list[object]]:
    """Yield what sweeps to and fro, and beams after each, come to within a limit of each graph."""
    tuning = TUNING.labels.changed({"sweeps": changes})
    for instance in instances():
        graph = Sweeps(Model.all_of(Compact.of(instance)), lambda: None, 0, tuning)
        limit = int(share * graph.most)
        guide, found = graph.guide(limit), list[object]()
        for reverse in (False, True, False):
            one = graph.run(reverse, limit, delta, guide)
            found.append(one.status)
            if one.guide is None:
                break
            guide = one.guide
            kept = [(cut, words.tolist()) for cut, (words, _) in guide.kept.items()]
            found += [kept, [window.tolist() for window in guide.windows]]
            beam = graph.run(not reverse, limit, 0, guide, beam=3)
            found += [beam.status, None if beam.stages is None else beam.stages.tolist()]
        yield found


@pytest.mark.parametrize(("share", "delta"), [(0.5, 0), (0.7, 3)])
def test_pauses_change_nothing(share: float, delta: int) -> None:
    expected = list(swept(share, delta))
    assert any(state.DONE in found for found in expected)
    for limit in range(1, 5):
        assert list(swept(share, delta, tried=limit, pairs=limit)) == expected, limit


@pytest.mark.parametrize(("share", "delta"), [(0.5, 0), (0.7, 3)])
def test_room_for_labels_and_logs_grows(share: float, delta: int) -> None:
    expected = list(swept(share, delta))
    for first in (1, 2):
        assert list(swept(share, delta, first_room=first)) == expected, first
