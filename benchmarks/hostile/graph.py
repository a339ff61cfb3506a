"""Hostile graphs: the largest, smallest and strangest instances of graph partitioning."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hostile.families import count, family, random_of
from stagepack.instances.graph import GraphPartition


def _chain(n: int, **more: Any) -> GraphPartition:
    """Return nodes in a row, of which each reads what the one before it writes."""
    rng = random_of(n)
    fields: dict[str, Any] = {
        "time": rng.integers(1, 100, n),
        "traffic": rng.integers(0, 50, max(0, n - 1)),
        "producer": np.arange(n - 1),
        "consumers": np.arange(1, n),
        "consumer_ptr": np.arange(n),
        "accelerators": min(8, n),
    }
    return GraphPartition.from_arrays(**{**fields, **more})


def _layers(n: int, width: int, **more: Any) -> GraphPartition:
    """Return nodes in layers, of which each reads two of the layer before it, drawn at random."""
    rng = random_of(n)
    reader = np.repeat(np.arange(width, n), 2)
    writer = np.maximum(0, (reader // width - 1) * width + rng.integers(0, width, len(reader)))
    order = np.argsort(writer, kind="stable")
    fields: dict[str, Any] = {
        "time": rng.integers(1, 100, n),
        "traffic": rng.integers(0, 50, n),
        "producer": np.arange(n),
        "consumers": reader[order],
        "consumer_ptr": np.searchsorted(writer[order], np.arange(n + 1)),
        "accelerators": 8,
    }
    return GraphPartition.from_arrays(**{**fields, **more})


@family
def one_node(_: float) -> GraphPartition:
    """One node."""
    return _chain(1)


@family
def nodes_of_many(share: float) -> GraphPartition:
    """A chain of 20,000 nodes."""
    return _chain(count(share, 20_000))


@family
def nodes_of_very_many(share: float) -> GraphPartition:
    """A chain of 100,000 nodes."""
    return _chain(count(share, 100_000))


@family
def nodes_of_a_million(share: float) -> GraphPartition:
    """A chain of a million nodes."""
    return _chain(count(share, 1_000_000))


@family
def layers_of_many(share: float) -> GraphPartition:
    """20,000 nodes in layers of 20: far too many sets that can come first."""
    return _layers(count(share, 20_000, 60), 20)


@family
def layers_for_training(share: float) -> GraphPartition:
    """2,000 nodes in layers, one half of them backward, in colours, with loads apart."""
    n = count(share, 2_000, 60) // 2 * 2
    return _layers(
        n,
        6,
        backward=np.arange(n) >= n // 2,
        colour=np.minimum(np.arange(n), np.arange(n)[::-1]),
        memory=np.arange(n) % 50,
        objective="forward+backward",
    )


@family
def readers_of_many(share: float) -> GraphPartition:
    """A star: one tensor that 100,000 nodes read."""
    n = count(share, 100_000)
    rng = random_of(n)
    return GraphPartition.from_arrays(
        rng.integers(1, 100, n + 1),
        producer=[0],
        consumers=np.arange(1, n + 1),
        consumer_ptr=[0, n],
        traffic=[1000],
        accelerators=8,
    )


@family
def complete_bipartite(share: float) -> GraphPartition:
    """300 nodes that all of 300 others read, a tensor an edge."""
    n = count(share, 300)
    u, v = np.divmod(np.arange(n * n), n)
    rng = random_of(n)
    return GraphPartition.from_arrays(
        rng.integers(1, 100, 2 * n),
        producer=u,
        consumers=n + v,
        consumer_ptr=np.arange(n * n + 1),
        traffic=rng.integers(1, 9, n * n),
        accelerators=8,
    )


@family
def accelerators_of_many(share: float) -> GraphPartition:
    """1,000 accelerators for 5,000 nodes."""
    return _layers(count(share, 5_000, 60), 5, accelerators=count(share, 1_000))


@family
def accelerators_unlike(share: float) -> GraphPartition:
    """40 accelerators, each of a speed of its own."""
    return _layers(
        count(share, 500, 60), 5, accelerators=40, speeds=np.linspace(1, 2, 40), capacity=10**6
    )


@family
def links_unlike(share: float) -> GraphPartition:
    """60 accelerators with links of unlike speeds, and memory that stages need in turn."""
    k = count(share, 60)
    links = random_of(k).integers(1, 40, (k, k))
    return _layers(count(share, 3_000, 60), 5, accelerators=k, bandwidth=links)


@family
def order_fixed(share: float) -> GraphPartition:
    """64 accelerators of unlike speeds in a fixed order, none of them empty."""
    k = count(share, 64)
    return _layers(
        count(share, 2_000, 80),
        5,
        accelerators=k,
        speeds=1 + np.arange(k) % 7,
        device_order="fixed",
        empty_devices=False,
    )


@family
def nodes_of_no_time(share: float) -> GraphPartition:
    """Nodes of which none takes any time, and tensors of no traffic."""
    n = count(share, 2_000, 60)
    return _layers(n, 5, time=np.zeros(n, int), traffic=np.zeros(n, int))


@family
def times_of_two_to_the_fiftieth(share: float) -> GraphPartition:
    """Times about 2^50, whose sum is near to what 64 bits hold."""
    n = count(share, 1_000, 60)
    rng = random_of(n)
    times, traffic = 2**50 + rng.integers(0, 2**20, (2, n))
    return _layers(n, 5, time=times, traffic=traffic >> 4)


@family
def times_of_every_size(share: float) -> GraphPartition:
    """Times and traffic from 1e-12 to 1e12, which no common unit has."""
    n = count(share, 1_000, 60)
    times, traffic = 10.0 ** random_of(n).uniform(-12, 12, (2, n))
    return _layers(n, 5, time=times, traffic=traffic)


@family
def one_colour(share: float) -> GraphPartition:
    """20,000 nodes of one colour: a single block."""
    n = count(share, 20_000, 60)
    return _layers(n, 5, colour=np.zeros(n, int))


@family
def colours_that_tie_all(share: float) -> GraphPartition:
    """20,000 nodes of whose colours the ends interlock, so that all become one block."""
    n = count(share, 20_000, 60)
    return _chain(n, colour=np.arange(n) // 2 % 7)


@family
def all_backward(share: float) -> GraphPartition:
    """5,000 nodes, all of the backward pass."""
    n = count(share, 5_000, 60)
    return _layers(n, 5, backward=np.ones(n, bool))


@family
def nodes_apart(share: float) -> GraphPartition:
    """20,000 nodes without an edge between any two."""
    n = count(share, 20_000)
    return GraphPartition.from_arrays(random_of(n).integers(1, 100, n), accelerators=16)


@family
def free_stages(share: float) -> GraphPartition:
    """5,000 nodes whose stages need not be contiguous."""
    return _layers(count(share, 5_000, 60), 5, contiguous=False)


@family
def replicas_of_many(share: float) -> GraphPartition:
    """64 devices that stages share as replicas."""
    n = count(share, 1_000, 60)
    return _layers(
        n, 3, accelerators=64, objective="replicated", parameters=np.arange(n) % 90, bandwidth=3
    )


@family
def memory_tight(share: float) -> GraphPartition:
    """Memory for hardly more than a device's share, stashes by stage, and a slow CPU."""
    n = count(share, 2_000, 60)
    rng = random_of(n)
    return _layers(
        n,
        5,
        memory=rng.integers(1, 50, n),
        stash=rng.integers(0, 3, n),
        microbatches=8,
        capacity=5 * n,
        cpus=1,
        cpu_time=rng.integers(500, 900, n),
        objective="overlap",
    )


