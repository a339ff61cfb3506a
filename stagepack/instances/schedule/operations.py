"""The operations of a schedule as flat arrays, and what must come before what.

For heuristics and formulations; the checker does not use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.instances.schedule.instance import PipelineSchedule


@dataclass(frozen=True, eq=False, kw_only=True)
class Operations:
    """One entry an operation, by stage, then kind, then microbatch; made by :meth:`of`.

    Attributes
    ----------
    base : ndarray of int64, shape (p + 1,)
        Operation of kind k (0 = F, 1 = B, 2 = W) and microbatch i of stage s has the index
        ``base[s] + k * microbatches[s] + i``; `base[p]` is the number of operations.
    microbatches : ndarray of int64, shape (p,)
        Microbatches of each stage.
    stage, kind, microbatch, device, duration, delta : ndarray of int64, shape (operations,)
        What each operation is, where it runs, how many cycles it takes and by how much it changes
        the memory of its device (more at its start, less at its end).
    before, after, lag : ndarray of int64, shape (arcs,)
        The end of operation `before` plus `lag` is at or before the start of operation `after`:
        F along the edges, B after the F of its stage, B along the edges reversed, W after the B
        of its stage, operations of a stage and kind in the order of the microbatches.
    """

    base: Array
    microbatches: Array
    stage: Array
    kind: Array
    microbatch: Array
    device: Array
    duration: Array
    delta: Array
    before: Array
    after: Array
    lag: Array

    def __len__(self) -> int:
        return len(self.stage)

    def op(self, stage: int, kind: int, microbatch: int) -> int:
        """Return the index of an operation."""
        return int(self.base[stage] + kind * self.microbatches[stage] + microbatch)

    @cached_property
    def successors(self) -> tuple[Array, Array, Array]:
        """Arcs by the operation they leave: (first, after, lag).

        Those of operation v are the entries ``first[v]:first[v + 1]`` of the other two.
        """
        by = np.argsort(self.before, kind="stable")
        counts = np.bincount(self.before, minlength=len(self))
        return np.concatenate([[0], np.cumsum(counts)]), self.after[by], self.lag[by]

    @classmethod
    def of(cls, instance: PipelineSchedule) -> Operations:
        """Lay out the operations of `instance`.  O(operations + arcs)."""
        m, kinds = instance.microbatches, len(instance.kinds)
        base = np.concatenate([[0], np.cumsum(m * kinds)])
        rows = np.repeat(np.arange(instance.p), kinds)  # one a stage and kind
        row_kind = np.tile(np.arange(kinds), instance.p)
        durations = [instance.forward, instance.backward, instance.weight]
        deltas = [instance.memory_forward, instance.memory_backward, instance.memory_weight]
        row_duration = np.stack([column for column in durations[:kinds] if column is not None], 1)
        row_delta = np.stack(deltas[:kinds], 1)
        lengths = m[rows]
        stage = np.repeat(rows, lengths)
        kind = np.repeat(row_kind, lengths)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)

        befores, afters, lags = [], [], []

        def arcs(s: Array, k: int, t: Array, then: int, lag: Array) -> None:
            """Add arcs from kind k of stages s to kind `then` of stages t, of each microbatch."""
            counts = m[s]
            each = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            befores.append(np.repeat(base[s] + k * counts, counts) + each)
            afters.append(np.repeat(base[t] + then * counts, counts) + each)
            lags.append(np.repeat(lag, counts))

        ends = np.array(instance.edges, dtype=np.int64).reshape(-1, 2)
        arcs(ends[:, 0], 0, ends[:, 1], 0, instance.lag)
        if kinds > 1:
            arcs(ends[:, 1], 1, ends[:, 0], 1, instance.lag)
        stages, none = np.arange(instance.p), np.zeros(instance.p, dtype=np.int64)
        for k in range(1, kinds):
            arcs(stages, k - 1, stages, k, none)
        microbatch = np.arange(len(stage)) - first
        later = np.flatnonzero(microbatch)
        befores.append(later - 1)
        afters.append(later)
        lags.append(np.zeros(len(later), dtype=np.int64))
        return cls(
            base=base,
            microbatches=m,
            stage=stage,
            kind=kind,
            microbatch=microbatch,
            device=instance.devices[stage],
            duration=row_duration[stage, kind],
            delta=row_delta[stage, kind],
            before=np.concatenate(befores),
            after=np.concatenate(afters),
            lag=np.concatenate(lags).astype(np.int64),
        )
