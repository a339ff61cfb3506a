"""Runs the stages of a plan in one process for each rank, and measures every operation.

Times are medians over the steps, by the machine's clock, which all processes share.  Waiting for
data of another rank is not part of an operation, and the loss is not part of a stage.  Memory is
measured in a second step with Adam, so that gradients and the optimiser's state exist.  It consists
of their bytes, those of parameters and buffers, and the peak of all other live tensors.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.formats.torch import schedule as torch_schedule
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.check import measure
from stagepack.integrations.pytorch.exporting import FAILURES
from stagepack.integrations.pytorch.inside import pytree
from stagepack.integrations.pytorch.memory import Alive, nbytes
from stagepack.integrations.pytorch.pipelining import Part, Running
from stagepack.integrations.pytorch.stages import Stages, staged
from stagepack.integrations.pytorch.tracing import trace
from stagepack.planning.measured.figures import Figure, PlanMeasure
from stagepack.planning.model_plan import ModelPlan

CLOCKED = {
    "F": "forward_one_chunk",
    "B": "backward_one_chunk",
    "W": "backward_weight_one_chunk",
}
"""What runs the parts of a stage's work."""
PRELOAD = ("torch._dynamo",)
"""What PyTorch imports when it first traces a module."""
MEMORY = ("parameters", "constants", "gradients", "optimiser state")
"""Categories of bytes that are held for good."""
Taken = list[tuple[str, int, int]]
"""Kind of work, begin and end."""


@dataclass(frozen=True)
class Job:
    """What every rank does: inputs are of a microbatch, options say how layers are found."""

    module: Any
    cuts: Sequence[int]
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    schedule: PipelineSchedule
    orders: Mapping[str, ScheduleSolution]
    repeats: int
    threads: int


def _clocked(taken: Taken, *args: Any, **kwargs: Any) -> Part:
    """Return a stage that says what it did when."""

    def clocked(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic_ns()
            found = run(*args, **kwargs)
            taken.append((kind, begin, time.monotonic_ns()))
            return found

        return timed

    stage = Part(*args, **kwargs)
    for kind, name in CLOCKED.items():
        setattr(stage, name, clocked(kind, getattr(stage, name)))
    return stage


def measured_plan(plan: ModelPlan, job: Job) -> PlanMeasure:
    """Run a plan's stages, and return what was predicted beside what was measured.

    Refuses a module that cannot be handed to processes; where a rank fails, tells its last words.
    """
    ranks = job.schedule.d
    with tempfile.TemporaryDirectory() as folder:
        _run(job, folder)
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


def _run(job: Job, folder: str) -> None:
    """Run all ranks to their end."""
    served = "forkserver" in multiprocessing.get_all_start_methods()
    if served:  # PyTorch is imported once, not once a rank
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__, *PRELOAD])
    method = "forkserver" if served else "spawn"
    try:
        context = mp.start_processes(
            _work, (job, folder), nprocs=job.schedule.d, join=False, start_method=method
        )
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(
            f"cannot be handed to other processes: {error}",
            field="module",
            remedy="define its class at the top of a module, not within a function",
        ) from None
    try:
        while not context.join():
            pass
    except (mp.ProcessRaisedException, mp.ProcessExitedException):
        raise InputError(
            f"stages do not run: {_reason(folder, [p.exitcode for p in context.processes])}",
            field="plan",
            remedy="see what build_stages makes",
        ) from None


def _reason(folder: str, codes: Sequence[int | None]) -> str:
    """Return which rank failed first, and why; those that lost it fail, too."""
    for rank, code in enumerate(codes):
        if code not in (None, 0, 1, -signal.SIGTERM):
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return f"rank {rank} {how}"
    told = sorted(json.loads(path.read_text()) for path in Path(folder).glob("*.failed"))
    if told:
        return f"rank {told[0][1]}: {told[0][2]}"
    return 'they do not start; call this below `if __name__ == "__main__":`'


