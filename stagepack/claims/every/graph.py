"""Every assignment of nodes to devices, every order of these, and all numbers of replicas.

Of devices that are alike, and have no order, a node takes the first one that is empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

from stagepack.claims.every import TooManyError
from stagepack.instances.graph.data import GraphData, GraphSolution

MOST_BLOCKS = 16


def candidates(instance: GraphData, below: Fraction | None) -> Iterator[GraphSolution]:
    """Yield all partitions, but for the names of devices that are alike."""
    names = [c if c >= 0 else -1 - v for v, c in enumerate(instance.colour.tolist())]
    blocks = list(dict.fromkeys(names))  # nodes of a colour share a device
    if len(blocks) > MOST_BLOCKS:
        raise TooManyError
    fixed = instance.device_order == "fixed"
    ordered = instance.contiguous or instance.stash.any()  # whether the order of stages matters
    allowed = [_allowed(instance, [v for v, o in enumerate(names) if o == b]) for b in blocks]
    for chosen in _assignments(allowed, _alike(instance, fixed), ()):
        used = sorted({*chosen})
        device = dict(zip(blocks, chosen, strict=True))
        orders = itertools.permutations(used) if ordered and not fixed else [tuple(used)]
        for order in orders:
            for replicas in _replicas(instance, len(order)):
                yield GraphSolution.of(instance, [device[b] for b in names], order, replicas)


def _allowed(instance: GraphData, nodes: list[int]) -> list[int]:
    """Return the devices that may hold all of some nodes."""
    accelerators, cpus = instance.accelerator[nodes].all(), instance.cpu[nodes].all()
    return [d for d in range(instance.devices) if (cpus, accelerators)[d < instance.accelerators]]


def _alike(instance: GraphData, fixed: bool) -> list[int]:
    """Return for each device the last one before that is as this one; -1: none."""
    found: list[int] = []
    known: dict[object, int] = {}
    rooms = None if instance.capacity is None else instance.capacity.tolist()
    for device in range(instance.devices):
        accelerator = device < instance.accelerators
        name: object = device
        if instance.uniform and not fixed:
            name = ()
            if accelerator:
                name = instance.speeds[device].item(), rooms and rooms[device]
        found.append(known.get(name, -1))
        known[name] = device
    return found


def _assignments(
    allowed: list[list[int]], alike: list[int], given: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield devices of all blocks, given those of the first."""
    if len(given) == len(allowed):
        yield given
        return
    for device in allowed[len(given)]:
        if alike[device] < 0 or alike[device] in given:
            yield from _assignments(allowed, alike, (*given, device))


def _replicas(instance: GraphData, stages: int) -> Iterator[tuple[int, ...]]:
    if instance.objective != "replicated":
        yield ()
        return
    most = instance.accelerators
    for counts in itertools.product(range(1, most + 1), repeat=stages):
        if sum(counts) <= most:
            yield counts
