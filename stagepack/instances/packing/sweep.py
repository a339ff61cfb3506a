"""The compiled part of the checker: a sweep over time that finds intersecting rectangles.

Live rectangles are in a tree, ordered by their lower end.  Each node stores how high the rectangles
below it reach: those of the owner that reaches highest, and those of all others, since rectangles
of one owner may intersect.  A new rectangle intersects those that begin below its top and reach
above its bottom; they are found by following the nodes that reach there.

A faster test shows whether anything intersects at all: as long as nothing does, a new rectangle
need only be compared with the next ones below and above it, which a bit set finds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, inner, step, tiered

NOTHING = -(2**63)
"""How high a node without anything alive reaches."""

DEEPEST = 64
"""Nodes that a descent keeps for later, at most: each step down takes one node and leaves its two
children, so that there is one a level and one more, of 62 levels at most."""

WORD = 6
"""A word of a set holds 2 ** WORD bits."""


class Rectangles(NamedTuple):
    """Rectangles, int64, shape (n,) each: the addresses [low, high)."""

    low: Array
    high: Array
    # `place`, `at`: ndarray: position in ascending order of `low`, and the rectangle at each
    # position.
    place: Array
    below: Array  # ndarray: how many begin below its top
    at: Array
    # `owner`, `buffer`: ndarray: rectangles of one owner may intersect; the buffer it is a part of.
    owner: Array
    buffer: Array


class Tree(NamedTuple):
    """What is alive, int64, shape (2 * leaves,) each: node i has the children 2 i and 2 i + 1.

    How high what is alive reaches and whose rectangle that is (`owner`), and how high the
    rectangles of all `other` owners reach.
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


@step
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


@step
def _exempt(exempt: Array, one: int, other: int, buffers: int) -> bool:
    """Tell whether two buffers are a pair that may share its offset, and does."""
    code = min(one, other) * buffers + max(one, other)
    at = np.searchsorted(exempt, code)
    return bool(at < len(exempt) and exempt[at] == code)


@inner
def _meet(
    given: Rectangles, tree: Tree, item: int, exempt: Array, buffers: int, found: Array, count: int
) -> int:
    """Append (alive, newcomer) to `found` wherever they intersect; return the new count.

    Once `found` is full it ends; why `waiting` has room says `DEEPEST`.
    """
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


def _steps(
    events: Array, begin: int, end: int, given: Rectangles, tree: Tree, *rest: object
) -> int:
    """Return about how many steps :func:`sweep` takes: a descent for every event."""
    del events, given, rest
    return (end - begin) * 4 * len(tree.reach).bit_length()


@tiered(_steps)
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
    """Play the events [`begin`, `end`); return how many intersections have been found.

    The `events` are in order of time, int64, shape (2 n,): i for the death of rectangle i of those
    `given`, n + i for its birth; the `tree` of what is alive is kept up to date.  Pairs i < j of
    `buffers` that may intersect are `exempt`, int64, ascending, as i * buffers + j.  Of those
    `found`, int64 (most, 2), there were `count` before; once it is full nothing is added.
    O((events + found) log n).
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


class Alive(NamedTuple):
    """A set of positions: bit i of a level tells whether word i of the level below holds any.

    All levels, the lowest first, are in `words`, uint64; each begins at `begin`, int64, shape
    (levels + 1,).
    """

    words: Array
    begin: Array

    @classmethod
    def of(cls, n: int) -> Alive:
        """Return an empty set of positions below `n`."""
        begin = [0]
        while n > 1 or len(begin) == 1:
            n = (n + (1 << WORD) - 1) >> WORD
            begin.append(begin[-1] + n)
        return cls(np.zeros(begin[-1], dtype=np.uint64), np.array(begin, dtype=np.int64))


@step
def _highest(word: np.uint64) -> int:
    """Return the position of the highest bit of a word that has one."""
    found = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(shift):
            word = word >> np.uint64(shift)
            found += shift
    return found


@step
def _lower(alive: Alive, position: int) -> int:
    """Return the next member below a position, or -1."""
    words, begin = alive
    for level in range(len(begin) - 1):
        bits = np.uint64(position & 63)
        below = words[begin[level] + (position >> WORD)] & ((np.uint64(1) << bits) - np.uint64(1))
        if below:
            position = (position >> WORD << WORD) + _highest(below)
            for down in range(level - 1, -1, -1):
                position = (position << WORD) + _highest(words[begin[down] + position])
            return position
        position >>= WORD
    return -1


@step
def _higher(alive: Alive, position: int) -> int:
    """Return the next member above a position, or -1."""
    words, begin = alive
    for level in range(len(begin) - 1):
        bits = np.uint64(position & 63)
        above = words[begin[level] + (position >> WORD)] >> bits >> np.uint64(1)
        if above:
            lowest = above & (~above + np.uint64(1))
            position += 1 + _highest(lowest)
            for down in range(level - 1, -1, -1):
                word = words[begin[down] + position]
                position = (position << WORD) + _highest(word & (~word + np.uint64(1)))
            return position
        position >>= WORD
    return -1


class Lives(NamedTuple):
    """Rectangles [low, high), int64, shape (n,) each, numbered by ascending `low`.

    `births` and `start` are rectangles in order of their start, and when that is; so are `deaths`
    and `end`.
    """

    births: Array
    start: Array
    deaths: Array
    end: Array
    low: Array
    high: Array


@tiered(entries)
def apart(given: Lives, alive: Alive, at: Array, most: int) -> bool:
    """Play up to `most` events of the `given` lives; False once two rectangles intersect.

    O(events).  What is `alive`, and how many have been born and have died (`at`, int64, shape
    (2,)), is kept up to date.
    """
    low, high = given.low, given.high
    words, begin = alive
    born, dead = at
    for _ in range(most):
        if born == len(given.births):
            break
        if given.end[dead] <= given.start[born]:  # ends come first: lifetimes are half-open
            gone = given.deaths[dead]
            dead += 1
            for level in range(len(begin) - 1):
                word = begin[level] + (gone >> WORD)
                words[word] &= ~(np.uint64(1) << np.uint64(gone & 63))
                if words[word]:
                    break
                gone >>= WORD
            continue
        item = given.births[born]
        born += 1
        below, above = _lower(alive, item), _higher(alive, item)
        if (below >= 0 and high[below] > low[item]) or (above >= 0 and low[above] < high[item]):
            return False
        for level in range(len(begin) - 1):
            word = begin[level] + (item >> WORD)
            before = words[word]
            words[word] = before | (np.uint64(1) << np.uint64(item & 63))
            if before:
                break
            item >>= WORD
    at[0], at[1] = born, dead
    return True
