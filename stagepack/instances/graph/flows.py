"""The traffic of a graph partition from device to device, tensor by tensor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.arrays import distinct
from stagepack.instances.graph.data import GraphData, GraphSolution


class Flow(NamedTuple):
    """What a device sends to another one: how many tensors, and their traffic together."""

    source: int
    target: int
    tensors: int
    traffic: Number


def flows(instance: GraphData, solution: GraphSolution) -> list[Flow]:
    """Return what crosses from device to device, each tensor once for every reading device."""
    device, k = solution.assignment, instance.devices
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    source, target = device[instance.producer[tensor]], device[instance.consumers]
    apart = source != target
    pairs = distinct(tensor[apart] * k + target[apart])
    tensor, target = pairs // k, pairs % k
    links, which = np.unique(device[instance.producer[tensor]] * k + target, return_inverse=True)
    traffic = np.zeros(len(links), dtype=instance.traffic.dtype)
    np.add.at(traffic, which, instance.traffic[tensor])
    counts = np.bincount(which, minlength=len(links))
    return [
        Flow(link // k, link % k, count, amount)
        for link, count, amount in zip(
            links.tolist(), counts.tolist(), traffic.tolist(), strict=True
        )
    ]
