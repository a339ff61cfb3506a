"""A network on chips with local memory as a chain or a graph to be cut into stages, and its stages.

A layer is an operator, or a node.  It takes the cycles that it takes by itself, from and to
global memory; groups of a stage take other, mostly fewer, ones.  Its bytes are those of global
memory.

A device of a cluster is a chip of one lane, as it is not known how it deals out work: its memory is
that on chip, its link to the host the way to global memory, and operators take the cycles that the
arithmetic of the cluster makes of their products and values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.clusters import Preset
from stagepack.instances.graph import GraphPartition
from stagepack.instances.groups.backward import Backward, brief
from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.data import Source
from stagepack.instances.groups.execution.replay import played_alone
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.operators import Operator, Shape, macs
from stagepack.instances.groups.problem import OperatorKind
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.network import cycles
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Cluster, LayerProfile, Link, ModelProfile

FREE = 2**30
"""Bytes in a cycle where there is no link to wait for."""
DIGITS = 6
"""Of rates, which count by their decimal text."""
SLACK = 1e-9
"""Relative, for powers of floats."""
LEAST = 2
"""Cycles of a backward pass that leads gradients on as they are: one each of B and W."""
BOTH = "forward+backward"
"""The objective of graphs whose backward pass has nodes of its own."""


def as_chain(
    instance: LayerGrouping, cluster: Cluster, back: Backward | None = None, **options: Any
) -> PipelinePartition:
    """Return the operators of a network as layers, in training with its backward pass, `back`.

    Its chip is every device's; its cycles are those of the cluster's clock.  `options` are those of
    :meth:`.PipelinePartition.from_profile`.
    """
    training = back is not None
    return PipelinePartition.from_profile(
        as_profile(instance, back), cluster, **{**options, "training": training}
    )


def as_graph(
    instance: LayerGrouping, cluster: Cluster, back: Backward | None = None, **options: Any
) -> GraphPartition:
    """Return the operators of a network as nodes of a graph, in training with those of `back`.

    `options` are those of :meth:`.GraphPartition.from_profile`.
    """
    if back is not None:
        options = {"objective": BOTH, **options, "training": True}
    return GraphPartition.from_profile(as_profile(instance, back), cluster, **options)


def as_profile(instance: LayerGrouping, back: Backward | None = None) -> ModelProfile:
    """Return the operators of a network as layers that run from and to global memory.

    In training, each layer takes the sum of its operators of the backward pass, `back`.
    """
    tensors = instance.tensors
    last = {tensor: at for at, reads in enumerate(instance.reads) for tensor in reads}
    nbytes = [tensor.nbytes(tensor.shape) for tensor in tensors]
    way = _way_back(instance, back)
    layers = []
    for at, operator in enumerate(instance.operators):
        reads = [*dict.fromkeys(instance.reads[at])]
        around = nbytes[at] + sum(nbytes[tensor] for tensor in reads if last[tensor] == at)
        own = {"parameters": sum(w.nbytes(w.channels) for w in operator.weights)}
        layers.append(
            LayerProfile(
                name=operator.name,
                forward=max(1, played_alone(instance, at)),
                exclusive=own if back is None else {**own, "gradients": own["parameters"]},
                temporary=around,
                inputs=tuple(tensors[tensor].name for tensor in reads),
                outputs=(operator.name,),
                stash=nbytes[at] if back is not None and at in back.stash else 0,
                **way[at],
            )
        )
    results = [at for at in range(instance.n) if at in instance.kept or not tensors[at].readers]
    return ModelProfile(
        layers=tuple(layers),
        tensors={tensor.name: size for tensor, size in zip(tensors, nbytes, strict=True)},
        results=tuple(tensors[at].name for at in results),
        name=instance.name,
    )


def _way_back(instance: LayerGrouping, back: Backward | None) -> list[JsonObject]:
    """Return, of each operator, cycles and bytes of its backward pass."""
    if back is None:
        return [{}] * instance.n
    cycles, around = [0] * instance.n, [0] * instance.n
    for at, of in enumerate(back.of):
        tensors = {at, *back.network.reads[at]}
        nbytes = sum(
            known.nbytes(known.shape) for known in map(back.network.tensors.__getitem__, tensors)
        )
        cycles[of] += played_alone(back.network, at)
        around[of] = max(around[of], nbytes)
    return [
        {"backward": max(LEAST, taken), "backward_temporary": held}
        for taken, held in zip(cycles, around, strict=True)
    ]


def on_device(
    instance: LayerGrouping, preset: Preset, cluster: Cluster, utilisation: float | None = None
) -> LayerGrouping:
    """Return a network on the first device of a cluster, which must have a limit of memory.

    Operators of which the chip has a rate, or that say their cycles, keep to that.  The arithmetic
    is that of `preset`; `utilisation` is the share of the peak reached, if not its own.
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


