"""Stages in a pipeline of processes, by ``torch.distributed.pipelining``, which follows a schedule.

Of what crosses a cut torch sends every tensor back as a gradient: stages whose cuts only one
floating tensor crosses run this way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from stagepack.errors import InputError
from stagepack.instances.formats.torch_schedule import dump
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.integrations.pytorch.stages import Stages
from stagepack.integrations.pytorch.tracing import is_tensor


def scheduled(
    stages: Stages,
    schedule: PipelineSchedule,
    plan: ScheduleSolution,
    rank: int,
    loss: Callable[[Any, Any], Any],
    make: Callable[..., PipelineStage] = PipelineStage,
) -> Any:
    """Return what runs the stages of one process; see :func:`.run_pipeline`.

    Parameters
    ----------
    stages : Stages
    schedule : PipelineSchedule
    plan : ScheduleSolution
    rank : int
    loss : callable
    make : callable
        Makes a stage of torch's, given what PipelineStage is given.

    Raises
    ------
    InputError
        For a schedule of other stages or ranks; for a cut that anything but one floating tensor
        crosses.
    """
    if schedule.p != len(stages) or not 0 <= rank < schedule.d:
        raise InputError(
            f"has {schedule.p} stages on {schedule.d} devices: not these {len(stages)}, or "
            f"none for rank {rank}",
            field="schedule",
            remedy="give one of as many stages and processes",
        )
    microbatches = set(schedule.microbatches.tolist())
    if len(microbatches) > 1:
        raise InputError(
            "stages work on unlike numbers", field="microbatches", remedy="give all the same"
        )
    _check_cuts(stages)
    parts = []
    for at in range(schedule.p):
        if schedule.devices[at] == rank:
            tensors = (*stages[at].parameters(), *stages[at].buffers())
            device = next((tensor.device for tensor in tensors), torch.device("cpu"))
            parts.append(make(stages[at], at, len(stages), device))

    def whole(row: Any, target: Any) -> Any:
        return loss(stages.result(row if isinstance(row, tuple) else (row,)), target)

    made = _PipelineScheduleRuntime(parts, max(microbatches), loss_fn=whole, scale_grads=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_bytes(dump(plan, schedule))
        made._load_csv(str(path), format="compute_only")
    return made


def _check_cuts(stages: Stages) -> None:
    """Refuse cuts that torch cannot send gradients back through.

    Raises
    ------
    InputError
        Naming the first such cut and what crosses it.
    """
    for at in range(1, len(stages)):
        crossing = [node for node in stages[at].graph.nodes if node.op == "placeholder"]
        if len(crossing) == 1 and _is_floating(crossing[0]):
            continue
        told = ", ".join(f"{node.name!r} ({_kind(node)})" for node in crossing) or "nothing"
        raise InputError(
            f"the cut before stage {at}, between {stages.layers[at - 1][-1]!r} and "
            f"{stages.layers[at][0]!r}, is crossed by {told}: torch's pipeline takes one floating "
            f"tensor",
            field="stages",
            remedy="cut where one crosses, or make one layer of what others go around (depth=, "
            "basic_blocks=)",
        )


def _is_floating(node: fx.Node) -> bool:
    return is_tensor(node) and bool(node.meta["val"].is_floating_point())


def _kind(node: fx.Node) -> str:
    """Return what a node is, such as `int64`."""
    value = node.meta.get("val")
    return str(value.dtype).removeprefix("torch.") if is_tensor(node) else type(value).__name__
