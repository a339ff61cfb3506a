"""A pipeline of processes over gloo: what each rank does, and what comes of it."""

from __future__ import annotations

import copy
import importlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

import stagepack as sp

COUNT = 4
"""Microbatches."""


@dataclass(frozen=True)
class Case:
    """A module in stages, and a schedule of them.

    Attributes
    ----------
    name : str
        Of a function of `models`, which takes `given`.
    args, kwargs : tuple, dict
        The sample.
    cuts : list of int
    depth : int, optional
    """

    name: str
    given: tuple[Any, ...]
    args: tuple[Any, ...]
    cuts: list[int]
    kwargs: dict[str, Any] = field(default_factory=dict)
    depth: int | None = None

    def built(self) -> Any:
        """Return the module, the same one on every rank."""
        torch.manual_seed(0)
        models = importlib.import_module("tests.integrations.pytorch.models")
        return getattr(models, self.name)(*self.given)


def loss(result: Any, target: Any) -> Any:
    """Return the squares of all that comes out, less the target of what has one."""
    leaves = [x for x in pytree.tree_leaves(result) if x.is_floating_point()]
    if target is not None:
        leaves[0] = leaves[0] - target
    return sum((leaf**2).sum() for leaf in leaves)


def several(row: Any) -> Any:
    """Return inputs of all microbatches: figures that differ, integers that rise."""

    def copies(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.dim():
            return x
        if x.dtype is torch.bool:
            return torch.cat([x] * COUNT)
        return torch.cat([x * (i + 1) if x.is_floating_point() else x + i for i in range(COUNT)])

    return pytree.tree_map(copies, row)


def piece(row: Any, at: int) -> Any:
    """Return those of one microbatch."""
    return pytree.tree_map(
        lambda x: x.chunk(COUNT)[at] if isinstance(x, torch.Tensor) and x.dim() else x, row
    )


@dataclass(frozen=True)
class Job:
    """A module on a schedule, and the result that is followed."""

    case: Case
    schedule: sp.PipelineSchedule
    plan: Any


def work(rank: int, ranks: int, jobs: list[Job], folder: str) -> None:
    """Run a step of every job; leave a file with the number of those that were right."""
    joined(rank, ranks, folder)
    made: dict[str, Any] = {}
    for at, job in enumerate(jobs):
        case = job.case
        if not job.schedule.training:
            infer(rank, job)
        else:
            if repr(case) not in made:  # traced once for all its schedules
                model = case.built()
                alone = copy.deepcopy(model)
                made[repr(case)] = (
                    alone,
                    sp.build_stages(model, case.cuts, case.args, case.kwargs, depth=case.depth),
                )
            train(rank, job, *made[repr(case)])
        Path(folder, f"done-{rank}").write_text(str(at + 1))
    dist.barrier()
    dist.destroy_process_group()


def train(rank: int, job: Job, alone: Any, stages: Any) -> None:
    """Run a step, and compare results, losses, gradients and buffers with those of the module."""
    case, devices = job.case, job.schedule.devices.tolist()
    for module in (alone, *stages):
        module.zero_grad()
    runs = sp.run_pipeline(stages, job.schedule, job.plan, rank, loss)
    args, kwargs = several((case.args, case.kwargs))
    losses: list[Any] = []
    given = (args, kwargs) if rank == devices[0] else ((), {})
    found = runs.step(*given[0], losses=losses if rank == devices[-1] else None, **given[1])
    expected = []
    for at in range(COUNT):
        own, named = piece((args, kwargs), at)
        expected.append(alone(*own, **named))
        loss(expected[-1], None).backward()
    if rank == devices[-1]:
        for one, told in zip(
            pytree.tree_leaves(found), zip(*map(pytree.tree_leaves, expected), strict=True),
            strict=True,
        ):  # fmt: skip
            whole = torch.cat(told) if told[0].dim() else torch.stack(told)
            torch.testing.assert_close(one, whole)
        torch.testing.assert_close(sum(losses), sum(loss(one, None) for one in expected))
    same(stages, alone, [device == rank for device in devices])


def same(stages: Any, alone: Any, own: list[bool]) -> None:
    """Compare gradients and buffers of a rank's stages with those of the module itself."""
    parameters = dict(alone.named_parameters(remove_duplicate=False))
    buffers = dict(alone.named_buffers())
    for stage, here in zip(stages, own, strict=True):
        for name, parameter in stage.named_parameters() if here else ():
            torch.testing.assert_close(
                parameter.grad, parameters[name].grad, rtol=1e-4, atol=1e-3, msg=name
            )
        for name, buffer in stage.named_buffers() if here else ():
            if name in buffers:
                torch.testing.assert_close(buffer, buffers[name], msg=name)


def infer(rank: int, job: Job) -> None:
    """Run forward passes alone."""
    case = job.case
    model = case.built().eval()
    stages = sp.build_stages(model, case.cuts, case.args, case.kwargs, depth=case.depth)
    runs = sp.run_pipeline(stages, job.schedule, job.plan, rank, None)
    args = several(case.args)
    found = runs.step(*(args if rank == 0 else ()))
    if rank == job.schedule.d - 1:
        with torch.no_grad():
            torch.testing.assert_close(found, model(*args))


def die(rank: int, ranks: int, job: Job, folder: str) -> None:
    """End rank 1 without a word after its first forward pass; write what the other one is told."""
    joined(rank, ranks, folder)
    case = job.case
    stages = sp.build_stages(case.built(), case.cuts, case.args, depth=case.depth)
    runs = sp.run_pipeline(stages, job.schedule, job.plan, rank, loss)
    if rank == 1:
        stages[1].register_forward_hook(lambda *_: os._exit(7))
    try:
        runs.step(*(several(case.args) if rank == 0 else ()))
    except RuntimeError as error:
        Path(folder, "told").write_text(str(error))


def joined(rank: int, ranks: int, folder: str) -> None:
    """Meet the other ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
