"""Orders of work as torchtitan takes them: ``pipeline_parallel_schedule_csv``.

Source: ``torchtitan/distributed/pipeline_parallel.py`` of torchtitan 0.3, which deals stages to
ranks by itself, as many to each: stage s to rank s % ranks or, where ``pipeline_parallel_schedule``
is ZBVZeroBubble or DualPipeV, there and back.  PyTorch wants as many microbatches of each stage,
forward and backward.
"""

from __future__ import annotations

import logging

import numpy as np

from stagepack.errors import InputError
from stagepack.formats.torch.schedule import dump
from stagepack.instances.schedule.data import ScheduleSolution
from stagepack.instances.schedule.instance import PipelineSchedule

log = logging.getLogger("stagepack")


def order(instance: PipelineSchedule, solution: ScheduleSolution) -> bytes:
    """Return the order of work of each rank as CSV."""
    if require_dealt(instance):
        log.warning("say pipeline_parallel_schedule=ZBVZeroBubble, too: it deals the stages so")
    return dump(solution, instance)


def require_dealt(instance: PipelineSchedule) -> bool:
    """Refuse stages as torchtitan does not deal them; return whether they go there and back."""
    ranks = instance.d
    devices: list[int] = instance.devices.tolist()
    counts = np.bincount(instance.devices, minlength=ranks).tolist()
    if min(counts) < max(counts):
        few, many = counts.index(min(counts)), counts.index(max(counts))
        raise InputError(
            f"device {few} has {counts[few]} stages and device {many} has {counts[many]}: "
            "torchtitan deals as many to each rank",
            field="devices",
            remedy="cut into a multiple of the devices",
        )
    looped = [stage % ranks for stage in range(instance.p)]
    there_and_back = [*range(ranks), *reversed(range(ranks))]
    if devices not in (looped, there_and_back):
        stage = next(at for at, rank in enumerate(looped) if devices[at] != rank)
        raise InputError(
            f"stage {stage} is on device {devices[stage]}, and torchtitan has it on rank "
            f"{looped[stage]}",
            field="devices",
            remedy="place stages in rounds over the devices, or in the shape of a V",
        )
    if not instance.training or len(set(instance.microbatches.tolist())) > 1:
        raise InputError(
            "PyTorch runs orders in which each stage has all microbatches, forward and backward",
            field="microbatches" if instance.training else "backward",
            remedy="give a training step, with as many microbatches for each stage",
        )
    return devices != looped
