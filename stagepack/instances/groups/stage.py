"""A network on chips with local memory as a chain to be cut into stages, one stage of it, a device.

A layer of the chain is an operator.  It takes the cycles that it takes by itself, from and to
global memory; groups of a stage take other, mostly fewer, ones.  Its bytes are those of global
memory.

A device of a cluster is a chip of one lane, as it is not known how it deals out work: its memory is
that on chip, its link to the host the way to global memory, and operators take the cycles that the
arithmetic of the cluster makes of their products and values.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from stagepack.errors import InputError
from stagepack.instances.catalog.clusters import Preset
from stagepack.instances.catalog.networks.network import cycles
from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.data import Source
from stagepack.instances.groups.execution.replay import played_alone
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.operators import Operator, Shape, macs
from stagepack.instances.groups.words import OperatorKind
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Cluster, LayerProfile, Link, ModelProfile

FREE = 2**30
"""Bytes in a cycle where there is no link to wait for."""
DIGITS = 6
"""Of rates, which count by their decimal text."""


def as_chain(instance: LayerGrouping, cluster: Cluster, **options: Any) -> PipelinePartition:
    """Return the operators of a network as layers.

    Parameters
    ----------
    instance : LayerGrouping
        On the chip that every device is; its cycles are those of the cluster's clock.
    cluster : Cluster
    **options
        As for :meth:`.PipelinePartition.from_profile`.
    """
    tensors = instance.tensors
    last = {tensor: at for at, reads in enumerate(instance.reads) for tensor in reads}
    nbytes = [tensor.nbytes(tensor.shape) for tensor in tensors]
    layers = []
    for at, operator in enumerate(instance.operators):
        reads = [*dict.fromkeys(instance.reads[at])]
        around = nbytes[at] + sum(nbytes[tensor] for tensor in reads if last[tensor] == at)
        layers.append(
            LayerProfile(
                name=operator.name,
                forward=max(1, played_alone(instance, at)),
                exclusive={"parameters": sum(w.nbytes(w.channels) for w in operator.weights)},
                temporary=around,
                inputs=tuple(tensors[tensor].name for tensor in reads),
                outputs=(operator.name,),
            )
        )
    results = [at for at in range(instance.n) if at in instance.kept or not tensors[at].readers]
    profile = ModelProfile(
        layers=tuple(layers),
        tensors={tensor.name: size for tensor, size in zip(tensors, nbytes, strict=True)},
        results=tuple(tensors[at].name for at in results),
        name=instance.name,
    )
    return PipelinePartition.from_profile(profile, cluster, **options)


def on_device(
    instance: LayerGrouping, preset: Preset, cluster: Cluster, utilisation: float | None = None
) -> LayerGrouping:
    """Return a network on the first device of a cluster.

    Operators of which the chip has a rate, or that say their cycles, keep to that.

    Parameters
    ----------
    instance : LayerGrouping
    preset : Preset
        Of which the arithmetic is.
    cluster : Cluster
    utilisation : float, optional
        Share of the peak reached, instead of the preset's.

    Raises
    ------
    InputError
        For a device without a limit of memory.
    """
    device, rates = cluster.devices[0], instance.chip.rates
    if device.memory is None:
        raise InputError(
            "the devices of the cluster have no limit",
            field="capacity",
            remedy="give --capacity BYTES, or a chip (--set chip=...)",
        )
    chip = LaneChip(
        name=cluster.name,
        lanes=1,
        memory=device.memory,
        **_way("load", cluster.host_recv, float(cluster.clock)),
        **_way("store", cluster.host_send, float(cluster.clock)),
        rates=rates,
    )
    share = (preset.utilisation if utilisation is None else utilisation) * float(device.speed)
    operators = [
        operator
        if operator.cycles is not None or operator.kind in rates
        else msgspec.structs.replace(
            operator,
            cycles=cycles(2 * macs(operator, instance.sources(at)), preset.flops_per_cycle * share)
            + cycles(_passed(operator, instance.sources(at)), preset.values_per_cycle * share),
        )
        for at, operator in enumerate(instance.operators)
    ]
    return instance.replace(operators=operators, chip=chip)


def _way(which: str, link: Link | None, clock: float) -> dict[str, Any]:
    """Return rate and latency of a chip's transfers over a link; without one they cost nothing."""
    if link is None:
        return {f"{which}_rate": FREE}
    rate = float(f"{float(link.GBps) * 2**30 / clock:.{DIGITS}g}")
    return {f"{which}_rate": rate, f"{which}_latency": round(link.idle)}


def _passed(operator: Operator, sources: tuple[Shape, ...]) -> int:
    """Return the values of pointwise work: those read or written, each time it goes over them."""
    if macs(operator, sources):
        return 0
    written = math.prod(operator.full)
    if operator.kind in (OperatorKind.ELEMENTWISE, OperatorKind.ROWS):
        return operator.passes * written
    return max(written, sum(map(math.prod, sources)))


def stage_groups(instance: LayerGrouping, first: int, end: int) -> LayerGrouping:
    """Return operators [first, end) of a network as one of its own.

    It is given what earlier ones write, and stores what later ones read.

    Parameters
    ----------
    instance : LayerGrouping
        The whole network.
    first, end : int
    """
    tensors, inside = instance.tensors, range(first, end)
    known = {given.name: given for given in instance.inputs}
    read = dict.fromkeys(tensor for at in inside for tensor in instance.reads[at])
    outside = [tensors[tensor] for tensor in read if tensor not in inside]
    kept = [
        tensors[at].name
        for at in inside
        if at in instance.kept or any(reader >= end for reader in tensors[at].readers)
    ]
    return instance.replace(
        operators=instance.operators[first:end],
        inputs=[
            known.get(one.name)
            or Source(name=one.name, shape=_brief(one.shape), dtype_bytes=one.dtype_bytes)
            for one in outside
        ],
        outputs=kept,
        name=f"{instance.name} {first}-{end - 1}",
    )


def _brief(shape: Shape) -> tuple[int, ...]:
    """Return a shape without a depth of 1."""
    n, c, d, h, w = shape
    return (n, c, h, w) if d == 1 else shape


def step_bound(bound: float, microbatches: int, devices: int) -> int:
    """Return a bound on a step of inference, whatever the stages and their groups.

    Groups of all stages one after the other are a plan of the whole network on one chip.  So
    stages take at least as long together, and the longest at least its share of that.  A microbatch
    passes them all, and the longest works on the others beside that.

    Parameters
    ----------
    bound : float
        On the cycles of the whole network on one chip.
    microbatches, devices : int
    """
    return math.ceil(bound) + (microbatches - 1) * math.ceil(bound / devices)
