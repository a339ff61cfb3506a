"""A graph partition as a chain: its stages are the layers, and crossing tensors are relayed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances.arrays import distinct
from stagepack.instances.base import require_instance, valid_solution
from stagepack.instances.graph.check import Load, loads, plain, stage_order
from stagepack.instances.graph.components import numbered
from stagepack.instances.graph.data import GraphData, GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.graph.problem import KIND, Objective
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.data import GraphOrder
from stagepack.instances.profile import Array, Cluster, Device
from stagepack.result import Result

OBJECTIVES = {
    Objective.SUM: "sum",
    Objective.OVERLAP: "overlap",
    Objective.REPLICATED: "overlap",
    Objective.FORWARD_BACKWARD: "sum",
    Objective.MEMORY: "bottleneck",
}


def chain(
    instance: GraphPartition,
    solution: GraphSolution | Result[GraphSolution],
    *,
    cycles: Number = 1,
) -> PipelinePartition:
    """Return the stages of a partition of a graph as a chain: one layer and one device per stage.

    The chain serves to make a schedule with :meth:`.PipelineSchedule.from_partition`.

    - A layer takes the time that its stage takes on its device.
    - A tensor that skips stages crosses each cut between its producer and its readers once.
    - A cut costs the larger of what is sent forward (activations) and, in training, back
      (gradients), at the bandwidth between the devices on both sides of the cut.
    - If all traffic is whole numbers, it is taken as bytes: a stage of a schedule made from this
      chain keeps the bytes that it received until its backward pass.  With
      :meth:`.PipelineSchedule.from_graph`, stages keep only the stashes of their nodes.
    - If the graph is no chain, it has other orders of its nodes.  The optimum of the chain holds
      for this order only; the chain and its results say so.

    Parameters
    ----------
    solution : GraphSolution or Result
        A valid partition.
    cycles : int or float
        Cycles per unit of time of the graph.  Schedules round times up to whole cycles, so for
        times with fractions choose a large number, such as 1,000.

    Raises
    ------
    InputError
        When the partition is invalid, runs a stage on several devices, or is no chain: a tensor of
        the forward pass goes back to an earlier stage.
    """
    require_instance(instance, KIND)
    found, rate = require_plain(instance, solution, cycles)
    order = stage_order(instance, found)
    stage_of = np.zeros(instance.devices, dtype=np.int64)
    stage_of[order] = np.arange(len(order))
    stage = stage_of[found.assignment]
    crossing = _crossing(instance, stage, len(order))
    transfer = [
        _scaled(amount / _pace(instance, order, cut), rate) for cut, amount in enumerate(crossing)
    ]
    whole = instance.traffic.dtype.kind == "i"
    waiting = np.array(order) < instance.accelerators  # a CPU waits for no traffic
    both = np.where(waiting[:, None], transfer, 0)
    return PipelinePartition.from_arrays(
        _times(instance, found, False, rate),
        backward=_times(instance, found, True, rate),
        cluster=_cluster(instance, order),
        exclusive=_held(instance, stage, len(order)),
        stash=sums(instance.stash, stage, len(order)) if instance.backward.any() else None,
        in_bytes=[int(amount) for amount in crossing] if whole else None,
        out_bytes=[int(amount) for amount in crossing] if whole else None,
        recv_cycles=both,
        send_cycles=both,
        training=bool(instance.backward.any()),
        microbatches=instance.microbatches,
        backward_transfers=False,  # they are in the tables
        objective=OBJECTIVES[instance.objective],
        layer_names=[f"stage {at}" for at in range(len(order))],
        order=_graph_order(instance, stage),
        name=instance.name,
        source=instance.source,
    )


def require_plain(
    instance: GraphPartition, solution: GraphSolution | Result[GraphSolution], cycles: Number
) -> tuple[GraphSolution, Fraction]:
    """Return the partition of `solution`, and `cycles`, which must be above 0, exactly.

    Refuses a partition that is invalid, runs a stage on several devices, or has no stages.
    """
    if instance.objective == Objective.LATENCY:
        raise InputError(
            "latency is of one sample, in which nodes on CPUs belong to no stage",
            field="objective",
            remedy="give the instance another objective, and solve it for that: sum",
        )
    found = valid_solution(instance, solution, "partition")
    number = isinstance(cycles, int | float) and not isinstance(cycles, bool)
    if not (number and math.isfinite(cycles) and cycles > 0):
        raise InputError(f"{cycles!r} is no number of cycles", field="cycles", remedy="give 1000")
    shared = next((at for at, m in enumerate(found.replicas) if m > 1), None)
    if shared is not None:
        raise InputError(
            f"stage {shared} runs on {found.replicas[shared]} devices, which chains and schedules "
            "cannot express: each of their stages is on one",
            field="replicas",
            remedy="solve for overlap, or give a partition without replicas",
        )
    return found, Fraction(str(cycles))


def _graph_order(instance: GraphData, stage: Array) -> GraphOrder | None:
    """Return that the forward nodes, stage by stage, are in one of several orders."""
    forward = ~instance.backward
    edges = instance.edges[forward[instance.edges].all(axis=1)]
    nodes = np.lexsort((numbered(instance.n, edges), stage))
    nodes = nodes[forward[nodes]]
    pairs = distinct(edges[:, 0] * instance.n + edges[:, 1])
    neighbours = nodes[:-1] * instance.n + nodes[1:]
    loose = len(neighbours) - int(np.isin(neighbours, pairs).sum())
    return GraphOrder(edges=len(pairs), loose=loose) if len(pairs) and loose else None


def _crossing(instance: GraphData, stage: Array, stages: int) -> list[Fraction]:
    """Return what crosses each of the cuts 0, 1, ..., stages: the larger of both directions."""
    ahead, back = ([Fraction(0)] * (stages + 1) for _ in range(2))
    ends = instance.consumer_ptr.tolist()
    for tensor, source in enumerate(instance.producer.tolist()):
        readers = instance.consumers[ends[tensor] : ends[tensor + 1]]
        reached = stage[readers].tolist()
        at, amount = int(stage[source]), Fraction(instance.traffic[tensor].item())
        first, last = min(reached, default=at), max(reached, default=at)
        if first < at and not instance.backward[source]:
            early = readers[~instance.backward[readers] & (stage[readers] < at)]
            if len(early):
                raise InputError(
                    f"node {instance.node_name(source)} of stage {at} is read by "
                    f"{instance.node_name(int(early[0]))} of stage {int(stage[early[0]])}, so that "
                    "the stages are no chain",
                    field="assignment",
                    remedy="give a partition of contiguous stages",
                )
        for cut in range(at + 1, last + 1):
            ahead[cut] += amount
        for cut in range(first + 1, at + 1):
            back[cut] += amount
    return [max(pair) for pair in zip(ahead, back, strict=True)]


def _pace(instance: GraphData, order: list[int], cut: int) -> Fraction:
    """Return the bandwidth between the devices on both sides of a cut."""
    bandwidth = instance.bandwidth
    if not isinstance(bandwidth, np.ndarray):
        return Fraction(str(bandwidth))
    if cut in (0, len(order)):
        return Fraction(1)  # nothing crosses
    ends = order[cut - 1], order[cut]
    return Fraction(str(min(bandwidth[ends].item(), bandwidth[ends[::-1]].item())))


def _times(
    instance: GraphData, solution: GraphSolution, backward: bool, rate: Fraction
) -> list[Number]:
    """Return the time of one pass of each stage on its device."""
    found: list[Load] = loads(instance, solution, backward)
    return [_scaled(Fraction(load.time), rate) for load in found]


def _scaled(time: Fraction, rate: Fraction) -> Number:
    return plain(time * rate)


def _held(instance: GraphData, stage: Array, stages: int) -> list[int]:
    """Return the bytes of each stage; stashes too where no backward pass is there to free them."""
    held = sums(instance.memory, stage, stages)
    if not instance.backward.any():
        flying = np.minimum(instance.microbatches, stages - np.arange(stages))
        held = held + flying * sums(instance.stash, stage, stages)
    return [int(nbytes) for nbytes in held]


def sums(figures: Array, stage: Array, stages: int) -> Array:
    """Return the exact sum of the `figures` of the nodes of each `stage` of `stages`; all int64."""
    total = np.zeros(stages, dtype=np.int64)
    np.add.at(total, stage, figures)
    return total


def _cluster(instance: GraphData, order: list[int]) -> Cluster:
    """Return the devices in the order of stages; a CPU has no limit."""
    capacity = instance.capacity
    devices = []
    for device in order:
        limited = capacity is not None and device < instance.accelerators
        memory = int(capacity[device]) if capacity is not None and limited else None
        devices.append(Device(name=instance.device_name(device), memory=memory))
    return Cluster(devices=tuple(devices), clock=1)
