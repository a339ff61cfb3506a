"""A plan in figures: traffic by hand, totals, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stagepack.instances.phases.plan import plan
from tests.instances.phases.examples import two_groups, two_layers
from tests.random_phases import random_phases, random_plan


def test_traffic_by_hand() -> None:
    drawn = plan(two_layers(), two_groups())
    moved = [
        (part.remote_loads, part.remote_stores, part.host_loads, part.host_stores)
        for part in drawn.phases
    ]
    assert moved == [
        (10, 2 * 11, 2 * 6, 0),  # variables; x_1 and the tape; x_0
        (20 + 2 * 13 + 6, 2 * 13 + 26, 0, 0),  # also the state, and what the update stores
        (10 + 2 * 11 + 4, 14, 2 * 6, 0),
    ]
    assert drawn.remote_traffic == 98 + 88
    assert drawn.host_traffic == 24
    naive = plan(two_layers(), two_groups(mode=("naive",) * 3))
    assert naive.phases[1].remote_loads == 2 * 20 + 2 * 13 + 6
    inference = plan(
        two_layers(training=False), replace(two_groups(), mode=("compute",) * 2, policy=())
    )
    assert [part.host_stores for part in inference.phases] == [0, 2 * 2]


def test_totals() -> None:
    instance = two_layers(microbatch=3, data_parallel=2, steps=2)
    drawn = plan(instance, replace(two_groups(), microbatch=3))
    assert (drawn.samples, drawn.steps, drawn.microbatch) == (12, 2, 3)
    assert drawn.time_per_sample == drawn.time / 12
    assert drawn.seconds == pytest.approx(drawn.time / 1e9)


@pytest.mark.parametrize("seed", range(20))
def test_json(seed: int) -> None:
    instance = random_phases(seed)
    solution = random_plan(instance, np.random.default_rng(seed))
    data = plan(instance, solution).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert sum(phase["time"] for phase in data["phases"]) == instance.evaluate(solution)
