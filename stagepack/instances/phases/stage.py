"""One pipeline stage on a chip with remote memory: its layers as phases.

What does not fit on the chip is kept in remote memory, and the layers run phase by phase, for
several microbatches at a time.  Variables are loaded and dropped.  Code and vertex state stay on
the chip and reduce its room.  In inference the variables of some layers may stay, too, and those of
the next phase may be loaded during computation.  The stage is a chain of layers: at a cut between
phases everything that crosses it is stored and loaded again.

In the forward pass, a stage reads its inputs from remote memory, where the link has put them, and
leaves its outputs there.  In the backward pass it first repeats the forward pass from the stored
inputs (*full recomputation* of a stage).  Gradients arrive and leave over the links; these
transfers are edges of the schedule.  The optimiser's step follows all microbatches and is not part
of the stage.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stagepack.errors import InputError
from stagepack.instances.phases.chips import whole_cycles
from stagepack.instances.phases.data import Policy
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array, Chip

STAYS = ("vertex state", "constants")
"""Categories of bytes that every phase needs on chip."""
COUNTED = ("gradients", "optimiser state")
"""Those that phases count by themselves, or have no part in."""
MODES = (Mode.COMPUTE, Mode.IO, Mode.IO_OVERLAPPED)


def held_on_chip(partition: PipelinePartition, first: int, end: int) -> int:
    """Return the bytes of layers from `first` up to `end` that stay on chip whatever phase runs."""
    layers = slice(first, end)
    held = sum(
        int(column[layers].sum()) for name, column in partition.exclusive.items() if name in STAYS
    )
    held += int(partition.cached_bytes(partition.tokens)[layers].sum())
    uses = partition.shared
    here = uses.key[np.searchsorted(uses.layer, first) : np.searchsorted(uses.layer, end)]
    return held + int(uses.nbytes[np.unique(here)].sum())


def variables(partition: PipelinePartition) -> Array:
    """Return the bytes of each layer that a phase loads, shape (n,)."""
    found = np.zeros(partition.n, dtype=np.int64)
    for name, column in partition.exclusive.items():
        if name not in (*STAYS, *COUNTED):
            found += column
    return found


def kept_on_chip(
    partition: PipelinePartition, first: int, phases: PhaseSchedule
) -> tuple[Array, int]:
    """Return which layers of a stage from `first` on load no variables, and the bytes of these."""
    kept = phases.variables == 0
    return kept, int(variables(partition)[first : first + phases.n][kept].sum())


def stage_phases(
    partition: PipelinePartition,
    stage: tuple[int, int, int],
    chip: Chip,
    steps: int,
    *,
    backward: bool = False,
    kept: Array | None = None,
    ahead: bool = False,
) -> PhaseSchedule:
    """Return the phases of a stage, forward or `backward`, for some microbatches, its `steps`.

    They go through a phase before the next one begins.  `stage` is its layers [first, end), and its
    device; `chip` is the device's, in cycles of the partition's cluster, with what memory the
    phases have.  Variables of layers `kept`, shape (layers of the stage,), stay on chip, beside
    that memory; `ahead`: variables may be loaded while the phase before computes.
    """
    first, end, device = stage
    if partition.compute_table is not None or partition.memory_table is not None:
        raise InputError(
            "says costs of ranges, not of layers",
            field="model",
            remedy="give a model whose layers say their cycles and bytes, or no remote memory",
        )
    speed = float(partition.cluster.devices[device].speed)
    layers = slice(first, end)
    crossing = partition.in_bytes[first : end + 1].copy()
    crossing[-1] = partition.out_bytes[end]
    around = crossing[:-1] + crossing[1:]
    alive = (partition.temporary + partition.carry)[layers]
    temporary = np.maximum(0, alive - around)
    if backward:  # gradients of what crosses the ends, beside all that phases know of
        temporary[-1] += 0 if end == partition.n else int(crossing[-1])
        temporary[0] += 0 if first == 0 else int(crossing[0])
    cuts = np.flatnonzero(partition.allowed_cuts)
    inside = cuts[(cuts >= first) & (cuts <= end)] - first
    loads = variables(partition)[layers]
    if kept is not None:
        loads[kept] = 0
    return PhaseSchedule.from_arrays(
        loads,
        whole_cycles(partition.forward[layers], speed),
        crossing,
        backward=whole_cycles(partition.backward[layers], speed) if backward else None,
        temporary=temporary,
        chip=msgspec.structs.replace(chip, host_bandwidth=chip.remote_bandwidth),
        modes=MODES,
        steps=steps,
        training=backward,
        prefetch=ahead,
        policies=tuple(Policy) if backward else (Policy.STASH,),
        fixed_boundaries=None if len(inside) == end - first + 1 else inside.tolist(),
        layer_names=[partition.layer_name(at) for at in range(first, end)],
        name=f"{partition.name}, {partition.device_name(device)}{' backward' if backward else ''}",
    )
