"""A bound on latency: what happens along a path, one after the other.

A path enters and leaves every accelerator once, as none waits for another in a circle.  So it falls
into runs of its nodes on accelerators, and nodes on CPUs.  What lies between two nodes of a run, on
a way from one to the other, is on the same accelerator; what is on a way to an earlier node of the
path, or on one from a later node, is not.  That takes bytes, time and, where nets join both,
transfers.  The cheapest way to cut the path is the bound.

Cost: O(length * (nodes + members of nets + length)), times length * accelerators for the cuts.
Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.graph.latency.sample import OFTEN, Sample
from stagepack.instances.profile import Array

FAR = 2**61
"""Ticks of what cannot be."""


def path_bound(sample: Sample, weight: Array, longest: int, pause: Callable[[], object]) -> int:
    """Return ticks that no latency is below, by the path of most `weight`, `FAR`: nothing fits.

    `weight` is int64 of shape (nodes,).  A path of more than `longest` nodes says nothing, 0;
    `pause` is called now and then.
    """
    path = sample.path(*sample.heads(weight, pause))
    if len(path) > longest:
        return 0
    up, low = _reach(sample, path, pause)
    pause()
    return _cheapest(sample, path, _runs(sample, up, low, len(path), pause), pause)


def _reach(sample: Sample, path: list[int], pause: Callable[[], object]) -> tuple[Array, Array]:
    """Return of each node the last node of the path that leads to it, -1 for none, and the first
    that it leads to, their number for none: by their places on the path.
    """
    up, low = [-1] * sample.instance.n, [len(path)] * sample.instance.n
    for at, v in enumerate(path):
        up[v] = low[v] = at
    rank = np.empty(sample.instance.n, dtype=np.int64)
    rank[sample.order] = np.arange(sample.instance.n)
    forth = sample.edges[np.argsort(rank[sample.edges[:, 0]], kind="stable")]
    back = sample.edges[np.argsort(-rank[sample.edges[:, 1]], kind="stable"), ::-1]
    for found, pick, edges in ((up, max, forth), (low, min, back)):
        for at, (u, v) in enumerate(edges.tolist()):
            found[v] = pick(found[v], found[u])
            if at % OFTEN == 0:
                pause()
    return np.array(up), np.array(low)


def _runs(sample: Sample, up: Array, low: Array, length: int, pause: Callable[[], object]) -> Array:
    """Return the fewest ticks of each run i .. j of a path on an accelerator, shape (length,
    length), `FAR` where it fits on none.
    """
    blocks, block = sample.blocks, sample.block_of
    far = np.where(sample.fast, sample.time.min(axis=0, initial=FAR), FAR)
    room = int(sample.room.max(initial=-1))
    first, last = np.full(blocks, length), np.full(blocks, -1)
    np.minimum.at(first, block, low)  # a run that begins later is without the block
    np.maximum.at(last, block, up)  # so is one that ends earlier
    owner = np.repeat(np.arange(len(sample.cost)), np.diff(sample.net_ptr))
    net_first, net_last = np.full(len(sample.cost), length), np.full(len(sample.cost), -1)
    np.minimum.at(net_first, owner, first[sample.net])
    np.maximum.at(net_last, owner, last[sample.net])
    found = np.full((length, length), FAR)
    for i in range(length):
        pause()
        enters = np.full(blocks, length)  # the first end of a run that has the block on it
        inside = up >= i
        np.minimum.at(enters, block[inside], low[inside])
        here = np.flatnonzero(enters < length)
        ticks, held, broken = (np.zeros(length + 1, dtype=np.int64) for _ in range(3))
        np.add.at(held, enters[here], sample.size[here])
        lost = (far[here] >= FAR) | (first[here] < i)
        np.add.at(broken, enters[here[lost]], 1)
        np.add.at(ticks, enters[here[~lost]], far[here[~lost]])
        torn = here[last[here] > enters[here]]
        np.add.at(broken, enters[torn], 1)
        np.add.at(broken, last[torn], -1)
        joins = np.full(len(sample.cost), length)
        np.minimum.at(joins, owner, enters[sample.net])
        cut = np.flatnonzero((joins < length) & ((net_first < i) | (net_last > joins)))
        np.add.at(ticks, joins[cut], sample.cost[cut])
        ends = cut[net_first[cut] >= i]
        np.add.at(ticks, net_last[ends], -sample.cost[ends])
        fits = (np.cumsum(broken) == 0) & (np.cumsum(held) <= room)
        found[i, i:] = np.where(fits, np.cumsum(ticks), FAR)[i:length]
    return found


def _cheapest(sample: Sample, path: list[int], runs: Array, pause: Callable[[], object]) -> int:
    """Return the fewest ticks of runs on as many accelerators as there are, and nodes on CPUs."""
    length, nodes = len(path), np.array(path)
    slow = sample.slow[sample.block_of[nodes]]
    cpu = np.where(slow, sample.cpu_time[nodes], FAR).tolist()
    best = np.full(length + 1, FAR)
    best[0] = 0
    for d in range(min(len(sample.room), length) + 1):
        pause()
        fewer = best.copy()
        for j in range(1, length + 1):
            if d:
                best[j] = min(best[j], int((fewer[:j] + runs[:j, j - 1]).min()))
            best[j] = min(best[j], best[j - 1] + cpu[j - 1], FAR)
    return int(best[length])
