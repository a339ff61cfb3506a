"""Sections of conflict graphs: moments of lifetimes that explain them, else cliques of a cover."""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.normal_form.cover import KeepGoing, clique_cover, pieces
from stagepack.instances.packing.normal_form.intervals import explained
from stagepack.instances.packing.normal_form.pieces import Sections
from stagepack.instances.profile import Array


def sections_of_graph(
    instance: LmemPacking, block: Array, shift: Array, keep_going: KeepGoing
) -> tuple[Sections, Array, bool, bool]:
    """Return sections such that two blocks share one exactly where buffers of them conflict.

    They are moments of time where lifetimes explain the conflicts, else cliques of a cover.  Also
    the bytes in each section, whether they follow one another in time, and whether time was over
    before cliques covered all conflicts.  The `block` of each buffer and by how much it lies above
    its offset, `shift`, int64 (n,): those of one block never conflict.  `keep_going` is that of
    :func:`clique_cover`.
    """
    pairs, count = edges(instance, block), np.zeros(int(block.max()) + 1, dtype=np.int64)
    keep_going()
    spans, short = explained(instance, pairs, keep_going), False
    if spans is None:
        one, other = np.ascontiguousarray(pairs.T)
        node, clique, cliques, short = clique_cover(one, other, instance.size, keep_going)
        window = shift, shift + instance.size
        first, low, high, load = pieces((node, clique), cliques, block, window, count, keep_going)
        end = first + 1
    else:
        order = np.lexsort((spans[0], block))
        first, end, low = spans[0][order], spans[1][order], shift[order]
        high = low + instance.size[order]
        np.add.at(count, block, 1)
        keep_going()
        load = np.zeros(int(end.max()) + 1, dtype=np.int64)
        np.add.at(load, first, high - low)
        np.subtract.at(load, end, high - low)
        load = np.cumsum(load)[:-1]
    keep_going()
    owner, time = np.repeat(np.arange(len(count)), count), np.arange(len(load))
    duration = np.bincount(owner, end - first, len(count)).astype(np.int64)
    found = Sections(first, end, low, high, count, duration, time, time, len(load))
    return found, load, spans is not None, short


def edges(instance: LmemPacking, block: Array) -> Array:
    """Return the pairs of buffers that keep blocks apart, int64 (m, 2), ascending.

    The `block` of each buffer, int64 (n,): those of one block never conflict.
    """
    assert instance.conflicts is not None
    pairs = conflicting(instance)
    apart = block[pairs[:, 0]] != block[pairs[:, 1]]
    apart &= (instance.size[pairs] > 0).all(axis=1)  # no bytes meet nothing
    return pairs if apart.all() else pairs[apart]


def conflicting(instance: LmemPacking) -> Array:
    """Return the pairs of a conflict graph with those kept apart, without those exempt, (k, 2)."""
    pairs, n = instance.conflicts, instance.n
    assert pairs is not None
    if not (instance.apart or instance.exempt or instance.exclusive):
        return pairs
    few = [
        np.array(given, dtype=np.int64).reshape(-1, 2)
        for given in (instance.exempt, instance.apart)
    ]
    exempt, apart = (np.sort(given, axis=1) @ [n, 1] for given in few)
    codes = np.setdiff1d(np.sort(pairs, axis=1) @ [n, 1], exempt)
    alone = np.array(instance.exclusive, dtype=np.int64)
    around = np.stack([np.repeat(alone, n), np.tile(np.arange(n), len(alone))], axis=1)
    around = np.sort(around[around[:, 0] != around[:, 1]], axis=1) @ [n, 1]
    codes = np.unique(np.concatenate([codes, apart, around]))
    return np.stack(np.divmod(codes, n), axis=1)