def stage_groups(instance: LayerGrouping, members: Sequence[int], name: str) -> LayerGrouping:
    """Return some operators of a network, `members` rising, as one of its own, called `name`.

    It is given what others write, and stores what others read.
    """
    tensors, inside = instance.tensors, frozenset(members)
    known = {given.name: given for given in instance.inputs}
    read = dict.fromkeys(tensor for at in members for tensor in instance.reads[at])
    outside = [tensors[tensor] for tensor in read if tensor not in inside]
    kept = [
        tensors[at].name
        for at in members
        if at in instance.kept or not inside.issuperset(tensors[at].readers)
    ]
    return instance.replace(
        operators=[instance.operators[at] for at in members],
        inputs=[
            known.get(one.name)
            or Source(name=one.name, shape=brief(one.shape), dtype_bytes=one.dtype_bytes)
            for one in outside
        ],
        outputs=kept,
        name=f"{instance.name}, {name}",
    )


def stage_backward(back: Backward, members: Sequence[int], name: str) -> LayerGrouping | None:
    """Return the backward pass of the operators `members` as a network called `name`, or None."""
    own = frozenset(members)
    there = [at for at, of in enumerate(back.of) if of in own]
    return stage_groups(back.network, there, name) if there else None


def alone_behind(solution: GroupingSolution, end: int, n: int) -> GroupingSolution:
    """Return a plan of operators [0, `end`) with those behind them, up to `n`, each by itself."""
    more = n - end
    said = {
        name: (*getattr(solution, name), *((),) * more)
        for name in ("slices", "positions", "spills", "offsets")
        if getattr(solution, name)
    }
    return dataclasses.replace(
        solution,
        boundaries=(*solution.boundaries, *range(end + 1, n + 1)),
        order=(*solution.order, *range(end, n)) if solution.order else (),
        **said,
    )


def step_bound(bound: float, microbatches: int, devices: int) -> int:
    """Return a bound on a step of inference, whatever the stages and their groups.

    Groups of all stages one after the other are a plan of the whole network on one chip, of which
    `bound` bounds the cycles.  So stages take at least as long together, and the longest of all
    `devices` at least its share of that.  A microbatch passes them all, and the longest works on
    the other `microbatches` beside that.
    """
    return math.ceil(bound) + (microbatches - 1) * math.ceil(bound / devices)


def training_bound(bound: float, microbatches: int, devices: int, *, split: bool) -> int:
    """Return a bound on a step of training whose stages follow one another.

    `bound` is on the cycles of both passes on one chip.  A microbatch passes the stages before one
    forward, and, unless W is `split` off, backward once that one is done with it.  So with S_i
    cycles of the first i stages for a microbatch a step of m `microbatches` takes T >= S_i + m
    (S_(i+1) - S_i), and T is least where all of these are equal on all `devices`.
    """
    share = microbatches * math.ceil(bound / devices)
    if split:
        return share
    rising = -math.expm1(devices * math.log1p(-1 / microbatches)) if microbatches > 1 else 1.0
    return max(share, math.floor(bound / rising * (1 - SLACK)))
