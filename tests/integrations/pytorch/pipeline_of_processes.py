"""A pipeline of processes over gloo: what each rank does, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import stagepack as sp
from tests.integrations.pytorch import models


def loss(result: Any, target: Any) -> Any:
    return ((result - target) ** 2).sum()


def work(rank: int, schedule: sp.PipelineSchedule, result: Any, folder: str) -> None:
    """Run one step of a pipeline of 4 microbatches; leave a file where all gradients are right."""
    torch.set_num_threads(1)
    ranks = schedule.d
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
    torch.manual_seed(0)
    model, alone = models.encoder(layers=4), models.encoder(layers=4)
    alone.load_state_dict(model.state_dict())
    x, target = torch.randn(4, 6, 32), torch.randn(4, 6, 32)
    cuts = [4 * at // schedule.p for at in range(schedule.p + 1)]
    stages = sp.build_stages(model, cuts, (x[:1],), depth=2)
    runs = sp.run_pipeline(stages, schedule, result, rank, loss)
    devices = schedule.devices.tolist()
    given = [x] if rank == devices[0] else []
    runs.step(*given, target=target if rank == devices[-1] else None)
    loss(alone(x), target).backward()
    known = dict(alone.named_parameters())
    for stage, device in zip(stages, devices, strict=True):
        for name, parameter in stage.named_parameters() if device == rank else ():
            torch.testing.assert_close(parameter.grad, known[name].grad, rtol=1e-4, atol=1e-3)
    Path(folder, f"done-{rank}").write_text("equal")
    dist.barrier()
    dist.destroy_process_group()
