"""Named graph partitions: operators and layers of networks, and generated ones.

Operators are those of :mod:`stagepack.catalog.groups`; the time of one is that
of the chip there, by itself from and to global memory (:func:`.groups.timesteps.alone_cycles`).
Training adds, for each operator, a backward node of twice its time and of its colour, which reads
what the operator read and the gradients of those that follow it.

Layers are those of :mod:`stagepack.catalog.pipeline`, on the same clusters.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from stagepack.catalog import networks
from stagepack.catalog import pipeline as chains
from stagepack.catalog.generator import Generator
from stagepack.catalog.groups import GENERATORS as GROUPS
from stagepack.catalog.groups import NETWORKS
from stagepack.contracts import JsonObject
from stagepack.instances.graph.instance import GraphPartition
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.timesteps import alone_cycles
from stagepack.instances.profile import Array

MACHINE: JsonObject = {
    "devices": 4,
    "cpus": 0,
    "capacity": None,
    "objective": "sum",
    "contiguous": True,
    "empty_devices": True,
}
LAYERS: JsonObject = {
    "training": False,
    "microbatches": 16,
    "objective": "sum",
    "contiguous": True,
    "empty_devices": True,
}
"""What is said of a graph of layers beside its network and its cluster."""


def _machine(given: JsonObject) -> JsonObject:
    """Return what is said of devices as arguments of the constructor."""
    return {"accelerators": given.pop("devices"), **given}


def _network(network: str, batch: int, chip: str, bandwidth: float, training: bool, **given: Any
) -> GraphPartition:  # fmt: skip
    """Return the operators of a network on chips, joined by links of so many bytes a cycle."""
    whole = GROUPS[network].make(**{**GROUPS[network].parameters, "batch": batch, "chip": chip})
    columns = _columns(whole)
    if training:
        columns = _trained(columns)
    return GraphPartition.from_arrays(
        bandwidth=bandwidth, name=f"{network}-{given['devices']}", **columns, **_machine(given)
    )


def _parameters(network: str) -> JsonObject:
    """Return every parameter of a graph of layers with its default."""
    chain = chains.parameters(network)
    return {name: chain[name] for name in chain if name not in chains.TRAINED} | LAYERS


def _layers(network: str, **given: Any) -> GraphPartition:
    profile, cluster = chains.profiled(network, given)
    return GraphPartition.from_profile(profile, cluster, **{name: given[name] for name in LAYERS})


def _columns(whole: LayerGrouping) -> JsonObject:
    """Return the figures of the operators of a network."""
    own = whole.tensors[: whole.n]
    weights = [sum(w.nbytes(w.channels) for w in op.weights) for op in whole.operators]
    return {
        "time": [alone_cycles(whole, at) for at in range(whole.n)],
        "time_unit": "cycles",
        "memory": weights,
        "parameters": weights,
        "ids": [op.name for op in whole.operators],
        "producer": list(range(whole.n)),
        "consumers": [list(tensor.readers) for tensor in own],
        "traffic": [tensor.nbytes(tensor.shape) for tensor in own],
    }


def _trained(forward: JsonObject) -> JsonObject:
    """Return the figures of a network with a backward node for every forward one."""
    n = len(forward["time"])
    reads: list[list[int]] = [[] for _ in range(n)]
    for source, readers in zip(forward["producer"], forward["consumers"], strict=True):
        for reader in readers:
            reads[reader].append(source)
    # Gradient of what u writes: from the backward nodes of its readers to that of u.
    readers = [[*readers, *(n + reader for reader in readers)] for readers in forward["consumers"]]
    gradients = [(n + v, [n + u], forward["traffic"][u]) for v in range(n) for u in reads[v]]
    time = forward["time"]
    return {
        **forward,
        "time": [*time, *(2 * cycles for cycles in time)],
        "memory": [*forward["memory"], *forward["memory"]],
        "parameters": [*forward["parameters"], *([0] * n)],
        "ids": [*forward["ids"], *(f"{one}.grad" for one in forward["ids"])],
        "colour": [*range(n), *range(n)],
        "backward": [False] * n + [True] * n,
        "producer": [*forward["producer"], *(source for source, _, _ in gradients)],
        "consumers": [*readers, *(target for _, target, _ in gradients)],
        "traffic": [*forward["traffic"], *(traffic for _, _, traffic in gradients)],
    }


def _generated(edges: Array, n: int, seed: int, name: str, given: JsonObject) -> GraphPartition:
    """Return a graph with random figures: times of two sizes, outputs that cost about as much."""
    rng = np.random.default_rng([seed, n])
    heavy = rng.random(n) < 0.3
    time = np.where(heavy, rng.integers(200, 1_000, n), rng.integers(1, 60, n))
    return GraphPartition.from_edges(
        n,
        edges,
        time=time,
        cpu_time=10 * time if given["cpus"] else None,
        traffic=rng.integers(1, 120, n),
        memory=np.where(heavy, rng.integers(2**16, 2**22, n), 0),
        name=f"{name}-{n}",
        **_machine(given),
    )


def _blocks(operators: int, seed: int, **given: Any) -> GraphPartition:
    """Return a chain of equal blocks: two branches of unlike length and a skip around both."""
    edges = []
    for begin in range(0, operators - 1, 6):
        inside = [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 5), (0, 5), (5, 6)]
        edges += [(begin + u, begin + v) for u, v in inside if begin + v < operators]
    return _generated(np.array(edges).reshape(-1, 2), operators, seed, "blocks", given)


def _branchy(operators: int, seed: int, **given: Any) -> GraphPartition:
    """Return cells as architecture search finds them: every operator reads two of the last ten."""
    rng = np.random.default_rng([seed, operators, 1])
    later = np.repeat(np.arange(1, operators), 2)
    back = rng.integers(1, 11, len(later))
    edges = np.column_stack((np.maximum(0, later - back), later))
    return _generated(edges, operators, seed, "branchy", given)


def _layered(operators: int, width: int, seed: int, **given: Any) -> GraphPartition:
    """Return layers of so many operators, each of which reads up to three of the layer before."""
    rng = np.random.default_rng([seed, operators, width])
    later = np.repeat(np.arange(width, operators), 3)
    layer = later // width - 1
    edges = np.column_stack((layer * width + rng.integers(0, width, len(later)), later))
    return _generated(edges, operators, seed, "layered", given)


OPTIONS = {"operators": 200, "seed": 0, **MACHINE}

GENERATORS: dict[str, Generator] = {
    **{
        name: Generator(
            partial(_network, name),
            {"batch": 1, "chip": "bm1684x", "bandwidth": 16.0, "training": False, **MACHINE},
            f"{what}; cycles of every operator by itself",
        )
        for name, what in NETWORKS.items()
    },
    **{
        name: Generator(
            partial(_layers, name),
            _parameters(name),
            f"{recipe.description}; layers and what passes between them",
        )
        for name, recipe in networks.NETWORKS.items()
    },
    "random/blocks": Generator(_blocks, OPTIONS, "A chain of blocks with two branches and a skip"),
    "random/branchy": Generator(_branchy, OPTIONS, "Every operator reads two of the last ten"),
    "random/layered": Generator(
        _layered, {**OPTIONS, "width": 8}, "Layers of operators that read the layer before"
    ),
}

SUITE: tuple[tuple[str, JsonObject], ...] = (
    ("resnet50", {}),
    ("inception-v1", {"training": True}),
    ("random/blocks", {}),
    ("random/branchy", {"operators": 60}),
)

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "squeezenet",
    {},
    ("equal-work", "pipedream", "dp", "milp"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
