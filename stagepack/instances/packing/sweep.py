"""The compiled part of the checker: a sweep over time that finds rectangles which intersect.

What is alive hangs in a tree over all rectangles in order of their lower end.  A node knows how
high the rectangles below it reach: those of the owner that reaches highest, and those of all
others, since rectangles of one owner may intersect.  A newcomer meets what begins below its top
and reaches above its bottom, and finds it by following nodes that reach there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array

NOTHING = -(2**63)
"""How high a node without anything alive reaches."""

DEEPEST = 64
"""Nodes that a descent keeps for later, at most: one a level."""


class Rectangles(NamedTuple):
    """Rectangles, shape (n,) each.

    Attributes
    ----------
    low, high : ndarray of int64
        Addresses [low, high).
    place : ndarray of int64
        Position in ascending order of `low`.
    below : ndarray of int64
        How many begin below its top.
    at : ndarray of int64
        The rectangle at each position.
    owner : ndarray of int64
        Rectangles of one owner may intersect.
    buffer : ndarray of int64
        The buffer it is a part of.
    """

    low: Array
    high: Array
    place: Array
    below: Array
    at: Array
    owner: Array
    buffer: Array


class Tree(NamedTuple):
    """What is alive, shape (2 * leaves,) each: node i has the children 2 i and 2 i + 1.

    Attributes
    ----------
    reach, owner : ndarray of int64
        How high what is alive reaches, and whose rectangle that is.
    other : ndarray of int64
        How high the rectangles of all other owners reach.
    """

    reach: Array
    owner: Array
    other: Array

    @classmethod
    def of(cls, n: int) -> Tree:
        """Return a tree of `n` leaves, and one more, with nothing alive."""
        leaves = 1 << n.bit_length()
        return cls(
            np.full(2 * leaves, NOTHING, dtype=np.int64),
            np.full(2 * leaves, -1, dtype=np.int64),
            np.full(2 * leaves, NOTHING, dtype=np.int64),
        )


@compiled
def _set(tree: Tree, position: int, reach: int, owner: int) -> None:
    """Change what is alive at a leaf."""
    node = len(tree.reach) // 2 + position
    tree.reach[node], tree.owner[node] = reach, owner
    node //= 2
    while node:
        high, low = 2 * node, 2 * node + 1
        if tree.reach[high] < tree.reach[low]:
            high, low = low, high
        reach, owner = tree.reach[high], tree.owner[high]
        rest = tree.other[low] if tree.owner[low] == owner else tree.reach[low]
        other = max(tree.other[high], rest)
        same = tree.reach[node] == reach and tree.owner[node] == owner
        if same and tree.other[node] == other:
            return
        tree.reach[node], tree.owner[node], tree.other[node] = reach, owner, other
        node //= 2


@compiled
def _exempt(exempt: Array, one: int, other: int, buffers: int) -> bool:
    """Tell whether two buffers are a pair that may share its offset, and does."""
    code = min(one, other) * buffers + max(one, other)
    at = np.searchsorted(exempt, code)
    return bool(at < len(exempt) and exempt[at] == code)


@compiled
def _meet(
    given: Rectangles, tree: Tree, item: int, exempt: Array, buffers: int, found: Array, count: int
) -> int:
    """Append (alive, newcomer) to `found` wherever they intersect; return the new count."""
    leaves = len(tree.reach) // 2
    bottom, owner = given.low[item], given.owner[item]
    waiting = np.empty(DEEPEST, np.int64)
    border = leaves + given.below[item]  # behind the last leaf that begins below the top
    while border > 1:
        depth = 0
        if border & 1:
            waiting[0], depth = border - 1, 1
        while depth:
            depth -= 1
            node = waiting[depth]
            reach = tree.other[node] if tree.owner[node] == owner else tree.reach[node]
            if reach <= bottom:
                continue
            if node < leaves:
                waiting[depth], waiting[depth + 1] = 2 * node + 1, 2 * node
                depth += 2
                continue
            other = given.at[node - leaves]
            if len(exempt) and _exempt(exempt, given.buffer[other], given.buffer[item], buffers):
                continue
            if count == len(found):
                return count
            found[count, 0], found[count, 1] = other, item
            count += 1
        border //= 2
    return count


@compiled
def sweep(
    events: Array,
    begin: int,
    end: int,
    given: Rectangles,
    tree: Tree,
    exempt: Array,
    buffers: int,
    found: Array,
    count: int,
) -> int:
    """Play some events; return how many intersections have been found.  O((events + found) log n).

    Parameters
    ----------
    events : ndarray of int64, shape (2 n,)
        In order of time: i for the death of rectangle i, n + i for its birth.
    begin, end : int
        The events [begin, end) are played.
    given : Rectangles
    tree : Tree
        What is alive; kept up to date.
    exempt : ndarray of int64
        Pairs i < j of buffers that may intersect, ascending, as i * buffers + j.
    buffers : int
    found : ndarray of int64, shape (most, 2)
        Pairs of rectangles that intersect; once it is full nothing is added.
    count : int
        Pairs found before.
    """
    n = len(given.low)
    for event in events[begin:end]:
        if event < n:
            _set(tree, given.place[event], NOTHING, -1)
            continue
        item = event - n
        count = _meet(given, tree, item, exempt, buffers, found, count)
        if count == len(found):
            return count
        _set(tree, given.place[item], given.high[item], given.owner[item])
    return count
