"""Evidence that methods give shows by itself what they say, also of bounds that are not reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE
from stagepack.verify import verify
from tests import structured
from tests.random_graphs import random_instance as random_graph
from tests.random_phases import random_phases
from tests.random_pipelines import random_instance as random_chain
from tests.random_schedules import random_schedule


def drawn(seed: int) -> Iterator[Any]:
    yield random_chain(seed)
    yield random_graph(np.random.default_rng(seed), 5)
    yield random_schedule(seed)
    yield random_phases(seed)
    for kind in ("pipeline", "graph", "schedule", "phases", "groups", "packing"):
        yield structured.small(kind, seed)


@pytest.mark.parametrize("seed", [1, 2, 37])  # 37: blocks of a graph that are joined in a circle
def test_evidence_shows_what_methods_say(seed: int) -> None:
    looked = 0
    for instance in drawn(seed):
        for method in sp.methods(instance):
            if method.available and not method.engines:
                result = sp.solve(instance, method.name, time_limit=0.3)
                if result.proof in VERIFIABLE:
                    found = verify(instance, result.bound, result.proof, result.evidence)
                    assert found.shown, (instance, method.name, result)
                    assert not found.false, (instance, method.name, result)
                    looked += 1
    assert looked > 30
