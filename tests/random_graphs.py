"""Tiny random graphs with every option, and their optimum by trying every assignment.

The optimum shares no code with the package: rules and loads are written down once more, node by
node, in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition, Objective
from stagepack.instances.graph.levels import table_of
from tests import wide_figures

OBJECTIVES = tuple(one for one in Objective if one is not Objective.LATENCY)
"""`latency` knows fewer rules, and has graphs of its own: :mod:`.latency_graphs`."""


def random_instance(
    rng: np.random.Generator, nodes: int, *, wide: bool = False, **options: Any
) -> GraphPartition:
    """Return a graph of so many nodes; what is not given as an option is drawn.

    `wide`: with figures that strain what engines compute exactly (:mod:`.wide_figures`).

    Colours, backward nodes, memory and stashes, CPUs, unlike speeds and links, every objective,
    several consumers, several tensors a node, fractions, fixed orders, no empty devices.
    """
    objective = Objective(options.get("objective", rng.choice(OBJECTIVES)))
    alike = objective == Objective.REPLICATED
    k = int(rng.integers(1, 4))
    cpus = 0 if alike else int(rng.random() < 0.3)
    k, cpus = int(options.get("accelerators", k)), int(options.get("cpus", cpus))
    unit = float(rng.choice([1, 1, 0.25, 0.1, 1 / 7]))  # whole, with and without a common unit

    style = wide_figures.style_of(rng) if wide else ""
    factor = int(rng.choice([1, 10**3, 10**6, 10**9])) if wide else 1

    def figures(high: int, size: Any) -> Any:
        if wide:
            return wide_figures.figures(rng, size, style)
        values = rng.integers(0, high, size)
        return values if unit == 1 else values * unit

    drawn: dict[str, Any] = {
        "objective": objective,
        "accelerators": k,
        "cpus": cpus,
        "device_order": "fixed" if rng.random() < 0.25 else "any",
        "contiguous": rng.random() < 0.8,
        "empty_devices": k + cpus > nodes or rng.random() < 0.7,
        "bandwidth": int(rng.choice([1, 1, 2, 3])),
        "memory": wide_figures.nbytes(rng, nodes, 20, factor),
        "name": f"random-{nodes}",
    }
    drawn.update(_tensors(rng, nodes, figures))
    if cpus:
        drawn["cpu_time"] = figures(60, nodes)
        drawn["cpu"] = rng.random(nodes) < 0.9
        drawn["accelerator"] = rng.random(nodes) < 0.9
    if rng.random() < 0.4:
        drawn["colour"] = np.where(rng.random(nodes) < 0.5, -1, rng.integers(0, nodes, nodes))
    if rng.random() < 0.3:
        drawn["backward"] = np.arange(nodes) >= rng.integers(1, nodes + 1)
        drawn["colour"] = rng.integers(-1, max(1, nodes // 2), nodes)
    if rng.random() < 0.5:
        drawn["capacity"] = factor * int(rng.integers(15, 20 + 12 * nodes // max(1, k)))
        if rng.random() < 0.5:
            drawn["stash"] = wide_figures.nbytes(rng, nodes, 8, factor)
            drawn["microbatches"] = int(rng.integers(1, 5))
    if alike:
        drawn["parameters"] = wide_figures.nbytes(rng, nodes, 12, factor)
    else:
        drawn.update(_unlike(rng, k, cpus, factor if "capacity" in drawn else 0, wide))
    return GraphPartition.from_arrays(**{"time": figures(30, nodes), **drawn, **options})


def _unlike(rng: np.random.Generator, k: int, cpus: int, factor: int, wide: bool) -> dict[str, Any]:
    """Return speeds, memories (in multiples of `factor`, 0 for none) and links, alike or not."""
    found: dict[str, Any] = {}
    if rng.random() < 0.3:
        found["speeds"] = rng.choice([1, 2, 4, 0.5, 3] if wide else [1, 2, 0.5], k)
    if factor and rng.random() < 0.3:
        found["capacity"] = factor * rng.integers(15, 90, k)
    if rng.random() < 0.2:
        paces = [1, 2, 4, 8, 0.5] if wide else [1, 2, 4]
        found["bandwidth"] = rng.choice(paces, (k + cpus, k + cpus))
        if k + cpus > 2 and found["bandwidth"][0, 0] > 1:  # pairs of devices, and pairs of pairs
            found["bandwidth"] = table_of([(2, 4), (2, int(rng.choice([1, 3])))], k + cpus)
    return found


def _tensors(rng: np.random.Generator, nodes: int, figures: Any) -> dict[str, Any]:
    """Return producers, consumers and traffic of a random acyclic graph."""
    place = rng.permutation(nodes) if rng.random() < 0.5 else np.arange(nodes)
    producer, consumers = [], []
    for u in range(nodes):
        for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
            later = np.arange(u + 1, nodes)
            readers = rng.permutation(later[: 1 + int(rng.integers(0, 5))])[: rng.integers(0, 4)]
            producer.append(int(place[u]))
            consumers.append(place[readers].tolist())
    return {
        "producer": producer,
        "consumers": consumers,
        "traffic": figures(15, len(producer)),
    }


def brute_force(instance: GraphPartition) -> tuple[Fraction, dict[str, Any]] | None:
    """Return the optimum and a solution that has it, by trying everything; None: none is valid."""
    best: tuple[Fraction, dict[str, Any]] | None = None
    for devices in product(range(instance.devices), repeat=instance.n):
        if not _may(instance, devices):
            continue
        for order in _orders(instance, devices):
            for replicas in _replicas(instance, order):
                value = _value(instance, devices, order, replicas)
                if value is not None and (best is None or value < best[0]):
                    answer: dict[str, Any] = {
                        "assignment": {
                            instance.node_id(at): device for at, device in enumerate(devices)
                        },
                        "order": list(order),
                    }
                    if instance.objective == Objective.REPLICATED:
                        answer["replicas"] = list(replicas)
                    best = value, answer
    return best


def _may(instance: GraphPartition, devices: tuple[int, ...]) -> bool:
    """Whether every node may run where it is, and nodes of a colour are together."""
    place: dict[int, int] = {}
    for node, device in enumerate(devices):
        on_accelerator = device < instance.accelerators
        if not (instance.accelerator if on_accelerator else instance.cpu)[node]:
            return False
        colour = int(instance.colour[node])
        if colour >= 0 and place.setdefault(colour, device) != device:
            return False
    return True


def _edges(instance: GraphPartition) -> Iterator[tuple[int, int]]:
    for tensor, source in enumerate(instance.producer.tolist()):
        ends = instance.consumer_ptr[tensor : tensor + 2]
        for reader in instance.consumers[ends[0] : ends[1]].tolist():
            yield source, reader


def _orders(instance: GraphPartition, devices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of the devices in use in which stages may follow one another."""
    used = sorted(set(devices))
    alike = instance.objective == Objective.REPLICATED
    if len(used) < instance.devices and not instance.empty_devices and not alike:
        return
    forward = {int(c) for c in instance.colour[~instance.backward] if c >= 0}
    rules = set()
    for u, v in _edges(instance) if instance.contiguous else ():
        passes = bool(instance.backward[u]), bool(instance.backward[v])
        alone = not {int(instance.colour[u]), int(instance.colour[v])} <= forward
        if passes == (False, False):
            rules.add((devices[u], devices[v]))
        elif passes == (True, True) and alone:
            rules.add((devices[v], devices[u]))
    fixed = instance.device_order == "fixed"
    for order in [tuple(used)] if fixed else permutations(used):
        if all(order.index(a) <= order.index(b) for a, b in rules):
            yield order


