"""The nodes of one device of a graph partition as a chain of layers, in an order of the graph.

A layer is a node of the forward pass together with the nodes of the backward pass of its colour.  A
cut between two layers is crossed by every tensor that is made before it, or comes from another
device, and is read after it, or on another device.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.graph.components import numbered
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array


def require_layers(instance: GraphPartition) -> None:
    """Refuse graphs whose devices are no chains: traffic in no bytes, both passes in a node."""
    if instance.traffic.any() and instance.traffic_unit != "bytes":
        raise InputError(
            "is in no bytes, which remote memory would hold",
            field="traffic",
            remedy="give whole bytes, and a bandwidth in bytes",
        )
    if instance.stash.any() and not instance.backward.any():
        raise InputError(
            "both passes are one node, and phases run them apart",
            field="objective",
            remedy="give nodes of the backward pass: objective forward+backward",
        )


def device_layers(
    instance: GraphPartition, solution: GraphSolution, device: int, *, cycles: int = 1
) -> PipelinePartition:
    """Return the nodes of an accelerator, `device`, as a chain on one device that has room for all.

    Bytes that nodes hold are variables; in training parameters are, where nodes say theirs, and the
    rest are their gradients and state.  There are `cycles` in a unit of time.  Takes what
    :func:`require_layers` does; refuses nodes of the backward pass without one of the forward pass
    of their colour.  O(nodes + readers).
    """
    here = solution.assignment == device
    rank = numbered(instance.n, instance.edges)
    ahead = np.flatnonzero(here & ~instance.backward)
    ahead = ahead[np.argsort(rank[ahead], kind="stable")]
    place = _places(instance, here, ahead)
    backward = instance.backward
    nbytes = _crossing(instance, place, ~backward, len(ahead))
    held = instance.memory
    exclusive = {"parameters": _summed(held, place, here, len(ahead))}
    given: JsonObject = {}
    if backward.any():
        if instance.parameters.any():
            held = np.minimum(instance.parameters, instance.memory)
            exclusive = {
                "parameters": _summed(held, place, here, len(ahead)),
                "gradients": _summed(instance.memory - held, place, here, len(ahead)),
            }
        nbytes = np.maximum(nbytes, _crossing(instance, place, backward, len(ahead)))
        given = {
            "backward": _times(instance, place, here & backward, device, cycles, len(ahead)),
            "stash": _summed(instance.stash, place, here, len(ahead)),
            "training": True,
        }
    return PipelinePartition.from_arrays(
        _times(instance, place, here & ~backward, device, cycles, len(ahead)),
        devices=1,
        exclusive=exclusive,
        in_bytes=nbytes,
        out_bytes=nbytes,
        layer_names=[instance.node_name(node) for node in ahead.tolist()],
        name=f"{instance.name}, {instance.device_name(device)}",
        **given,
    )


def _places(instance: GraphPartition, here: Array, ahead: Array) -> Array:
    """Return the layer of every node of a device, -1 of others, shape (n,)."""
    place = np.full(instance.n, -1, dtype=np.int64)
    place[ahead] = np.arange(len(ahead))
    last: dict[int, int] = {}
    for node in ahead.tolist():
        last[int(instance.colour[node])] = int(place[node])
    last.pop(-1, None)
    for node in np.flatnonzero(here & instance.backward).tolist():
        colour = int(instance.colour[node])
        if colour not in last:
            raise InputError(
                f"node {instance.node_name(node)} of the backward pass is of no node's colour of "
                "the forward pass",
                field="colour",
                remedy="give it that of the node whose gradient it computes",
            )
        place[node] = last[colour]
    return place


def _crossing(instance: GraphPartition, place: Array, of: Array, layers: int) -> Array:
    """Return the bytes of what nodes write that crosses each cut, shape (layers + 1,).

    `place` is the layer of each node; `of` marks the nodes of one pass, which write and read.
    """
    back = bool(instance.backward[of].any())
    change = np.zeros(layers + 2, dtype=np.int64)
    ends = instance.consumer_ptr.tolist()
    for tensor, source in enumerate(instance.producer.tolist()):
        if not of[source]:
            continue
        readers = instance.consumers[ends[tensor] : ends[tensor + 1]]
        where = place[readers[of[readers]]]
        at, own = int(place[source]), where[where >= 0]
        if at < 0 and not len(own):
            continue
        # Cuts low, ..., high; the backward pass runs from the last layer to the first.
        if back:
            high = layers if at < 0 else at
            low = 0 if at >= 0 and len(own) < len(where) else int(own.min(initial=layers)) + 1
        else:
            low = 0 if at < 0 else at + 1
            high = layers if at >= 0 and len(own) < len(where) else int(own.max(initial=-1))
        if low <= high:
            nbytes = int(instance.traffic[tensor])
            change[low] += nbytes
            change[high + 1] -= nbytes
    return np.cumsum(change)[:-1]


def _times(
    instance: GraphPartition, place: Array, of: Array, device: int, cycles: int, layers: int
) -> list[int]:
    """Return the cycles of some nodes of each layer, rounded up."""
    speed = Fraction(str(instance.speeds[device].item()))
    total = [Fraction(0)] * layers
    for node in np.flatnonzero(of).tolist():
        total[int(place[node])] += Fraction(instance.time[node].item()) / speed
    return [math.ceil(time * cycles) for time in total]


def _summed(figures: Array, place: Array, here: Array, layers: int) -> Array:
    """Return the sums of figures of the nodes of each layer."""
    found = np.zeros(layers, dtype=np.int64)
    np.add.at(found, place[here], figures[here])
    return found
