"""Pairs of blocks that conflict, as rows: those with pieces in one section."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.instances.profile import Array

Pause = Callable[[], None]

AT_ONCE = 500_000
"""Entries that are written between two calls of `pause`: some 0.02 s, new memory included."""


class Looks:
    """A question whether to go on that knows how often it was asked."""

    def __init__(self, keep_going: Callable[[], bool]) -> None:
        self._keep_going = keep_going
        self.times = 0

    def __call__(self) -> bool:
        """Ask once more."""
        self.times += 1
        return self._keep_going()


@dataclass(frozen=True, eq=False)
class Turns:
    """What is alive when, in times that are numbered through."""

    # int64, shape (pieces, 5): buffer, [start, stop) in time, [low, high) in bytes above its
    # offset.
    rows: Array
    # int64, shape (span,): the moments of a lane: time t is ``moments[t % span]``; empty where
    # times are as given.
    moments: Array
    end: int = 2**62  # what is alive from then on is kept apart, at no moment

    def moment(self, time: Array) -> Array:
        """Return the moments of times before the `end`."""
        return self.moments[time % len(self.moments)] if len(self.moments) else time


def meetings(
    owner: Array, first: Array, end: Array, b: int, pause: Pause = lambda: None
) -> tuple[Array, Array]:
    """Return the blocks that share a section with each block, as rows (ptr, other).

    Row i of `b` is other[ptr[i] : ptr[i + 1]], ascending.  Each piece is of a block, its `owner`,
    and alive in the sections from `first` up to `end`, at least one; int64, shape (pieces,).
    `pause` is called now and then, and may raise.  O(pieces log pieces + pairs).
    """
    order = np.argsort(first, kind="stable")
    first = first[order]
    later = np.searchsorted(first, end[order], side="left")
    return met(owner[order], np.arange(1, len(order) + 1), later, b, pause)


def met(owner: Array, low: Array, high: Array, b: int, pause: Pause) -> tuple[Array, Array]:
    """Return the blocks that meet each block, as :func:`meetings`, from which of their pieces meet.

    A piece meets the pieces from `low` up to `high`, at least `low`, and those that say so of it.
    `owner`, `b` and `pause` as there.
    """
    from stagepack.instances.packing.normal_form import rows_kernels as kernels

    told = np.zeros(len(owner) + 1, dtype=np.int64)
    np.add.at(told, low, 1)
    np.subtract.at(told, high, 1)
    # A row has room for those that its pieces name, and those that name them.
    count = np.zeros(b, dtype=np.int64)
    np.add.at(count, owner, high - low + np.cumsum(told)[:-1])
    ptr = np.concatenate([[0], np.cumsum(count)])
    top, other = ptr[:-1].copy(), np.empty(ptr[-1], dtype=np.int32)
    for begin, stop in shares(np.cumsum(high - low)):
        pause()
        kernels.scatter(begin, stop, owner, low, high, top, other)
    pieces = np.arange(len(owner))
    if len(owner) == b and np.array_equal(owner, pieces) and (low > pieces).all():
        return ptr, other.astype(np.int64)
    ends, mirrored = ptr[:-1].copy(), np.empty(ptr[-1], dtype=np.int64)
    for begin, stop in shares(ptr[1:]):
        pause()
        kernels.mirror(begin, stop, ptr, top, other, ends, mirrored)
    return kernels.close_up(ptr, ends, mirrored)


def shares(work: Array) -> Iterator[tuple[int, int]]:
    """Yield runs [begin, end) of items that take about as much each, given running sums of it."""
    reached = np.searchsorted(work, np.arange(AT_ONCE, work[-1:].sum(), AT_ONCE)) + 1
    ends = np.unique(np.append(reached, len(work))).tolist()
    yield from itertools.pairwise([0, *ends])
