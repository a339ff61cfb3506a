"""METIS: parts of equal work with little traffic between them, turned into stages.

METIS ignores the directions of edges, so its parts may depend on each other in circles.  They are
repaired in one step (the seed's *process_partition* of pytorch_Gpipe): the parts are ranked by the
positions of their blocks in the graph, the blocks are sorted topologically with those of lower rank
first, and this order is cut again, which balances the stages and satisfies their memory.

Cost: O(pins log(pins) log(devices)), most of it within METIS.
Source: Karypis and Kumar, *A Fast and High Quality Multilevel Scheme for Partitioning Irregular
Graphs*, SIAM J. Sci. Comput. 1998 (through pymetis); seed 003.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.tuning import TUNING, PeersTuning
from stagepack.instances.graph.compact import FORBIDDEN, Compact
from stagepack.instances.profile import Array

LARGEST_WEIGHT = 2**24
"""Weights of METIS are 32-bit integers, and so are their sums."""
MISSING = "pymetis is not installed: pip install 'stagepack[metis]'"


def unavailable() -> str:
    """Return why METIS cannot be asked, '' where it can."""
    return "" if importlib.util.find_spec("pymetis") else MISSING


def parts(
    compact: Compact,
    count: int,
    seed: int,
    pause: Callable[[], object],
    tuning: PeersTuning = TUNING.peers,
) -> Array:
    """Return the part of each block, of `count`, shape (blocks,).

    METIS bisects, and each half again.  It would do so by itself, but prints to stdout wherever a
    few heavy blocks leave a half without any.  O(pins log(pins) log(count)).  `pause` is called
    between bisections; what it raises ends the search.  All that is drawn follows from `seed`.
    """
    together = np.arange(compact.blocks) // -(-compact.blocks // tuning.metis_blocks)
    whole = _Graph.of(compact, together)
    part = np.zeros(len(whole.work), dtype=np.int64)
    left = [(np.arange(len(part)), whole, 0, count)]
    while left:
        blocks, graph, first, count = left.pop()
        if count == 1 or len(blocks) <= count:
            part[blocks] = first + np.arange(len(blocks)) % count
            continue
        pause()
        half = count // 2
        effort.spend(tuning.metis_price * (len(blocks) + len(graph.source)))
        later = graph.bisected(half / count, seed)
        left.append((blocks[~later], graph.among(~later), first, half))
        left.append((blocks[later], graph.among(later), first + half, count - half))
    return part[together]


class _Graph(NamedTuple):
    """What METIS takes: the work of blocks, and edges both ways, those of a block in a row."""

    work: Array
    source: Array
    target: Array
    weight: Array

    @classmethod
    def of(cls, compact: Compact, together: Array) -> _Graph:
        """Return blocks that go together as one; every net is a star around its producer."""
        n = int(together[-1]) + 1
        rays = np.diff(compact.net_ptr) - 1
        first = np.zeros(len(compact.net), dtype=bool)
        first[compact.net_ptr[:-1]] = True
        u = together[np.repeat(compact.net[first], rays)]
        v = together[compact.net[~first]]
        cost = np.repeat(compact.net_cost, rays)[u != v]
        u, v = u[u != v], v[u != v]
        pairs, which = np.unique(np.minimum(u, v) * n + np.maximum(u, v), return_inverse=True)
        weight = np.bincount(which, weights=cost, minlength=len(pairs))
        low, high = pairs // n, pairs % n
        source, target = np.concatenate((low, high)), np.concatenate((high, low))
        order = np.lexsort((target, source))
        work = np.where(compact.time >= FORBIDDEN, 0, compact.time).sum(axis=0).max(axis=0)
        return cls(
            np.bincount(together, weights=work),
            source[order],
            target[order],
            np.concatenate((weight, weight))[order],
        )

    def among(self, chosen: Array) -> _Graph:
        """Return the blocks chosen, and the edges between two of them."""
        number = np.cumsum(chosen) - 1
        kept = chosen[self.source] & chosen[self.target]
        source, target = number[self.source[kept]], number[self.target[kept]]
        return _Graph(self.work[chosen], source, target, self.weight[kept])

    def bisected(self, share: float, seed: int) -> Array:
        """Return whether each block is in the second half, the first having its share of work."""
        import pymetis

        n = len(self.work)
        work = self.work if self.work.any() else np.ones(n)  # METIS needs some to balance
        _, found = pymetis.part_graph(
            2,
            adjacency=pymetis.CSRAdjacency(
                np.searchsorted(self.source, np.arange(n + 1)).tolist(), self.target.tolist()
            ),
            vweights=_scaled(work).tolist(),
            eweights=_scaled(self.weight, least=1).tolist(),
            tpwgts=[share, 1 - share],
            recursive=True,
            options=pymetis.Options(seed=seed),
        )
        return np.asarray(found, dtype=bool)


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