@family
def memory_too_tight(share: float) -> GraphPartition:
    """Too little memory by a byte, which no single node shows."""
    n = count(share, 2_000, 80) // 8 * 8
    return _layers(n, 5, memory=np.full(n, 4), capacity=n // 2 + 1, colour=np.arange(n) // 3)


@family
def writers_of_many(share: float) -> GraphPartition:
    """50,000 nodes, each with a tensor of its own that one node reads."""
    n = count(share, 50_000)
    rng = random_of(n)
    return GraphPartition.from_arrays(
        rng.integers(1, 100, n + 1),
        producer=np.arange(n),
        consumers=np.full(n, n),
        consumer_ptr=np.arange(n + 1),
        traffic=rng.integers(1, 50, n),
        accelerators=8,
    )


@family
def tree(share: float) -> GraphPartition:
    """A binary tree of 2^15 leaves, whose values meet at the root."""
    n = 2 * count(share, 2**15) - 1
    child = np.arange(1, n)
    rng = random_of(n)
    return GraphPartition.from_edges(
        n,
        np.column_stack((n - 1 - child, n - 1 - (child - 1) // 2)),
        time=rng.integers(1, 100, n),
        traffic=rng.integers(0, 50, n),
        accelerators=16,
    )


@family
def chains_side_by_side(share: float) -> GraphPartition:
    """200 chains of 50 nodes between a first node and a last one, tied in colours across."""
    chains, length = count(share, 200), 50
    inner = 1 + np.arange(chains * length).reshape(chains, length)
    n = chains * length + 2
    edges = [np.column_stack((inner[:, :-1].ravel(), inner[:, 1:].ravel()))]
    edges += [np.column_stack((np.zeros(chains, int), inner[:, 0]))]
    edges += [np.column_stack((inner[:, -1], np.full(chains, n - 1)))]
    colour = np.full(n, -1)
    colour[inner[:, length // 2]] = np.arange(chains) // 2
    rng = random_of(n)
    return GraphPartition.from_edges(
        n,
        np.concatenate(edges),
        time=rng.integers(1, 100, n),
        traffic=rng.integers(0, 50, n),
        colour=colour,
        accelerators=12,
        objective="overlap",
    )
