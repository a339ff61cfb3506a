"""Parameters that stages of several processes hold: their gradients are added up after a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from stagepack.errors import InputError
from stagepack.integrations.pytorch.stages import Stages


class TiedGradients:
    """A context of one step; see :func:`.tied_gradients`.

    A process that holds several stages has one parameter for all of them, so that it counts once.
    """

    def __init__(self, stages: Stages, devices: Sequence[int], rank: int) -> None:
        """Make a group of the ranks that hold each tied parameter, on all processes alike.

        `stages`, `devices` and `rank` are those of :func:`.tied_gradients`.
        """
        if len(devices) != len(stages):
            raise InputError(
                f"{len(devices)} ranks for {len(stages)} stages",
                field="devices",
                remedy="give the rank of each stage",
            )
        groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._own: list[tuple[torch.nn.Parameter, dist.ProcessGroup]] = []
        for parameter, users in stages.tied:
            ranks = tuple(sorted({int(devices[at]) for at in users}))
            if len(ranks) > 1 and parameter.requires_grad:
                if ranks not in groups:
                    groups[ranks] = dist.new_group(list(ranks))
                if rank in ranks:
                    self._own.append((parameter, groups[ranks]))
        self._before: list[torch.Tensor | None] = []

    def __enter__(self) -> None:
        """Put aside the gradients of steps before, which are added up already."""
        self._before = [parameter.grad for parameter, _ in self._own]
        for parameter, _ in self._own:
            parameter.grad = None

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Add up the gradients of this step over the ranks, and those of steps before."""
        for (parameter, group), before in zip(self._own, self._before, strict=True):
            if failure is None:
                if parameter.grad is None:  # others may have one
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, group=group)
            if before is not None:
                parameter.grad = before if parameter.grad is None else parameter.grad.add_(before)
