"""Runs custom schedules on torch's pipeline runtime, which has no public interface for them.

``_PipelineScheduleRuntime`` of torch 2.6, 2.9, 2.13 and 2.15 was run with all tests of pipelines.
The attributes used are checked beforehand, so that an incompatible version is refused.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, schedules

from stagepack.errors import InputError
from stagepack.integrations.pytorch.inside import KNOWN

RUNTIME = "_PipelineScheduleRuntime"
NEEDED = {"__init__": {"stages", "n_microbatches", "loss_fn"}, "_load_csv": {"filename", "format"},
          "step": {"args", "target", "losses", "kwargs"}}  # fmt: skip
"""What is called, and by which names."""
OPTIONS = ("scale_grads", "stage_index_to_group_rank")
"""Versions differ: some divide gradients unless told, some do not read devices in the order."""


def ordered(
    parts: Sequence[PipelineStage],
    microbatches: int,
    loss: Callable[[Any, Any], Any] | None,
    devices: Sequence[int],
    order: str,
) -> Any:
    """Return torch's runtime of an `order`: a line a process, with backward passes in any case.

    `parts` are the stages of this process, `devices` those of all, each with so many
    `microbatches`; `loss` is of what the last stage returns, and the number of a microbatch.
    """
    runtime = _runtime()
    given = {"scale_grads": False, "stage_index_to_group_rank": dict(enumerate(devices))}
    options = {key: given[key] for key in OPTIONS if key in _parameters(runtime, "__init__")}
    made = runtime(list(parts), microbatches, loss_fn=loss, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text(order)
        made._load_csv(str(path), format="compute_only")
    return made


def _runtime() -> Any:
    """Return torch's class."""
    runtime = getattr(schedules, RUNTIME, None)
    missing = [RUNTIME] if runtime is None else [
        f"{RUNTIME}.{method}({name})"
        for method, names in NEEDED.items()
        for name in sorted(names - _parameters(runtime, method))
    ]  # fmt: skip
    if missing:
        raise InputError(
            f"{torch.__version__} has no {', '.join(missing)}, which runs orders of one's own",
            field="torch",
            remedy=f"install one of {KNOWN}",
        )
    return runtime


def _parameters(runtime: Any, method: str) -> set[str]:
    """Return the names of what a method takes, also of those classes above that it hands it to."""
    known = [vars(owner)[method] for owner in runtime.__mro__[:-1] if method in vars(owner)]
    return {name for one in known for name in inspect.signature(one).parameters}
