"""METIS: parts of equal work with little traffic between them, made into stages afterwards.

METIS knows no direction: its parts wait for one another in circles.  What pytorch_Gpipe did next
(the seed's *process_partition*) is done here in one step: parts are ranked by where their blocks
are in the graph, blocks are sorted topologically, those of lower rank first, and that order is cut
again, which balances stages and meets their memory.

Source: Karypis and Kumar, *A Fast and High Quality Multilevel Scheme for Partitioning Irregular
Graphs*, SIAM J. Sci. Comput. 1998 (through pymetis); seed 003.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from stagepack.instances.graph.compact import FORBIDDEN, Compact
from stagepack.instances.profile import Array

LARGEST_WEIGHT = 2**24
"""Weights of METIS are 32-bit integers, and so are their sums."""
MISSING = "pymetis is not installed: pip install 'stagepack[metis]'"


def unavailable() -> str:
    """Return why METIS cannot be asked, '' where it can."""
    return "" if importlib.util.find_spec("pymetis") else MISSING


def parts(compact: Compact, count: int, seed: int = 0) -> Array:
    """Return the part of each block, shape (blocks,).

    Every net is a star from its producer to its readers, each ray of the net's cost.
    O(pins log(pins)).

    Parameters
    ----------
    compact : Compact
    count : int
        Number of parts.
    seed : int
    """
    import pymetis

    n = compact.blocks
    if count < 2 or n <= count:
        return np.arange(n) % count
    sizes = np.diff(compact.net_ptr)
    producer = compact.net[compact.net_ptr[:-1]]
    u = np.repeat(producer, sizes - 1).astype(np.int64)
    first = np.zeros(len(compact.net), dtype=bool)
    first[compact.net_ptr[:-1]] = True
    v = compact.net[~first].astype(np.int64)
    cost = np.repeat(compact.net_cost, sizes - 1)
    low, high = np.minimum(u, v), np.maximum(u, v)
    pairs, inverse = np.unique(low * n + high, return_inverse=True)
    weight = np.zeros(len(pairs))
    np.add.at(weight, inverse, cost)
    ends = np.concatenate((pairs // n, pairs % n))
    others = np.concatenate((pairs % n, pairs // n))
    order = np.lexsort((others, ends))
    begin = np.searchsorted(ends[order], np.arange(n + 1))
    work = np.where(compact.time >= FORBIDDEN, 0, compact.time).sum(axis=0).max(axis=0)
    if not work.any():
        work = np.ones(n)  # METIS balances weights, and needs some
    _, found = pymetis.part_graph(
        count,
        adjacency=pymetis.CSRAdjacency(begin.tolist(), others[order].tolist()),
        vweights=_scaled(work).tolist(),
        eweights=_scaled(np.concatenate((weight, weight))[order], least=1).tolist(),
        recursive=False,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(found, dtype=np.int64)


def ranked(compact: Compact, part: Array) -> Array:
    """Return the rank of each block's part by the mean topological number of its blocks."""
    _, part = np.unique(part, return_inverse=True)
    mean = np.bincount(part, weights=np.arange(compact.blocks)) / np.bincount(part)
    rank = np.empty(len(mean), dtype=np.int64)
    rank[np.argsort(mean, kind="stable")] = np.arange(len(mean))
    return rank[part]


def _scaled(weights: Array, least: int = 0) -> Array:
    """Return weights as integers whose sum fits 32 bits, `least` at least."""
    total = float(weights.sum())
    scale = min(1.0, LARGEST_WEIGHT / total) if total else 1.0
    return np.maximum(np.rint(weights * scale), least).astype(np.int64)
