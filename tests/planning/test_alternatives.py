"""Plans of chains whose layers have alternatives: chosen with the stages, bounded for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.planning import steps
from stagepack.planning.claims import check_plan
from stagepack.planning.document import read_plan
from stagepack.verify import verify
from tests.chosen_pipelines import chosen_instance, chosen_solutions
from tests.cli.shell import ROOT


def recomputing(**options: Any) -> sp.PipelinePartition:
    """Return six transformer layers of which two devices cannot keep all that is stashed."""
    names = ["embed_tokens", *(f"layers.{at}" for at in range(6)), "lm_head"]
    forward = [10, *[20] * 6, 15]
    return sp.PipelinePartition.from_arrays(
        forward, backward=[2 * cycles for cycles in forward], devices=2, capacity=680,
        exclusive=[100] * 8, temporary=[5] * 8, stash=[50] * 8, in_bytes=[10] * 9,
        layer_names=names, training=True, microbatches=4, **options,
    )  # fmt: skip


def test_recomputation_makes_a_step_shorter(tmp_path: Path) -> None:
    kept = sp.plan_model(recomputing())
    plan = sp.plan_model(recomputing(recompute="full"))
    assert not plan.check()
    assert (kept.objective, plan.objective) == (1_740, 1_230)
    assert plan.bound is not None
    assert plan.bound <= 1_230
    assert "alternatives of layers" in str(plan)
    assert "3 full, 1 own" in str(plan)
    path = tmp_path / "plan.json"
    plan.to_json(str(path))
    checked = check_plan(read_plan(path), path, prove=True)
    assert {str(claim.verdict) for claim in checked.claims} == {"confirmed"}


def test_what_may_be_recomputed_makes_no_step_longer() -> None:
    for recompute in ("none", "full"):
        read = sp.read(ROOT / "examples/tied.json", objective="bottleneck", recompute=recompute)
        plan = sp.plan_model(read)
        assert (plan.status, plan.objective) == ("OPTIMAL", 16_392)


def test_what_no_choice_has_refutes_nothing(tmp_path: Path) -> None:
    # Layers are fast, or small; a bound on the fast and small ones is below that of what fits.
    chain = sp.PipelinePartition.from_arrays(
        [10, 10, 10, 10], devices=2, exclusive=[9] * 4, capacity=10,
        alternatives={"disk": {"forward": 90, "exclusive": 1}},
    )  # fmt: skip
    plan, path = sp.plan_model(chain, microbatches=4), tmp_path / "plan.json"
    assert plan.bound is not None
    assert plan.bound > 4 * 20 + 20
    plan.to_json(str(path))
    for prove in (False, True):
        assert not check_plan(read_plan(path), path, prove=prove).violations


def test_plans_with_phases_refuse_them_by_name() -> None:
    with pytest.raises(InputError) as caught:
        sp.plan_model(recomputing(recompute="full"), remote="gc200")
    assert caught.value.field == "alternatives"


def test_no_stages_choices_and_schedule_are_below_the_bound() -> None:
    proved = tried = 0
    for seed in range(60):
        chain = chosen_instance(seed, largest_n=3).replace(objective="bottleneck", microbatches=1)
        if not chain.whole or len(chain.alternatives) > 2:
            continue
        plan = sp.plan_model(chain, microbatches=2, time_limit=5)
        steps_of = [step(chain, solution) for solution in chosen_solutions(chain)]
        best = min((one for one in steps_of if one is not None), default=None)
        assert not plan.check()
        assert best is not None or not plan.levels
        if best is None:
            continue
        tried += 1
        proved += str(plan.status) == "OPTIMAL"
        assert plan.bound is not None
        assert plan.bound <= best, seed
        assert plan.objective is None or plan.objective >= best, seed
        whole = plan.whole({})
        if whole is not None:
            assert not verify(whole, best + 1, None, {}, time_limit=5, rules=steps.QUICK).shown
    assert proved >= 0.5 * tried > 5


def step(chain: sp.PipelinePartition, solution: sp.PipelineSolution) -> int | None:
    """Return the least step of two microbatches through stages; None where they have none."""
    try:
        schedule = sp.PipelineSchedule.from_partition(chain, solution, microbatches=2, split=False)
    except InputError:
        return None
    result = sp.solve(schedule, time_limit=5)
    return None if result.objective is None else int(result.objective)
