"""Stages on processes follow a schedule, and their gradients are those of the module."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


processes = importlib.import_module("tests.integrations.pytorch.pipeline_of_processes")
models = importlib.import_module("tests.integrations.pytorch.models")
IDS = torch.arange(12).reshape(2, 6) % 16
BY_NAME = {"mask": IDS > 2, "scale": torch.tensor(0.5)}
ENCODER = processes.Case("encoder", (4,), (torch.randn(1, 6, 32),), [0, 1, 2, 3, 4], depth=2)
RESNET = processes.Case("ResNet", (3,), (torch.randn(2, 3, 8, 8),), [0, 2, 4, 9, 14])
DECODER = processes.Case("Decoder", (), (IDS,), [0, 2, 3, 5, 8], BY_NAME, depth=2)
AROUND = processes.Case("Around", (), (torch.randn(2, 8),), [0, 2, 3])
TIED = processes.Case("Tied", (), (IDS,), [0, 1, 3])
LOOKED = processes.Case("Looked", (), (torch.zeros(2, 3, dtype=torch.long),), [0, 1, 2])


def halved(case: Any) -> Any:
    """Return a case in two stages."""
    return dataclasses.replace(case, cuts=case.cuts[::2])


def job(case: Any, ranks: int, weight: int = 0) -> Any:
    """Return a case under 1F1B, or under an optimal schedule whose backward passes are split."""
    schedule = sp.load("schedule/uniform", devices=ranks, microbatches=4, weight=weight)
    result = sp.solve(schedule, "auto" if weight else "1f1b", time_limit=5)
    assert result.status is sp.Status.OPTIMAL or not weight
    return processes.Job(case, schedule, result)


def in_order(case: Any, devices: list[int], backward: bool = True) -> Any:
    """Return a case on these devices, all forward passes first."""
    schedule = sp.PipelineSchedule.from_arrays(
        [1] * len(devices), [2] * len(devices) if backward else None, devices=devices,
        microbatches=4,
    )  # fmt: skip
    return processes.Job(case, schedule, sp.solve(schedule, "gpipe" if backward else "auto"))


def jobs_of(ranks: int) -> list[Any]:
    """Return what runs on as many processes, one job after the other."""
    if ranks == 4:
        cases = (ENCODER, RESNET, DECODER)
        return [job(case, 4, weight) for case in cases for weight in (0, 1)]
    halves = [halved(case) for case in (ENCODER, RESNET, DECODER)]
    found = [job(case, 2, weight) for case in (*halves, AROUND, LOOKED, TIED) for weight in (0, 1)]
    looped = [in_order(DECODER, [0, 1, 0, 1]), in_order(ENCODER, [0, 1, 1, 0])]  # a loop and a V
    looped.append(in_order(dataclasses.replace(TIED, cuts=[0, 1, 2, 3]), [0, 1, 0]))
    return [*found, *looped, in_order(halves[1], [0, 1], backward=False)]


def started(work: Any, ranks: int, *given: Any) -> Any:
    """Start something on as many processes, which import PyTorch once together."""
    context = importlib.import_module("multiprocessing").get_context("forkserver")
    context.set_forkserver_preload([processes.__name__, "torch._dynamo"])
    start = importlib.import_module("torch.multiprocessing").start_processes
    return start(work, (ranks, *given), nprocs=ranks, join=False, start_method="forkserver")


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_those_of_the_module(ranks: int, tmp_path: Path) -> None:
    """Of modules whose cuts are crossed by one tensor, by several, by integers, masks and inputs.

    Results, losses and the means of norms are the module's, too.
    """
    jobs = jobs_of(ranks)
    running = started(processes.work, ranks, jobs, str(tmp_path))
    while not running.join():
        pass
    done = {path.name: path.read_text() for path in tmp_path.glob("done-*")}
    assert done == {f"done-{rank}": str(len(jobs)) for rank in range(ranks)}


def test_a_rank_that_dies_ends_the_others(tmp_path: Path) -> None:
    running = started(processes.die, 2, job(halved(ENCODER), 2), str(tmp_path))
    for process in running.processes:
        process.join(120)
    assert [process.exitcode for process in running.processes] == [0, 7]
    assert "onnection" in (tmp_path / "told").read_text()


def test_a_schedule_of_other_stages_is_refused() -> None:
    stages = sp.build_stages(models.encoder(2), [0, 1, 2], (torch.randn(1, 6, 32),), depth=2)
    schedule = sp.load("schedule/uniform", devices=3)
    with pytest.raises(InputError, match="schedule: has 3 stages on 3 devices: not these 2"):
        sp.run_pipeline(stages, schedule, sp.solve(schedule, "1f1b"), 0, lambda a, b: a)


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        (
            "Twice",
            (torch.randn(4, 4),),
            "stages: the cut between 'first' and 'second' is crossed by 'linear' and 'transpose', "
            "which share memory that the next stage writes into; cut elsewhere",
        ),
        (
            "Counted",
            (torch.randn(2, 4), torch.tensor(2)),
            "stages: the cut between 'first' and 'second' is crossed by '.*', which is no tensor",
        ),
    ],
)
def test_what_cannot_cross_a_cut_is_named(name: str, inputs: Any, words: str) -> None:
    stages = sp.build_stages(getattr(models, name)(), [0, 1, 2], inputs)
    schedule = sp.load("schedule/uniform", devices=2)
    with pytest.raises(InputError, match=words):
        sp.run_pipeline(stages, schedule, sp.solve(schedule, "1f1b"), 0, lambda a, b: a)


def test_a_loss_is_for_training() -> None:
    schedule = sp.load("schedule/uniform", devices=2)
    stages = sp.build_stages(models.encoder(2), [0, 1, 2], (torch.randn(1, 6, 32),), depth=2)
    with pytest.raises(InputError, match="schedule: is of training; give a loss"):
        sp.run_pipeline(stages, schedule, sp.solve(schedule, "1f1b"), 0, None)
