"""Plans with several stages on each device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.planning.claims import check_plan
from stagepack.planning.document import read_plan
from tests.placed_pipelines import random_placed, solutions


def interleaved(placement: str = "loop") -> sp.PipelinePartition:
    """Return sixteen layers on four devices with two stages each."""
    forward = np.array([30, *[100] * 14, 250])
    return sp.PipelinePartition.from_arrays(
        forward, backward=2 * forward, devices=4, stages_per_device=2, placement=placement,
        training=True, microbatches=8, exclusive=[10] * 16, stash=[5] * 16, capacity=400,
        in_bytes=[2] * 17,
    )  # fmt: skip


@pytest.mark.parametrize("placement", ["loop", "v"])
def test_devices_hold_all_their_stages(placement: str, tmp_path: Path) -> None:
    model = interleaved(placement)
    plan = sp.plan_model(model)
    assert not plan.check()
    assert plan.schedule.p == 8
    assert plan.schedule.devices.tolist() == list(model.stage_devices)
    assert plan.bound is not None
    assert plan.objective is not None
    assert 10_800 <= plan.bound <= plan.objective < 14_000
    assert "8 stages on 4 devices" in " ".join(str(plan).split())
    held = [stage.held for stage in plan.structure.stages()]
    assert sum(held) == 160
    assert all(0 < used <= 400 for used in plan.memories)
    plan.export(tmp_path / "orders.csv")
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    assert not check_plan(read_plan(path), path).violations
    assert dict(sp.explain_plan(plan, time_limit=1).critical)["most work"].startswith("device")


def test_what_runs_in_phases_has_one_stage_a_device() -> None:
    with pytest.raises(InputError) as caught:
        sp.plan_model(interleaved(), remote="gc200")
    assert caught.value.field == "placement"


def test_no_stages_and_schedule_are_below_the_bound() -> None:
    best_ones = tried = 0
    for seed in range(1, 60):
        chain = random_placed(seed)
        if not chain.whole or chain.n > 4 or len(chain.stage_devices) > 4:
            continue
        chain = chain.replace(forward=chain.forward + 1, microbatches=1)
        chain = chain.replace(backward=2 * chain.forward) if chain.training else chain
        plan = sp.plan_model(chain, microbatches=2, time_limit=5)
        assert not plan.check(), seed
        found = [step(chain, one) for one in solutions(chain) if not chain.check(one)]
        best = min((one for one in found if one is not None), default=None)
        assert (best is None) == (not plan.levels), seed
        if best is None:
            continue
        assert plan.bound is not None
        assert plan.objective is not None
        assert plan.bound <= best <= plan.objective, seed
        tried += 1
        best_ones += plan.objective == best
    assert best_ones >= 0.7 * tried > 4


def step(chain: sp.PipelinePartition, solution: sp.PipelineSolution) -> int | None:
    """Return the least step of two microbatches through stages; None where they have none."""
    schedule = sp.PipelineSchedule.from_partition(chain, solution, microbatches=2, split=False)
    result = sp.solve(schedule, time_limit=5)
    return None if result.objective is None else int(result.objective)
