"""Tiny random graphs for the objective latency, and their optimum by trying every assignment.

The optimum shares no code with the package: when everything ends is written down once more, from
node to node, in exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition

STYLES = ("random", "chain", "equal", "zeros", "huge", "ladder", "fan")


def random_instance(
    rng: np.random.Generator, nodes: int, most: int = 10**13, **options: Any
) -> GraphPartition:
    """Return a graph of so many nodes for latency; what is not given as an option is drawn.

    Huge figures are multiples of `most` at most.
    """
    style = str(rng.choice(STYLES))
    k, cpus = int(rng.integers(0, 4)), int(rng.integers(0, 3))
    k = max(k, 1 - cpus)

    def figures(high: int, size: int) -> Any:
        values = rng.integers(0, high, size)
        if style == "equal":
            return np.full(size, int(rng.integers(0, high)))
        if style == "zeros":
            return np.where(rng.random(size) < 0.6, 0, values)
        if style == "huge":
            return values * int(rng.choice([1, 10**9, 10**12, most]))
        unit = rng.choice([1, 1, 0.25, 0.1, 1 / 7]) if style == "random" else 1
        return values if unit == 1 else values * unit

    producer, consumers = _tensors(rng, nodes, style)
    drawn: dict[str, Any] = {
        "accelerators": k,
        "cpus": cpus,
        "producer": producer,
        "consumers": consumers,
        "traffic": figures(12, len(producer)),
        "bandwidth": int(rng.choice([1, 1, 2, 3])),
        "memory": rng.integers(0, 20, nodes),
        "time": figures(30, nodes),
        "name": f"latency-{style}-{nodes}",
        "objective": "latency",
    }
    if cpus:
        drawn["cpu_time"] = figures(60, nodes)
        drawn["cpu"] = rng.random(nodes) < 0.9
        drawn["accelerator"] = rng.random(nodes) < 0.9
    if rng.random() < 0.4:
        drawn["colour"] = np.where(rng.random(nodes) < 0.5, -1, rng.integers(0, nodes, nodes))
    if rng.random() < 0.3:
        drawn["speeds"] = rng.choice([1, 2, 0.5], k)
    if rng.random() < 0.5:
        drawn["capacity"] = rng.integers(15, 20 + 12 * nodes // max(1, k), k)
        if rng.random() < 0.3:
            drawn["stash"] = rng.integers(0, 8, nodes)
    return GraphPartition.from_arrays(**{**drawn, **options})


def _tensors(rng: np.random.Generator, nodes: int, style: str) -> tuple[list[int], list[list[int]]]:
    """Return producers and readers of the tensors of an acyclic graph."""
    place = rng.permutation(nodes).tolist()
    if style == "chain":
        return place[:-1], [[place[at + 1]] for at in range(nodes - 1)]
    if style == "ladder":
        pairs = [(u, u + step) for u in range(nodes) for step in (1, 2) if u + step < nodes]
        return [place[u] for u, _ in pairs], [[place[v]] for _, v in pairs]
    if style == "fan":
        ends = place[0], place[-1]
        middle = place[1:-1]
        return [ends[0], *middle], [middle, *([ends[1]] for _ in middle)]
    producer, consumers = [], []
    for u in range(nodes):
        for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
            later = np.arange(u + 1, nodes)
            readers = rng.permutation(later[: 1 + int(rng.integers(0, 5))])[: rng.integers(0, 4)]
            producer.append(place[u])
            consumers.append([place[v] for v in readers.tolist()])
    return producer, consumers


def brute_force(instance: GraphPartition) -> tuple[Fraction, tuple[int, ...]] | None:
    """Return the optimum and devices that have it, by trying everything; None: none is valid."""
    best: tuple[Fraction, tuple[int, ...]] | None = None
    for devices in product(range(instance.devices), repeat=instance.n):
        value = makespan(instance, devices)
        if value is not None and (best is None or value < best[0]):
            best = value, devices
    return best


def makespan(instance: GraphPartition, devices: tuple[int, ...]) -> Fraction | None:
    """Return when the last node ends, by repeated passes over all nodes; None: a rule is broken."""
    k, n = instance.accelerators, instance.n
    tensors = [
        (source, instance.consumers[begin:end].tolist(), _exact(amount))
        for source, begin, end, amount in zip(
            instance.producer.tolist(),
            instance.consumer_ptr[:-1],
            instance.consumer_ptr[1:],
            instance.traffic.tolist(),
            strict=True,
        )
    ]
    colours: dict[int, int] = {}
    for v, device in enumerate(devices):
        if not (instance.accelerator if device < k else instance.cpu)[v]:
            return None
        if (
            instance.colour[v] >= 0
            and colours.setdefault(int(instance.colour[v]), device) != device
        ):
            return None
    if instance.capacity is not None:
        for d in range(k):
            held = sum(
                int(instance.memory[v] + instance.stash[v]) for v in range(n) if devices[v] == d
            )
            if held > instance.capacity[d]:
                return None
    waits: dict[int, set[int]] = {v: set() for v in range(n)}
    for source, readers, _ in tensors:
        for reader in readers:
            waits[reader].add(source)
    ends: dict[int, Fraction] = {}
    while len(ends) < n:
        before = len(ends)
        for v in range(n):
            if v in ends:
                continue
            d = devices[v]
            mine = [u for u in range(n) if devices[u] == d] if d < k else [v]
            needs = {u for w in mine for u in waits[w]} - set(mine)
            if not needs <= set(ends):
                continue
            ready = max((ends[u] for u in needs), default=Fraction(0))
            if d >= k:
                ends[v] = ready + _exact(instance.cpu_time[v])
                continue
            load = sum(
                (_exact(instance.time[u]) / _exact(instance.speeds[d]) for u in mine), Fraction(0)
            )
            for source, readers, amount in tensors:
                places = {devices[r] for r in readers}
                if (devices[source] == d and places - {d}) or (
                    devices[source] != d and d in places
                ):
                    load += amount / _exact(instance.bandwidth)
            for u in mine:
                ends[u] = ready + load
        if len(ends) == before:
            return None
    return max(ends.values())


def _exact(number: Any) -> Fraction:
    return Fraction(number.item() if isinstance(number, np.generic) else number)
