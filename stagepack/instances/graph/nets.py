"""Nets of a graph: tensors that are written in one block and read in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.instances.arrays import distinct
from stagepack.instances.graph.components import rows
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array

ADDED = (Objective.SUM, Objective.FORWARD_BACKWARD, Objective.LATENCY)
"""Objectives for which a load adds what is received to what is sent."""
HASH_SEED, HASH_FACTOR = 20_201_122, np.uint64(0x9E37_79B9_7F4A_7C15)


class Nets(NamedTuple):
    """Nets between blocks; those that always cost together are one.

    Blocks of net j are members[ptr[j]:ptr[j + 1]], the producer first, the others rising.  `which`
    is the pass that pays for each; `tensor` and `net` are tensors that cross, and the net of each.
    """

    ptr: Array
    members: Array
    which: Array
    tensor: Array
    net: Array

    @property
    def nets(self) -> int:
        """How many there are."""
        return len(self.which)

    @property
    def size(self) -> Array:
        """Number of blocks of each net."""
        return np.diff(self.ptr)

    def total(self, costs: Array) -> Array:
        """Return the sum over the tensors of each net of their costs."""
        found = np.zeros(len(self.which), dtype=np.int64)
        np.add.at(found, self.net, costs[self.tensor])
        return found


def nets(instance: GraphData, block_of: Array, pause: Callable[[], object]) -> Nets:
    """Return the nets of an instance between blocks; `block_of` is that of each node, shape (n,).

    `pause` is called now and then.
    """
    tensor = np.repeat(np.arange(len(instance.producer)), np.diff(instance.consumer_ptr))
    producer, reader = block_of[instance.producer], block_of[instance.consumers]
    crossing = (reader != producer[tensor]) & (instance.traffic[tensor] > 0)
    if instance.objective == Objective.MEMORY:
        crossing[:] = False
    pause()
    tensor, reader = tensor[crossing], reader[crossing]
    new = np.diff(tensor, prepend=-1) > 0
    tensors, place = tensor[new], np.cumsum(new) - 1
    producer = producer[tensors]
    ptr, others = rows(len(tensors), place, reader)
    pause()
    two_passes = instance.objective == Objective.FORWARD_BACKWARD
    which = instance.backward[instance.producer[tensors]].astype(np.int64) * two_passes
    # In and out are one where both are added up and every link is alike: then who writes is moot.
    moot = instance.uniform and instance.objective in ADDED
    net, first = _alike(ptr, others, producer, which, moot, pause)
    pause()
    size = np.diff(ptr)[first]
    ends = np.concatenate(([0], np.cumsum(size + 1)))
    members = np.empty(ends[-1], dtype=np.int64)
    members[ends[:-1]] = producer[first]
    rest = np.ones(len(members), dtype=bool)
    rest[ends[:-1]] = False
    members[rest] = others[_spread(ptr[first], size)]
    return Nets(ends, members, which[first], tensors, net)


def _alike(
    ptr: Array,
    others: Array,
    producer: Array,
    which: Array,
    moot: bool,
    pause: Callable[[], object],
) -> tuple[Array, Array]:
    """Return the group of each net, and the first net of each: equal blocks, pass and producer.

    Equal sums of random numbers of their blocks point to who may be alike; then they are compared.
    Every net has a block beside its producer.
    """
    count, size = len(producer), np.diff(ptr)
    heads = which if moot else which * (int(producer.max(initial=0)) + 1) + producer
    random = np.random.default_rng(HASH_SEED)
    most = max(int(producer.max(initial=0)), int(others.max(initial=0)))
    table = random.integers(0, 2**64, most + 1, dtype=np.uint64)
    marks = table[producer] + np.add.reduceat(table[others], ptr[:-1])
    pause()
    keys = marks + heads.astype(np.uint64) * HASH_FACTOR
    ordered = np.sort(keys)  # far sooner done than to sort their places
    pause()
    if (ordered[1:] != ordered[:-1]).all():
        return np.arange(count), np.arange(count)
    order = np.argsort(keys, kind="stable")
    pause()
    new = np.zeros(count, dtype=bool)
    new[:1] = True
    for key in (marks, heads, size):
        new[1:] |= key[order][1:] != key[order][:-1]
    lead = np.empty(count, dtype=np.int64)
    lead[order] = order[np.maximum.accumulate(np.where(new, np.arange(count), 0))]
    twins = np.flatnonzero(lead != np.arange(count))
    pause()
    first, mine = _blocks(twins, ptr, others, producer)
    pause()
    _, theirs = _blocks(lead[twins], ptr, others, producer)
    unlike = twins[distinct(np.searchsorted(first, np.flatnonzero(mine != theirs), "right") - 1)]
    lead[unlike] = unlike
    leads = np.zeros(count, dtype=bool)
    leads[lead] = True
    return (np.cumsum(leads) - 1)[lead], np.flatnonzero(leads)


def _blocks(chosen: Array, ptr: Array, others: Array, producer: Array) -> tuple[Array, Array]:
    """Return the blocks of the nets chosen, rising, as pointers and blocks."""
    size = np.diff(ptr)[chosen]
    place = np.arange(len(chosen))
    blocks = np.concatenate((producer[chosen], others[_spread(ptr[chosen], size)]))
    return rows(len(chosen), np.concatenate((place, np.repeat(place, size))), blocks)


def _spread(start: Array, size: Array) -> Array:
    """Return the places start, start + 1, ... of each range, one range after the other."""
    before = np.cumsum(size) - size
    places: Array = np.arange(int(size.sum())) + np.repeat(start - before, size)
    return places
