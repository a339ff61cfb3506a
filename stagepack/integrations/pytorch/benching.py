"""A plan's stages in processes of their own, a rank each, with clocks around every operation.

Times are medians over the steps, by the clock of the machine, which all its processes share.
Waiting for what another rank sends is no part of an operation, and the loss is none of a stage.
Memory is that of the first step, an optimizer's included: the most bytes of tensors, parameters and
buffers among them, that are alive at a time.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.utils import _pytree as pytree

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.formats import torch_schedule
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.check import measure
from stagepack.integrations.pytorch.memory import Alive
from stagepack.integrations.pytorch.pipelining import scheduled
from stagepack.integrations.pytorch.plan_measure import Figure, PlanMeasure
from stagepack.integrations.pytorch.stages import Stages, staged
from stagepack.integrations.pytorch.tracing import trace
from stagepack.planning.model_plan import ModelPlan

CLOCKED = {
    "F": "forward_one_chunk",
    "B": "backward_one_chunk",
    "W": "backward_weight_one_chunk",
}
"""What runs the parts of a stage's work."""
Taken = list[tuple[str, int, int]]
"""Kind of work, begin and end."""


@dataclass(frozen=True)
class Job:
    """What every rank does.

    Attributes
    ----------
    module : nn.Module
    cuts : sequence of int
    inputs, kwargs : tuple, mapping
        Of a microbatch.
    options : mapping
        How layers are found.
    schedule : PipelineSchedule
    orders : mapping of str to ScheduleSolution
    repeats, threads : int
    """

    module: Any
    cuts: Sequence[int]
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    schedule: PipelineSchedule
    orders: Mapping[str, ScheduleSolution]
    repeats: int
    threads: int


def _clocked(taken: Taken, *args: Any) -> PipelineStage:
    """Return a stage that says what it did when."""

    def clocked(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic_ns()
            found = run(*args, **kwargs)
            taken.append((kind, begin, time.monotonic_ns()))
            return found

        return timed

    stage = PipelineStage(*args)
    for kind, name in CLOCKED.items():
        setattr(stage, name, clocked(kind, getattr(stage, name)))
    return stage


def measured_plan(plan: ModelPlan, job: Job) -> PlanMeasure:
    """Run a plan's stages, and return what was predicted beside what was measured.

    Parameters
    ----------
    plan : ModelPlan
    job : Job

    Raises
    ------
    InputError
        Where a rank fails, with its last words.
    """
    ranks = job.schedule.d
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(_work, (job, folder), nprocs=ranks)
        except mp.ProcessRaisedException as error:
            reason = str(error).strip().rpartition("\n")[2]
            raise InputError(
                f"stages do not run: {reason}", field="plan", remedy="see what build_stages makes"
            ) from None
        told = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]
    return PlanMeasure(
        name=plan.name,
        ranks=ranks,
        threads=job.threads,
        cores=os.cpu_count() or 1,
        stages=tuple(_stages(plan, told)),
        schedules=tuple(
            figure for name in job.orders for figure in _schedule(plan, job, name, told)
        ),
    )


def _stages(plan: ModelPlan, told: Sequence[JsonObject]) -> list[Figure]:
    """Return the figures of the stages, under the plan's own schedule."""
    clock = float(plan.partition.cluster.clock)
    found = []
    stages = estimate(plan.partition, plan.level("partition").result).stages
    for at, (stage, memory) in enumerate(zip(stages, plan.memories, strict=True)):
        rank = told[int(plan.schedule.devices[at])]
        times = next(iter(rank["orders"].values()))["times"]
        backward = times.get("B", 0) + times.get("W", 0)
        name = f"{at}"
        found += [
            Figure(name, "forward", float(stage.forward or 0) / clock, times["F"] / 1e9),
            Figure(name, "backward", float(stage.backward or 0) / clock, backward / 1e9),
            Figure(name, "memory", memory, rank["memory"]),
        ]
    return found


def _schedule(plan: ModelPlan, job: Job, name: str, told: Sequence[JsonObject]) -> list[Figure]:
    """Return the figures of one order."""
    clock = float(plan.partition.cluster.clock)
    order, schedule = job.orders[name], job.schedule
    said = measure(schedule, order)
    runs = [rank["orders"][name] for rank in told]
    windows = list(zip(*(run["windows"] for run in runs), strict=True))
    makespan = statistics.median(max(b for _, b in w) - min(a for a, _ in w) for w in windows)
    span = statistics.median(max(b - a for a, b in w) for w in windows)
    times = [runs[device]["times"] for device in schedule.devices.tolist()]
    again = PipelineSchedule.from_arrays(
        *([max(1, round(one[kind])) for one in times] for kind in _kinds(schedule)),
        devices=schedule.devices,
        microbatches=schedule.microbatches,
    )
    replayed = measure(again, torch_schedule.solution(torch_schedule.dump(order, schedule), again))
    return [
        Figure(name, "makespan", said.makespan / clock, makespan / 1e9),
        Figure(name, "span", said.span / clock, span / 1e9),
        Figure(name, "replayed", replayed.makespan / 1e9, makespan / 1e9),
    ]


def _kinds(schedule: PipelineSchedule) -> str:
    return "FBW" if schedule.split else "FB"


# ---------------------------------------------------------------------- on a rank


def _work(rank: int, job: Job, folder: str) -> None:
    """Run all orders on one rank, and write what was measured."""
    torch.set_num_threads(job.threads)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=job.schedule.d)
    traced = trace(job.module, job.inputs, job.kwargs, **job.options)
    stages = staged(traced, job.cuts)
    found: JsonObject = {"orders": {}}
    for order in job.orders:
        found["orders"][order] = _ordered(rank, job, stages, order, found)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _ordered(rank: int, job: Job, stages: Stages, order: str, found: JsonObject) -> JsonObject:
    """Return the times of one order, step by step; the first step ever tells of memory, too."""
    taken: Taken = []
    make = partial(_clocked, taken)
    runs = scheduled(stages, job.schedule, job.orders[order], rank, _loss, make)
    parameters = [p for part in runs._stages for p in part.submod.parameters()]
    if "memory" not in found:
        held = [*parameters, *(b for part in runs._stages for b in part.submod.buffers())]
        with Alive(held) as alive:
            _step(rank, job, stages, runs)
            if parameters:
                torch.optim.Adam(parameters, lr=0, foreach=False).step()
        found["memory"] = alive.most
    else:
        _step(rank, job, stages, runs)
    windows, work = [], []
    for _ in range(job.repeats):
        taken.clear()
        dist.barrier()
        _step(rank, job, stages, runs)
        windows.append((taken[0][1], taken[-1][2]))
        work += taken
    times = {
        kind: statistics.median(end - begin for one, begin, end in work if one == kind)
        for kind in _kinds(job.schedule)
    }
    return {"times": times, "windows": windows}


def _step(rank: int, job: Job, stages: Stages, runs: Any) -> None:
    """Run a step: as many copies of the sample as there are microbatches."""
    count = int(job.schedule.microbatches[0])
    devices = job.schedule.devices.tolist()
    given: list[Any] = []
    if rank == devices[0]:
        row = stages.flat(job.inputs, job.kwargs)
        given = [torch.cat([x] * count) if isinstance(x, torch.Tensor) else x for x in row]
    target = {"target": torch.zeros(count)} if rank == devices[-1] else {}
    runs.step(*given, **target)


def _loss(result: Any, _: Any) -> Any:
    """Return the sum of all squares that come out."""
    leaves = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    return sum((x**2).sum() for x in leaves if x.is_floating_point())
