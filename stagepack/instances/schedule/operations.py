"""The operations of a schedule as flat arrays, and what must come before what.

For heuristics and formulations; the checker does not use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData

TOGETHER = 2**16
"""Edges that are laid out at a time: caches hold them, and no page of memory is new."""

TOLD = 2**20
"""Operations that are put in order before somebody looks: a few hundredths of a second."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operations:
    """One entry an operation, by stage, then kind, then microbatch; made by :meth:`of`.

    A *row* is the operations of one kind of one stage; what must come before what is the same for
    all microbatches, so that arcs join rows.
    """

    # (p + 1,): operation of kind k (0 = F, 1 = B, 2 = W) and microbatch i of stage s has the index
    # ``base[s] + k * microbatches[s] + i``; `base[p]` is the number of operations.
    base: Array
    microbatches: Array  # (p,): microbatches of each stage
    kinds: int  # row r is kind r modulo `kinds` of stage r // `kinds`
    count: Array  # (rows,): operations of each row
    origin: Array  # (rows + 1,): those of row r are origin[r] .. origin[r + 1] - 1
    # (rows + 1,): arcs first[r] .. first[r + 1] - 1 leave row r: microbatch by microbatch, the end
    # of its operation plus `lag` is at or before the start of that of row `after`.  F along the
    # edges, B after the F of its stage, B along the edges reversed, W after the B of its stage.  An
    # arc from a row to itself leads to the next microbatch.
    first: Array
    after: Array
    lag: Array
    # (rows,): device, cycles and change of memory of the operations of each row.
    row_device: Array
    row_duration: Array
    row_delta: Array
    _turn: Array

    def __len__(self) -> int:
        return int(self.base[-1])

    def op(self, stage: int, kind: int, microbatch: int) -> int:
        """Return the index of a `microbatch` of a `stage` and `kind` (0: F, 1: B, 2: W)."""
        return int(self.base[stage] + kind * self.microbatches[stage] + microbatch)

    @cached_property
    def row(self) -> Array:
        """The row of each operation, int32, shape (operations,)."""
        return np.repeat(np.arange(len(self.count), dtype=np.int32), self.count)

    @cached_property
    def stage(self) -> Array:
        """The stage of each operation, int64, shape (operations,)."""
        return np.repeat(np.arange(len(self.count)) // self.kinds, self.count)

    @cached_property
    def kind(self) -> Array:
        """The kind of each operation, int64, shape (operations,)."""
        return np.repeat(np.arange(len(self.count)) % self.kinds, self.count)

    @cached_property
    def microbatch(self) -> Array:
        """The microbatch of each operation, int64, shape (operations,)."""
        return np.asarray(np.arange(len(self)) - np.repeat(self.origin[:-1], self.count))

    @cached_property
    def device(self) -> Array:
        """The device of each operation, int64, shape (operations,)."""
        return np.repeat(self.row_device, self.count)

    @cached_property
    def duration(self) -> Array:
        """The cycles of each operation, int64, shape (operations,)."""
        return np.repeat(self.row_duration, self.count)

    @cached_property
    def delta(self) -> Array:
        """By how much each operation changes memory: more at its start, less at its end."""
        return np.repeat(self.row_delta, self.count)

    @cached_property
    def arcs(self) -> int:
        """The arcs between operations."""
        return int(np.diff(self.first) @ self.count) - len(self.count)

    def precedences(self) -> tuple[Array, Array, Array]:
        """Return all arcs between operations, one by one: (before, after, lag).  O(arcs)."""
        before = np.repeat(np.arange(len(self.count)), np.diff(self.first))
        counts = self.count[before] - (before == self.after)
        each = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        origin = self.origin[self.after] + (before == self.after)
        return (
            np.repeat(self.origin[before], counts) + each,
            np.repeat(origin, counts) + each,
            np.repeat(self.lag, counts),
        )

    def topological(self, look: Callable[[int], object] | None = None) -> Array:
        """Return all operations, what must come first first, int32, shape (operations,).

        Microbatch by microbatch, so that it holds for whatever makes one wait for an earlier one,
        too: only stages of as many microbatches are connected.  `look` is called several times a
        second with the operations since; it may raise.
        """
        kind = np.arange(len(self.count)) % self.kinds
        turn = np.repeat(self._turn, self.kinds)
        rows = np.lexsort((np.where(kind == 1, -turn, turn), kind, self.count))
        lengths, firsts = np.unique(self.count[rows], return_index=True)
        found, write = np.empty(len(self), dtype=np.int32), 0
        for length, group in zip(lengths, np.split(self.origin[rows], firsts[1:]), strict=True):
            for low in range(0, length, max(1, TOLD // len(group))):
                turns = np.arange(low, min(length, low + max(1, TOLD // len(group))))
                part = np.add.outer(turns, group).ravel()
                found[write : write + len(part)] = part
                write += len(part)
                if look is not None:
                    look(len(part))
        return found

    @classmethod
    def of(cls, instance: ScheduleData) -> Operations:
        """Lay out the operations of `instance`.  O(operations + edges)."""
        m, kinds = instance.microbatches, len(instance.kinds)
        durations = [instance.forward, instance.backward, instance.weight]
        deltas = [instance.memory_forward, instance.memory_backward, instance.memory_weight]
        count = np.repeat(m, kinds)
        first, after, lag = _arcs(instance)
        return cls(
            base=np.concatenate([[0], np.cumsum(m * kinds)]),
            microbatches=m,
            kinds=kinds,
            count=count,
            origin=np.concatenate([[0], np.cumsum(count)]),
            first=first,
            after=after,
            lag=lag,
            _turn=np.argsort(instance.order),
            row_device=np.repeat(instance.devices, kinds),
            row_duration=np.stack([c for c in durations[:kinds] if c is not None], 1).ravel(),
            row_delta=np.stack(deltas[:kinds], 1).ravel(),
        )


def _arcs(instance: ScheduleData) -> tuple[Array, Array, Array]:
    """Return the arcs of rows, `first`, `after` and `lag`: along edges, within stages, to itself.

    O(rows + edges).
    """
    kinds = len(instance.kinds)
    rows = np.arange(instance.p * kinds)
    more = rows % kinds < kinds - 1
    degree = np.zeros((instance.p, kinds), dtype=np.int64)
    ways = (instance.consumers, instance.producers)[: min(kinds, 2)]
    for kind, edges in enumerate(ways):
        degree[:, kind] = np.diff(edges.first)
    last = np.cumsum(degree.ravel() + more + 1) - 1  # of each row: the arc to itself
    first = np.concatenate([[0], last + 1])
    after, lag = np.empty(first[-1], dtype=np.int64), np.zeros(first[-1], dtype=np.int64)
    after[last], after[last[more] - 1] = rows, rows[more] + 1
    for kind, edges in enumerate(ways):
        shift = first[kind:-1:kinds] - edges.first[:-1]
        for low in range(0, len(edges.stage), TOGETHER):
            part = slice(low, low + TOGETHER)
            own = np.diff(np.clip(edges.first, low, low + TOGETHER))
            at = np.repeat(shift, own) + np.arange(low, low + own.sum())
            after[at], lag[at] = edges.stage[part] * kinds + kind, edges.lag[part]
    return first, after, lag
