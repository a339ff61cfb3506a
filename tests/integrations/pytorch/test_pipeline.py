"""Stages on processes follow a schedule, and their gradients are those of the module."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(("ranks", "weight"), [(2, 0), (4, 0), (2, 1), (4, 1)])
def test_gradients_are_those_of_the_module(ranks: int, weight: int, tmp_path: Path) -> None:
    """One forward, one backward; or an optimal schedule whose backward passes are split."""
    schedule = sp.load("schedule/uniform", devices=ranks, microbatches=4, weight=weight)
    result = sp.solve(schedule, "auto" if weight else "1f1b", time_limit=5)
    assert result.status is sp.Status.OPTIMAL or not weight
    in_processes(schedule, result, tmp_path)


@pytest.mark.parametrize("devices", [[0, 1, 0, 1], [0, 1, 1, 0]])
def test_a_rank_runs_several_stages(devices: list[int], tmp_path: Path) -> None:
    """In a loop, and in a V, where one rank has both ends."""
    schedule = sp.PipelineSchedule.from_arrays([1] * 4, [2] * 4, devices=devices, microbatches=4)
    in_processes(schedule, sp.solve(schedule, "gpipe"), tmp_path)


def in_processes(schedule: sp.PipelineSchedule, result: Any, folder: Path) -> None:
    """Run a schedule, a process a device, and see that each found its gradients right."""
    processes = importlib.import_module("tests.integrations.pytorch.pipeline_of_processes")
    spawn = importlib.import_module("torch.multiprocessing").spawn
    spawn(processes.work, (schedule, result, str(folder)), nprocs=schedule.d)
    done = sorted(path.name for path in folder.glob("done-*"))
    assert done == [f"done-{rank}" for rank in range(schedule.d)]


def test_a_schedule_of_other_stages_is_refused() -> None:
    models = importlib.import_module("tests.integrations.pytorch.models")
    stages = sp.build_stages(models.encoder(2), [0, 1, 2], (torch.randn(1, 6, 32),), depth=2)
    schedule = sp.load("schedule/uniform", devices=3)
    with pytest.raises(InputError, match="schedule: has 3 stages on 3 devices: not these 2"):
        sp.run_pipeline(stages, schedule, sp.solve(schedule, "1f1b"), 0, lambda a, b: a)


@pytest.mark.parametrize(
    ("name", "inputs", "cuts", "words"),
    [
        (
            "Around",
            torch.randn(2, 8),
            [0, 2, 3],
            "the cut before stage 1, between 'second' and 'third', is crossed by "
            r"'linear' \(float32\), 'linear_1' \(float32\): .*; cut where one crosses",
        ),
        (
            "Looked",
            torch.zeros(2, 3, dtype=torch.long),
            [0, 1, 2],
            r"between 'places' and 'table', is crossed by 'hardtanh' \(int64\): ",
        ),
    ],
)
def test_a_cut_that_torch_cannot_go_back_through_is_named(
    name: str, inputs: Any, cuts: list[int], words: str
) -> None:
    models = importlib.import_module("tests.integrations.pytorch.models")
    stages = sp.build_stages(getattr(models, name)(), cuts, (inputs,))
    schedule = sp.load("schedule/uniform", devices=2)
    with pytest.raises(InputError, match=words):
        sp.run_pipeline(stages, schedule, sp.solve(schedule, "1f1b"), 0, lambda a, b: a)
