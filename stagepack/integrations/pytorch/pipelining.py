"""Stages in a pipeline of processes, by ``torch.distributed.pipelining``, which follows a schedule.

Torch hands numbers of microbatches to the first stage and to the loss, which look up inputs and
targets, and sends one tensor across each cut: see :mod:`stagepack.integrations.pytorch.crossing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from stagepack.errors import InputError
from stagepack.formats.torch.schedule import dump
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.integrations.pytorch.crossing import Cut, cuts
from stagepack.integrations.pytorch.inside import pytree
from stagepack.integrations.pytorch.ordering import ordered
from stagepack.integrations.pytorch.stages import Stages
from stagepack.integrations.pytorch.tracing import is_tensor
from stagepack.integrations.pytorch.tying import TiedGradients


class Part(PipelineStage):
    """A stage of torch's that begins without a greeting over gloo.

    Other transports need one; that of torch 2.9 sends eight bytes for four, which gloo refuses.  A
    torch that greets by another name greets as it will: nothing else depends on it.
    """

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        gloo = dist.get_backend(self.group) == "gloo"
        return [] if gloo else list(super()._get_init_p2p_neighbors_ops())


class _Sent(nn.Module):
    """A stage as torch's pipeline has it: one tensor in, one out."""

    def __init__(self, stage: fx.GraphModule, before: Cut | None, behind: Cut | None) -> None:
        """Wrap a stage between its cuts."""
        super().__init__()
        self.stage = stage
        self._before, self._behind = before, behind
        # So that what is sent has a gradient where no parameter came before it.
        kind = torch.float32 if behind is None else behind.carrier
        self._anchor = nn.Parameter(torch.empty(0, dtype=kind))
        self.rows: Sequence[tuple[Any, ...]] = ()  # of the first stage, by microbatch
        self.left: list[tuple[Any, ...]] = []  # by the last stage

    def forward(self, came: torch.Tensor) -> torch.Tensor:
        """Run a microbatch, given its number or what crossed the cut."""
        row = self.rows[int(came)] if self._before is None else self._before.unpacked(came)
        found = self.stage(*row)
        ties = [self._anchor]
        if self._before is not None and not self._before.plain:
            ties.append(came.reshape(-1)[:0])
        if self._behind is not None:
            return self._behind.packed(found, ties)
        self.left.append(found)
        return torch.cat([tie.to(torch.float32) for tie in ties])

    def ends(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Return tensors like those that it takes and returns, as PipelineStage asks for them."""
        number = torch.zeros(1, dtype=torch.long, device=device)
        none = torch.zeros(0, device=device, requires_grad=True)
        return {
            "input_args": number if self._before is None else self._before.example(device),
            "output_args": none if self._behind is None else self._behind.example(device),
        }


class Running:
    """The stages of one process, in the order of a schedule.

    Attributes
    ----------
    parts : tuple of PipelineStage
        Torch's stages of this process.
    modules : tuple of fx.GraphModule
        What they run.
    """

    def __init__(
        self,
        stages: Stages,
        schedule: PipelineSchedule,
        plan: ScheduleSolution,
        rank: int,
        loss: Callable[[Any, Any], Any] | None,
        make: Callable[..., PipelineStage] = Part,
    ) -> None:
        """Make torch's stages, each by `make`, and its runtime, and load the order of work.

        `plan`, `rank` and `loss` are those of :func:`.run_pipeline`.
        """
        _require_fitting(stages, schedule, rank, loss)
        devices = schedule.devices.tolist()
        own = [at for at, device in enumerate(devices) if device == rank]
        between = [None, *cuts(stages, stages.layers), None]
        sent = [_Sent(stages[at], between[at], between[at + 1]) for at in own]
        self.modules = tuple(stages[at] for at in own)
        self._stages, self._loss = stages, loss
        self._count = int(schedule.microbatches[0])
        self._first = sent[0] if own[0] == 0 else None
        self._last = sent[-1] if own[-1] == len(stages) - 1 else None
        self._targets: list[Any] = []
        self._whole: list[Any] = []
        parts = []
        for at, part in zip(own, sent, strict=True):
            tensors = (*part.stage.parameters(), *part.stage.buffers())
            device = next((tensor.device for tensor in tensors), torch.device("cpu"))
            parts.append(make(part.to(device), at, len(stages), device, **part.ends(device)))
        self.parts = tuple(parts)
        self._tied = nullcontext() if loss is None else TiedGradients(stages, devices, rank)
        if loss is None and len(set(devices)) == len(devices):
            parts[0].stage_index_to_group_rank = dict(enumerate(devices))
            self._runtime = ScheduleGPipe(parts[0], self._count)  # there is no other order
        else:
            order = dump(plan, schedule, backward=loss is None).decode()
            self._runtime = ordered(parts, self._count, loss and self._lost, devices, order)

    def step(
        self, *inputs: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Run all microbatches of a step.

        Parameters
        ----------
        *inputs, **kwargs
            On the process of the first stage: as the module takes them, every tensor with as many
            times the sample's rows as there are microbatches, or as the sample for all of them.
        target : optional
            On that of the last stage, what the loss is given, cut into as many pieces: a tensor, or
            lists, tuples and dictionaries of them.
        losses : list, optional
            Filled with the losses of the microbatches on the process of the last stage.

        Returns
        -------
        What the module returns, on the process of the last stage: tensors of microbatches are put
        together along their first dimension, losses and other single numbers in a row.

        Raises
        ------
        InputError
            For inputs or targets that are not built like the sample, or cannot be cut.
        """
        given: list[torch.Tensor] = []
        if self._first is not None:
            self._first.rows = self._rows(inputs, kwargs)
            given = [torch.arange(self._count)]
        aim: dict[str, Any] = {}
        if self._last is not None:
            self._targets, self._whole = self._aims(target), []
            self._last.left.clear()
            aim = {"target": torch.arange(self._count), "losses": losses}
        with self._tied if self._loss else torch.no_grad():
            self._runtime.step(*given, **aim)
        if self._last is None:
            return None
        rows = self._whole if self._loss else self._last.left
        return self._stages.result([_joined(parts) for parts in zip(*rows, strict=True)])

    def _lost(self, tie: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        """Return the loss of the microbatch that the last stage has just run."""
        assert self._last is not None
        assert self._loss is not None
        row = self._last.left.pop()
        lost: torch.Tensor = self._loss(self._stages.result(row), self._targets[int(number)])
        self._whole.append(
            tuple(one.detach() if isinstance(one, torch.Tensor) else one for one in row)
        )
        return lost + tie.sum()

    def _rows(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        leaves = self._stages.flat(inputs, kwargs)
        places = (node for node in self._stages[0].graph.nodes if node.op == "placeholder")
        return list(zip(*map(self._cut, places, leaves), strict=True))

    def _cut(self, place: fx.Node, given: Any) -> Sequence[Any]:
        """Return an input of every microbatch."""
        if not isinstance(given, torch.Tensor):
            return [given] * self._count
        shape = tuple(place.meta["val"].shape) if is_tensor(place) else ()
        if shape and tuple(given.shape) == (shape[0] * self._count, *shape[1:]):
            return given.chunk(self._count) if len(given) else [given] * self._count
        if tuple(given.shape) == shape:
            return [given] * self._count
        raise InputError(
            f"has the shape {tuple(given.shape)}: the sample had {shape}, and there are "
            f"{self._count} microbatches",
            field=f"input {place.name}",
            remedy="give the rows of all microbatches, or the shape of the sample for all of them",
        )

    def _aims(self, target: Any) -> list[Any]:
        leaves, built = pytree.tree_flatten(target)
        pieces = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor) or not leaf.dim():
                pieces.append([leaf] * self._count)
            elif len(leaf) % self._count:
                raise InputError(
                    f"has {len(leaf)} rows for {self._count} microbatches",
                    field="target",
                    remedy="give a multiple of the number of microbatches",
                )
            else:
                pieces.append(leaf.tensor_split(self._count))
        rows = zip(*pieces, strict=True) if pieces else [()] * self._count
        return [pytree.tree_unflatten(list(row), built) for row in rows]


def _joined(parts: Sequence[Any]) -> Any:
    """Return what microbatches returned as one tensor."""
    if not isinstance(parts[0], torch.Tensor):
        return torch.tensor(parts)
    return torch.cat(list(parts)) if parts[0].dim() else torch.stack(list(parts))


def _require_fitting(
    stages: Stages, schedule: PipelineSchedule, rank: int, loss: Callable[[Any, Any], Any] | None
) -> None:
    """Refuse a schedule of other stages or ranks, or of training without a loss, and conversely."""
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
            "stages work on unlike numbers",
            field="microbatches",
            remedy="give all stages the same number of microbatches",
        )
    if schedule.training != (loss is not None):
        raise InputError(
            f"is of {'training' if schedule.training else 'inference'}",
            field="schedule",
            remedy="give a loss for training, and none for inference",
        )
    if rank not in schedule.devices:
        raise InputError(
            f"device {rank} has no stage", field="schedule", remedy="number devices from 0"
        )
