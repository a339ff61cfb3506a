"""The least memory that any plan needs: the layer that does not fit even alone, and by how much.

At the forward pass of layer l, a phase holds the variables of the group, the inputs and outputs of
l, its tape and its temporary bytes.  At the backward pass it holds variables and gradients, the
inputs of l, its tape, the gradients of its outputs and inputs, and temporary bytes; at the
epilogue, variables, gradients and state.  For any group, policy and mode, no plan needs less than
the group of layer l alone, or, with fixed boundaries, its group.  The least number of I/O tiles and
the least microbatch need least.  O(n + skips).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.instances.phases.data import PhaseData
from stagepack.instances.phases.liveness import capacities


@dataclass(frozen=True)
class Least:
    """What every plan needs at least.

    The neediest layer needs `need` bytes on the compute tiles at a `moment`: "forward pass",
    "backward pass" or "optimiser step".  `io_tiles` and `microbatch` are those that leave most room
    and ask for least, and `memory` is the smallest memory of a chip in which that fits.  Some plan
    does with it if `reached`: each layer by itself, tapes stashed where there are any, no budgets.
    """

    layer: int
    moment: str
    need: int
    io_tiles: int
    microbatch: int
    memory: int
    reached: bool


def least_memory(instance: PhaseData) -> Least:
    """Return the neediest layer and the smallest memory that would hold it."""
    io_tiles, microbatch = instance.io_tile_choices[0], instance.microbatches[0]
    figures = instance.at(microbatch)
    n, training = instance.n, instance.training
    cuts = np.array(instance.fixed_boundaries or range(n + 1), dtype=np.int64)
    group = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    weights = np.add.reduceat(instance.variables, cuts[:-1])
    held = weights[group]
    tensors, layers = instance.read_pairs
    read = np.zeros(n, dtype=np.int64)
    np.add.at(read, layers, figures.activations[tensors])
    own, written = read + figures.temporary, figures.activations[1:]
    if not training:
        needs = {"forward pass": held + own + written}
    else:
        own += figures.tape
        # The last group holds gradients in its forward part, too.
        both = np.where(group == group[-1], 2, 1)
        from_host = np.zeros(n, dtype=np.int64)
        from_host[layers[tensors == 0]] = figures.activations[0]
        wanted = np.where(np.bincount(tensors, minlength=n + 1)[1:] > 0, written, 0)
        states = np.add.reduceat(-(-instance.state // instance.sharding), cuts[:-1])
        needs = {
            "optimiser step": (2 * weights + states)[group],
            "forward pass": both * held + own + written,
            "backward pass": 2 * held + own + wanted + read - from_host,
        }
    table = np.stack(list(needs.values()), axis=1)  # of equals the first layer, then moment
    layer, column = divmod(int(table.argmax()), len(needs))
    need, moment = int(table[layer, column]), list(needs)[column]
    tiles = instance.chip.tiles
    memory = -(-need * tiles // (tiles - io_tiles))
    plain = instance.fixed_boundaries is None
    plain &= instance.remote_memory is None and instance.graphs is None
    plain &= any(mode != "io_overlapped" for mode in instance.modes_with(io_tiles))
    plain &= not training or "stash" in instance.policies or not figures.tape.any()
    return Least(layer, moment, need, io_tiles, microbatch, memory, plain)


def infeasibility(instance: PhaseData) -> str:
    """Return why no plan can exist, in words for people; "" where nothing is known against it."""
    if instance.remote_memory is not None:
        replicas = instance.sharding
        held = int((-(-instance.variables // replicas) - (-instance.state // replicas)).sum())
        if held > instance.remote_memory:
            return (
                f"variables and state alone take {held:,} bytes of remote memory, "
                f"{held - instance.remote_memory:,} more than there are"
            )
    if instance.graphs == 0:
        return "a plan has at least one phase graph, and none is allowed"
    least = least_memory(instance)
    capacity, _ = capacities(instance, least.io_tiles)
    if capacity is None or least.need <= capacity:
        return ""
    fixed = instance.fixed_boundaries is not None
    who = f"layer {least.layer:,}"
    if instance.layer_names is not None:
        who += f" ({instance.layer_names[least.layer]})"
    who += " in its group" if fixed else " alone"
    where = f" with {least.io_tiles} I/O tiles" if least.io_tiles else ""
    where += f" with microbatches of {least.microbatch:,}" if len(instance.microbatches) > 1 else ""
    would = "would do" if least.reached else "are needed"
    return (
        f"{who} needs {least.need:,} bytes on chip at its {least.moment}{where}, "
        f"{least.need - capacity:,} more than the {capacity:,} there are; "
        f"{least.memory:,} bytes of memory {would}"
    )