def _stages(plan: ModelPlan, told: Sequence[JsonObject]) -> Iterator[Figure]:
    """Yield the figures of the stages, under the plan's own schedule."""
    clock = float(plan.partition.cluster.clock)
    stages = estimate(plan.partition, plan.level("partition").result).stages
    for at, (stage, memory) in enumerate(zip(stages, plan.memories, strict=True)):
        rank = told[int(plan.schedule.devices[at])]
        times = next(iter(rank["orders"].values()))["times"]
        name = f"{at}"
        yield Figure(name, "forward", float(stage.forward or 0) / clock, times["F"] / 1e9)
        if plan.schedule.training:
            backward = times["B"] + times.get("W", 0)
            yield Figure(name, "backward", float(stage.backward or 0) / clock, backward / 1e9)
        found: dict[str, int] = rank["memory"]
        for category in MEMORY:
            said = stage.exclusive.get(category, 0)
            if said or found[category]:
                yield Figure(name, category, said, found[category])
        working = memory - stage.shared - sum(stage.exclusive.values())
        yield Figure(name, "working", working, found["working"])
        yield Figure(name, "memory", memory, sum(found.values()))


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
    return "".join(schedule.kinds)


# ---------------------------------------------------------------------- on a rank


def _work(rank: int, job: Job, folder: str) -> None:
    """Run all orders on one rank, and write what was measured, or why it failed."""
    try:
        _measured(rank, job, folder)
    except FAILURES as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # torch wraps what a stage ended with
            cause = cause.__cause__
        told = [time.monotonic_ns(), rank, str(cause).strip().partition("\n")[0]]
        Path(folder, f"{rank}.failed").write_text(json.dumps(told))
        raise


def _measured(rank: int, job: Job, folder: str) -> None:
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
    """Return the times of one order, step by step; the first one ever tells of memory, too."""
    taken: Taken = []
    make = partial(_clocked, taken)
    loss = _loss if job.schedule.training else None
    runs = Running(stages, job.schedule, job.orders[order], rank, loss, make)
    _step(rank, job, runs)
    if "memory" not in found:
        found["memory"] = _memory(rank, job, runs)
    windows, work = [], []
    for _ in range(job.repeats):
        taken.clear()
        dist.barrier()
        _step(rank, job, runs)
        windows.append((taken[0][1], taken[-1][2]))
        work += taken
    times = {
        kind: statistics.median(end - begin for one, begin, end in work if one == kind)
        for kind in _kinds(job.schedule)
    }
    return {"times": times, "windows": windows}


def _memory(rank: int, job: Job, runs: Running) -> dict[str, int]:
    """Return the bytes of a step by category."""
    parameters = [p for stage in runs.modules for p in stage.parameters()]
    state: list[torch.Tensor] = []
    if job.schedule.training and parameters:
        adam = torch.optim.Adam(parameters, lr=0, foreach=False)
        adam.step()
        state = [x for x in pytree.tree_leaves(dict(adam.state)) if isinstance(x, torch.Tensor)]
    held: dict[str, list[torch.Tensor]] = {
        "parameters": parameters,
        "constants": [buffer for stage in runs.modules for buffer in stage.buffers()],
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimiser state": state,
    }
    with Alive(tensor for tensors in held.values() for tensor in tensors) as alive:
        before = alive.now
        _step(rank, job, runs)
    return {**{name: nbytes(one) for name, one in held.items()}, "working": alive.most - before}


def _step(rank: int, job: Job, runs: Running) -> None:
    """Run a step: as many copies of the sample as there are microbatches."""
    count = int(job.schedule.microbatches[0])
    if rank != int(job.schedule.devices[0]):
        runs.step()
        return
    args, kwargs = pytree.tree_map(
        lambda x: torch.cat([x] * count) if isinstance(x, torch.Tensor) and x.dim() else x,
        (job.inputs, dict(job.kwargs)),
    )
    runs.step(*args, **kwargs)


def _loss(result: Any, _: Any) -> Any:
    """Return the sum of all squares that come out."""
    leaves = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    return sum((x**2).sum() for x in leaves if x.is_floating_point())