def _replicas(instance: GraphPartition, order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if instance.objective != Objective.REPLICATED:
        yield (1,) * len(order)
        return
    k = instance.accelerators
    for extra in range(0 if instance.empty_devices else k - len(order), k - len(order) + 1):
        for chosen in combinations_with_replacement(range(len(order)), extra):
            yield tuple(1 + chosen.count(stage) for stage in range(len(order)))


def _value(
    instance: GraphPartition,
    devices: tuple[int, ...],
    order: tuple[int, ...],
    replicas: tuple[int, ...],
) -> Fraction | None:
    """Return the objective value, None where a device has too little memory."""
    totals = []
    memories = []
    for stage, device in enumerate(order):
        nodes = [node for node in range(instance.n) if devices[node] == device]
        flying = min(instance.microbatches, len(order) - stage)
        memories.append(int(sum(instance.memory[v] + flying * instance.stash[v] for v in nodes)))
        limits = None if device >= instance.accelerators else instance.capacity
        if limits is not None and memories[-1] > limits[device]:
            return None
        passes = [
            _pass(instance, devices, device, which)
            for which in ((0, 1) if instance.objective == Objective.FORWARD_BACKWARD else (None,))
        ]
        if instance.objective == Objective.OVERLAP:
            totals.append([max(passes[0])])
        elif instance.objective == Objective.REPLICATED:
            m = replicas[stage]
            time, received, sent = passes[0]
            parameters = int(sum(instance.parameters[v] for v in nodes))
            sync = Fraction(4 * (m - 1) * parameters) / (_exact(instance.bandwidth) * m)
            totals.append([max(time + sync, received, sent) / m])
        else:
            totals.append([sum(parts, Fraction(0)) for parts in passes])
    if instance.objective == Objective.MEMORY:
        return Fraction(max(memories))
    return sum((max(column) for column in zip(*totals, strict=True)), Fraction(0))


def _pass(
    instance: GraphPartition, devices: tuple[int, ...], device: int, which: int | None
) -> tuple[Fraction, Fraction, Fraction]:
    """Return time, received and sent of a device, in one pass or in all."""

    def counts(node: int) -> bool:
        return which is None or bool(instance.backward[node]) == bool(which)

    mine = [node for node, where in enumerate(devices) if where == device and counts(node)]
    none = Fraction(0)
    if device >= instance.accelerators:
        return sum((_exact(instance.cpu_time[v]) for v in mine), none), none, none
    speed = _exact(instance.speeds[device])
    time = sum((_exact(instance.time[v]) / speed for v in mine), none)
    received = sent = none
    for tensor, source in enumerate(instance.producer.tolist()):
        if not counts(source):
            continue
        ends = instance.consumer_ptr[tensor : tensor + 2]
        where = {devices[v] for v in instance.consumers[ends[0] : ends[1]].tolist()}
        amount, home = _exact(instance.traffic[tensor]), devices[source]
        if home == device and where - {device}:
            sent += max(amount / _pace(instance, home, other) for other in where - {device})
        elif home != device and device in where:
            received += amount / _pace(instance, home, device)
    return time, received, sent


def _pace(instance: GraphPartition, source: int, target: int) -> Fraction:
    table = instance.bandwidth
    return _exact(table[source, target] if isinstance(table, np.ndarray) else table)


def _exact(number: Any) -> Fraction:
    return Fraction(number.item() if isinstance(number, np.generic) else number)
