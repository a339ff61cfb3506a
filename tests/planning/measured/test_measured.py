"""Plans beside what their stages take when they run in processes."""

from __future__ import annotations

import importlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.cli import app
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = importlib.import_module("tests.integrations.pytorch.models")
running = importlib.import_module("stagepack.planning.measured.running")
X = torch.randn(2, 6, 32)
MODULE = models.encoder(layers=4)
NET = """
import torch

from tests.integrations.pytorch import models


def make():
    return models.encoder(layers=4), (torch.ones(2, 6, 32),)


def wrong():
    return models.encoder(layers=4)
"""


def planned(*, training: bool = True, **options: Any) -> sp.ModelPlan:
    profile = sp.profile_model(MODULE, (X,), depth=2, training=training)
    chain = sp.PipelinePartition.from_profile(
        profile, sp.Cluster.uniform(2), training=training, microbatches=4
    )
    return sp.plan_model(chain, time_limit=1, **options)


def test_a_plan_is_measured_stage_by_stage_and_order_by_order() -> None:
    plan = planned(split=True)
    found = sp.measure_plan(MODULE, plan, (X,), depth=2, orders=["gpipe"], repeats=1)
    held = ("parameters", "gradients", "optimiser state")
    whole = ("forward", "backward", *held, "working", "memory")
    assert [(row.what, row.figure) for row in found.stages] == [
        (f"{stage}", figure) for stage in range(2) for figure in whole
    ]
    times = ("makespan", "span", "replayed")
    assert [(row.what, row.figure) for row in found.schedules] == [
        (name, figure) for name in ("plan", "gpipe") for figure in times
    ]
    assert all(row.estimated > 0 and row.actual > 0 for row in (*found.stages, *found.schedules))
    rows = {(row.what, row.figure): row for row in (*found.stages, *found.schedules)}
    for stage in "01":  # what is held for good is known to the byte, but Adam's numbers of steps
        parameters, gradients, state = (rows[stage, figure] for figure in held)
        assert parameters.ratio == gradients.ratio == 1
        assert 0 <= state.actual - state.estimated < 1000
        total = sum(rows[stage, figure].actual for figure in (*held, "working"))
        assert rows[stage, "memory"].actual == total
    assert rows["gpipe", "span"].actual <= rows["gpipe", "makespan"].actual
    assert rows["plan", "makespan"].estimated == plan.seconds
    document = json.loads(found.to_json())
    assert (document["ranks"], len(document["stages"]), len(document["schedules"])) == (2, 14, 6)
    assert document["stages"][0].keys() >= {"estimated", "actual", "difference", "ratio"}
    assert "makespan" in str(found)
    assert "2 processes" in str(found)


def test_a_plan_of_inference_is_measured_in_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net_of_test.py").write_text(NET)
    plan = str(tmp_path / "plan.json")
    planned(training=False).to_json(plan)
    made = f"{tmp_path}/net_of_test.py:make"
    options = ["--depth", "2", "--repeats", "1", "--threads", "1", "--json"]
    app(["measure", plan, "--model", made, *options], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    figures = [row["figure"] for row in document["stages"]]
    assert figures == ["forward", "parameters", "working", "memory"] * 2
    for model, words in (
        ("net.py", "--model: net.py names no function of a file; FILE.py:NAME"),
        (f"{made[:-4]}other", "has no 'other'"),
        (f"{made[:-4]}wrong", "--model: wrong returns something else"),
    ):
        with pytest.raises(InputError, match=words):
            app(["measure", plan, "--model", model], standalone_mode=False)


def test_what_cannot_be_measured_is_refused() -> None:
    plan = planned()
    with pytest.raises(InputError, match="repeats: 0 steps"):
        sp.measure_plan(MODULE, plan, (X,), depth=2, repeats=0)
    with pytest.raises(InputError, match="are no stages of"):
        sp.measure_plan(MODULE, plan, (X,))
    module = models.encoder(layers=4)
    module.here = lambda: None
    with pytest.raises(InputError, match=r"module: cannot be handed to other processes: .*lambda"):
        sp.measure_plan(module, plan, (X,), depth=2)


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    """Others fail because of it: where it was ended from outside, it said nothing itself."""
    assert "call this below" in running._reason(str(tmp_path), [1, 1])
    (tmp_path / "0.failed").write_text(json.dumps([7, 0, "connection closed"]))
    (tmp_path / "1.failed").write_text(json.dumps([5, 1, "no memory"]))
    assert running._reason(str(tmp_path), [1, 1]) == "rank 1: no memory"
    ended = [1, -signal.SIGKILL, -signal.SIGTERM]
    assert running._reason(str(tmp_path), ended) == "rank 1 was ended by signal 9"
    assert running._reason(str(tmp_path), [3, 1]) == "rank 0 ended with exit code 3"
