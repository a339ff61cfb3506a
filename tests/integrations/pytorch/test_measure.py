"""Plans beside what their stages take when they run in processes."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = importlib.import_module("tests.integrations.pytorch.models")
X = torch.randn(2, 6, 32)


def planned(ranks: int, *, training: bool = True, **options: Any) -> tuple[Any, sp.ModelPlan]:
    module = models.encoder(layers=4)
    profile = sp.profile_model(module, (X,), depth=2, measure=True, repeats=1)
    chain = sp.PipelinePartition.from_profile(
        profile, sp.Cluster.uniform(ranks), training=training, microbatches=4
    )
    return module, sp.plan_model(chain, **options)


def test_a_plan_is_measured_stage_by_stage_and_order_by_order() -> None:
    module, plan = planned(2, split=True, time_limit=1)
    found = sp.measure_plan(module, plan, (X,), depth=2, orders=["gpipe"], repeats=1)
    figures = [(row.what, row.figure) for row in found.stages]
    assert figures == [(f"{s}", f) for s in range(2) for f in ("forward", "backward", "memory")]
    times = ("makespan", "span", "replayed")
    assert [(row.what, row.figure) for row in found.schedules] == [
        (name, figure) for name in ("plan", "gpipe") for figure in times
    ]
    assert all(row.estimated > 0 and row.actual > 0 for row in (*found.stages, *found.schedules))
    state = dict(module.layers[0].named_parameters())
    held = 4 * sum(p.numel() for p in state.values())
    # Of each of two layers: parameters, gradients and Adam's two means, at the end of a step.
    assert all(row.actual >= 2 * 4 * held for row in found.stages if row.figure == "memory")
    by_name = {(row.what, row.figure): row for row in found.schedules}
    assert by_name["gpipe", "span"].actual <= by_name["gpipe", "makespan"].actual
    assert by_name["plan", "makespan"].estimated == plan.seconds
    document = json.loads(found.to_json())
    assert (document["ranks"], len(document["stages"]), len(document["schedules"])) == (2, 6, 6)
    assert document["stages"][0].keys() >= {"estimated", "actual", "difference", "ratio"}
    assert "makespan" in str(found)
    assert "2 processes" in str(found)


def test_what_cannot_be_measured_is_refused() -> None:
    module, plan = planned(2, training=False, time_limit=1)
    with pytest.raises(InputError, match="plan: is no plan of training"):
        sp.measure_plan(module, plan, (X,), depth=2)
    module, plan = planned(2, time_limit=1)
    with pytest.raises(InputError, match="repeats: 0 steps"):
        sp.measure_plan(module, plan, (X,), depth=2, repeats=0)
    with pytest.raises(InputError, match="are no stages of"):
        sp.measure_plan(module, plan, (X,))
