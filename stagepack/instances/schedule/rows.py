"""Rows of operations in a schedule, and ways to look at millions of them, some at a time.

Of the checker alone: the algorithms do not look at rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData

BLOCK = 2**14
"""Operations that are looked at together, at least, where there are as many: caches hold them."""
FEWEST = 2**8
"""Operations of a row that are looked at together, at least, where there are as many."""
LATEST = 2**62
"""No operation may start at or after this."""


class Rows:
    """The rows of a schedule, int64: each is the operations of one kind of one stage, in turn.

    Row r is kind r modulo `kinds` of stage r // `kinds`, and its starts in a solution are first[r]
    .. first[r + 1] - 1.  Of each there are microbatches (`count`), cycles, change of memory, and
    device.
    """

    def __init__(self, instance: ScheduleData) -> None:
        self.instance = instance
        cycles = (instance.forward, instance.backward, instance.weight)
        changes = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
        self.kinds = len(instance.kinds)
        self.count = np.repeat(instance.microbatches, self.kinds)
        self.first = np.concatenate([[0], np.cumsum(self.count)])
        self.duration = np.stack([column for column in cycles if column is not None], 1).ravel()
        self.change = np.stack(changes[: self.kinds], 1).ravel()
        self.device = np.repeat(instance.devices, self.kinds)

    def name(self, operation: int) -> str:
        """Name the operation with this index."""
        stage, kind, i = self.place(operation)
        return operation_name(self.instance, stage, kind, i)

    def place(self, operation: int) -> tuple[int, int, int]:
        """Return stage, kind and microbatch of the operation with this index."""
        row = int(np.searchsorted(self.first, operation, side="right")) - 1
        return *divmod(row, self.kinds), operation - int(self.first[row])


def parts(sizes: Array) -> Iterator[tuple[int, int]]:
    """Yield [low, high) of things of some sizes, about `BLOCK` in all, but at least one thing."""
    sums, low = np.cumsum(sizes), 0
    while low < len(sizes):
        begun = int(sums[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(sums, begun + BLOCK, side="right")))
        yield low, high
        low = high


def stretches(sizes: Array) -> Iterator[tuple[slice, int, Array]]:
    """Yield which things, how much of each came before, and how much of each follows.

    About `BLOCK` in all: several small things together, a long one bit by bit.
    """
    for low, high in parts(sizes):
        for skipped in range(0, int(sizes[low:high].max()), BLOCK):
            yield slice(low, high), skipped, np.minimum(sizes[low:high] - skipped, BLOCK)


def runs(first: Array, counts: Array) -> Array:
    """Return counts[r] whole numbers from first[r] on, run after run."""
    ahead = first - (np.cumsum(counts) - counts)
    return np.asarray(np.arange(counts.sum()) + np.repeat(ahead, counts))


def in_order(rows: Rows, start: Array, later: Array) -> Iterator[tuple[Array, Array]]:
    """Yield moments and `rows` of operations, device by device, in the order of the moments.

    The moments of a row come so much `later` than its operations' `start`.  Some at a time, so that
    caches hold them.
    """
    by = np.argsort(rows.device, kind="stable")
    last = np.cumsum(np.bincount(rows.device))
    sizes = np.diff(np.cumsum(rows.count[by])[last - 1], prepend=0)
    for low, high in parts(sizes):
        part = by[last[low - 1] if low else 0 : last[high - 1]]
        bounds = [rows.first[part], rows.first[part + 1]]
        if high == low + 1:
            bounds[1:1] = _spells(rows, start, later, part)
        for first, end in itertools.pairwise(bounds):
            row = np.repeat(part, end - first)
            moment = start[runs(first, end - first)] + later[row]
            order = _ordered(moment, rows.device[row])
            yield moment[order], row[order]


def _spells(rows: Rows, start: Array, later: Array, part: Array) -> Array:
    """Return what divides the rows of a device into spells, each before the next in time.

    Every line holds the first operations of a spell, one a row; equal moments share a spell.
    """
    turns = [start[rows.first[r] : rows.first[r + 1]] for r in part.tolist()]
    each = max(FEWEST, BLOCK // len(part))
    sought = [turn[::each] + wait for turn, wait in zip(turns, later[part], strict=True)]
    marks = np.unique(np.sort(np.concatenate(sought))[:: len(part)])[1:]
    if len(marks) and any((turn[1:] < turn[:-1]).any() for turn in turns):
        marks = marks[:0]  # only where each row is in order does a search find its place
    found = [
        first + np.searchsorted(turn, marks - wait)
        for first, turn, wait in zip(rows.first[part], turns, later[part], strict=True)
    ]
    return np.stack(found, axis=1)


def _ordered(moment: Array, device: Array) -> Array:
    """Return operations, given device by device, in the order of some moments on each.

    One number for both sorts in a tenth of the time: rows are runs in order already.
    """
    span, after = int(moment.max()) + 1, device - device[0]
    if span * (int(after[-1]) + 1) < LATEST:
        return np.argsort(moment + after * span, kind="stable")
    return np.lexsort((moment, device))


def operation_name(instance: ScheduleData, stage: int, kind: int, microbatch: int) -> str:
    """Name an operation by its `kind`, `stage` and `microbatch`."""
    return f"{instance.kinds[kind]} of {instance.stage_name(stage)} for microbatch {microbatch:,}"
