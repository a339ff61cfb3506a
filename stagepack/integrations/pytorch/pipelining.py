"""Stages in a pipeline of processes, by ``torch.distributed.pipelining``, which follows a schedule.

Of what crosses a cut torch sends every tensor back as a gradient: stages whose cuts only one
floating tensor crosses run this way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from stagepack.integrations.pytorch.stages import Stages


def runtime(
    stages: Stages,
    order: bytes,
    own: Sequence[int],
    microbatches: int,
    loss: Callable[[Any, Any], Any],
) -> Any:
    """Return what runs the stages of this process; the group of processes is there already.

    Parameters
    ----------
    stages : Stages
    order : bytes
        The actions of all ranks as CSV.
    own : sequence of int
        The stages of this process.
    microbatches : int
    loss : callable
        Of what the module returns for a microbatch, and of a target.
    """
    parts = []
    for at in own:
        tensors = (*stages[at].parameters(), *stages[at].buffers())
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        parts.append(PipelineStage(stages[at], at, len(stages), device))

    def whole(row: Any, target: Any) -> Any:
        return loss(stages.result(row if isinstance(row, tuple) else (row,)), target)

    made = _PipelineScheduleRuntime(parts, microbatches, loss_fn=whole, scale_grads=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_bytes(order)
        made._load_csv(str(path), format="compute_only")
    return made
