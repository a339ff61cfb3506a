"""Our schedules, run by torch: two ranks over gloo, gradients as without a pipeline."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.formats.torch import schedule as torch_schedule
from stagepack.instances.schedule import PipelineSchedule
from tests.random_schedules import by_list

MICROBATCHES = 4
WIDTH = 6
SHAPES = {
    "two-fused": ([0, 1], False),
    "two-split": ([0, 1], True),
    "interleaved-split": ([0, 1, 0, 1], True),
    "v-shaped-split": ([0, 1, 1, 0], True),
}
FORMS = ("compute_only", "compute_comms")
CASES = tuple(itertools.product(SHAPES, FORMS))


def instance_of(devices: list[int], split: bool) -> PipelineSchedule:
    ones = np.ones(len(devices), dtype=np.int64)
    return PipelineSchedule.from_arrays(
        ones, ones, ones if split else None, microbatches=MICROBATCHES, devices=devices
    )


def model(stages: int) -> Any:
    """The layers, and a batch with its targets: the same in every process."""
    import torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(stages)
    ]
    x, target = torch.randn(2, 2 * MICROBATCHES, WIDTH)
    return layers, x, target


def run_rank(rank: int, folder: str) -> None:
    """Run the stages of one rank in every case, and save the gradients of their weights."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=300),
    )
    found = {case: gradients(rank, Path(folder), *case) for case in CASES}
    torch.save(found, f"{folder}/gradients-{rank}.pt")
    dist.destroy_process_group()


def gradients(rank: int, folder: Path, shape: str, form: str) -> dict[int, list[Any]]:
    """The gradients of each stage of a rank after one step."""
    import torch
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    devices, _ = SHAPES[shape]
    layers, x, target = model(len(devices))
    stages = [
        PipelineStage(layer, stage, len(devices), torch.device("cpu"))
        for stage, layer in enumerate(layers)
        if devices[stage] == rank
    ]
    schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=torch.nn.MSELoss())
    schedule._load_csv(str(folder / f"{shape}-{form}.csv"), format=form)
    inputs = (x,) if devices[0] == rank else ()
    schedule.step(*inputs, **({"target": target} if devices[-1] == rank else {}))
    return {s.stage_index: [weight.grad for weight in s.submod.parameters()] for s in stages}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, dict[int, Any]]:
    """The gradients that two ranks find: by case, then stage."""
    torch = pytest.importorskip(
        "torch", reason="torch is not installed: pip install 'stagepack[torch]'"
    )
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch was built without gloo")
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    folder = tmp_path_factory.mktemp("torch")
    for shape, form in CASES:
        instance = instance_of(*SHAPES[shape])
        written = torch_schedule.dump(
            by_list(instance),
            instance,
            communication=form == "compute_comms",
            waits=hasattr(schedules, "WAIT_SEND_F"),
        )
        (folder / f"{shape}-{form}.csv").write_bytes(written)
    torch.multiprocessing.spawn(run_rank, (str(folder),), nprocs=2)
    ranks = [torch.load(folder / f"gradients-{rank}.pt") for rank in range(2)]
    return {case: ranks[0][case] | ranks[1][case] for case in CASES}


@pytest.mark.parametrize(("shape", "form"), CASES)
def test_torch_finds_the_gradients_of_the_whole_model(found: Any, shape: str, form: str) -> None:
    import torch

    devices, _ = SHAPES[shape]
    layers, x, target = model(len(devices))
    torch.nn.MSELoss()(torch.nn.Sequential(*layers)(x), target).backward()
    assert sorted(found[shape, form]) == list(range(len(devices)))
    for stage, layer in enumerate(layers):
        for got, weight in zip(found[shape, form][stage], layer.parameters(), strict=True):
            assert weight.grad.abs().max() > 1e-4  # something to compare
            torch.testing.assert_close(got, weight.grad)
