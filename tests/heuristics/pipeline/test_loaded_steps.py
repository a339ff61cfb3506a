"""What stages that load variables take at least: worked by hand."""

from __future__ import annotations

from typing import Any

import stagepack as sp
from stagepack.heuristics.pipeline.loaded_steps import least_passes
from stagepack.heuristics.pipeline.step_stages import StepStages


def chain(**changes: Any) -> sp.PipelinePartition:
    """Return three layers of 10 bytes, of which a device holds one."""
    given: dict[str, Any] = {
        "devices": 2,
        "backward": [7, 7, 7],
        "exclusive": {"parameters": [10, 10, 10]},
        "temporary": [2, 2, 2],
        "capacity": 15,
    }
    return sp.PipelinePartition.from_arrays([5, 5, 5], **{**given, **changes})


def test_what_does_not_fit_is_loaded() -> None:
    chip = sp.Chip(remote_bandwidth=2, startup=3)
    forward, backward = least_passes(chain(), 4, chip)[0]
    assert forward[0, 1] == 4 * 5
    # 20 bytes; of 15 one layer with its 12 is loaded beside what stays: 17, in two phases.
    assert forward[0, 2] == 4 * 10 + 9 + 2 * 3
    assert forward[0, 3] == 4 * 15 + 14 + 2 * 3
    assert backward[0, 3] == 0


def test_tiles_for_io_load_while_others_compute() -> None:
    chip = sp.Chip(remote_bandwidth=2, startup=3, tiles=8, io_tiles=(1, 3), tile_bandwidth=4)
    assert least_passes(chain(), 4, chip)[0][0][0, 2] == 4 * 10 + 2 * 3
    assert least_passes(chain(), 4, chip, apart=True)[0][0][0, 2] == 4 * 10 + 9 + 2 * 3
    slow = sp.Chip(remote_bandwidth=0.25, startup=3, tiles=8, io_tiles=(1, 3))
    assert least_passes(chain(), 4, slow)[0][0][0, 2] == 17 * 4 + 2 * 3


def test_training_loads_all_twice_and_stores_as_much() -> None:
    chip = sp.Chip(remote_bandwidth=2, startup=3)
    forward, backward = least_passes(chain(training=True), 1, chip)[0]
    assert (forward[0, 1], backward[0, 1]) == (5, 7)
    assert forward[0, 2] == 10 + 10 + 2 * 3
    assert backward[0, 2] == 14 + 10 + 10 + 10 + 3 * 3


def test_stages_are_bounded_by_their_passes() -> None:
    chip = sp.Chip(remote_bandwidth=2, startup=3)
    passes = least_passes(chain(), 1, chip)
    free = chain(capacity=None)
    found = StepStages(free, 4, passes=passes).least()
    assert found is not None
    # One layer stays, two are loaded for each microbatch.
    assert found.bound == 5 + 4 * (10 + 9 + 2 * 3)
    without = StepStages(free, 4).least()
    assert without is not None
    assert without.bound == 5 + 4 * 10
